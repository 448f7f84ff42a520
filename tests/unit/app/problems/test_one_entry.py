"""An error code is one entry, and the rest is made from it: CONTRIBUTING's recipe, tried on a copy of the table."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from app.problems import kinds

TABLE = Path(kinds.__file__)
ENTRY = """TOPIC_ASLEEP = Kind(
    "topic_asleep",
    503,
    "The topic is asleep; the first request wakes it.",
    kafka_code=5,
    retry_after_ms=250,
    at=At.WRITE,
    client_error="TopicNotFoundError",
)

"""
ENTRY_WITH_MEMBERS = """PLAN_MISSING = Kind(
    "plan_missing",
    501,
    "The engine has no plan.",
    at=At.PRODUCER,
    members={"capability": text_member("The missing capability.", "retention_plan")},
    component="PlanMissingProblem",
)

"""
# Puts a copy of the table in the place of app.problems.kinds, then makes everything that is made from it.
PROGRAM = """
import json, sys, types
import app.problems
module = types.ModuleType("app.problems.kinds")
module.__file__ = sys.argv[1]
sys.modules["app.problems.kinds"] = app.problems.kinds = module
with open(sys.argv[1]) as table:
    exec(compile(table.read(), sys.argv[1], "exec"), module.__dict__)
from app.main import current_document, whole_document
from docs import generate
made = [whole_document(), json.loads(current_document()), generate.errors_page(), generate.client_errors()]
json.dump(made, sys.stdout)
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """Return the whole document, the published one, the rows of errors.md, and the library's table of exceptions."""
    head, end, tail = TABLE.read_text("utf-8").partition("ALL = tuple(")
    assert end
    copy = tmp_path_factory.mktemp("table") / "kinds.py"
    copy.write_text(head + ENTRY + ENTRY_WITH_MEMBERS + end + tail, "utf-8")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(copy)], cwd=TABLE.parents[2], capture_output=True, check=True, text=True
    )
    result: list[Any] = json.loads(done.stdout)
    return result


def test_openapi_shows_it_at_every_route_of_its_groups(made: list[Any]) -> None:
    whole = made[0]
    appended = whole["paths"]["/v1/topics/{topic}/partitions/{partition}/records"]
    answer = appended["post"]["responses"]["503"]
    example = answer["content"]["application/problem+json"]["examples"]["topic_asleep"]
    assert example["summary"] == "The topic is asleep; the first request wakes it."
    facts = {name: example["value"][name] for name in ("title", "kafka_code", "retryable", "applied", "retry_after_ms")}
    assert facts == {
        "title": "Topic asleep",
        "kafka_code": 5,
        "retryable": True,
        "applied": "no",
        "retry_after_ms": 250,
    }
    assert "Topic asleep" in answer["description"]
    assert "Retry-After" in answer["headers"]
    assert "topic_asleep" not in json.dumps(appended["get"])


def test_openapi_has_a_schema_for_its_members(made: list[Any]) -> None:
    published = made[1]
    schema = published["components"]["schemas"]["PlanMissingProblem"]
    assert schema["properties"]["capability"] == {"type": ["string", "null"], "description": "The missing capability."}
    assert {"code", "kafka_code", "applied"} <= schema["properties"].keys()
    content = published["paths"]["/v1/producers"]["post"]["responses"]["501"]["content"]["application/problem+json"]
    assert content["schema"] == {"$ref": "#/components/schemas/PlanMissingProblem"}


def test_the_reference_has_its_row(made: list[Any]) -> None:
    row = "| 503 | `topic_asleep` | 5 | yes | no | The topic is asleep; the first request wakes it. |"
    assert row in made[2]


def test_the_library_raises_its_exception(made: list[Any]) -> None:
    assert '    "topic_asleep": TopicNotFoundError,' in made[3]
