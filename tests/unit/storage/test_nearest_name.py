"""What may have been meant by a name that there is not."""

from __future__ import annotations

import pytest

from log_model.nearest_name import nearest_or_all


@pytest.mark.parametrize(
    ("name", "known", "said"),
    [
        ("limitt", ["prefix", "limit"], "did you mean limit?"),
        ("zzz", ["prefix", "limit"], "allowed: limit, prefix"),
        ("zzz", [], "none is allowed"),
        ("limit" * 100_000, ["limit"], "allowed: limit"),
    ],
)
def test_the_nearest_name_or_all_of_them(name: str, known: list[str], said: str) -> None:
    assert nearest_or_all(name, known) == said
