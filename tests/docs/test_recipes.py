"""The recipes of CONTRIBUTING for a query parameter and a route, tried on a copy of the packages that they change.

``tests/unit/app/problems/test_one_entry.py`` tries the recipe for an error code.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from app.media_types import RECORD_BATCHES

ROOT = Path(__file__).parents[2]
PACKAGES = ("app", "schemas", "log_model", "storage")

# The parameter `most_records`: an append may have this many records at most.
PARAMETER = {
    "app/routes/records/produce_requests.py": [
        (
            "    timeout_ms: Annotated[\n        int,\n        WholeNumber(1, TIMEOUT_MS_MAX),",
            (
                "    most_records: Annotated[\n"
                "        Annotated[int, WholeNumber(1, 1_000)] | None,\n"
                '        Field(description="Append at most this many records; 422 if the body has more."),\n'
                "    ] = None\n"
                "    timeout_ms: Annotated[\n        int,\n        WholeNumber(1, TIMEOUT_MS_MAX),"
            ),
        ),
        (
            "AppendOptions(acks, self.durability, self.timeout_ms, expected_offset)",
            "AppendOptions(acks, self.durability, self.timeout_ms, expected_offset, self.most_records)",
        ),
    ],
    "app/engine/appending.py": [
        (
            "    expected_offset: int | None = None\n",
            "    expected_offset: int | None = None\n    most_records: int | None = None\n",
        ),
    ],
    "app/engine_local/partitions/appends.py": [
        (
            "        request = AppendRequest(",
            (
                "        count = sum(batch.header.record_count for batch in batches)\n"
                "        if options.most_records is not None and count > options.most_records:\n"
                '            raise InvalidTxnStateError(f"{count} records are too many")\n'
                "        request = AppendRequest("
            ),
        ),
    ],
}

# The route `GET .../partitions/{partition}/size`.
ROUTE = {
    "app/paths.py": [
        ('SEGMENTS = f"{PARTITION}/segments"', 'SEGMENTS = f"{PARTITION}/segments"\nSIZE = f"{PARTITION}/size"')
    ],
    "schemas/topics.py": [
        (
            "class PartitionList(Schema):",
            (
                "class PartitionSize(Schema):\n"
                '    """The size of one partition."""\n\n'
                '    size_bytes: Annotated[int, Field(description="Bytes of the batches.", examples=[1024])]\n\n\n'
                "class PartitionList(Schema):"
            ),
        ),
    ],
    "app/routes/topics/topics.py": [
        ("SEGMENTS, TOPIC, TOPICS", "SEGMENTS, SIZE, TOPIC, TOPICS"),
        ("    PartitionList,\n    SegmentList,\n", "    PartitionList,\n    PartitionSize,\n    SegmentList,\n"),
        (
            "@router.get(\n    SEGMENTS,",
            (
                "@router.get(\n"
                '    SIZE, operation_id="getPartitionSize", summary="Get the size", responses=problems(*NAMED)\n'
                ")\n"
                "@needs(Operation.DESCRIBE, ResourceKind.TOPIC)\n"
                "async def get_partition_size(\n"
                "    topic: TopicName, partition: PartitionNumber, engine: EngineOf\n"
                ") -> PartitionSize:\n"
                '    """Return the size of the partition."""\n'
                "    view = await engine.topics.describe_partition(topic, partition)\n"
                "    return PartitionSize(size_bytes=view.size_bytes)\n\n\n"
                "@router.get(\n    SEGMENTS,"
            ),
        ),
    ],
}

PROGRAM = """
import json, sys
from pathlib import Path
import httpx
import app
assert Path(app.__file__).is_relative_to(sys.argv[1]), app.__file__
from app.main import current_document
from tests.support.servers import ThreadedServer
from tests.support.writers import record_batch
answers = []
with ThreadedServer(Path(sys.argv[2])) as server, httpx.Client(base_url=server.url) as client:
    client.put("/v1/topics/t", json={"partitions": 1}).raise_for_status()
    for method, path, body, headers in json.loads(sys.argv[3]):
        content = record_batch(*(value.encode() for value in body)) if isinstance(body, list) else None
        answer = client.request(method, path, content=content, headers=headers)
        answers.append([answer.status_code, answer.json()])
json.dump({"answers": answers, "document": json.loads(current_document())}, sys.stdout)
"""
RAW = {"Content-Type": RECORD_BATCHES}
RECORDS = "/v1/topics/t/partitions/0/records"


def tried(tmp_path: Path, changes: dict[str, list[tuple[str, str]]], requests: list[tuple[Any, ...]]) -> dict[str, Any]:
    """Return the answers of a service with the changes to ``requests``, and its published OpenAPI document."""
    copy = tmp_path / "copy"
    for package in PACKAGES:
        shutil.copytree(ROOT / package, copy / package, ignore=shutil.ignore_patterns("__pycache__", "*.c", "*.pyx"))
    for name, replacements in changes.items():
        text = (copy / name).read_text("utf-8")
        for old, new in replacements:
            assert text.count(old) == 1, f"{name}: {old!r} is there {text.count(old)} times"
            text = text.replace(old, new)
        (copy / name).write_text(text, "utf-8")
    done = subprocess.run(
        [sys.executable, "-B", "-c", PROGRAM, str(copy), str(tmp_path / "data"), json.dumps(requests)],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": f"{copy}{os.pathsep}{ROOT}"},
        capture_output=True,
        check=False,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    made: dict[str, Any] = json.loads(done.stdout)
    return made


def recipe(title: str) -> str:
    """Return the text of one recipe."""
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    return text.partition(f"### {title}\n")[2].partition("\n### ")[0].partition("\n## ")[0]


@pytest.mark.parametrize(
    ("title", "changes", "files_max"),
    [("I add a query parameter of produce", PARAMETER, 3), ("I add a route", ROUTE, 6)],
)
def test_a_recipe_names_each_file_that_it_changes(
    title: str, changes: dict[str, list[tuple[str, str]]], files_max: int
) -> None:
    assert len(changes) <= files_max
    for name in changes:
        assert f"`{name}`" in recipe(title) or f"`{Path(name).parent}/`" in recipe(title), name


def test_a_query_parameter_of_produce_is_three_files(tmp_path: Path) -> None:
    few, many = ["a"], ["a", "b", "c"]
    made = tried(
        tmp_path,
        PARAMETER,
        # Twice each: the second of equal requests may be answered on the connection.
        [("POST", f"{RECORDS}?most_records=2", body, RAW) for body in (few, few, many, many)]
        + [("POST", RECORDS, many, RAW)] * 2
        + [("POST", f"{RECORDS}?most_records=0", few, RAW)],
    )
    assert [status for status, _ in made["answers"]] == [200, 200, 409, 409, 200, 200, 422]
    assert made["answers"][2][1]["detail"] == "3 records are too many"
    assert [fault["pointer"] for fault in made["answers"][6][1]["errors"]] == ["most_records"]
    operation = made["document"]["paths"]["/v1/topics/{topic}/partitions/{partition}/record-batches"]["post"]
    assert "most_records" in [parameter["name"] for parameter in operation["parameters"]]


def test_a_route_is_three_files_and_its_tests(tmp_path: Path) -> None:
    path = "/v1/topics/t/partitions/0/size"
    made = tried(tmp_path, ROUTE, [("GET", path, None, {}), ("GET", path.replace("/t/", "/gone/"), None, {})])
    (status, size), (missing, problem) = made["answers"]
    assert (status, size) == (200, {"size_bytes": 0})
    assert (missing, problem["code"]) == (404, "unknown_topic_or_partition")
    operation = made["document"]["paths"]["/v1/topics/{topic}/partitions/{partition}/size"]["get"]
    assert operation["operationId"] == "getPartitionSize"
