"""Problem documents: every error of the engine, of the record formats and of the framework."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

from app.http import methods
from app.problems import framework, kinds, request_context
from app.problems.engine import problem_for
from app.problems.problem import Problem, json_pointer
from log_model import errors
from rollway.records.errors import BrokenRecordError, DecompressedSizeError, RecordFormatError
from schemas.errors import Problem as ProblemSchema

MADE = {
    errors.OffsetOutOfRangeError: errors.OffsetOutOfRangeError(
        "too low", offset=1, log_start_offset=5, log_end_offset=9
    ),
    errors.InvalidConfigError: errors.InvalidConfigError([("retention.ms", "must be"), ("a/b", "is not")]),
    errors.ExpectedOffsetMismatchError: errors.ExpectedOffsetMismatchError(3, 4),
    errors.UnexpectedAppendOffsetError: errors.UnexpectedAppendOffsetError("x", first_offset=3, last_offset=4),
    errors.InvalidRecordError: errors.InvalidRecordError("bad", [errors.RecordError(2, "no key")]),
    errors.InvalidTimestampError: errors.InvalidTimestampError("bad", [errors.RecordError(0, "too old")]),
}


ANSWERS = {
    errors.CorruptBatchError: (400, "corrupt_batch", 2),
    errors.InvalidRecordError: (400, "invalid_record", 87),
    errors.InvalidTimestampError: (400, "invalid_timestamp", 32),
    errors.UnsupportedCodecError: (400, "unsupported_codec", 76),
    errors.MessageTooLargeError: (413, "message_too_large", 10),
    errors.RecordListTooLargeError: (413, "record_list_too_large", 18),
    errors.OffsetOutOfRangeError: (410, "offset_out_of_range", 1),
    errors.UnknownTopicOrPartitionError: (404, "unknown_topic_or_partition", 3),
    errors.InvalidTopicError: (422, "invalid_topic", 17),
    errors.TopicExistsError: (409, "topic_exists", 36),
    errors.InvalidConfigError: (422, "invalid_config", 40),
    errors.PolicyViolationError: (403, "policy_violation", 44),
    errors.OutOfOrderSequenceError: (409, "out_of_order_sequence", 45),
    errors.ProducerFencedError: (409, "producer_fenced", 47),
    errors.InvalidTxnStateError: (409, "invalid_txn_state", 48),
    errors.InvalidPidMappingError: (409, "invalid_producer_id_mapping", 49),
    errors.InvalidTransactionTimeoutError: (422, "invalid_transaction_timeout", 50),
    errors.CoordinatorFencedError: (409, "transaction_coordinator_fenced", 52),
    errors.UnsupportedFormatError: (400, "unsupported_message_format", 43),
    errors.FencedLeaderEpochError: (409, "fenced_leader_epoch", 74),
    errors.UnknownTopicIdError: (404, "unknown_topic_id", 100),
    errors.InconsistentTopicIdError: (409, "inconsistent_topic_id", 103),
    errors.ExpectedOffsetMismatchError: (412, "expected_offset_mismatch", -1),
    errors.UnexpectedAppendOffsetError: (409, "unexpected_append_offset", -1),
    errors.PartitionOfflineError: (503, "partition_offline", 56),
    errors.DiskFullError: (507, "disk_full", 56),
    errors.TooManyOpenFilesError: (503, "too_many_open_files", 56),
    errors.DiskFailedError: (503, "disk_failed", 56),
    errors.NotEnoughReplicasError: (503, "not_enough_replicas", 19),
    errors.ConcurrentTransactionsError: (503, "concurrent_transactions", 51),
    errors.UnknownLeaderEpochError: (503, "unknown_leader_epoch", 75),
    errors.OffsetNotAvailableError: (503, "offset_not_available", 78),
    errors.DirectoryLockedError: (503, "directory_locked", -1),
    errors.ShuttingDownError: (503, "shutting_down", -1),
    errors.PartitionFailedError: (503, "append_outcome_unknown", 56),
    errors.ChangeOutcomeUnknownError: (503, "change_outcome_unknown", 56),
    errors.NotEnoughReplicasAfterAppendError: (503, "not_enough_replicas_after_append", 20),
    errors.CorruptionError: (500, "stored_data_corrupt", 2),
}
"""Status, code and Kafka's number of the answer to each error of the engine."""


def subclasses(root: type[Any]) -> Iterator[type[Any]]:
    for child in root.__subclasses__():
        if child.__module__ == root.__module__:
            yield child
            yield from subclasses(child)


ENGINE_ERRORS = [
    kind for kind in subclasses(errors.StorageError) if kind not in (errors.RefusedError, errors.UnavailableError)
]


@pytest.mark.parametrize("kind", ENGINE_ERRORS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("may_write", [False, True])
def test_every_error_of_the_engine_has_its_answer(kind: type[errors.StorageError], may_write: bool) -> None:
    token = request_context.may_write.set(may_write)
    try:
        problem = problem_for(MADE.get(kind) or kind("because"))
    finally:
        request_context.may_write.reset(token)
    document = problem.document("/v1/topics/a")
    ProblemSchema.model_validate(document)
    assert (document["status"], document["code"], document["kafka_code"]) == ANSWERS[kind]
    assert problem.kind in kinds.ALL
    if issubclass(kind, errors.RefusedError):
        expected = (False, "no")
    elif issubclass(kind, errors.UnavailableError):
        expected = (True, "no")
    elif kind is errors.CorruptionError:
        # How far a write came that failed inside is not known.
        expected = (False, "unknown" if may_write else "no")
    else:
        expected = (True, "unknown")
    assert (document["retryable"], document["applied"]) == expected


@pytest.mark.parametrize("kind", list(subclasses(RecordFormatError)), ids=lambda kind: kind.__name__)
def test_every_error_of_the_record_formats_has_its_answer(kind: type[RecordFormatError]) -> None:
    error = BrokenRecordError("bad", [(3, "varint")]) if kind is BrokenRecordError else kind("bad")
    problem = problem_for(error)
    assert problem.status == (413 if kind is DecompressedSizeError else 400)
    assert problem.kind in kinds.ALL
    if kind is BrokenRecordError:
        assert problem.errors == [{"pointer": "/records/3", "code": "invalid_record", "detail": "varint"}]


def test_an_offset_out_of_range_is_gone_below_and_unsatisfiable_above() -> None:
    """Api: 410 below the log start, 416 above the end."""
    below = problem_for(MADE[errors.OffsetOutOfRangeError])
    assert (below.status, below.extra) == (410, {"log_start_offset": 5, "log_end_offset": 9})
    above = problem_for(errors.OffsetOutOfRangeError("too high", offset=10, log_start_offset=5, log_end_offset=9))
    assert (above.status, above.extra) == (416, {"log_start_offset": 5, "log_end_offset": 9})


@pytest.mark.parametrize(("moved_ms", "moved_by"), [(1_700_000_000_000, "retention"), (None, None)])
def test_an_engine_tells_all_limits_and_the_last_move_of_the_log_start(
    moved_ms: int | None, moved_by: str | None
) -> None:
    def refusal(offset: int) -> Problem:
        return problem_for(
            errors.OffsetOutOfRangeError(
                "outside",
                offset=offset,
                log_start_offset=5,
                log_end_offset=9,
                high_watermark=8,
                last_stable_offset=7,
                log_start_moved_ms=moved_ms,
                log_start_moved_by=moved_by,
            )
        )

    limits = {"log_start_offset": 5, "log_end_offset": 9}
    headers = {"Log-Start-Offset": "5", "High-Watermark": "8", "Last-Stable-Offset": "7"}
    below, above = refusal(4), refusal(10)
    assert (below.status, below.headers) == (410, headers)
    assert below.extra == {**limits, "log_start_moved_ms": moved_ms, "log_start_moved_by": moved_by}
    assert (above.status, above.headers, above.extra) == (416, headers, limits)


def test_single_faults_have_pointers() -> None:
    config = problem_for(MADE[errors.InvalidConfigError])
    assert config.status == 422
    assert [fault["pointer"] for fault in config.errors] == ["/config/retention.ms", "/config/a~1b"]
    record = problem_for(MADE[errors.InvalidRecordError])
    assert record.errors == [{"pointer": "/records/2", "code": "invalid_record", "detail": "no key"}]
    assert problem_for(MADE[errors.ExpectedOffsetMismatchError]).extra["log_end_offset"] == 4
    assert json_pointer(["a~b", 0, "c/d"]) == "/a~0b/0/c~1d"


def test_an_unknown_subclass_is_answered_as_its_ancestor() -> None:
    class NarrowError(errors.TopicExistsError):
        """A kind of the future."""

    assert problem_for(NarrowError("there")).status == 409


def test_retry_after_is_in_whole_seconds_and_never_early() -> None:
    problem = Problem(kinds.OVERLOADED, "busy", retry_after_ms=1001)
    assert problem.all_headers()["Retry-After"] == "2"
    assert problem.document("/")["retry_after_ms"] == 1001


def test_text_that_is_no_unicode_is_still_answered() -> None:
    document = json.loads(Problem(kinds.MALFORMED_BODY, "\ud800 é \x00").body("/"))
    assert document["detail"] == "? é \x00"


class Item(BaseModel):
    count: int


def make_app() -> FastAPI:
    app = FastAPI()
    framework.install(app, methods)

    @app.post("/items/{number}")
    async def items(number: int, item: Item) -> None:
        raise AssertionError(f"never reached: {number} {item}")

    @app.get("/fail/{how}")
    async def fail(how: str) -> None:
        raise {
            "refused": errors.UnknownTopicOrPartitionError("there is no topic a"),
            "problem": Problem(kinds.THROTTLED, "busy", retry_after_ms=10, headers={"X-Extra": "1"}, more=7),
            "unforeseen": RuntimeError("the password is swordfish"),
            "corrupt": errors.CorruptionError("/secret/path/0.log is damaged at byte 7"),
            "teapot": HTTPException(418, "short and stout"),
            "odd": HTTPException(499, "gone"),
        }[how]

    return app


class Client:
    """Asks the application without a server; whatever it raises comes out."""

    def __init__(self) -> None:
        self._transport = httpx.ASGITransport(make_app())

    def request(self, method: str, path: str, **content: Any) -> httpx.Response:
        async def ask() -> httpx.Response:
            async with httpx.AsyncClient(transport=self._transport, base_url="http://test") as client:
                return await client.request(method, path, **content)

        return asyncio.run(ask())

    def get(self, path: str) -> httpx.Response:
        return self.request("GET", path)

    def post(self, path: str, **content: Any) -> httpx.Response:
        return self.request("POST", path, **content)


@pytest.fixture(scope="module")
def client() -> Client:
    return Client()


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nowhere", 404, "not_found"),
        ("GET", "/items/1", 405, "method_not_allowed"),
        ("GET", "/fail/refused", 404, "unknown_topic_or_partition"),
        ("GET", "/fail/problem", 429, "throttled"),
        ("GET", "/fail/teapot", 418, "i_m_a_teapot"),
        ("GET", "/fail/odd", 499, "error"),
        ("GET", "/fail/corrupt", 500, "stored_data_corrupt"),
        ("POST", "/items/1", 422, "invalid_request"),
    ],
)
def test_every_answer_is_a_problem(client: Client, method: str, path: str, status: int, code: str) -> None:
    answer = client.request(method, path)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    document = answer.json()
    ProblemSchema.model_validate(document)
    assert (document["code"], document["status"], document["instance"]) == (code, status, path)


def test_headers_and_members_of_a_problem_go_out(client: Client) -> None:
    answer = client.get("/fail/problem")
    assert (answer.headers["x-extra"], answer.headers["retry-after"], answer.json()["more"]) == ("1", "1", 7)
    assert client.get("/items/1").headers["allow"] == "POST"


def test_the_instance_is_a_uri_reference(client: Client) -> None:
    assert client.get("/no%20where%2F%C3%A9").json()["instance"] == "/no%20where%2F%C3%A9"


def test_validation_faults_point_at_their_place(client: Client) -> None:
    answer = client.post("/items/x", json={"count": "y"})
    assert answer.status_code == 422
    assert {fault["pointer"] for fault in answer.json()["errors"]} == {"number", "/count"}
    broken = client.post("/items/1", content=b"{", headers={"Content-Type": "application/json"})
    assert (broken.status_code, broken.json()["code"]) == (400, "malformed_body")


@pytest.mark.parametrize(("how", "secret"), [("unforeseen", "swordfish"), ("corrupt", "/secret/path")])
def test_the_inside_stays_inside(client: Client, caplog: pytest.LogCaptureFixture, how: str, secret: str) -> None:
    with caplog.at_level(logging.ERROR):
        answer = client.get(f"/fail/{how}")
    assert answer.status_code == 500
    assert secret not in answer.text
    assert secret in caplog.text
    assert answer.json()["request_id"] in caplog.text
    assert len(caplog.records) == 1
