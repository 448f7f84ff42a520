"""Every route asked by every kind of principal: what each may do is derived here, from a table and a few rules, and not
from the code that decides it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.access.access_documents import acl_from
from app.access.credentials import Grant
from app.access.operations import Operation, Pattern, PatternKind, ResourceKind
from app.access.registry import AccessRegistry
from app.cli.administration.offline_access import open_registry
from app.main import whole_document
from tests.support.access import JwtIssuer, bearer
from tests.support.servers import ThreadedServer, http_client
from tests.support.writers import record_batch

DOCUMENT = whole_document()
OPERATIONS = {
    operation["operationId"]: (method.upper(), path)
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
}
# The service has it, and the document does not.
OPERATIONS["headRecords"] = ("HEAD", OPERATIONS["fetchRecords"][1])
TOPIC, LOADER, READERS = "orders", "loader", "readers"

T, C, X, G = "topic", "cluster", "transactional_id", "group"
OPEN, KNOWN = "open", "known"

# What each route needs. A tuple: any of these is enough. The refusal is that of the last one.
NEEDS: dict[str, Any] = {
    "getHealth": OPEN,
    "getReadiness": OPEN,
    "getMetrics": [(C, "DESCRIBE")],
    "getEngine": [(C, "DESCRIBE")],
    "ensureTopic": [(T, "CREATE"), (C, "CREATE")],
    "getTopic": [(T, "DESCRIBE")],
    "alterTopic": [(T, "ALTER")],
    "deleteTopic": [(T, "DELETE")],
    "listTopics": KNOWN,
    "listPartitions": [(T, "DESCRIBE")],
    "getPartition": [(T, "DESCRIBE")],
    "listSegments": [(T, "DESCRIBE")],
    "produceRecords": [(T, "WRITE")],
    "produceRecordsToTopic": [(T, "WRITE")],
    "fetchRecords": [(T, "READ")],
    "headRecords": [(T, "READ")],
    "produceRecordBatches": [(T, "WRITE")],
    "fetchRecordBatches": [(T, "READ")],
    "produceRecordLines": [(T, "WRITE")],
    "produceRecordLinesToTopic": [(T, "WRITE")],
    "fetchRecordLines": [(T, "READ")],
    "getRecord": [(T, "READ")],
    "getRecordValue": [(T, "READ")],
    "produce": [(T, "WRITE")],
    "fetchMany": KNOWN,  # errors are the partitions'; see test_routes_of_many_resources_answer_each_by_itself
    "getOffset": [(T, "DESCRIBE")],
    "findOffsets": [(T, "DESCRIBE")],
    "splitTopic": [(T, "DESCRIBE")],
    "getEpochs": [(T, "DESCRIBE")],
    "beginEpoch": [(T, "ALTER")],
    "initialiseProducer": [(X, "WRITE")],
    "commitTransaction": [(X, "WRITE")],
    "abortTransaction": [(X, "WRITE")],
    "listTransactions": KNOWN,
    "getTransaction": [(X, "DESCRIBE")],
    "pinStartPositions": [(G, "READ")],  # and of each topic; see tests/http/test_start_positions.py
    "getStartPositions": [(G, "DESCRIBE")],
    "deleteStartPositions": [(G, "DELETE")],
    "beginJob": [(X, "WRITE")],
    "listJobs": KNOWN,
    "getJob": [(X, "DESCRIBE")],
    "enlistAttempt": [(X, "WRITE")],
    "commitJob": [(X, "WRITE")],
    "abortJob": [(X, "WRITE")],
    "listOpenTransactions": [(T, "DESCRIBE")],
    "abortHangingTransaction": [(C, "ALTER")],
    "getRetentionPolicy": [(T, "DESCRIBE_CONFIGS")],
    "setRetentionPolicy": [(T, "ALTER_CONFIGS")],
    "getRetentionPlan": [(T, "DESCRIBE")],
    "runRetention": [(T, "DELETE")],
    "deleteRecords": [(T, "DELETE")],
    "listQuotas": [(C, "DESCRIBE_CONFIGS")],
    "setQuota": [(C, "ALTER_CONFIGS")],
    "deleteQuota": [(C, "ALTER_CONFIGS")],
    "listKeys": [(C, "DESCRIBE")],
    "createKey": [(C, "ALTER")],
    "revokeKey": [(C, "ALTER")],
    "listAcls": [(C, "DESCRIBE")],
    "addAcls": [(C, "ALTER")],
    "removeAcls": [(C, "ALTER")],
    "listTokens": KNOWN,
    "createToken": KNOWN,
    "revokeToken": KNOWN,
}
# Routes that answer 403 about a topic that cannot be seen, and not 404: creating it, and asking about many.
SHOWN = {"ensureTopic", "findOffsets", "produce"}
BODIES: dict[str, Any] = {
    "alterTopic": {"partitions": 1},
    "produceRecords": {"records": [{"value": "v"}]},
    "produceRecordsToTopic": {"records": [{"value": "v"}]},
    "produce": {"partitions": [{"topic": TOPIC, "partition": 0, "records": [{"value": "v"}]}]},
    "fetchMany": {"partitions": [{"topic": TOPIC, "partition": 0, "fetch_offset": 0}]},
    "findOffsets": {"queries": [{"topic": TOPIC, "partition": 0, "timestamp": "earliest"}]},
    "initialiseProducer": {"transactional_id": LOADER},
    "commitTransaction": {"producer_id": 1, "producer_epoch": 0},
    "abortTransaction": {"producer_id": 1, "producer_epoch": 0},
    "pinStartPositions": {"positions": {}},
    "beginJob": {"application_id": LOADER, "version": 2},
    "enlistAttempt": {"task": 0},
    "commitJob": {"winners": []},
    "abortHangingTransaction": {"producer_id": 1, "first_offset": 0},
    "setRetentionPolicy": {"retention_ms": -1},
    "deleteRecords": {"offset": 0, "dry_run": True},
    "setQuota": {"producer_byte_rate": 1_000_000_000},
    "createKey": {"principal": "User:ANONYMOUS"},  # allowed, and then refused as such: 422
    "addAcls": {"acls": []},
    "createToken": {"grants": []},
}
CONTENTS: dict[str, tuple[str, bytes]] = {
    "produceRecordBatches": ("application/octet-stream", record_batch(b"v")),
    "produceRecordLines": ("application/x-ndjson", b'{"value":"v"}\n'),
    "produceRecordLinesToTopic": ("application/x-ndjson", b'{"value":"v"}\n'),
}
"""Bodies that are not JSON."""
QUERIES: dict[str, dict[str, str]] = {
    "fetchRecords": {"offset": "0"},
    "headRecords": {"offset": "0"},
    "fetchRecordBatches": {"offset": "0"},
    "fetchRecordLines": {"offset": "0"},
    "getOffset": {"timestamp": "earliest"},
    "setQuota": {"user": "User:nobody"},
    "deleteQuota": {"user": "User:nobody"},
    "removeAcls": {"principal": "User:nobody"},
}
CODES = {T: ("topic_authorization_failed", 29), C: ("cluster_authorization_failed", 31)}
CODES[X] = ("transactional_id_authorization_failed", 53)
CODES[G] = ("group_authorization_failed", 30)
NAMES = {T: TOPIC, C: "kafka-cluster", X: LOADER, G: READERS}
OFFERED = {
    T: ["READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"],
    C: [
        "CREATE",
        "ALTER",
        "DESCRIBE",
        "CLUSTER_ACTION",
        "DESCRIBE_CONFIGS",
        "ALTER_CONFIGS",
        "IDEMPOTENT_WRITE",
    ],
    X: ["WRITE", "DESCRIBE"],
    G: ["READ", "DELETE", "DESCRIBE"],
}
# Kafka's AclOperation: who may the right, may the left.
IMPLIED = {"DESCRIBE": {"READ", "WRITE", "DELETE", "ALTER"}, "DESCRIBE_CONFIGS": {"ALTER_CONFIGS"}}


@dataclass(frozen=True)
class Caller:
    """Who asks: a credential, and what is allowed to it in this test's own words."""

    name: str
    credential: str | None
    is_known: bool = True
    rights: frozenset[tuple[str, str]] = frozenset()
    denied: frozenset[tuple[str, str]] = frozenset()
    is_super: bool = False

    def may(self, kind: str, operation: str) -> bool:
        if self.is_super:
            return True
        if (kind, operation) in self.denied:
            return False
        enough = {operation, *IMPLIED.get(operation, ())}
        return any((kind, each) in self.rights for each in enough)


class Making:
    """Makes the callers, in a data directory that no service uses yet."""

    def __init__(self, registry: AccessRegistry) -> None:
        self.registry = registry
        self.callers: list[Caller] = []

    def key(self, name: str, acls: list[tuple[str, str, str, str, str]], **kinds: Any) -> str:
        """A caller with a key; ACLs are (permission, operation, kind, name, pattern)."""
        principal = f"User:p{len(self.callers)}"
        made = [
            {
                "principal": principal,
                "permission": permission,
                "operation": operation,
                "resource_type": kind,
                "resource_name": resource,
                "pattern_type": pattern,
            }
            for permission, operation, kind, resource, pattern in acls
        ]
        self.registry.add_acls([acl_from(each) for each in made])
        key, text = self.registry.create_key(principal)
        self.callers.append(Caller(name, text, **kinds))
        return key.number

    def make_all(self) -> None:
        self.key("a key without rights", [])
        for kind, operations in OFFERED.items():
            for operation in operations:
                self._one(kind, operation)
            everything = frozenset((kind, each) for each in operations)
            self.key(f"ALL {kind}", [("allow", "ALL", kind, NAMES[kind], "literal")], rights=everything)
            denied = [("allow", "ALL", kind, "*", "literal"), ("deny", "ALL", kind, NAMES[kind], "literal")]
            self.key(f"ALL {kind} but this one", denied)

    def _one(self, kind: str, operation: str) -> None:
        right = frozenset({(kind, operation)})
        name = NAMES[kind]
        self.key(f"{kind} {operation} literal", [("allow", operation, kind, name, "literal")], rights=right)
        self.key(f"{kind} {operation} wildcard", [("allow", operation, kind, "*", "literal")], rights=right)
        everything = frozenset((kind, each) for each in OFFERED[kind])
        but = [("allow", "ALL", kind, "*", "literal"), ("deny", operation, kind, name, "literal")]
        self.key(f"{kind} all but {operation}", but, rights=everything, denied=right)
        if kind == C:
            return
        self.key(f"{kind} {operation} prefix", [("allow", operation, kind, name[:3], "prefixed")], rights=right)
        self.key(f"{kind} {operation} elsewhere", [("allow", operation, kind, f"{name}x", "literal")])
        self.key(f"{kind} {operation} longer prefix", [("allow", operation, kind, f"{name}x", "prefixed")])
        but = [("allow", "ALL", kind, name, "literal"), ("deny", operation, kind, name[:2], "prefixed")]
        self.key(f"{kind} all but {operation} by prefix", but, rights=everything, denied=right)
        self._token(kind, operation)

    def _token(self, kind: str, operation: str) -> None:
        """Tokens of somebody who may do everything, and of somebody who no longer may."""
        grant = Grant(Operation(operation), Pattern(ResourceKind(kind), NAMES[kind][:4], PatternKind.PREFIXED))
        for name, right in ((f"token {kind} {operation}", {(kind, operation)}), ("token of one without rights", set())):
            principal = f"User:i{len(self.callers)}"
            acl = acl_from(
                {
                    "principal": principal,
                    "operation": "ALL",
                    "resource_type": kind,
                    "resource_name": "*",
                }
            )
            self.registry.add_acls([acl])
            soon_ms = self.registry.now_ms() + 3_600_000
            _, text = self.registry.create_token(principal, [grant], issuer_key=None, expires_ms=soon_ms)
            if not right:
                self.registry.remove_acls(lambda each, acl=acl: each == acl)
            self.callers.append(Caller(name, text, rights=frozenset(right)))


def unknown_callers(registry: AccessRegistry, issuer: JwtIssuer) -> list[Caller]:
    """Those that must not be believed."""
    key, text = registry.create_key("User:admin")
    wrong = f"{text[:-1]}{'A' if text[-1] != 'A' else 'B'}"
    revoked, revoked_text = registry.create_key("User:admin")
    registry.revoke_key(revoked.number)
    issuing, _ = registry.create_key("User:admin")
    grant = Grant(Operation.ALL, Pattern(ResourceKind.TOPIC, "*"))
    soon_ms = registry.now_ms() + 3_600_000
    token, token_text = registry.create_token("User:admin", [grant], issuer_key=None, expires_ms=soon_ms)
    registry.revoke_token(token.number)
    _, orphan = registry.create_token("User:admin", [grant], issuer_key=issuing.number, expires_ms=soon_ms)
    registry.revoke_key(issuing.number)
    # Not a moment: a busy machine takes longer to make the second, which must not have expired already.
    expires_ms = registry.now_ms() + 1_000
    _, expired = registry.create_key("User:admin", expires_ms=expires_ms)
    _, expired_token = registry.create_token("User:admin", [grant], issuer_key=None, expires_ms=expires_ms)
    while registry.now_ms() <= expires_ms:
        time.sleep(0.01)
    callers = {
        "nobody": None,
        "a wrong secret": wrong,
        "a key that does not exist": f"rwk_{'0' * 16}_{'A' * 43}",
        "a key as a token": text.replace("rwk_", "rwt_"),
        "a revoked key": revoked_text,
        "an expired key": expired,
        "a revoked token": token_text,
        "an expired token": expired_token,
        "a token whose key is revoked": orphan,
        "the number alone": key.number,
        "nonsense": "nonsense",
        **{f"JWT {name}": jwt for name, jwt in issuer.bad_tokens("admin").items()},
    }
    return [Caller(name, credential, is_known=False) for name, credential in callers.items()]


@dataclass(frozen=True)
class Stand:
    url: str
    callers: list[Caller]
    super_key: str
    job_id: str


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    directory = tmp_path_factory.mktemp("matrix")
    issuer = JwtIssuer(directory)
    with open_registry(directory / "data") as registry:
        registry.acls.super_users = frozenset({"User:admin"})
        _, super_key = registry.create_key("User:admin")
        making = Making(registry)
        making.make_all()
        unknown = unknown_callers(registry, issuer)
        registry.add_acls(
            [acl_from({"principal": "Jwt:reader", "operation": "READ", "resource_type": T, "resource_name": TOPIC})]
        )
    known = [
        Caller("super user", super_key, is_super=True),
        Caller("super user with a JWT", issuer.token("root"), is_super=True),
        Caller("JWT reader", issuer.token("reader"), rights=frozenset({(T, "READ")})),
        Caller("JWT of the name of a super user's key", issuer.token("admin")),
    ]
    settings = {
        "authentication": True,
        "super_users": ["User:admin", "Jwt:root"],
        "authentication_failures_per_minute": 1_000_000,
        **issuer.settings(),
    }
    with ThreadedServer(directory / "data", **settings) as server:
        make_topic(server.url, super_key)
        job = httpx.post(
            f"{server.url}/v1/jobs", json={"application_id": LOADER, "version": 1}, headers=bearer(super_key)
        )
        yield Stand(server.url, [*unknown, *known, *making.callers], super_key, job.json()["job_id"])


def make_topic(url: str, super_key: str) -> None:
    with http_client(url, headers=bearer(super_key)) as client:
        assert client.put(f"/v1/topics/{TOPIC}").status_code == 201
        records = client.post(f"/v1/topics/{TOPIC}/partitions/0/records", json={"records": [{"value": "v"}]})
        assert records.status_code == 200


def test_the_table_has_every_route() -> None:
    assert NEEDS.keys() == OPERATIONS.keys()


@pytest.mark.parametrize("operation", sorted(NEEDS))
def test_every_caller_gets_what_the_table_says(stand: Stand, operation: str) -> None:
    method, path = OPERATIONS[operation]
    names = {"job_id": stand.job_id, "transactional_id": LOADER, "group_id": READERS}
    names |= {"key_id": "nobody", "token_id": "nobody"}
    place = path.format(topic=TOPIC, partition=0, offset=0, **names)
    unexpected = []
    with http_client(stand.url) as client:
        for caller in stand.callers:
            headers = {} if caller.credential is None else bearer(caller.credential)
            body: dict[str, Any] = {"json": BODIES[operation]} if operation in BODIES else {}
            if operation in CONTENTS:
                media_type, body["content"] = CONTENTS[operation]
                headers["Content-Type"] = media_type
            answer = client.request(method, place, params=QUERIES.get(operation), headers=headers, **body)
            if operation == "deleteTopic" and answer.status_code == 204:
                make_topic(stand.url, stand.super_key)
            fault = wrong_answer(caller, operation, answer)
            if fault:
                unexpected.append(f"{caller.name}: {fault}; it was {answer.status_code} {answer.text[:200]}")
    assert not unexpected


def wrong_answer(caller: Caller, operation: str, answer: httpx.Response) -> str | None:
    """What is wrong with an answer; ``None`` when it is the expected one."""
    needed = NEEDS[operation]
    if needed == OPEN:
        return None if answer.status_code == 200 else "health is open to all"
    if not caller.is_known:
        is_refused = answer.status_code == 401 and answer.headers["www-authenticate"].startswith("Bearer")
        return None if is_refused else "must be 401 with a challenge"
    if needed == KNOWN:
        return None if answer.status_code not in (401, 403) else "must be answered"
    if any(caller.may(kind, each) for kind, each in needed):
        if operation == "ensureTopic" and not caller.may(T, "DESCRIBE"):
            return None if _is_refusal(answer, T, hidden=True) else "may create, but not see the one that exists"
        is_refused = answer.status_code in (401, 403) or (
            answer.status_code == 404 and answer.content and answer.json().get("kafka_code") == 3
        )
        return "is allowed" if is_refused else None
    kind = needed[0][0]
    is_hidden = kind == T and operation not in SHOWN and not caller.may(T, "DESCRIBE")
    return (
        None
        if _is_refusal(answer, kind, hidden=is_hidden, is_head=operation == "headRecords")
        else ("must be hidden: 404" if is_hidden else "must be 403")
    )


def _is_refusal(answer: httpx.Response, kind: str, *, hidden: bool, is_head: bool = False) -> bool:
    status = 404 if hidden else 403
    if is_head:
        return answer.status_code == status
    code = ("unknown_topic_or_partition", 3) if hidden else CODES[kind]
    document = answer.json()
    return (answer.status_code, document.get("code"), document.get("kafka_code")) == (status, *code)


def test_a_hidden_topic_looks_like_one_that_does_not_exist(stand: Stand) -> None:
    nobody = next(caller for caller in stand.callers if caller.name == "a key without rights")
    assert nobody.credential is not None
    headers = bearer(nobody.credential)
    hidden = httpx.get(f"{stand.url}/v1/topics/{TOPIC}", headers=headers)
    absent = httpx.get(f"{stand.url}/v1/topics/nowhere", headers=headers)
    assert hidden.text.replace(TOPIC, "nowhere") == absent.text
    known = httpx.get(f"{stand.url}/v1/topics/nowhere", headers=bearer(stand.super_key))
    assert absent.text == known.text


def test_lists_show_only_what_may_be_described(stand: Stand) -> None:
    with http_client(stand.url) as client:
        for caller in (caller for caller in stand.callers if caller.is_known):
            assert caller.credential is not None
            page = client.get("/v1/topics", params={"prefix": TOPIC, "limit": 1}, headers=bearer(caller.credential))
            shown = [topic["name"] for topic in page.json()["data"]]
            if caller.may(T, "DESCRIBE"):
                assert shown == [TOPIC], caller.name
                has_config = bool(page.json()["data"][0]["config"])
                assert has_config is caller.may(T, "DESCRIBE_CONFIGS"), caller.name
            else:
                assert TOPIC not in shown, caller.name


def test_routes_of_many_resources_answer_each_by_itself(stand: Stand) -> None:
    """Spec D3: 29 also for a topic that does not exist, and the others are served."""
    by_name = {caller.name: caller for caller in stand.callers}
    reader = by_name["topic READ literal"]
    assert reader.credential is not None
    partitions = [{"topic": name, "partition": 0, "fetch_offset": 0} for name in (TOPIC, "orders-forbidden", "nowhere")]
    answer = httpx.post(
        f"{stand.url}/v1/fetch", json={"partitions": partitions}, headers=bearer(reader.credential)
    ).json()
    found = [(each.get("error") or {}).get("kafka_code") for each in answer["partitions"]]
    assert found == [None, 29, 29]
    queries = [{"topic": name, "partition": 0, "timestamp": "earliest"} for name in (TOPIC, "nowhere")]
    answered = httpx.post(f"{stand.url}/v1/offsets", json={"queries": queries}, headers=bearer(reader.credential))
    assert answered.status_code == 207
    assert [(each.get("error") or {}).get("kafka_code") for each in answered.json()["results"]] == [None, 29]


def test_a_2_a_produce_request_is_split_by_what_may_be_written(stand: Stand) -> None:
    """Spec A2: one answer of 0, 29 and 3, and only the first grows; all 53 without the transactional id."""
    (writer,) = [caller for caller in stand.callers if caller.name == "topic WRITE literal"]
    assert writer.credential is not None
    places = [(TOPIC, 0), ("orders-forbidden", 0), (TOPIC, 9)]
    parts = [{"topic": name, "partition": number, "records": [{"value": "v"}]} for name, number in places]

    def end_of(client: httpx.Client, topic: str) -> int:
        path = f"/v1/topics/{topic}/partitions/0"
        return int(client.get(path, headers=bearer(stand.super_key)).json().get("log_end_offset", -1))

    with http_client(stand.url) as client:
        before = [end_of(client, topic) for topic in (TOPIC, "orders-forbidden")]
        answer = client.post("/v1/produce", json={"partitions": parts}, headers=bearer(writer.credential))
        assert answer.status_code == 207, answer.text
        results = answer.json()["results"]
        assert [(each.get("error") or {}).get("kafka_code") for each in results] == [None, 29, 3]
        assert [(each["base_offset"], each["log_start_offset"]) for each in results[1:]] == [(-1, -1)] * 2
        assert [end_of(client, topic) for topic in (TOPIC, "orders-forbidden")] == [before[0] + 1, before[1]]
        body = {"partitions": [part | {"base_sequence": 0} for part in parts], "transactional_id": LOADER}
        body |= {"producer_id": 1, "producer_epoch": 0}
        refused = client.post("/v1/produce", json=body, headers=bearer(writer.credential))
        assert refused.status_code == 403
        assert {each["error"]["kafka_code"] for each in refused.json()["results"]} == {53}


def test_a_producer_id_needs_write_on_some_topic_or_idempotent_write(stand: Stand) -> None:
    with http_client(stand.url) as client:
        for caller in (caller for caller in stand.callers if caller.is_known):
            assert caller.credential is not None
            answer = client.post("/v1/producers", json={}, headers=bearer(caller.credential))
            enough = caller.may(C, "IDEMPOTENT_WRITE") or may_write_somewhere(caller)
            assert (answer.status_code == 200) is enough, (caller.name, answer.text)
            assert enough or answer.json()["kafka_code"] == 31


def may_write_somewhere(caller: Caller) -> bool:
    elsewhere = ("topic WRITE elsewhere", "topic WRITE longer prefix", "ALL topic but this one", "topic all but WRITE")
    return caller.may(T, "WRITE") or caller.name in elsewhere


def test_data_directory_is_not_read_by_others(stand: Stand, tmp_path: Path) -> None:
    """A second data directory knows none of these keys."""
    with ThreadedServer(tmp_path / "other", authentication=True) as other:
        refused = httpx.get(f"{other.url}/v1/topics", headers=bearer(stand.super_key))
        assert refused.status_code == 401
