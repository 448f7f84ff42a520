"""Every small file of a data directory, empty, cut, garbled or gone: the service heals it, or says what to do."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import httpx
import pytest

from app.access.access_files import AccessFiles
from storage.disk.file_system import LocalFileSystem
from storage.producers.producer_ids import LOST_COUNT, ProducerIds
from tests.support.load_jobs import Driver
from tests.support.servers import ServerProcess, ThreadedServer

RECORDS = "/v1/topics/t/partitions/0/records"
RECORD = {"records": [{"value": "x" * 500}]}
_versions = count(1)


def use_everything(client: httpx.Client) -> list[httpx.Response]:
    """Ask something of each route that relies on a small file."""
    answers = [
        client.get("/readyz"),
        client.get("/v1/topics"),
        client.get("/v1/topics/t"),
        client.post(RECORDS, json=RECORD),
        client.get(RECORDS, params={"offset": 3}),
        client.get(RECORDS, params={"offset": 3, "isolation": "read_committed"}),
        client.get("/v1/topics/t/partitions/0/offsets", params={"timestamp": 1}),
        client.post("/v1/topics/t/partitions/0/delete-records", json={"offset": 3}),
        client.post("/v1/topics/t/retention/run"),
        client.post("/v1/producers", json={}),
        client.put("/v1/quotas", params={"user": "alice"}, json={"request_rate": 7}),
        client.get("/v1/quotas"),
        client.patch("/v1/topics/t", json={"config": {"retention.ms": 10**12 + next(_versions)}}),
        client.put(f"/v1/topics/t{next(_versions)}", json={"partitions": 1}),
        client.post("/v1/groups/g/start-positions", json={"positions": {"t": {"0": 3}}}),
    ]
    job = Driver.begin(client, "loader", next(_versions))
    writer = job.enlist(0)
    answers.append(writer.send("/v1/topics/t/partitions/0", b"a"))
    job.abort()
    return answers


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("damaged") / "data"
    with ThreadedServer(path) as server, httpx.Client(base_url=server.url, timeout=30) as client:
        config = {"segment.bytes": 5000, "index.interval.bytes": 0}
        assert client.put("/v1/topics/t", json={"partitions": 1, "config": config}).status_code == 201
        for _ in range(30):
            assert client.post(RECORDS, json=RECORD).status_code == 200
        failed = [answer for answer in use_everything(client) if answer.status_code >= 500]
        assert failed == []
    access = AccessFiles(LocalFileSystem(), path / "rollway" / "access")
    access.save_keys([])
    access.save_tokens([])
    access.save_acls([])
    return path


def small_files(directory: Path) -> Iterator[Path]:
    """One file of each kind, the last of those there are; logs of records are no small files."""
    kinds: dict[str, Path] = {}
    for path in sorted(directory.rglob("*")):
        relative = path.relative_to(directory)
        if path.is_file() and path.suffix != ".log" and relative.name != ".lock":
            name = path.name if "access" in relative.parts else re.sub(r"[A-Za-z0-9_-]{20,22}", "*", path.name)
            kinds[name] = relative
    yield from kinds.values()


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def halved(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def garbled(path: Path) -> None:
    path.write_bytes(bytes(byte ^ 0x5A for byte in path.read_bytes()))


def removed(path: Path) -> None:
    path.unlink()


DAMAGES: list[Callable[[Path], None]] = [emptied, halved, garbled, removed]


def judge(data: Path, damaged: Path) -> str:
    """``healed``, or ``told`` where the service did not start and says what to do. Anything else is an error."""
    server = ThreadedServer(data)
    try:
        server.start()
    except AssertionError:
        message = str(server.failure)
        assert damaged.name in message or "is a partition of no known topic" in message, message
        assert re.search(r"[Rr]estore|move (it|the directory) away", message), message
        return "told"
    finally:
        if server.failure is not None:
            server.stop()
    try:
        with httpx.Client(base_url=server.url, timeout=30) as client:
            for answer in use_everything(client):
                assert answer.status_code < 500, (damaged, answer.request.url, answer.text)
            (partition,) = client.get("/v1/topics/t").json()["partitions"]
            assert partition["offline_reason"] is None
    finally:
        server.stop()
    return "healed"


@pytest.mark.parametrize("damage", DAMAGES)
def test_each_small_file_heals_or_says_what_to_do(
    directory: Path, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    told = set()
    files = list(small_files(directory))
    assert len(files) >= 14, files
    for relative in files:
        data = tmp_path / "copy"
        shutil.copytree(directory, data)
        damage(data / relative)
        if judge(data, data / relative) == "told":
            told.add(relative.name if relative.suffix != ".json" or "access" in relative.parts else "topic")
        shutil.rmtree(data)
    # Only what nobody could make good: rights, limits, identities and what topics are.
    assert told <= {"topic", "quotas", "keys.json", "tokens.json", "acls.json", "meta.properties"}


def test_an_empty_file_of_producer_ids_is_made_good(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server:
        first = httpx.post(f"{server.url}/v1/producers", json={}).json()["producer_id"]
    (tmp_path / "data/rollway/producer-ids").write_bytes(b"")
    with ServerProcess(tmp_path / "data") as server:
        assert httpx.get(f"{server.url}/readyz").status_code == 200
        answer = httpx.post(f"{server.url}/v1/producers", json={})
        # Some may have been given that no log has.
        assert answer.json()["producer_id"] >= first + LOST_COUNT


def test_the_check_finds_a_route_that_fails_for_ever(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: a damaged file of producer ids fails each request for one."""

    def refuse(_: ProducerIds) -> int:
        raise ValueError("damaged")

    data = tmp_path / "copy"
    shutil.copytree(directory, data)
    monkeypatch.setattr(ProducerIds, "_read", refuse)
    with pytest.raises(AssertionError):
        judge(data, data / "rollway" / "producer-ids")


def test_bytes_that_were_never_data_are_not_reported_as_cut(tmp_path: Path) -> None:
    """A file of ``preallocate=true`` is as long as the segment may be when the service is killed."""
    with ServerProcess(tmp_path / "data") as server:
        config = {"preallocate": True, "segment.bytes": 1_000_000}
        assert httpx.put(f"{server.url}/v1/topics/t", json={"partitions": 1, "config": config}).status_code == 201
        assert httpx.post(server.url + RECORDS, json=RECORD).status_code == 200
        server.kill()
    log = tmp_path / "data/logs/t-0/00000000000000000000.log"
    assert log.stat().st_size == 1_000_000
    with ServerProcess(tmp_path / "data") as server:
        assert httpx.get(server.url + RECORDS, params={"offset": 0}).json()["records"][0]["offset"] == 0
        assert "cut" not in server.errors()
        server.kill()
    # What was written and is not whole is reported, and its length without the zeros behind it.
    whole = log.read_bytes().rstrip(b"\0")
    with log.open("r+b") as file:
        file.seek(len(whole) + 10)
        file.write(b"torn")
        file.truncate(1_000_000)
    with ServerProcess(tmp_path / "data") as server:
        assert re.search(r"t-0: 1\d bytes behind offset 1 are cut", server.errors()), server.errors()
