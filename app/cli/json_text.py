"""JSON as commands print it."""

from __future__ import annotations

import msgspec

from rollway.printable import escape_json


def json_text(document: object) -> str:
    """Return ``document``, of dicts, lists and plain values, as JSON of printable characters.

    Python shows bytes that are not UTF-8, for example in names of files, as lone surrogates. JSON has none, so they are
    printed as text: ``\\udcff`` with its backslash.
    """
    try:
        encoded = msgspec.json.encode(document)
    except UnicodeEncodeError:
        encoded = msgspec.json.encode(_without_surrogates(document))
    return escape_json(encoded.decode())


def _without_surrogates(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {_without_surrogates(name): _without_surrogates(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_without_surrogates(each) for each in value]
    return value
