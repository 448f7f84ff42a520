"""Digests of records: equal contents have equal digests, whatever the order Spark reads them in.

A row's hash covers which of its parts are null, so that null and empty differ, and how many headers there are and
which of their values are null: Spark's own hash of an array leaves nulls out, and does not say where one pair ends. The
digest of many rows is how many there are and two sums over their hashes: sums count a row twice that is there twice,
which an exclusive or does not. With the place of a row in its partition among the parts, order counts too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 - as everybody who writes Spark calls it

DIGEST_COLUMNS = ("rows", "first_sum", "second_sum")
_MODULUS = 1 << 64
_PAIR = ("key", "value")

NOTHING = (0, "0" * 32)
"""Count and digest of no rows."""


def row_hash(columns: Sequence[str], salt: int) -> Column:
    """64 bits of a row; different ``salt``, independent bits."""
    parts: list[Column] = [F.lit(salt)]
    for name in columns:
        parts += [F.col(name).isNull(), *(_headers_parts(name) if name == "headers" else [F.col(name)])]
    return F.xxhash64(*parts)


def _headers_parts(name: str) -> list[Column]:
    """What is hashed of a list of pairs. From it the list can be told, so no two lists have the same."""
    pairs = F.transform(F.col(name), lambda pair: F.struct(*[each for part in _PAIR for each in _told(pair[part])]))
    return [F.size(F.col(name)), pairs]


def _told(part: Column) -> list[Column]:
    return [part.isNull(), part]


def digest_columns(columns: Sequence[str]) -> list[Column]:
    """The aggregates that ``digest_of`` reads."""
    wide = "decimal(38,0)"
    return [
        F.count(F.lit(1)).alias("rows"),
        F.sum(row_hash(columns, 1).cast(wide)).alias("first_sum"),
        F.sum(row_hash(columns, 2).cast(wide)).alias("second_sum"),
    ]


def digest_of(row: Row) -> str:
    """32 hexadecimal digits; of no rows, zeros."""
    return "".join(f"{int(row[name] or 0) % _MODULUS:016x}" for name in DIGEST_COLUMNS[1:])


def digests_by(name: str, rows: DataFrame, columns: Sequence[str]) -> dict[Any, tuple[int, str]]:
    """Count and digest of the rows of each value of the column ``name``; few are expected. Runs a Spark job."""
    found = rows.groupBy(name).agg(*digest_columns(columns)).collect()
    return {each[name]: (int(each["rows"]), digest_of(each)) for each in found}


def whole_digest(rows: DataFrame, columns: Sequence[str]) -> tuple[int, str]:
    """Count and digest of all rows. Runs a Spark job."""
    found = rows.agg(*digest_columns(columns)).collect()[0]
    return int(found["rows"]), digest_of(found)
