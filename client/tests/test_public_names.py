from __future__ import annotations

import types

import rollway.records


def test_exactly_the_public_names_are_exported() -> None:
    exported = {
        name
        for name, value in vars(rollway.records).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }
    assert exported == set(rollway.records.__all__)
    assert list(rollway.records.__all__) == sorted(rollway.records.__all__, key=lambda name: (not name.isupper(), name))


def test_every_public_name_says_what_it_is() -> None:
    undocumented = [
        name
        for name in rollway.records.__all__
        if not name.isupper() and not (getattr(rollway.records, name).__doc__ or "").strip()
    ]
    assert undocumented == []
