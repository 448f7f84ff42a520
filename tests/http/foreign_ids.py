"""The dimension of own and foreign ids: what each principal can do with each kind of id that another was given.

Two principals may do everything to one topic, and each to the transactional ids, applications and groups of its own
name. So whatever the one can do to what the other was given comes from knowing its id, and from nothing else.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

import httpx

from app.access.access_documents import acl_from
from app.cli.administration.offline_access import open_registry
from rollway.records import Codec, Record, columns_from_records, encode_batch, split_batches
from storage.log.files_at_rest import begin_change
from tests.support.access import bearer
from tests.support.servers import ThreadedServer, http_client

RAW = "application/vnd.kafka.record-batch.v2"
NDJSON = "application/x-ndjson"
NEVER_GIVEN = 2**40
SOON_MS = int(time.time() * 1000) + 3_600_000
TOPIC = {"config": {"max.message.bytes": 4 * 1024 * 1024}}
LARGE_BYTES = 1536 * 1024


@dataclass(frozen=True)
class Given:
    """A producer id that somebody was given. ``name`` is the transactional id, if there is one."""

    producer_id: int
    epoch: int = 0
    name: str | None = None
    is_transactional: bool = False


@dataclass
class Stand:
    """A service, and one client for each principal."""

    server: ThreadedServer
    mine: httpx.Client
    other: httpx.Client
    replica: httpx.Client
    admin: httpx.Client
    numbers: Iterator[int] = field(default_factory=count)
    RIGHTS: ClassVar[dict[str, list[tuple[str, str, str, str]]]] = {
        "mine": [("ALL", "topic", "*", "literal"), ("ALL", "transactional_id", "mine-", "prefixed")],
        "other": [("ALL", "topic", "*", "literal"), ("ALL", "transactional_id", "other-", "prefixed")],
        "replica": [("ALL", "topic", "*", "literal"), ("CLUSTER_ACTION", "cluster", "kafka-cluster", "literal")],
    }

    def new_topic(self) -> str:
        """The name of a topic with one partition that nothing was written to."""
        name = f"ids{next(self.numbers)}"
        assert self.admin.put(f"/v1/topics/{name}", json=TOPIC).status_code == 201
        manager = getattr(self.server.service.parts.engine, "manager", None)
        if manager is not None:
            # As an earlier append would: the first change of a partition that rested is no work for the fast path.
            begin_change(manager.partition(name, 0).writer)
        return name

    def end_of(self, topic: str) -> int:
        """The log end offset."""
        answer = self.admin.get(f"/v1/topics/{topic}/partitions/0").json()
        return int(answer["log_end_offset"])


def make_keys(data_dir: Path) -> dict[str, str]:
    """A key for each principal, with its rights, in a data directory that no service uses yet."""
    keys = {}
    with open_registry(data_dir) as registry:
        for who, rights in Stand.RIGHTS.items():
            rights = [*rights, ("ALL", "group", f"{who}-", "prefixed")]
            for operation, kind, name, pattern in rights:
                acl = {"principal": f"User:{who}", "operation": operation, "resource_type": kind}
                registry.add_acls([acl_from(acl | {"resource_name": name, "pattern_type": pattern})])
            keys[who] = registry.create_key(f"User:{who}")[1]
        keys["admin"] = registry.create_key("User:admin")[1]
    return keys


def stand(data_dir: Path, keys: dict[str, str], **settings: Any) -> Iterator[Stand]:
    """The service of these keys, while it runs."""
    with (
        ThreadedServer(data_dir, authentication=True, super_users=["User:admin"], **settings) as server,
        http_client(server.url, headers=bearer(keys["mine"])) as mine,
        http_client(server.url, headers=bearer(keys["other"])) as other,
        http_client(server.url, headers=bearer(keys["replica"])) as replica,
        http_client(server.url, headers=bearer(keys["admin"])) as admin,
    ):
        yield Stand(server, mine, other, replica, admin)


# Kinds of ids, as ``mine`` is given them


def plain_producer(stand: Stand, client: httpx.Client, prefix: str) -> Given:
    answer = client.post("/v1/producers", json={})
    assert answer.status_code == 200, answer.text
    return Given(answer.json()["producer_id"])


def transactional_producer(stand: Stand, client: httpx.Client, prefix: str) -> Given:
    name = f"{prefix}app{next(stand.numbers)}"
    answer = client.post("/v1/producers", json={"transactional_id": name}).json()
    return Given(answer["producer_id"], answer["producer_epoch"], name, is_transactional=True)


def attempt(stand: Stand, client: httpx.Client, prefix: str) -> Given:
    return _of_job(stand, client, f"{prefix}job{next(stand.numbers)}", "transactional")


def task_of_idempotent_job(stand: Stand, client: httpx.Client, prefix: str) -> Given:
    return _of_job(stand, client, f"{prefix}load{next(stand.numbers)}", "idempotent")


def _of_job(stand: Stand, client: httpx.Client, application: str, mode: str) -> Given:
    topics = [stand.new_topic()]
    specification = {"application_id": application, "version": 1, "mode": mode, "topics": topics}
    job = client.post("/v1/jobs", json=specification)
    assert job.status_code == 201, job.text
    enlisted = client.post(f"/v1/jobs/{job.json()['job_id']}/attempts", json={"task": 0})
    assert enlisted.status_code in (200, 201), enlisted.text
    is_transactional = mode == "transactional"
    return Given(enlisted.json()["producer_id"], is_transactional=is_transactional)


KINDS: dict[str, Callable[[Stand, httpx.Client, str], Given]] = {
    "a producer": plain_producer,
    "a transactional producer": transactional_producer,
    "an attempt of a load job": attempt,
    "a task of an idempotent load job": task_of_idempotent_job,
}


# Ways to write under an id


def batch_of(given: Given, *, transactional: bool, codec: Codec = Codec.NONE, value: bytes = b"v") -> bytes:
    """One record as sequence 0."""
    columns = columns_from_records([Record(0, 1_700_000_000_000, None, value)])
    return encode_batch(
        columns,
        codec=codec,
        producer_id=given.producer_id,
        producer_epoch=given.epoch,
        base_sequence=0,
        transactional=transactional,
    )


def _raw(client: httpx.Client, topic: str, batch: bytes, query: str = "", **headers: str) -> httpx.Response:
    path = f"/v1/topics/{topic}/partitions/0/records{query}"
    # Again and again: plain requests that came before are answered on the connection.
    return client.post(path, content=batch, headers={"Content-Type": RAW, **headers})


def _stamped(given: Given) -> dict[str, str]:
    return {"Producer-Id": str(given.producer_id), "Producer-Epoch": str(given.epoch), "Base-Sequence": "0"}


def _part(client: httpx.Client, topic: str, given: Given, part: dict[str, Any], **members: Any) -> httpx.Response:
    body = {"partitions": [{"topic": topic, "partition": 0, **part}], **members}
    return client.post("/v1/produce", json=body)


def _identity(given: Given) -> dict[str, int]:
    return {"producer_id": given.producer_id, "producer_epoch": given.epoch}


Way = Callable[[httpx.Client, str, Given], httpx.Response]
PLAIN_WAYS: dict[str, Way] = {
    "a batch": lambda client, topic, given: _raw(client, topic, batch_of(given, transactional=False)),
    "a batch without waiting": lambda client, topic, given: _raw(
        client, topic, batch_of(given, transactional=False), "?acks=0"
    ),
    "a compressed batch": lambda client, topic, given: _raw(
        client, topic, batch_of(given, transactional=False, codec=Codec.GZIP)
    ),
    "a large batch": lambda client, topic, given: _raw(
        client, topic, batch_of(given, transactional=False, value=bytes(LARGE_BYTES))
    ),
    "a batch behind one of no producer": lambda client, topic, given: _raw(
        client,
        topic,
        encode_batch(columns_from_records([Record(0, 1, None, b"n")])) + batch_of(given, transactional=False),
    ),
    "JSON with headers": lambda client, topic, given: client.post(
        f"/v1/topics/{topic}/partitions/0/records", json={"records": [{"value": "v"}]}, headers=_stamped(given)
    ),
    "a stream of lines": lambda client, topic, given: client.post(
        f"/v1/topics/{topic}/partitions/0/records",
        content=b'{"value":"v"}\n',
        headers={"Content-Type": NDJSON, **_stamped(given)},
    ),
    "a part of records": lambda client, topic, given: _part(
        client, topic, given, {"records": [{"value": "v"}], "base_sequence": 0}, **_identity(given)
    ),
    "a part of batches": lambda client, topic, given: _part(
        client,
        topic,
        given,
        {"record_batches": base64.b64encode(batch_of(given, transactional=False)).decode()},
    ),
}
TRANSACTIONAL_WAYS: dict[str, Way] = {
    "a transactional batch": lambda client, topic, given: _raw(client, topic, batch_of(given, transactional=True)),
    "a compressed transactional batch": lambda client, topic, given: _raw(
        client, topic, batch_of(given, transactional=True, codec=Codec.GZIP)
    ),
    "a transactional part of batches": lambda client, topic, given: _part(
        client,
        topic,
        given,
        {"record_batches": base64.b64encode(batch_of(given, transactional=True)).decode()},
    ),
}
NAMING_WAYS: dict[str, Way] = {
    "JSON that names the transactional id": lambda client, topic, given: client.post(
        f"/v1/topics/{topic}/partitions/0/records",
        json={"records": [{"value": "v"}]},
        headers={**_stamped(given), "Transactional-Id": str(given.name)},
    ),
    "a part that names the transactional id": lambda client, topic, given: _part(
        client,
        topic,
        given,
        {"records": [{"value": "v"}], "base_sequence": 0},
        transactional_id=given.name,
        **_identity(given),
    ),
}


def ways_for(given: Given) -> dict[str, Way]:
    """The ways in which records can come under this id."""
    ways = dict(PLAIN_WAYS)
    if given.is_transactional:
        ways |= TRANSACTIONAL_WAYS
    if given.name is not None:
        ways |= NAMING_WAYS
    return ways


# What must hold


def faults_of_producer_ids(stand: Stand, kinds: Collection[str] = KINDS.keys()) -> Iterator[str]:
    """Every way to write under an id of another principal that does not end as it must."""
    for kind, give in ((kind, KINDS[kind]) for kind in kinds):
        for way in ways_for(give(stand, stand.mine, "mine-")):
            given = give(stand, stand.mine, "mine-")
            yield from _faults(stand, f"{way}, {kind}", ways_for(given)[way], given)
    for way, write in (PLAIN_WAYS | TRANSACTIONAL_WAYS).items():
        topic = stand.new_topic()
        for what, given in (("never given", Given(NEVER_GIVEN)), ("of the service itself", pooled(stand))):
            answer = write(stand.other, topic, given)
            if not is_refused(answer) or stand.end_of(topic):
                yield f"{way}, an id {what}: {answer.status_code} {answer.text[:200]}"


def _faults(stand: Stand, what: str, write: Way, given: Given) -> Iterator[str]:
    topic = stand.new_topic()
    answer = write(stand.other, topic, given)
    if not is_refused(answer):
        yield f"{what}, of another: {answer.status_code} {answer.text[:200]}"
    if given.name is not None and given.name in answer.text and "names" not in what:
        yield f"{what}, of another: the answer tells that it is {given.name}"
    if stand.end_of(topic):
        yield f"{what}, of another: records were written"
    answer = write(stand.mine, topic, given)
    if answer.status_code != 200 or '"duplicate":true' in answer.text or not _is_written(stand, topic):
        yield f"{what}, of one's own: {answer.status_code} {answer.text[:200]}"


def _is_written(stand: Stand, topic: str) -> bool:
    """Whether there is a record before long: without waiting it may come after the answer."""
    ends = time.monotonic() + 10
    while not stand.end_of(topic):
        if time.monotonic() > ends:
            return False
    return True


def is_refused(answer: httpx.Response) -> bool:
    """Whether it is a refusal of these ids, with one of Kafka's codes for that."""
    if answer.headers.get("content-type") == NDJSON:
        document = json.loads(answer.content.splitlines()[-1]).get("error", {})
    else:
        document = answer.json() if answer.content else {}
    refusals = {"transactional_id_authorization_failed": 53, "invalid_producer_id_mapping": 49}
    code = document.get("code", "")
    return code in refusals and document.get("kafka_code") == refusals[code] and document.get("applied") == "no"


def pooled(stand: Stand) -> Given:
    """A producer of the service itself, as a request that is a transaction leaves it."""
    topic = stand.new_topic()
    parts = {"partitions": [{"topic": topic, "partition": 0, "records": [{"value": "v"}]}]}
    assert stand.admin.post("/v1/produce?atomic=true", json=parts).status_code == 200
    stored = stand.admin.get(f"/v1/topics/{topic}/partitions/0/records?offset=0", headers={"Accept": RAW}).content
    header = next(iter(split_batches(stored))).header
    return Given(header.producer_id, header.producer_epoch, is_transactional=True)


def faults_of_other_ids(stand: Stand) -> Iterator[str]:
    """Every other kind of id that does for ``other`` what it must do for ``mine`` alone."""
    yield from _faults_of_keys(stand)
    yield from _faults_of_sessions(stand)
    yield from _faults_of_tokens(stand)
    yield from _faults_of_names(stand)


def _faults_of_keys(stand: Stand) -> Iterator[str]:
    """An Idempotency-Key of one principal is another one than the same text of the other's."""
    topic = stand.new_topic()
    parts = {"partitions": [{"topic": topic, "partition": 0, "records": [{"value": "part"}]}]}
    body = {"records": [{"value": "v"}]}
    lines = {"content": b'{"value":"v"}\n', "headers": {"Content-Type": NDJSON, "Idempotency-Key": "lines"}}
    requests: dict[str, tuple[str, dict[str, Any]]] = {
        "partition": (f"/v1/topics/{topic}/partitions/0/records", {"json": body}),
        "topic": (f"/v1/topics/{topic}/records", {"json": body}),
        "parts": ("/v1/produce", {"json": parts}),
        "lines": (f"/v1/topics/{topic}/partitions/0/records", lines),
    }
    for key, (path, content) in requests.items():
        sent = {"headers": {"Idempotency-Key": key}, **content}
        before = stand.end_of(topic)
        for who, client, expected in (("other", stand.other, 1), ("mine", stand.mine, 2), ("mine", stand.mine, 2)):
            answer = client.post(path, **sent)
            if answer.status_code != 200 or stand.end_of(topic) != before + expected:
                yield f"Idempotency-Key in {key}, by {who}: {answer.status_code} {answer.text[:200]}"


def _faults_of_sessions(stand: Stand) -> Iterator[str]:
    topic = stand.new_topic()
    first = {"session_epoch": 0, "partitions": [{"topic": topic, "partition": 0, "fetch_offset": 0}]}
    session_id = stand.mine.post("/v1/fetch", json=first).json()["session_id"]
    for session_epoch in (1, -1):
        answer = stand.other.post("/v1/fetch", json={"session_id": session_id, "session_epoch": session_epoch})
        if session_epoch == 1 and answer.status_code != 404:
            yield f"a fetch session of another: {answer.status_code} {answer.text[:200]}"
    answer = stand.mine.post("/v1/fetch", json={"session_id": session_id, "session_epoch": 1})
    if answer.status_code != 200:
        yield f"a fetch session after another has tried to use and to end it: {answer.status_code} {answer.text[:200]}"


def _faults_of_tokens(stand: Stand) -> Iterator[str]:
    grants = [{"operations": ["READ"], "resource_type": "topic", "resource_name": "*", "pattern_type": "literal"}]
    made = stand.mine.post("/v1/tokens", json={"grants": grants, "expires_at": SOON_MS})
    assert made.status_code == 201, made.text
    token_id = made.json()["token_id"]
    if token_id in stand.other.get("/v1/tokens").text:
        yield "a token of another is listed"
    answer = stand.other.delete(f"/v1/tokens/{token_id}")
    if answer.status_code != 404 or token_id not in stand.mine.get("/v1/tokens").text:
        yield f"a token of another is revoked: {answer.status_code}"


def _faults_of_names(stand: Stand) -> Iterator[str]:
    """Jobs, transactions and start positions that belong to a name of ``mine``."""
    application, topic = f"mine-job{next(stand.numbers)}", stand.new_topic()
    job = stand.mine.post("/v1/jobs", json={"application_id": application, "version": 1, "topics": [topic]}).json()
    given = transactional_producer(stand, stand.mine, "mine-")
    group = f"mine-group{next(stand.numbers)}"
    positions = {"positions": {topic: {"0": 0}}}
    assert stand.mine.post(f"/v1/groups/{group}/start-positions", json=positions).status_code in (200, 201)
    at, end = f"/v1/jobs/{job['job_id']}", f"/v1/transactions/{given.name}"
    foreign: list[tuple[str, str, Any]] = [
        ("GET", at, None),
        ("POST", f"{at}/attempts", {"task": 0}),
        ("POST", f"{at}/commit", {"winners": []}),
        ("POST", f"{at}/abort", None),
        ("POST", "/v1/jobs", {"application_id": application, "version": 2}),
        ("GET", end, None),
        ("POST", f"{end}/commit", _identity(given)),
        ("POST", f"{end}/abort", _identity(given)),
        ("POST", "/v1/producers", {"transactional_id": given.name}),
        ("GET", f"/v1/groups/{group}/start-positions", None),
        ("POST", f"/v1/groups/{group}/start-positions", positions),
        ("DELETE", f"/v1/groups/{group}/start-positions", None),
    ]
    for method, path, body in foreign:
        answer = stand.other.request(method, path, json=body)
        if answer.status_code != 403:
            yield f"{method} {path} by another: {answer.status_code} {answer.text[:200]}"
    for path in ("/v1/jobs", "/v1/transactions"):
        if "mine-" in stand.other.get(path).text:
            yield f"GET {path} shows what is another's"
    shown = stand.mine.get(at).json()
    if shown["state"] != "open" or stand.mine.get(end).json()["producer_epoch"] != given.epoch:
        yield f"the job or the transactional id of mine has changed: {shown}"
