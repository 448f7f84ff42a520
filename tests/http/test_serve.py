"""`rollway serve` as a process: the ready line, signals, and why it would not start."""

from __future__ import annotations

import contextlib
import re
import resource
import signal
import socket
import sys
import time
from pathlib import Path

import httpx
import pytest

from storage.disk.file_names import CLEAN_SHUTDOWN_MARKER
from storage.manager.log_manager import LOGS_DIRECTORY
from tests.support.edge_server import Connection
from tests.support.servers import ServerProcess

pytestmark = pytest.mark.needs_local("it runs the service as a process of its own, to restart, kill or measure it")

LONG_POLLS = 300


def refusal(data_dir: Path, *arguments: str, environment: dict[str, str] | None = None) -> tuple[int, str]:
    """Exit status and the one sentence on stderr of a process that cannot start."""
    process = ServerProcess(data_dir, *arguments, environment=environment, from_nothing=True)
    assert process.read_line() == ""
    status = process.wait()
    errors = process.errors()
    assert "Traceback" not in errors
    return status, errors.strip().splitlines()[-1]


def port_of(process: ServerProcess) -> int:
    return int(process.url.rpartition(":")[2])


def test_one_line_says_that_it_is_ready_and_then_it_is(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    process = ServerProcess(data_dir, from_nothing=True)
    line = process.read_line()
    found = re.fullmatch(
        rf"Rollway is ready at (http://127\.0\.0\.1:\d+) \(data in {re.escape(str(data_dir))}\)\n", line
    )
    assert found is not None, line
    assert httpx.get(f"{found[1]}/readyz").status_code == 200
    process.signal(signal.SIGTERM)
    assert process.read_line() == ""
    assert process.wait() == 0
    assert process.errors() == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    data_dir = tmp_path / "data"
    marker = data_dir / LOGS_DIRECTORY / CLEAN_SHUTDOWN_MARKER
    with ServerProcess(data_dir, from_nothing=True) as process:
        assert not marker.exists()
        process.signal(number)
        assert process.wait() == 0
        assert process.errors() == ""
    assert marker.exists()
    with ServerProcess(data_dir, from_nothing=True) as again:
        assert httpx.get(f"{again.url}/readyz").status_code == 200


def test_a_signal_answers_every_long_poll_and_ends_soon(tmp_path: Path) -> None:
    """docs/explanation/durability.md#promises-under-faults: SIGTERM with thousands of long polls."""
    with ServerProcess(tmp_path / "data", from_nothing=True) as process, contextlib.ExitStack() as stack:
        assert httpx.put(f"{process.url}/v1/topics/a", json={"partitions": 1}).status_code == 201
        polls = [stack.enter_context(Connection(port_of(process))) for _ in range(LONG_POLLS)]
        for poll in polls:
            poll.send(b"GET /v1/topics/a/partitions/0/records?offset=0&wait_ms=60000 HTTP/1.1\r\nHost: a\r\n\r\n")
        while f"rollway_waiting_fetches {LONG_POLLS}.0" not in httpx.get(f"{process.url}/metrics").text:
            pass
        began = time.monotonic()
        process.signal(signal.SIGTERM)
        assert {poll.read_answer().status for poll in polls} == {200}
        assert process.wait() == 0
        assert time.monotonic() - began < 5
        assert process.errors() == ""


def test_a_request_in_progress_may_end(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", from_nothing=True) as process, Connection(port_of(process)) as slow:
        assert httpx.put(f"{process.url}/v1/topics/a", json={"partitions": 1}).status_code == 201
        body = b'{"records":[{"value":"x"}]}'
        head = b"POST /v1/topics/a/partitions/0/records HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        slow.send(head + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body))
        # It reads the body now.
        assert slow.read_head()[0] == 100
        process.signal(signal.SIGTERM)
        slow.send(body)
        assert slow.read_answer().status in (200, 503)
        assert process.wait() == 0


def test_a_second_process_on_the_directory_is_refused_with_status_2(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with ServerProcess(data_dir, from_nothing=True) as first:
        status, sentence = refusal(data_dir)
        assert status == 2
        assert f"The data directory {data_dir} is in use by another process" in sentence
        status, sentence = refusal(data_dir, "--port", str(port_of(first)))
        assert status == 2, sentence
        assert httpx.get(f"{first.url}/readyz").status_code == 200
        # The one after a kill -9 is welcome: the lock went with the process.
        first.kill()
    with ServerProcess(data_dir, from_nothing=True) as third:
        assert httpx.get(f"{third.url}/readyz").status_code == 200


def test_a_port_that_is_taken_is_refused_with_status_1(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, sentence = refusal(tmp_path / "data", "--port", str(port))
    assert (status, f"Port {port} of 127.0.0.1 is taken" in sentence) == (1, True)
    assert not (tmp_path / "data").exists()


def test_a_directory_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    status, sentence = refusal(file)
    assert (status, str(file) in sentence) == (1, True)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with ServerProcess(data_dir, from_nothing=True) as process:
        assert httpx.put(f"{process.url}/v1/topics/a", json={"partitions": 1}).status_code == 201
    [record] = (data_dir / "rollway").rglob("*.json")
    record.write_bytes(b"\0garbage")
    status, sentence = refusal(data_dir)
    assert (status, str(record) in sentence) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "environment", "part"),
    [
        (["--host", "0.0.0.0"], {}, "insecure_no_authentication"),
        (["--topic-default", "retention.ms=soon"], {}, "retention.ms"),
        ([], {"ROLLWAY_NONSENSE": "1"}, "ROLLWAY_NONSENSE"),
        ([], {"ROLLWAY_CONFIG": "/no/such.toml"}, "/no/such.toml"),
    ],
)
def test_wrong_settings_are_a_sentence(
    tmp_path: Path, arguments: list[str], environment: dict[str, str], part: str
) -> None:
    status, sentence = refusal(tmp_path / "data", *arguments, environment=environment)
    assert (status, part in sentence) == (2, True)


def test_an_open_address_is_served_with_a_warning(tmp_path: Path) -> None:
    with ServerProcess(
        tmp_path / "data", "--host", "0.0.0.0", "--insecure-no-authentication", from_nothing=True
    ) as process:
        assert httpx.get(f"{process.url}/readyz").status_code == 200
        assert "there is no authentication" in process.errors()


def test_an_unknown_congestion_control_is_a_sentence(tmp_path: Path) -> None:
    status, sentence = refusal(tmp_path / "data", environment={"ROLLWAY_TCP_CONGESTION": "nonsense"})
    assert (status, "congestion control nonsense" in sentence) == (1, True)


def test_few_descriptors_mean_few_connections(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.ExitStack() as stack:
        process = ServerProcess(
            tmp_path / "data", environment={"ROLLWAY_CONNECTIONS_MAX": "1000000"}, from_nothing=True
        )
        stack.callback(process.stop)
        process.start()
        if before[1] < 2_000_000:
            assert "connections are taken, not 1000000" in process.errors()
        assert httpx.get(f"{process.url}/readyz").status_code == 200


def test_a_full_garbage_collection_looks_at_little(tmp_path: Path) -> None:
    """It stops everybody; what the start has made is there for good, and needs no look."""
    program = (
        "import atexit, gc, sys; from app.cli import main; "
        "atexit.register(lambda: print(gc.get_freeze_count(), len(gc.get_objects()), file=sys.stderr)); main()"
    )
    with ServerProcess(tmp_path / "data", command=(sys.executable, "-c", program)) as process:
        assert httpx.put(f"{process.url}/v1/topics/a", json={"partitions": 1}).status_code == 201
        assert process.stop() == 0
        frozen_count, looked_at_count = map(int, process.errors().split()[-2:])
    assert frozen_count > 100_000
    assert looked_at_count < frozen_count / 5


def test_each_request_is_logged_when_asked_for(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", environment={"ROLLWAY_ACCESS_LOG": "true"}, from_nothing=True) as process:
        httpx.get(f"{process.url}/nowhere?x=1")
        assert re.search(
            r'INFO uvicorn\.access: 127\.0\.0\.1:\d+ - "GET /nowhere\?x=1 HTTP/1\.1" 404', process.errors()
        )
