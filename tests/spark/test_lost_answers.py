"""The service does what it was asked, and its answer does not arrive."""

from __future__ import annotations

import http.client
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import urlsplit

import pytest
from pyspark.sql import SparkSession

from rollway.client import RollwayClient, ServiceUnavailableError
from rollway.spark.bulk_load import bulk_load
from rollway.spark.errors import JobTakenError
from rollway.spark.options.options import WriteOptions
from rollway.spark.write.load_jobs import plan_load
from rollway.spark.write.loading import TaskLoad
from tests.spark.committed import committed_values
from tests.spark.test_task_load import keyed_batch


@contextmanager
def losing_answers(url: str, is_lost: Callable[[str], bool]) -> Iterator[str]:
    """An address that passes requests on to ``url``, and drops the answers to paths for which ``is_lost`` holds."""
    service = urlsplit(url).netloc

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_one_request(self) -> None:
            self.raw_requestline = self.rfile.readline(65_537)
            if not self.raw_requestline or not self.parse_request():
                self.close_connection = True
                return
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            connection = http.client.HTTPConnection(service, timeout=30)
            connection.request(self.command, self.path, body, dict(self.headers))
            answer = connection.getresponse()
            content = answer.read()
            connection.close()
            if is_lost(self.path):
                self.close_connection = True
                return
            self.send_response_only(answer.status)
            self.send_header("Content-Type", answer.getheader("Content-Type", ""))
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    proxy = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    proxy.daemon_threads = True
    thread = Thread(target=proxy.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{proxy.server_port}"
    finally:
        proxy.shutdown()
        thread.join()
        proxy.server_close()


def test_batches_are_sent_again_and_are_there_once(client: RollwayClient, topic: str) -> None:
    """Every second answer to a batch is lost."""
    paths: list[str] = []

    def is_lost(path: str) -> bool:
        paths.append(path)
        return path.endswith("/record-batches") and len(paths) % 2 == 0

    with losing_answers(client.settings.url, is_lost) as url:
        options = WriteOptions.parse({"url": url, "topic": topic, "batchBytes": "5kb", "retryBackoffMs": "1"})
        plan = plan_load(client, options)
        with RollwayClient(options.client) as through:
            message = TaskLoad(plan, through, 0, 0).run(iter([keyed_batch(0, 2_000)]))
    assert message.retries > 0
    assert plan.job is not None
    client.commit_job(plan.job.job_id, [(message.producer_id, message.rows)])
    assert committed_values(client, topic) == sorted(str(number) for number in range(2_000))


def test_a_load_that_was_committed_is_no_failure(spark: SparkSession, client: RollwayClient, topic: str) -> None:
    """The answer to the commit is lost for good; the abort that follows says that it is committed."""
    with losing_answers(client.settings.url, lambda path: path.endswith("/commit")) as url:
        df = spark.range(0, 100, 1, 2).selectExpr("cast(id as string) as value")
        report = bulk_load(df, url, topic, retries=1, retryBackoffMs=1)
        assert report.rows == 100
        assert len(committed_values(client, topic)) == 100


def test_a_load_whose_job_another_write_committed_is_a_failure(
    spark: SparkSession, client: RollwayClient, topic: str
) -> None:
    """Both named the same job. That it is committed, as the abort says, is not this load's success."""
    job = client.begin_job(topic, 1, mode="transactional", timeout_ms=600_000)

    def other_commits(path: str) -> bool:
        if path.endswith("/record-batches"):
            client.commit_job(job.job_id, [])
        return False

    with losing_answers(client.settings.url, other_commits) as url:
        df = spark.range(0, 100, 1, 1).selectExpr("cast(id as string) as value")
        with pytest.raises(JobTakenError, match="was committed by another write"):
            bulk_load(df, url, topic, jobId=job.job_id)
    assert committed_values(client, topic) == []


def test_a_load_in_a_given_job_that_was_committed_is_no_failure(
    spark: SparkSession, client: RollwayClient, topic: str
) -> None:
    """The answers to its own commit are lost, until the abort has said that the job is committed."""
    job = client.begin_job(topic, 1, mode="transactional", timeout_ms=600_000)
    paths: list[str] = []

    def is_lost(path: str) -> bool:
        paths.append(path)
        return path.endswith("/commit") and not any(each.endswith("/abort") for each in paths)

    with losing_answers(client.settings.url, is_lost) as url:
        df = spark.range(0, 100, 1, 1).selectExpr("cast(id as string) as value")
        assert bulk_load(df, url, topic, jobId=job.job_id, retries=1, retryBackoffMs=1).rows == 100
    assert len(committed_values(client, topic)) == 100


def test_a_load_is_aborted_when_nobody_knows(spark: SparkSession, client: RollwayClient, topic: str) -> None:
    """Neither the answer to the commit nor that to the abort arrives: the load says so, and its version tells later."""
    with losing_answers(client.settings.url, lambda path: path.endswith(("/commit", "/abort"))) as url:
        df = spark.range(0, 100, 1, 2).selectExpr("cast(id as string) as value")
        with pytest.raises(ServiceUnavailableError, match="tried 2 times"):
            bulk_load(df, url, topic, retries=1, retryBackoffMs=1, txnAppId=topic, txnVersion=1)
    assert bulk_load(df, client.settings.url, topic, txnAppId=topic, txnVersion=1).is_loaded
    assert len(committed_values(client, topic)) == 100
