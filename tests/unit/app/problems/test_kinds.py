"""The table of problem kinds: each entry is whole, raised somewhere, and has Kafka's number."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import kafka.errors
import pytest

from app.openapi.documented_answers import HEADERS
from app.openapi.documented_problems import problems
from app.problems import kinds
from app.problems.kind import Kind
from app.problems.problem import MEDIA_TYPE, Problem
from rollway.client import errors as client_errors

APP = Path(kinds.__file__).parents[1]
TABLE = Path(kinds.__file__)
NAMED = {name: kind for name, kind in vars(kinds).items() if isinstance(kind, Kind)}

# Our codes whose names are not Kafka's, and Kafka's name for their number.
OTHER_NAMES = {
    "append_outcome_unknown": "KAFKA_STORAGE_ERROR",
    "change_outcome_unknown": "KAFKA_STORAGE_ERROR",
    "corrupt_batch": "CORRUPT_MESSAGE",
    "disk_failed": "KAFKA_STORAGE_ERROR",
    "disk_full": "KAFKA_STORAGE_ERROR",
    "fetch_session_not_found": "FETCH_SESSION_ID_NOT_FOUND",
    "message_too_large": "MESSAGE_SIZE_TOO_LARGE",
    "out_of_order_sequence": "OUT_OF_ORDER_SEQUENCE_NUMBER",
    "partition_offline": "KAFKA_STORAGE_ERROR",
    "producer_fenced": "INVALID_PRODUCER_EPOCH",
    "quota_limit_reached": "POLICY_VIOLATION",
    "record_too_large": "MESSAGE_SIZE_TOO_LARGE",
    "stored_data_corrupt": "CORRUPT_MESSAGE",
    "throttled": "THROTTLING_QUOTA_EXCEEDED",
    "too_many_open_files": "KAFKA_STORAGE_ERROR",
    "topic_exists": "TOPIC_ALREADY_EXISTS",
    "unsupported_codec": "UNSUPPORTED_COMPRESSION_TYPE",
    "unsupported_message_format": "UNSUPPORTED_FOR_MESSAGE_FORMAT",
}


def modules() -> Iterator[tuple[Path, ast.Module]]:
    for path in APP.rglob("*.py"):
        yield path, ast.parse(path.read_text("utf-8"))


@pytest.mark.parametrize("kind", kinds.ALL, ids=lambda kind: f"{kind.code}-{kind.applied}")
def test_every_kind_is_whole(kind: Kind) -> None:
    name = next(name for name, each in NAMED.items() if each is kind)
    assert re.fullmatch(r"[a-z]+(_[a-z]+)*", kind.code)
    assert name == kind.code.upper() or name.startswith(f"{kind.code.upper()}_")
    assert 400 <= kind.status <= 599
    assert re.fullmatch(r"[A-Za-z].*\.", kind.when)
    assert kind.title.replace(" ", "_").lower() == kind.code
    assert kind.type == f"urn:rollway:problem:{kind.code}"
    assert kind.retryable or kind.retry_after_ms is None
    assert ("Retry-After" in kind.headers) >= (kind.retry_after_ms is not None)
    assert set(kind.headers) <= HEADERS.keys()
    assert bool(kind.component) >= bool(kind.members)
    if kind.client_error:
        assert issubclass(getattr(client_errors, kind.client_error), client_errors.ProblemError)


def test_the_table_has_every_constant_and_no_kind_twice() -> None:
    assert set(kinds.ALL) == set(NAMED.values())
    assert set(Counter((kind.status, kind.code, kind.applied) for kind in kinds.ALL).values()) == {1}
    for code in {kind.code for kind in kinds.ALL}:
        facts = {(kind.kafka_code, kind.retryable, kind.client_error) for kind in kinds.ALL if kind.code == code}
        assert len(facts) == 1, code


@pytest.mark.parametrize("kind", [kind for kind in kinds.ALL if kind.kafka_code != -1], ids=lambda kind: kind.code)
def test_kafka_has_the_name_of_the_number(kind: Kind) -> None:
    """Judged by kafka-python."""
    assert kafka.errors.for_code(kind.kafka_code).message == OTHER_NAMES.get(kind.code, kind.code.upper())


def test_every_kind_is_raised_somewhere_and_every_raised_kind_has_its_entry() -> None:
    used = {
        node.attr
        for path, tree in modules()
        if path != TABLE and "openapi" not in path.parts
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "kinds"
        if node.attr.isupper()
    }
    assert NAMED.keys() == used


def test_kinds_are_made_in_the_table_alone() -> None:
    """And where the framework refuses with a status that the table does not have."""
    making = {
        path.name
        for path, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Kind"
    }
    assert making == {"kinds.py", "framework.py"}


@pytest.mark.parametrize("code", ["internal_error", "request_timeout", "shutting_down", "stored_data_corrupt"])
def test_openapi_shows_both_meanings_of_a_code(code: str) -> None:
    both = [kind for kind in kinds.ALL if kind.code == code]
    examples = problems(code)[both[0].status]["content"][MEDIA_TYPE]["examples"]
    shown = [examples[name] for name in (code, f"{code}_applied_unknown")]
    assert [(each["summary"], each["value"]["applied"]) for each in shown] == [(k.when, k.applied) for k in both]


def test_openapi_refuses_a_code_that_no_kind_has() -> None:
    with pytest.raises(ValueError, match="no kind of problem has the code job_not_fund"):
        problems("job_not_found", "job_not_fund")


@pytest.mark.parametrize("kind", kinds.ALL, ids=lambda kind: f"{kind.code}-{kind.applied}")
def test_the_library_raises_the_exception_of_the_kind(kind: Kind) -> None:
    raised = client_errors.problem_error("http://a", kind.status, Problem(kind, "because").document("/v1/topics"))
    by_status = {401: "AuthenticationError", 403: "AuthorizationError"}
    assert type(raised).__name__ == (kind.client_error or by_status.get(kind.status, "ProblemError"))
    assert (raised.retryable, raised.may_be_applied) == (kind.retryable, kind.applied == "unknown")
