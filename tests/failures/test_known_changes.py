"""Changes of topics, quotas, keys and ACLs that the disk refuses: what the answer says is what the files say.

When the last fsync of a directory fails, the new file is in place and may survive or not: ``applied`` is ``unknown``,
and the service goes by that file, or takes it back as soon as the disk allows that (topics). When the file was not
replaced, nothing was changed, and EIO is no full disk.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from app.access.registry import AccessRegistry
from app.quotas.store import QuotaStore
from log_model.clock import SystemClock
from storage.disk.file_system import LocalFileSystem
from storage.manager.topic_registry import TopicRegistry
from tests.support.servers import ThreadedServer

Refuses = Callable[[str, Path], bool]


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[FailingDisk]:
    disk = FailingDisk()
    sync, rename = LocalFileSystem.sync_directory, LocalFileSystem.rename

    def sync_or_refuse(self: LocalFileSystem, path: Path) -> None:
        disk.check("sync", path)
        sync(self, path)

    def rename_or_refuse(self: LocalFileSystem, source: Path, target: Path) -> None:
        disk.check("rename", target)
        rename(self, source, target)

    monkeypatch.setattr(LocalFileSystem, "sync_directory", sync_or_refuse)
    monkeypatch.setattr(LocalFileSystem, "rename", rename_or_refuse)
    yield disk
    disk.refuses = lambda operation, path: False


class FailingDisk:
    """Answers EIO to the operations that ``refuses``."""

    def __init__(self) -> None:
        self.refuses: Refuses = lambda operation, path: False

    def check(self, operation: str, path: Path) -> None:
        if self.refuses(operation, path):
            raise OSError(errno.EIO, "Input/output error", str(path))


class Change(NamedTuple):
    """A request that changes something, and how to see what is in force and what the files say."""

    request: tuple[str, str, dict[str, Any]]
    in_force: Callable[[httpx.Client], Any]
    stored: Callable[[Path], Any]


def registry(data_dir: Path) -> AccessRegistry:
    return AccessRegistry.open(data_dir / "rollway", LocalFileSystem(), SystemClock().now_ms)


def quotas_of(data_dir: Path) -> list[dict[str, float]]:
    table = QuotaStore(LocalFileSystem(), data_dir / "rollway").load()
    return [{kind.value: rate for kind, rate in limits.items()} for _, limits in table.items()]


ACL = {
    "principal": "User:a",
    "permission": "allow",
    "operation": "READ",
    "resource_type": "topic",
    "resource_name": "t",
    "pattern_type": "literal",
}
CHANGES = {
    "quota": Change(
        ("PUT", "/v1/quotas?user=a", {"producer_byte_rate": 77}),
        lambda client: [quota["producer_byte_rate"] for quota in client.get("/v1/quotas").json()["data"]],
        lambda data_dir: [limits["producer_byte_rate"] for limits in quotas_of(data_dir)],
    ),
    "key": Change(
        ("POST", "/v1/keys", {"principal": "User:a"}),
        lambda client: [key["key_id"] for key in client.get("/v1/keys").json()["data"]],
        lambda data_dir: sorted(registry(data_dir).keys),
    ),
    "ACL": Change(
        ("POST", "/v1/acls", {"acls": [ACL]}),
        lambda client: [acl["principal"] for acl in client.get("/v1/acls").json()["data"]],
        lambda data_dir: [acl.principal for acl in registry(data_dir).acls.acls],
    ),
}


def expect(answer: httpx.Response, code: str, applied: str) -> None:
    problem = answer.json()
    assert (answer.status_code, problem["code"], problem["applied"], problem["retryable"]) == (503, code, applied, True)


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_that_is_not_durable_is_unknown_and_in_force(
    client: httpx.Client, data_dir: Path, disk: FailingDisk, name: str
) -> None:
    change = CHANGES[name]
    method, path, body = change.request
    directory = data_dir / "rollway" / ("." if name == "quota" else "access")
    directory.mkdir(exist_ok=True)
    before = change.in_force(client)
    disk.refuses = lambda operation, path: operation == "rename"
    expect(client.request(method, path, json=body), "disk_failed", "no")
    assert change.in_force(client) == change.stored(data_dir) == before
    disk.refuses = lambda operation, path: operation == "sync" and path == directory
    expect(client.request(method, path, json=body), "change_outcome_unknown", "unknown")
    after = change.in_force(client)
    assert len(after) == len(before) + 1
    assert after == change.stored(data_dir)


@pytest.mark.parametrize("undo_fails_at", ["rename", "sync", ""])
def test_a_topics_change_that_is_not_durable_is_taken_back(
    server: ThreadedServer, client: httpx.Client, topic: str, disk: FailingDisk, undo_fails_at: str
) -> None:
    name = topic.rsplit("/", 1)[1]
    own, syncs = server.settings.data_dir / "rollway", 0

    def refuses(operation: str, path: Path) -> bool:
        nonlocal syncs
        if operation == "sync" and path == own:
            syncs += 1
        return (syncs == 1 and operation == "sync") or (syncs >= 1 and operation == undo_fails_at)

    def stored() -> object:
        (record,) = [each for each in TopicRegistry(LocalFileSystem(), own).load() if each.name == name]
        return record.overrides.get("retention.ms")

    before = client.get(topic).json()["config"]["retention.ms"]
    disk.refuses = refuses
    answer = client.patch(topic, json={"config": {"retention.ms": 12_345}})
    if undo_fails_at:
        expect(answer, "change_outcome_unknown", "unknown")
    else:
        expect(answer, "disk_failed", "no")
    # What a start would find now, and what is in force until then.
    assert stored() == (12_345 if undo_fails_at == "rename" else None)
    assert client.get(topic).json()["config"]["retention.ms"] == before
    assert server.service.parts.engine.manager.partition(name, 0).config.retention_ms != 12_345
    disk.refuses = lambda operation, path: False
    server.service.parts.engine.manager.delete_due_files()
    assert stored() is None
    assert client.patch(topic, json={"config": {"retention.ms": 12_345}}).status_code == 200
    assert stored() == 12_345


@pytest.mark.parametrize("operation", ["rename", "sync"])
def test_a_topic_whose_creation_the_disk_refuses_can_be_made_later(
    server: ThreadedServer, client: httpx.Client, disk: FailingDisk, operation: str
) -> None:
    own, path = server.settings.data_dir / "rollway", f"/v1/topics/refused-{operation}"
    disk.refuses = lambda asked, place: asked == operation and own in (place, place.parent)
    refused = client.put(path, json={"partitions": 1})
    if operation == "rename":
        expect(refused, "disk_failed", "no")
    else:
        expect(refused, "change_outcome_unknown", "unknown")
    assert client.get(path).status_code == 404
    disk.refuses = lambda asked, place: False
    assert client.put(path, json={"partitions": 1}).status_code == 201
    names = [record.name for record in TopicRegistry(LocalFileSystem(), own).load()]
    assert names.count(path.rsplit("/", 1)[1]) == 1


def test_a_deletion_that_cannot_be_taken_back_is_unknown(
    server: ThreadedServer, client: httpx.Client, topic: str, disk: FailingDisk
) -> None:
    own = server.settings.data_dir / "rollway"
    disk.refuses = lambda asked, place: asked == "rename" and place.parent == own
    expect(client.delete(topic), "disk_failed", "no")
    assert client.post(f"{topic}/records", json={"records": [{"value": "a"}]}).status_code == 200
    disk.refuses = lambda asked, place: asked == "sync" and place == own
    expect(client.delete(topic), "change_outcome_unknown", "unknown")
    assert client.post(f"{topic}/records", json={"records": [{"value": "a"}]}).json()["code"] == "partition_offline"


def test_the_check_finds_a_change_that_is_called_not_applied(
    client: httpx.Client, data_dir: Path, disk: FailingDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: what is not durable is answered like what was refused."""
    monkeypatch.setattr("app.quotas.store.NotDurableError", ZeroDivisionError)
    with pytest.raises(AssertionError):
        test_a_change_that_is_not_durable_is_unknown_and_in_force(client, data_dir, disk, "quota")
