"""Whoever may do something can make tokens for it, but not so many that the service does not start again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from app.access import access_files, registry
from app.access.access_files import AccessFiles
from app.access.acls import Acl, Permission
from app.access.credentials import Grant
from app.access.operations import Operation, Pattern, PatternKind, ResourceKind
from app.access.registry import AccessChangeError, AccessRegistry
from storage.disk.file_system import LocalFileSystem
from tests.http import foreign_ids
from tests.http.foreign_ids import SOON_MS, Stand, make_keys

# The longest name, of letters that take the most of a file: 3,000 bytes each.
NAME = "mine-" + "\N{GRINNING FACE}" * 241
PRINCIPAL = "User:mine"


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stand]:
    yield from foreign_ids.stand(tmp_path / "data", make_keys(tmp_path / "data"))


def make_token(client: httpx.Client, names: list[str]) -> httpx.Response:
    grants = [{"operations": ["WRITE"], "resource_type": "transactional_id", "resource_name": name} for name in names]
    return client.post("/v1/tokens", json={"grants": grants, "expires_at": SOON_MS})


def test_the_tokens_of_one_principal_leave_room_for_others(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    """112 tokens of 76 KB made a file that no start would read, and so the last start."""
    monkeypatch.setattr(registry, "TOKENS_OF_ONE_BYTES_MAX", 1_000_000)
    names = [f"{NAME}{place:03}" for place in range(90)]
    answers = [make_token(stand.mine, names) for _ in range(4)]
    assert [answer.status_code for answer in answers] == [201, 201, 201, 422]
    assert "would take more than 1000000 bytes" in answers[-1].json()["detail"]
    assert make_token(stand.other, ["other-1"]).status_code == 201
    assert stand.mine.delete(f"/v1/tokens/{answers[0].json()['token_id']}").status_code == 204
    assert make_token(stand.mine, names).status_code == 201


def test_a_principal_has_so_many_tokens(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "TOKENS_OF_ONE_MAX", 2)
    answers = [make_token(stand.mine, ["mine-1"]) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [201, 201, 422]
    assert make_token(stand.other, ["other-1"]).status_code == 201


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AccessRegistry:
    monkeypatch.setattr(access_files, "FILE_BYTES_MAX", 10_000)
    return AccessRegistry(AccessFiles(LocalFileSystem(), tmp_path), lambda: int(time.time() * 1000), [PRINCIPAL])


def reopened(tmp_path: Path) -> AccessRegistry:
    return AccessRegistry(AccessFiles(LocalFileSystem(), tmp_path), lambda: int(time.time() * 1000), [PRINCIPAL])


def test_no_file_grows_longer_than_a_start_reads(opened: AccessRegistry, tmp_path: Path) -> None:
    pattern = Pattern(ResourceKind.TRANSACTIONAL_ID, NAME, PatternKind.LITERAL)

    def make_key(_: int) -> None:
        opened.create_key(PRINCIPAL, "\N{GRINNING FACE}" * 200)

    def make_token(_: int) -> None:
        opened.create_token(PRINCIPAL, [Grant(Operation.WRITE, pattern)], issuer_key=None, expires_ms=SOON_MS)

    def make_acl(number: int) -> None:
        opened.add_acls([Acl(f"User:{number}", Permission.ALLOW, Operation.WRITE, pattern)])

    def make_many(change: Callable[[int], None]) -> None:
        for number in range(10):
            change(number)

    for change, kept in ((make_key, "keys"), (make_token, "tokens"), (make_acl, "ACLs")):
        with pytest.raises(AccessChangeError, match=f"all {kept} together"):
            make_many(change)
    again = reopened(tmp_path)
    assert (len(again.keys), len(again.tokens), len(again.acls.acls)) == (
        len(opened.keys),
        len(opened.tokens),
        len(opened.acls.acls),
    )
    assert min(len(again.keys), len(again.tokens), len(again.acls.acls)) > 0
