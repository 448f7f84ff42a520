"""A producer id is given once, also if the file that counts them is lost under the running service."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from app.engine_local.transactions.producer_owners import FILE as OWNERS
from storage.manager.log_manager import PRODUCER_IDS
from tests.http import foreign_ids
from tests.http.foreign_ids import make_keys


@pytest.mark.parametrize("content", [None, b""])
def test_no_principal_is_given_the_ids_of_another(tmp_path: Path, content: bytes | None) -> None:
    """Each first id of a principal begins a block; the second block was the first one again, and so were its ids."""
    keys = make_keys(tmp_path / "data")
    lost = tmp_path / "data" / "rollway" / PRODUCER_IDS
    for stand in foreign_ids.stand(tmp_path / "data", keys):
        given = {}
        for who, client in (("mine", stand.mine), ("other", stand.other), ("admin", stand.admin)):
            given[foreign_ids.plain_producer(stand, client, "").producer_id] = f"User:{who}"
            lost.unlink() if content is None else lost.write_bytes(content)
        parts = stand.server.service.ready_parts
        assert parts is not None
        assert {each: parts.engine.producer_owners.principal_of(each) for each in given} == given
        assert len(given) == 3
    blocks = json.loads(lost.with_name(OWNERS).read_bytes())["blocks"]
    assert all(after[0] >= before[1] for before, after in pairwise(blocks))
