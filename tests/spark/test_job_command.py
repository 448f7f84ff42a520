"""``rollway-spark``: what it refuses before Spark starts, and what it tells spark-submit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import NoReturn

import pytest

from rollway.client import AuthenticationError, Job, RollwayClient
from rollway.spark.jobs.command import cli
from rollway.spark.jobs.command.submitting import LOGGING, SCRIPT, Submission, find_spark_submit
from rollway.spark.jobs.errors import JobError, JobUsageError
from rollway.spark.jobs.places import EARLIEST, LATEST, Place, parse_place
from rollway.spark.jobs.topics import TopicAddress
from rollway.spark.jobs.writing import aborted_unless_done
from tests.spark.orders import KEEP
from tests.support.servers import ServerProcess

JOBS = ("load", "export", "copy", "compare", "replay")


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("load in.csv", "Missing option '--topic'"),
        ("load in.csv --topic t --app-id a", "--app-id and --version belong together"),
        ("load in.csv --topic t --app-id a --version -1", "--version -1 is below 0"),
        ("load in.csv --topic t --max-rejects 3", "--max-rejects needs"),
        ("load in.csv --topic t --rejects-topic t", "cannot go to the topic that is loaded"),
        ("load in.csv --topic t --rejects-topic r --rejects-to /tmp/r", "exclude each other"),
        ("load in.csv --topic t --config retention.ms", "is not KEY=VALUE"),
        ("load in.dat --topic t", "cannot be told by the name"),
        ("export t", "Missing option '--to'"),
        ("export t --to /tmp/x --from yesterday", "'yesterday' is not a place in a topic"),
        ("export t --to /tmp/x --on-data-loss ignore", "neither fail nor skip"),
        ("copy t t", "cannot be copied to itself"),
        ("copy t u --to-kafka host:9092 --app-id a --version 1", "at least once"),
        ("compare t", "either a second topic or --files"),
        ("compare t u --files x.csv", "either a second topic or --files"),
        ("compare t u --ignore offset", "'offset' is not a part of records"),
        ("compare t --files x.csv --ignore value", "nothing is left to compare"),
        ("compare t t", "A topic is equal to itself: OTHER or --to-url must name another."),
        ("compare t t --any-order --to-url HTTP://127.0.0.1:8080/", "A topic is equal to itself"),
        ("compare t u --where true", "--where is for --files: two topics are compared as they are."),
        ("compare t u --key x", "--key is for --files"),
        ("compare t u --value x", "--value is for --files"),
        ("compare t u --timestamp x", "--timestamp is for --files"),
        ("compare t u --headers x", "--headers is for --files"),
        ("compare t u --schema x", "--schema is for --files"),
        ("compare t u --format csv", "--format is for --files"),
        ("compare t u --read-option a=b", "--read-option is for --files"),
        ("compare t u --skip-rejects", "--skip-rejects is for --files"),
        ("compare t --files x.csv --to-url http://u:80", "--to-url is for a second topic, and --files are none."),
        ("compare t --files x.csv --to-option a=b", "--to-option is for a second topic"),
        ("copy t u -o minPartitions=8", "minPartitions cannot be given as an option of t"),
        ("replay t u -o maxRecordsPerPartition=8", "maxRecordsPerPartition cannot be given as an option of t"),
        ("replay t t", "cannot be replayed into itself"),
        ("replay t t --url http://Host:80 --to-url http://host/", "cannot be replayed into itself"),
        ("copy t t --url https://host --to-url HTTPS://HOST:443", "cannot be copied to itself"),
        ("copy t t --from-kafka a:9092,B:9092 --to-kafka b:9092,a:9092", "cannot be copied to itself"),
        ("replay t u --speed -1", "--speed -1 makes no sense"),
        ("replay t u --interval 0", "outside 0.1 to 3600"),
        ("replay t u --timestamps old", "neither keep nor now"),
        ("replay t u --app-id a --version 1", "needs an end that stays"),
        ("lode in.csv", "No such command 'lode'"),
    ],
)
def test_a_wrong_command_line_is_refused_before_spark_starts(
    line: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(line.split(), is_beside_driver=False) == 2
    printed = capsys.readouterr()
    assert sentence in printed.err
    assert printed.err.startswith("rollway-spark: ")
    assert printed.err.count("\n") == 1
    assert printed.out == ""


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("http://host:8080", "http://host:8080/", True),
        ("http://host", "HTTP://HOST:80", True),
        ("https://host/", "https://host:443", True),
        ("http://host/a/", "http://host/a", True),
        ("http://host/a", "http://host/A", False),
        ("http://host", "https://host", False),
        ("http://host", "http://host:8080", False),
        ("http://localhost:80", "http://127.0.0.1:80", False),
        ("http://host:none", "http://host:none", True),
        ("http://host:none", "http://host", False),
    ],
)
def test_one_place_has_many_addresses(one: str, other: str, is_same: bool) -> None:
    assert (TopicAddress(topic="t", url=one).place == TopicAddress(topic="t", url=other).place) is is_same
    assert TopicAddress(topic="t", url=one).place != TopicAddress(topic="u", url=one).place


def test_errors_are_json_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["copy", "t", "t", "--json"], is_beside_driver=False) == 2
    assert capsys.readouterr().err == '{"error": "A topic cannot be copied to itself.", "exit_status": 2}\n'


@pytest.mark.parametrize("job", JOBS)
def test_every_job_explains_itself(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([job, "--help"], is_beside_driver=False) == 0
    printed = capsys.readouterr().out
    assert f"rollway-spark {job}" in printed
    for option in ("--dry-run", "--json", "--url", "--option"):
        assert option in printed


def test_alone_it_lists_the_jobs(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([], is_beside_driver=False) == 0
    printed = capsys.readouterr().out
    assert all(f"  {job}" in printed for job in JOBS)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("earliest", EARLIEST),
        ("latest", LATEST),
        ("2013-07-04T00:00:00-04:00", Place("time", timestamp_ms=1_372_910_400_000)),
        ("2013-07-04", Place("time", timestamp_ms=1_372_896_000_000)),
        ("1372896000000", Place("time", timestamp_ms=1_372_896_000_000)),
        ('{"0": 12, "3": 0}', Place("offsets", offsets={0: 12, 3: 0})),
    ],
)
def test_places_are_read(text: str, place: Place) -> None:
    assert parse_place(text) == place
    assert parse_place(str(place)) == place


@pytest.mark.parametrize("text", ["", "soon", "2013-13-01", "{}", '{"0": -1}', '{"0": true}', '{"a": 1}', "{", "-5"])
def test_other_texts_are_no_places(text: str) -> None:
    with pytest.raises(JobUsageError):
        parse_place(text)


def test_spark_submit_is_told_what_stands_before_the_job() -> None:
    submission = Submission(
        master="spark://host:7077",
        deploy_mode="client",
        settings=("spark.cores.max=8", "spark.sql.session.timeZone=Europe/Berlin"),
        packages="a:b:1",
        log_level="warn",
    )
    line = submission.options("rollway-spark load")
    assert line[:4] == ["--master", "spark://host:7077", "--name", "rollway-spark load"]
    assert "spark.cores.max=8" in line
    assert [each for each in line if "timeZone" in each] == ["spark.sql.session.timeZone=Europe/Berlin"]
    assert line[line.index("--packages") + 1] == "a:b:1"
    assert not submission.is_cluster
    assert SCRIPT.is_file()
    assert LOGGING.is_file()


@pytest.mark.parametrize("is_default", [False, True])
def test_settings_in_a_file_are_not_overruled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_default: bool
) -> None:
    """Neither those of ``--properties-file`` nor, without one, those that Spark reads by itself."""
    file = tmp_path / "spark-defaults.conf"
    file.write_text(
        "# spark.ui.showConsoleProgress true\n\n"
        "  spark.sql.session.timeZone Europe/Berlin\nspark.sql.ansi.enabled=true\n"
    )
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    told = " ".join(
        submitted_to_a_cluster(f"{'' if is_default else f'--properties-file {file} '}export t --to /lake", monkeypatch)
    )
    assert "timeZone" not in told
    assert "ansi" not in told
    assert "spark.ui.showConsoleProgress=false" in told
    # Spark reads no other file where it is given one.
    other = tmp_path / "other.conf"
    other.touch()
    assert "timeZone=UTC" in " ".join(Submission(properties_file=str(other)).options("rollway-spark load", file))


def test_the_job_is_found_behind_options_that_are_called_like_it() -> None:
    arguments = ["--conf", "load", "--master=load", "load", "load", "--topic", "load"]
    assert cli.arguments_of_job(arguments, "load") == ["load", "--topic", "load"]


def test_a_wrong_spark_home_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="SPARK_HOME is wrong"):
        find_spark_submit({"SPARK_HOME": str(tmp_path)})
    assert Path(find_spark_submit({})).is_file()


def submitted_to_a_cluster(line: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What spark-submit is told, where this process would become it."""
    told: list[list[str]] = []

    def become(_: str, arguments: list[str]) -> NoReturn:
        told.append(arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "execv", become)
    cli.run(["--deploy-mode", "cluster", *line.split()], is_beside_driver=False)
    return told[0]


def test_the_address_goes_to_the_cluster_and_the_key_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in the environment of this process is not in that of a driver in a cluster."""
    monkeypatch.setenv("ROLLWAY_SERVER", "http://rollway:8080")
    monkeypatch.setenv("ROLLWAY_API_KEY", "secret-key")
    told = submitted_to_a_cluster("export orders --to /lake", monkeypatch)
    assert told[told.index(str(SCRIPT)) + 1 :] == ["export", "--url", "http://rollway:8080", "orders", "--to", "/lake"]
    assert "secret-key" not in " ".join(told)
    told = submitted_to_a_cluster("export orders --to /lake --url http://other:8080", monkeypatch)
    seen: list[str] = []
    monkeypatch.setattr(cli, "_carry_out", lambda _context, _job, request, **_: seen.append(request.source.url))
    cli.run_here(told[told.index(str(SCRIPT)) + 1 :])
    assert seen == ["http://other:8080"]


def test_a_driver_without_a_key_says_how_it_gets_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = AuthenticationError("http://rollway:8080", 401, {"detail": "nobody knows who asks", "code": "no_token"})

    def refuse(*_: object, **__: object) -> NoReturn:
        raise refused

    monkeypatch.setattr(cli, "_carry_out", refuse)
    assert cli.run_here(["export", "orders", "--to", "/lake"]) == 1
    assert "ROLLWAY_API_KEY in the driver's environment" in capsys.readouterr().err
    cli.run(["export", "orders", "--to", "/lake"], is_beside_driver=False)
    assert "ROLLWAY_API_KEY in the driver's environment" in capsys.readouterr().err


def test_the_command_ends_with_the_exit_status_of_the_job(tmp_path: Path) -> None:
    """One whole run: command line, spark-submit, driver, sentence, exit status."""
    command = [sys.executable, "-c", "from rollway.spark.jobs.command.cli import main; main()"]
    line = [
        "--master",
        "local[1]",
        "load",
        str(tmp_path / "nothing.csv"),
        "--topic",
        "t",
        "--url",
        "http://127.0.0.1:9",
    ]
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [*command, *line, "--option", "retries=0"], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 1
    assert "rollway-spark: cannot reach Rollway at http://127.0.0.1:9" in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert "\tat " not in done.stderr


@pytest.mark.parametrize("is_answered", [False, True])
def test_an_interrupt_while_a_job_begins_leaves_none_open(client: RollwayClient, is_answered: bool) -> None:
    """The service had begun it when the interrupt came: readers waited until it timed out."""
    topic = f"interrupted-{is_answered}"
    client.create_topic(topic, 1, KEEP)
    asked: list[Job] = []

    def begin() -> Job:
        asked.append(client.begin_job(topic, 1, mode="transactional", timeout_ms=60_000, driver_id="a"))
        if not is_answered and len(asked) == 1:
            raise KeyboardInterrupt
        return asked[-1]

    with pytest.raises(KeyboardInterrupt), aborted_unless_done(client, begin):
        raise KeyboardInterrupt
    assert {job.job_id for job in asked} == {asked[0].job_id}
    assert [job.state for job in client.list_jobs(topic)] == ["aborted"]


@pytest.mark.parametrize(("job", "is_group"), [("load", False), ("export", True)])
def test_sigterm_ends_a_job_as_ctrl_c_does(
    server: ServerProcess, client: RollwayClient, tmp_path: Path, job: str, is_group: bool
) -> None:
    """What is loaded is aborted, so that no reader waits for it; an export gives its folder back, also where
    Spark's JVM gets the signal as well."""
    topic = f"terminated-{job}"
    client.create_topic(topic, 1, KEEP)
    produce = urllib.request.Request(
        f"{server.url}/v1/topics/{topic}/records",
        data=b'{"records": [{"value": "x", "partition": 0}]}',
        headers={"Content-Type": "application/json"},
    )
    urllib.request.urlopen(produce).close()
    (tmp_path / "in.csv").write_text("v\n" + "x\n" * 100)
    slowly = "reflect('java.lang.Thread', 'sleep', cast(1500 as bigint))"
    identity = ("--app-id", topic, "--version", "1")
    lines = {
        "load": [
            "load",
            str(tmp_path / "in.csv"),
            "--schema",
            "v STRING",
            "--topic",
            topic,
            *identity,
            "--key",
            slowly,
        ],
        "export": ["export", topic, "--to", str(tmp_path / "out"), "--select", f"{slowly} AS slow"],
    }
    lock = tmp_path / f"out/_rollway/{topic}/lock.json"
    running = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from rollway.spark.jobs.command.cli import main; main()",
            *lines[job],
            "--url",
            server.url,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
        start_new_session=True,
    )
    try:
        while running.poll() is None and not (lock.exists() or client.list_jobs(topic, state="open")):
            client.wait_for({topic: {0: 1}}, isolation="read_committed", wait_ms=100)
        (os.killpg if is_group else os.kill)(running.pid, signal.SIGTERM)
        printed = running.communicate(timeout=60)
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
            running.communicate()
    assert running.returncode == 143, printed
    assert "Traceback" not in printed[1]
    assert not lock.exists()
    assert [each.state for each in client.list_jobs(topic)] == (["aborted"] if job == "load" else [])
