from __future__ import annotations

import types
from types import ModuleType

import pytest

import rollway.client
import rollway.records

ROOMS = [rollway.records, rollway.client]


@pytest.mark.parametrize("room", ROOMS)
def test_exactly_the_public_names_are_exported(room: ModuleType) -> None:
    exported = {
        name
        for name, value in vars(room).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }
    assert exported == set(room.__all__)
    assert list(room.__all__) == sorted(room.__all__, key=lambda name: (not name.isupper(), name))


@pytest.mark.parametrize("room", ROOMS)
def test_every_public_name_says_what_it_is(room: ModuleType) -> None:
    values = {name: getattr(room, name) for name in room.__all__}
    undocumented = [
        name
        for name, value in values.items()
        if isinstance(value, type | types.FunctionType) and not (value.__doc__ or "").strip()
    ]
    assert undocumented == []
