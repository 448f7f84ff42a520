"""Names of columns in SQL, and what the star of an expression leaves out."""

from __future__ import annotations

import pytest

from rollway.spark.jobs.columns import quoted, star_without


def test_names_are_quoted_whatever_they_hold() -> None:
    assert [quoted(name) for name in ("a", "a b", "a`b", "a.b")] == ["`a`", "`a b`", "`a``b`", "`a.b`"]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("*", "* EXCEPT (`x`, `y``z`)"),
        ("struct(*)", "struct(* EXCEPT (`x`, `y``z`))"),
        ("concat(a, * , 'b')", "concat(a, * EXCEPT (`x`, `y``z`) , 'b')"),
        ("struct(* EXCEPT (a))", "struct(* EXCEPT (`x`, `y``z`, a))"),
        ("struct(t.*)", "struct(t.* EXCEPT (`x`, `y``z`))"),
    ],
)
def test_a_star_leaves_out_what_is_hidden(expression: str, expected: str) -> None:
    assert star_without(expression, ["x", "y`z"]) == expected
    assert star_without(expression, []) == expression


@pytest.mark.parametrize(
    "expression",
    ["a * b", "a*b", "'*'", "'it\\'s *)'", '"*"', "`*`", "`a``*)`", "concat(a, '*')", "a /* * */", "a -- *", "2 * (a)"],
)
def test_other_asterisks_stay(expression: str) -> None:
    assert star_without(expression, ["x"]) == expression
