"""What is called right although a check of schemathesis says otherwise: as narrow as it is written, and no wider."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import schemathesis.specs.openapi.checks  # noqa: F401 - registers the checks
from schemathesis.checks import CHECKS

from app.main import whole_document
from app.problems import kinds
from tests.conformance.deviations import Deviation, read_deviations

DEVIATIONS = read_deviations()
OPERATIONS = {f"{method.upper()} {path}" for path, each in whole_document()["paths"].items() for method in each}
ANSWERS = {(kind.status, kind.code) for kind in kinds.ALL}


@pytest.mark.parametrize("deviation", DEVIATIONS, ids=lambda each: f"{each.statuses[0]}-{each.reason[:40]}")
def test_each_names_answers_that_there_are(deviation: Deviation) -> None:
    assert deviation.check in CHECKS.get_all_names()
    assert deviation.codes, "an answer that is no problem is never an exception"
    assert {(status, code) for status in deviation.statuses for code in deviation.codes} <= ANSWERS
    assert set(deviation.operations) <= OPERATIONS
    assert deviation.document in ("", "published", "whole")
    assert len(deviation.reason) > 20
    re.compile(deviation.detail)


def test_none_is_for_all_refusals_of_all_operations() -> None:
    for each in DEVIATIONS:
        if "invalid_request" in each.codes:
            assert each.operations or each.detail


def test_only_the_answer_that_is_meant_matches() -> None:
    one = Deviation("c", (422,), "because", codes=("invalid",), operations=("GET /a",), detail="too (big|small)$")
    body = json.dumps({"code": "invalid", "detail": "it is too big"}).encode()
    assert one.matches("c", "GET /a", 422, body, document="whole")
    assert not one.matches("d", "GET /a", 422, body, document="whole")
    assert not one.matches("c", "GET /b", 422, body, document="whole")
    assert not one.matches("c", "GET /a", 400, body, document="whole")
    for other in ({"code": "other", "detail": "it is too big"}, {"code": "invalid", "detail": "it is too bigger"}):
        assert not one.matches("c", "GET /a", 422, json.dumps(other).encode(), document="whole")
    for other_body in (b"", b"[]", b"no JSON", b'{"code":"invalid"}'):
        assert not one.matches("c", "GET /a", 422, other_body, document="whole")


def test_one_may_be_for_one_document() -> None:
    one = Deviation("c", (422,), "because", codes=("invalid",), document="published")
    body = b'{"code":"invalid","detail":""}'
    assert one.matches("c", "GET /a", 422, body, document="published")
    assert not one.matches("c", "GET /a", 422, body, document="whole")


def test_an_entry_with_a_member_that_there_is_not_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "deviations.toml"
    path.write_text('[[deviation]]\ncheck = "c"\nstatuses = [422]\nreason = "because"\ncode = "invalid"\n')
    with pytest.raises(TypeError, match="code"):
        read_deviations(path)
