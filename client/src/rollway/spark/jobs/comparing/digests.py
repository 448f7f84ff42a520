"""Digests of records: equal contents have equal digests, in any order in which Spark reads them.

A row's hash covers the nulls among its parts, so that null and empty differ. It also covers the number of headers and
the nulls among their values: Spark's own hash of an array leaves nulls out, and does not mark the end of a pair. The
digest of many rows is their number and two sums over their hashes. A sum counts a repeated row twice, which an
exclusive or does not. With the position of a row in its partition among the parts, order also counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 - the usual name

DIGEST_COLUMNS = ("rows", "first_sum", "second_sum")
_MODULUS = 1 << 64
_PAIR = ("key", "value")

NOTHING = (0, "0" * 32)
"""Count and digest of no rows."""


def row_hash(columns: Sequence[str], salt: int) -> Column:
    """Return 64 bits of a row. A different ``salt`` gives independent bits."""
    parts: list[Column] = [F.lit(salt)]
    for name in columns:
        parts += [F.col(name).isNull(), *(_headers_parts(name) if name == "headers" else [F.col(name)])]
    return F.xxhash64(*parts)


def _headers_parts(name: str) -> list[Column]:
    """Return the parts of a list of pairs to hash. They determine the list, so no two lists have the same."""
    pairs = F.transform(F.col(name), lambda pair: F.struct(*[each for part in _PAIR for each in _told(pair[part])]))
    return [F.size(F.col(name)), pairs]


def _told(part: Column) -> list[Column]:
    return [part.isNull(), part]


def digest_columns(columns: Sequence[str]) -> list[Column]:
    """Return the aggregates that ``digest_of`` reads."""
    wide = "decimal(38,0)"
    return [
        F.count(F.lit(1)).alias("rows"),
        F.sum(row_hash(columns, 1).cast(wide)).alias("first_sum"),
        F.sum(row_hash(columns, 2).cast(wide)).alias("second_sum"),
    ]


def digest_of(row: Row) -> str:
    """Return the digest in 32 hexadecimal digits; zeros for no rows."""
    return "".join(f"{int(row[name] or 0) % _MODULUS:016x}" for name in DIGEST_COLUMNS[1:])


def digests_by(name: str, rows: DataFrame, columns: Sequence[str]) -> dict[Any, tuple[int, str]]:
    """Return count and digest of the rows for each value of the column ``name``, which has few. Runs a Spark job."""
    found = rows.groupBy(name).agg(*digest_columns(columns)).collect()
    return {each[name]: (int(each["rows"]), digest_of(each)) for each in found}


def whole_digest(rows: DataFrame, columns: Sequence[str]) -> tuple[int, str]:
    """Return count and digest of all rows. Runs a Spark job."""
    found = rows.agg(*digest_columns(columns)).collect()[0]
    return int(found["rows"]), digest_of(found)
