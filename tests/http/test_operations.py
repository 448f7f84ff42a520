"""Health, readiness, metrics, the document, the docs page, and starting."""

from __future__ import annotations

import asyncio
import re
import threading
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from app.main import create_app
from app.openapi.document import PATH
from app.routes.operations import operations
from app.settings import Settings
from log_model.clock import ManualClock
from log_model.errors import DirectoryLockedError
from schemas.health import OpeningProgress
from storage.manager.log_manager import LogManager
from storage.recovery.recovery_progress import RecoveryMeter
from tests.support.servers import ServerProcess, ThreadedServer, http_client


def test_health_and_readiness(client: httpx.Client, topic: str) -> None:
    assert client.get("/healthz").json() == {"status": "ok"}
    ready = client.get("/readyz")
    assert ready.status_code == 200
    assert ready.json()["status"] == "ready"
    assert ready.json()["partitions"] >= 2
    assert ready.json()["offline_partitions"] == 0


@pytest.mark.needs_local("it looks into the local engine")
def test_metrics_count_by_route(client: httpx.Client, topic: str) -> None:
    def read() -> dict[tuple[Any, ...], float]:
        answer = client.get("/metrics")
        assert answer.headers["content-type"].startswith("text/plain")
        return {
            (sample.name, *sorted(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(answer.text)
            for sample in family.samples
        }

    before = read()
    for _ in range(3):
        client.post(f"{topic}/partitions/0/records", json={"records": [{"value": "a"}, {"value": "b"}]})
    client.get("/v1/topics/not-there")
    client.get("/no/such/route")
    after = read()

    def grown(name: str, **labels: str) -> float:
        key = (name, *sorted(labels.items()))
        return after.get(key, 0) - before.get(key, 0)

    assert grown("rollway_produced_records_total") == 6
    route = "/v1/topics/{topic}/partitions/{partition}/records"
    assert grown("rollway_http_requests_total", method="POST", route=route, status="200") == 3
    assert grown("rollway_http_requests_total", method="GET", route="/v1/topics/{topic}", status="404") == 1
    assert grown("rollway_http_requests_total", method="unmatched", route="unmatched", status="404") == 1
    assert grown("rollway_group_requests_sum") == 3
    assert not any("not-there" in str(key) for key in after)
    assert after["rollway_partitions",] >= 2


def test_metrics_tell_of_the_process_and_its_release(client: httpx.Client) -> None:
    text = client.get("/metrics").text
    samples = {sample.name: sample for family in text_string_to_metric_families(text) for sample in family.samples}
    assert samples["rollway_build_info"].labels == {"version": client.get("/openapi.json").json()["info"]["version"]}
    assert samples["process_open_fds"].value > 0
    assert samples["process_resident_memory_bytes"].value > 0
    assert "# TYPE rollway_fetch_session_evictions_total counter" in text


@pytest.mark.parametrize("path", ["/metrics", "/docs", "/openapi.json"])
def test_long_texts_are_compressed_on_request(client: httpx.Client, path: str) -> None:
    for encoding in ("gzip", "zstd"):
        answer = client.get(path, headers={"Accept-Encoding": encoding})
        assert (answer.headers["content-encoding"], answer.headers["vary"]) == (encoding, "Accept-Encoding")
    plain = client.get(path, headers={"Accept-Encoding": "identity"})
    assert ("content-encoding" in plain.headers, plain.headers["vary"]) == (False, "Accept-Encoding")


@pytest.mark.needs_local("it looks into the local engine")
def test_background_jobs_are_seen_in_the_metrics(tmp_path: Path) -> None:
    intervals = {
        f"{name}_interval_ms": 20
        for name in (
            "retention_check",
            "roll_check",
            "flush_check",
            "checkpoint",
            "high_watermark_checkpoint",
            "file_delete_check",
            "producer_id_expiration_check",
            "start_position_check",
            "transaction_check",
            "partition_idle_check",
        )
    }
    with ThreadedServer(tmp_path / "data", **intervals) as server, http_client(server.url) as client:
        jobs = set(server.service.scheduler.intervals_ms) if server.service.scheduler else set()
        assert jobs == {
            "flush",
            "roll",
            "retention",
            "checkpoint",
            "checkpoint_high_watermarks",
            "load_jobs",
            "check_files",
            "idle_partitions",
            "delete_files",
            "expire_producers",
            "start_positions",
            "transactions",
        }
        seen: set[str] = set()
        while seen != jobs:
            text = client.get("/metrics").text
            seen = set(re.findall(r'rollway_job_runs_total\{job="(\w+)"\} [1-9]', text))
        assert "rollway_job_failures_total{" not in client.get("/metrics").text


@pytest.mark.needs_local("it looks into the local engine")
def test_the_flush_job_makes_records_durable(tmp_path: Path) -> None:
    """Spec B4."""
    settings = {"flush_check_interval_ms": 20, "topic_defaults": {"flush.policy": "interval", "flush.ms": 1}}
    with ThreadedServer(tmp_path / "data", **settings) as server, http_client(server.url) as client:
        client.put("/v1/topics/t")
        path = "/v1/topics/t/partitions/0"
        client.post(f"{path}/records", json={"records": [{"value": "a"}]})
        while client.get(path).json()["recovery_point"] != 1:
            pass
        assert client.get("/v1/topics/t").json()["config"]["flush.ms"] == {"value": 1, "source": "service"}


def test_the_document_is_served_as_it_lies_in_the_repository(client: httpx.Client) -> None:
    answer = client.get("/openapi.json")
    assert answer.headers["content-type"] == "application/json"
    document = answer.json()
    assert document["openapi"].startswith("3.1")
    assert answer.json() == __import__("json").loads(PATH.read_text())


@pytest.mark.parametrize("coding", ["identity", "gzip", "zstd"])
def test_the_document_is_sent_once_to_who_keeps_it(client: httpx.Client, coding: str) -> None:
    headers = {"Accept-Encoding": coding}
    first = client.get("/openapi.json", headers=headers)
    tag = first.headers["etag"]
    assert (first.headers["cache-control"], first.headers["vary"]) == ("no-cache", "Accept-Encoding")
    assert client.head("/openapi.json", headers=headers).headers["etag"] == tag
    for known in (tag, f'"other", W/{tag}', "*"):
        kept = client.get("/openapi.json", headers={**headers, "If-None-Match": known})
        assert (kept.status_code, kept.content) == (304, b"")
        assert (kept.headers["cache-control"], kept.headers["vary"]) == ("no-cache", "Accept-Encoding")
    other = client.get("/openapi.json", headers={**headers, "If-None-Match": '"other"'})
    assert (other.status_code, other.headers["etag"]) == (200, tag)


@pytest.mark.parametrize(("path", "step"), [("/openapi.json", "encode_document"), ("/docs", "render_page")])
def test_the_document_is_made_beside_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, step: str
) -> None:
    loops: list[bool] = []
    make = getattr(operations, step)

    def noted(document: object) -> object:
        loops.append(asyncio._get_running_loop() is not None)
        return make(document)

    monkeypatch.setattr(operations, step, noted)
    with ThreadedServer(tmp_path / "data") as server, http_client(server.url) as client:
        assert [client.get(path).status_code for _ in range(2)] == [200, 200]
    # The document is made once, the page each time.
    assert loops == ([False] if step == "encode_document" else [False, False])


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.ids: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src"):
                self.targets.append(value or "")
            if name == "id":
                self.ids.add(value or "")


def test_the_docs_page_needs_no_other_host(client: httpx.Client) -> None:
    answer = client.get("/docs")
    assert answer.headers["content-type"].startswith("text/html")
    page = _Links()
    page.feed(answer.text)
    assert all(target.startswith("#") or target == "/openapi.json" for target in page.targets)
    assert {target[1:] for target in page.targets if target.startswith("#")} <= page.ids
    assert {"produceRecords", "fetchRecords", "runRetention", "schema-Problem"} <= page.ids
    assert "<script" not in answer.text


@pytest.mark.needs_local("it looks into the data directory")
def test_while_recovering_only_health_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entered, leave = threading.Event(), threading.Event()
    really_open = LogManager.open.__func__  # type: ignore[attr-defined]

    clock = ManualClock()

    def slow_open(*arguments: Any, meter: RecoveryMeter, **options: Any) -> LogManager:
        meter.expect(10, 3 * 4096)
        clock.advance(500)
        for _ in range(3):
            meter.opened()
        meter.scanned(4096)
        entered.set()
        assert leave.wait(30)
        manager: LogManager = really_open(LogManager, *arguments, meter=meter, **options)
        return manager

    monkeypatch.setattr(LogManager, "open", slow_open)
    told: list[str] = []

    async def scenario() -> None:
        settings = Settings(data_dir=tmp_path / "data")
        app = create_app(settings, clock=clock, on_ready=lambda: told.append("ready"))
        transport = httpx.ASGITransport(app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://x") as client,
        ):
            assert await asyncio.to_thread(entered.wait, 30)
            assert (await client.get("/healthz")).status_code == 200
            for path in ("/readyz", "/v1/topics", "/v1/topics/t"):
                answer = await client.get(path)
                assert (answer.status_code, answer.json()["code"], answer.json()["retryable"]) == (
                    503,
                    "starting",
                    True,
                )
                assert int(answer.headers["retry-after"]) >= 1
                assert answer.json()["progress"] == {
                    "partitions_done": 3,
                    "partition_count": 10,
                    "scanned_bytes": 4096,
                    "byte_count": 12288,
                    "bytes_per_second": 8192,
                    "elapsed_ms": 500,
                    "remaining_ms": 1000,
                }
                OpeningProgress.model_validate(answer.json()["progress"])
            assert (await client.get("/metrics")).status_code == 200
            assert told == []
            leave.set()
            await app.state.service.opened()
            assert told == ["ready"]
            assert (await client.get("/readyz")).status_code == 200
            app.state.begin_shutdown()
            stopping = await client.get("/v1/topics")
            assert (stopping.status_code, stopping.json()["code"]) == (503, "shutting_down")

    asyncio.run(scenario())


@pytest.mark.needs_local("it looks into the data directory")
def test_a_directory_that_cannot_be_opened_is_told(tmp_path: Path) -> None:
    failures: list[Exception] = []

    async def scenario() -> None:
        with_lock = LogManager.open(tmp_path / "data")
        app = create_app(Settings(data_dir=tmp_path / "data"), on_failure=failures.append)
        async with app.router.lifespan_context(app):
            with pytest.raises(DirectoryLockedError):
                await app.state.service.opened()
        with_lock.close()

    asyncio.run(scenario())
    assert [type(failure) for failure in failures] == [DirectoryLockedError]


@pytest.mark.needs_local("it runs the service as a process of its own, to restart, kill or measure it")
def test_rc_12_a_second_process_on_a_directory_refuses(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data"):
        second = ServerProcess(tmp_path / "data")
        assert second.read_line() == ""
        assert second.wait() == 2
        assert str(tmp_path / "data") in second.errors()
        assert "Traceback" not in second.errors()


@pytest.mark.needs_local("it looks into the local engine")
def test_metrics_of_single_partitions(tmp_path: Path) -> None:
    with ThreadedServer(tmp_path / "data", partition_metrics_max=2) as server, http_client(server.url) as client:
        client.put("/v1/topics/a", json={"partitions": 3})
        client.post("/v1/topics/a/partitions/1/records", json={"records": [{"value": "x"}] * 5})
        text = client.get("/metrics").text
        assert 'rollway_partition_high_watermark{partition="1",topic="a"} 5.0' in text
        assert 'rollway_partition_log_start_offset{partition="0",topic="a"} 0.0' in text
        assert 'rollway_partition_unflushed_records{partition="1",topic="a"} 0.0' in text
        assert 'partition="2"' not in text


def test_metrics_count_what_quotas_refuse(tmp_path: Path) -> None:
    with ThreadedServer(tmp_path / "data", clock=ManualClock()) as server, http_client(server.url) as client:
        client.put("/v1/quotas", params={"user": "ANONYMOUS"}, json={"request_rate": 0.001})
        assert [client.get("/v1/topics").status_code for _ in range(3)] == [200, 429, 429]
        assert 'rollway_throttled_requests_total{quota="request_rate"} 3.0' in client.get("/metrics").text
