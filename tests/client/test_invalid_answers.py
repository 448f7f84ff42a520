"""A service that answers every request with JSON, and is not Rollway: each call says so in one sentence."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Callable, Iterator

import pytest

from rollway.client import ClientSettings, InvalidAnswerError, OffsetAsk, RollwayClient, RollwayError

DOCUMENTS: list[object] = [
    {},
    [],
    None,
    "welcome",
    5,
    {"status": "ok"},
    {"data": 5, "has_more": False, "partitions": 5, "splits": 5, "results": 5, "positions": 5, "config": 5},
    {
        "data": [5],
        "has_more": False,
        "partitions": [5],
        "splits": [5],
        "size_bytes": 5,
        "results": [5],
        "positions": {"t": {"zero": 5}},
        "config": {"a": 5},
    },
    {"data": [], "has_more": True, "next_cursor": "a"},
    {"data": [{}], "has_more": True, "partitions": [None], "results": [{"error": 5}], "positions": {"t": 5}},
    {"results": [], "data": [{}], "has_more": None, "positions": [], "partitions": {"a": 5}, "config": [], "name": "t"},
]

CALLS: dict[str, Callable[[RollwayClient], object]] = {
    "list_topics": lambda client: client.list_topics(),
    "describe_topic": lambda client: client.describe_topic("t"),
    "create_topic": lambda client: client.create_topic("t", 1),
    "split": lambda client: client.split("t", {}),
    "watermarks": lambda client: client.watermarks("t"),
    "offsets_for_times": lambda client: client.offsets_for_times([OffsetAsk("t", 0, "earliest")]),
    "pin_positions": lambda client: client.pin_positions("g", {"t": {0: 0}}),
    "pinned_positions": lambda client: client.pinned_positions("g"),
    "fetch": lambda client: client.fetch("t", 0, offset=0, max_bytes=1, isolation="read_committed"),
    "wait_for": lambda client: client.wait_for({"t": {0: 0}}, isolation="read_committed", wait_ms=1),
    "produce_batches": lambda client: client.produce_batches("t", 0, [b"batch"]),
    "begin_job": lambda client: client.begin_job("a", 1, mode="transactional", timeout_ms=60_000),
    "enlist": lambda client: client.enlist("j", 0, 0),
    "commit_job": lambda client: client.commit_job("j", []),
    "abort_job": lambda client: client.abort_job("j"),
    "find_job": lambda client: client.find_job("j"),
    "list_jobs": lambda client: client.list_jobs("a"),
}


class _Json(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    document: object = None
    status = 200
    fields: dict[str, str] = {}  # noqa: RUF012 - replaced as a whole

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        body = _Json.document if isinstance(_Json.document, bytes) else json.dumps(_Json.document).encode()
        self.send_response(_Json.status)
        for name, value in {"Content-Type": "application/json", **_Json.fields}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815 - as the class calls them

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


@pytest.fixture(scope="module")
def client() -> Iterator[RollwayClient]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Json) as web:
        web.daemon_threads = True
        thread = threading.Thread(target=web.serve_forever, args=(0.01,))
        thread.start()
        with RollwayClient(ClientSettings(f"http://127.0.0.1:{web.server_address[1]}", retries=0)) as client:
            yield client
        web.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def _plain_answers() -> Iterator[None]:
    yield
    _Json.document, _Json.status, _Json.fields = None, 200, {}


@pytest.mark.parametrize("document", DOCUMENTS, ids=json.dumps)
def test_an_answer_that_is_not_rollways_is_told_so(client: RollwayClient, document: object) -> None:
    _Json.document = document
    for name, call in CALLS.items():
        with pytest.raises(InvalidAnswerError) as caught:
            print(name, call(client))
        assert "Rollway" in str(caught.value)
        assert "\n" not in str(caught.value)


def test_an_answer_that_is_nested_too_deeply_is_told_so(client: RollwayClient) -> None:
    _Json.document = b"[" * 100_000
    for call in CALLS.values():
        with pytest.raises(InvalidAnswerError):
            call(client)


@pytest.mark.parametrize(
    "document",
    [
        {"code": "overloaded", "retryable": True, "retry_after_ms": "soon"},
        {"code": "overloaded", "retryable": True, "retry_after_ms": -5},
        {"code": "overloaded", "retryable": True, "retry_after_ms": 1e300},
        {"code": [], "detail": {}, "errors": 5, "status": "five", "retryable": "yes"},
        b"[" * 100_000,
    ],
    ids=str,
)
def test_a_problem_whose_members_are_of_other_types_is_a_problem(document: object) -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Json) as web:
        thread = threading.Thread(target=web.serve_forever, args=(0.01,))
        thread.start()
        _Json.document, _Json.status, _Json.fields = document, 503, {"Content-Type": "application/problem+json"}
        settings = ClientSettings(f"http://127.0.0.1:{web.server_address[1]}", retries=1, backoff_ms=1)
        with RollwayClient(settings) as client:
            for call in CALLS.values():
                with pytest.raises(RollwayError):
                    call(client)
        web.shutdown()
        thread.join()


@pytest.mark.parametrize("name", ["Throttle-Time-Ms", "Retry-After"])
def test_a_time_to_wait_of_thousands_of_digits_is_none(client: RollwayClient, name: str) -> None:
    _Json.document, _Json.status, _Json.fields = {}, 400, {name: "9" * 5_000}
    for call in CALLS.values():
        with pytest.raises(RollwayError):
            call(client)
