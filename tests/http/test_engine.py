"""The capability table of the engine: shown by GET /v1/engine, enforced with 501 where a capability is missing."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, get_args

import httpx
import pytest
from fastapi.routing import APIRoute

from app import paths
from app.access.capabilities import capability_of
from app.engine.capabilities import INSTEAD, Capabilities, Capability
from app.engine_local.engine import CAPABILITIES
from app.main import ROUTERS, VERSION, whole_document
from rollway.client.errors import UnsupportedByEngineError, problem_error
from schemas.engine import EngineCapabilities
from tests.support.servers import ThreadedServer, http_client
from tests.support.transactions import ProducerIdentity, transactional_batch
from tests.support.writers import record_batch

NAMES = get_args(Capability)
DOCUMENT = whole_document()
ROUTES: dict[str, tuple[str, str]] = {
    capability: (route.path, method)
    for router in ROUTERS
    for route in router.routes
    if isinstance(route, APIRoute) and (capability := capability_of(route.endpoint))
    for method in route.methods or ()
}
PARAMETERS = ("fsync_durability", "expected_offset", "atomic_batches")
"""The capabilities that requests to routes of every engine may need."""
PRODUCE_PATHS = (
    *(paths.PRODUCE, paths.TOPIC_RECORDS, paths.TOPIC_RECORD_LINES),
    *(paths.RECORDS, paths.RECORD_BATCHES, paths.RECORD_LINES),
)
LESS = replace(CAPABILITIES, engine="less", **dict.fromkeys((*ROUTES, *PARAMETERS), False))


@pytest.fixture(scope="module")
def less(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A service whose engine lacks every capability that a route or a parameter needs."""
    with ThreadedServer(tmp_path_factory.mktemp("less") / "data") as server, http_client(server.url) as client:
        server.service.parts.engine.capabilities = LESS
        client.put("/v1/topics/t", json={"partitions": 2}).raise_for_status()
        yield client


def path_of(capability: str) -> str:
    return ROUTES[capability][0].format(topic="t", partition=0)


def test_the_table_is_one_in_the_port_and_in_the_interface() -> None:
    assert [field.name for field in fields(Capabilities)] == ["engine", *NAMES]
    assert tuple(EngineCapabilities.model_fields) == NAMES
    assert Capabilities(engine="local", **dict.fromkeys(NAMES, True)) == CAPABILITIES
    assert [CAPABILITIES.has(name) for name in NAMES] == [True] * len(NAMES)
    assert not replace(CAPABILITIES, fetch_sessions=False).has("fetch_sessions")


@pytest.mark.needs_local("it looks into the local engine")
def test_the_local_engine_can_do_all(client: httpx.Client) -> None:
    answer = client.get("/v1/engine")
    assert answer.status_code == 200, answer.text
    assert answer.json() == {"engine": "local", "version": VERSION, "capabilities": dict.fromkeys(NAMES, True)}


def test_the_table_shows_what_an_engine_lacks(less: httpx.Client) -> None:
    shown = less.get("/v1/engine").json()
    assert shown["engine"] == "less"
    assert shown["capabilities"] == {name: name not in (*ROUTES, *PARAMETERS) for name in NAMES}
    assert {"engine": shown["engine"], **shown["capabilities"]} == asdict(LESS)


def test_these_routes_need_a_capability() -> None:
    assert ROUTES == {
        "segments": ("/v1/topics/{topic}/partitions/{partition}/segments", "GET"),
        "retention_plan": ("/v1/topics/{topic}/retention/plan", "GET"),
        "retention_run": ("/v1/topics/{topic}/retention/run", "POST"),
        "begin_epoch": ("/v1/topics/{topic}/partitions/{partition}/epochs", "POST"),
    }
    assert INSTEAD.keys() == {*ROUTES, *PARAMETERS}


def test_the_document_has_the_501_where_a_capability_is_needed_and_nowhere_else() -> None:
    shown = {
        (path, method.upper()): operation["responses"]["501"]
        for path, methods in DOCUMENT["paths"].items()
        for method, operation in methods.items()
        if "501" in operation["responses"]
    }
    producing = {(path, "POST") for path in PRODUCE_PATHS}
    assert shown.keys() == set(ROUTES.values()) | producing
    for response in shown.values():
        (example,) = response["content"]["application/problem+json"]["examples"].values()
        assert example["value"]["code"] == "unsupported_by_engine"


@pytest.mark.parametrize("capability", ROUTES)
@pytest.mark.parametrize("body", [b"", b"no JSON"])
def test_a_missing_capability_is_501_before_the_body_is_read(less: httpx.Client, capability: str, body: bytes) -> None:
    method = ROUTES[capability][1]
    answer = less.request(method, path_of(capability), content=body)
    assert (answer.status_code, answer.headers["content-type"]) == (501, "application/problem+json")
    document: dict[str, Any] = answer.json()
    assert document == {
        "type": "urn:rollway:problem:unsupported_by_engine",
        "title": "Unsupported by engine",
        "status": 501,
        "detail": INSTEAD[capability],  # type: ignore[index]
        "instance": path_of(capability),
        "code": "unsupported_by_engine",
        "kafka_code": -1,
        "retryable": False,
        "applied": "no",
        "retry_after_ms": None,
        "errors": [],
        "engine": "less",
        "capability": capability,
    }


def test_head_of_a_route_without_its_capability_is_501(less: httpx.Client) -> None:
    assert less.head(path_of("segments")).status_code == 501


def test_the_library_raises_its_own_error_for_it(less: httpx.Client) -> None:
    answer = less.get(path_of("segments"))
    error = problem_error(str(less.base_url), answer.status_code, answer.json())
    assert isinstance(error, UnsupportedByEngineError)
    assert error.capability == "segments"
    assert INSTEAD["segments"] in str(error)
    assert UnsupportedByEngineError("http://a", 501, {}).capability is None


def test_other_routes_of_the_same_topic_are_served(less: httpx.Client) -> None:
    """A refused begin of an epoch began none."""
    less.post(path_of("begin_epoch"))
    assert less.get(path_of("begin_epoch")).json()["leader_epoch"] == 0
    assert less.get("/v1/topics/t/retention").status_code == 200
    assert len(less.get("/v1/topics/t").json()["partitions"]) == 2
    assert less.post("/v1/topics/t/partitions/0/delete-records", json={"offset": 0}).json() == {"log_start_offset": 0}


# Parameters and bodies that need a capability

BATCH = record_batch(b"a")
RAW = {"Content-Type": "application/vnd.kafka.record-batch.v2"}


def refused_with(answer: httpx.Response, capability: Capability) -> None:
    problem = answer.json()
    assert (answer.status_code, problem["code"], problem["applied"]) == (501, "unsupported_by_engine", "no")
    assert (problem["capability"], problem["detail"]) == (capability, INSTEAD[capability])


def log_ends(client: httpx.Client) -> list[int]:
    return [one["log_end_offset"] for one in client.get("/v1/topics/t").json()["partitions"]]


@pytest.mark.parametrize("path", PRODUCE_PATHS)
def test_an_engine_that_tells_no_fsync_refuses_to_wait_for_one(less: httpx.Client, path: str) -> None:
    before = log_ends(less)
    address = path.format(topic="t", partition=0)
    refused_with(less.post(address, params={"durability": "fsynced"}, json={}), "fsync_durability")
    assert log_ends(less) == before


def test_an_engine_without_conditional_appends_refuses_the_condition(less: httpx.Client) -> None:
    before = log_ends(less)
    for path in (paths.RECORDS, paths.RECORD_BATCHES, paths.RECORD_LINES):
        address = path.format(topic="t", partition=0)
        refused_with(less.post(address, params={"expected_offset": before[0]}, content=BATCH), "expected_offset")
    assert log_ends(less) == before


def test_an_engine_that_appends_batches_one_by_one_takes_one_of_a_partition(less: httpx.Client) -> None:
    before = log_ends(less)
    address = paths.RECORD_BATCHES.format(topic="t", partition=0)
    for _ in range(3):
        # Once the route has seen a request, the fast path answers the next.
        less.post(address, content=BATCH, headers=RAW).raise_for_status()
        refused_with(less.post(address, content=BATCH * 2, headers=RAW), "atomic_batches")
    assert log_ends(less) == [before[0] + 3, before[1]]


def test_a_part_with_several_batches_is_refused_alone(less: httpx.Client) -> None:
    before = log_ends(less)
    batches = base64.b64encode(BATCH * 2).decode()
    parts = [
        {"topic": "t", "partition": 0, "record_batches": batches},
        {"topic": "t", "partition": 1, "records": [{"value": "b"}]},
    ]
    answer = less.post(paths.PRODUCE, json={"partitions": parts})
    assert answer.status_code == 207, answer.text
    first, second = answer.json()["results"]
    assert (first["error"]["code"], first["error"]["capability"]) == ("unsupported_by_engine", "atomic_batches")
    assert second["base_offset"] == before[1]
    assert log_ends(less) == [before[0], before[1] + 1]


def test_refused_batches_do_not_join_a_transaction(less: httpx.Client) -> None:
    answer = less.post("/v1/producers", json={"transactional_id": "careful"}).json()
    batch = transactional_batch(ProducerIdentity(answer["producer_id"], answer["producer_epoch"]), 0, b"a")
    address = paths.RECORD_BATCHES.format(topic="t", partition=0)
    refused_with(less.post(address, content=batch * 2, headers=RAW), "atomic_batches")
    assert less.get("/v1/transactions/careful").json()["partitions"] == []


def test_while_the_logs_are_being_opened_the_capability_is_not_known(tmp_path: Path) -> None:
    """The engine is there only once they are open: 503, not 501."""
    with ThreadedServer(tmp_path / "data") as server, http_client(server.url) as client:
        server.service.parts.engine.capabilities = LESS
        server.service.release()
        for method, path in [("GET", "/v1/engine"), ("GET", path_of("segments"))]:
            answer = client.request(method, path)
            assert (answer.status_code, answer.json()["code"]) == (503, "shutting_down")
