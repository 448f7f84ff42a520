"""``compare``: two topics, or a topic and files, by counts and digests, with the first difference."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from rollway.spark.jobs.comparing.digests import NOTHING, digests_by, row_hash, whole_digest
from rollway.spark.jobs.errors import JobUsageError
from rollway.spark.jobs.expressions import REASON, RecordExpressions, record_rows, told_reasons
from rollway.spark.jobs.files.file_sources import FileSource, read_files
from rollway.spark.jobs.files.independent_reading import independent_records, why_not_independent
from rollway.spark.jobs.places import EARLIEST, LATEST, Place
from rollway.spark.jobs.progress import Progress, SilentProgress, tasks_done
from rollway.spark.jobs.reports import JobReport, counted
from rollway.spark.jobs.topics import TopicAddress, TopicRange, open_client, read_range, resolve_range

PARTS = ("key", "value", "headers", "timestamp")

# Names are compared as bytes: as text, two names that are not UTF-8 would be equal.
_HEADERS = "array<struct<key:binary,value:binary>>"
SHOWN_CHARACTERS_MAX = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareRequest:
    """A topic, and the other side: another topic, or the records that files should become.

    CSV, lines of JSON and text are read by another reader than in ``load``, so that changes made by a load are found.
    Other formats, and read options of Spark's readers, are read as in ``load``, which the report says.

    Two topics are compared record by record in each partition. Files and a topic are compared as bags: by the number of
    times that each record occurs. ``any_order`` also compares topics as bags, across partitions. ``ignored`` are parts
    of records that may differ. Offsets may always differ. Rows of files that cannot become records are a difference,
    unless ``skip_rejects``.

    Example::

        CompareRequest(
            left=TopicAddress(topic="readings", url="http://127.0.0.1:8080"),
            right=TopicAddress(topic="readings-copy", url="http://127.0.0.1:8080"),
            ignored=("timestamp",),
        )
    """

    left: TopicAddress
    right: TopicAddress | FileSource
    start: Place = EARLIEST
    end: Place = LATEST
    expressions: RecordExpressions = field(default_factory=RecordExpressions)
    any_order: bool = False
    ignored: tuple[str, ...] = ()
    skip_rejects: bool = False

    def __post_init__(self) -> None:
        unknown = [each for each in self.ignored if each not in PARTS]
        if unknown:
            raise JobUsageError(f"{unknown[0]!r} is not a part of records: {', '.join(PARTS)} are.")
        if not self.compared:
            raise JobUsageError("Everything is ignored, and nothing is left to compare.")
        if "kafka" in (self.left.format, getattr(self.right, "format", "")):
            raise JobUsageError("Compare reads topics of Rollway services, and files.")
        if isinstance(self.right, TopicAddress) and self.left.place == self.right.place:
            raise JobUsageError("A topic is equal to itself: OTHER or --to-url must name another.")

    @property
    def compared(self) -> tuple[str, ...]:
        """The parts of records that must be equal. Files have the parts with an expression, and the value."""
        there = set(PARTS)
        if isinstance(self.right, FileSource):
            made = self.expressions
            there = {name for name in PARTS if name == "value" or getattr(made, name) is not None}
        return tuple(name for name in PARTS if name in there and name not in self.ignored)

    @property
    def is_ordered(self) -> bool:
        """True if order and partition count."""
        return not self.any_order and not isinstance(self.right, FileSource)


@dataclass(frozen=True, slots=True)
class _Side:
    """One side: its name, its rows, and its range if it is a topic. Rows of files have a ``REASON``."""

    name: str
    rows: DataFrame
    range: TopicRange | None = None
    note: str | None = None
    """A sentence on differences that the comparison cannot find."""

    @property
    def records(self) -> DataFrame:
        """The rows that are records."""
        return self.rows.where(F.col(REASON).isNull()) if REASON in self.rows.columns else self.rows


def compare(
    spark: SparkSession, request: CompareRequest, *, progress: Progress | None = None, dry_run: bool = False
) -> JobReport:
    """Compare the records that are committed now. The report's outcome is ``equal`` or ``different``.

    Only counts and digests leave the executors, unless there is a difference.

    Raises:
        JobError: the files or an expression are wrong.
        PySparkException: Spark failed.
        RollwayError: a service refused or cannot be reached.
    """
    progress = progress or SilentProgress()
    started = time.monotonic()
    left = _topic_side(spark, request.left, request)
    if isinstance(request.right, FileSource):
        right = _file_side(spark, request.right, request)
    else:
        right = _topic_side(spark, request.right, request)
    if dry_run:
        return _plan(request, left, right, started)
    compared = _compare_in_order if request.is_ordered else _compare_as_bags
    with progress.during(f"comparing {left.name} and {right.name}", lambda: tasks_done(spark)):
        rows, details, difference, rejected = compared(left, right, request)
    details = {**details, "compared": list(request.compared), "in_order": request.is_ordered, **_ranges(left, right)}
    seconds = time.monotonic() - started
    what = ", ".join(request.compared)
    lines: tuple[str, ...] = () if right.note is None else (right.note,)
    if isinstance(request.right, FileSource):
        details |= {"rejected": rejected, "is_independent": right.note is None}
    if rejected:
        number = sum(rejected.values())
        told = f"{counted(number, 'row')} of {right.name} cannot become {'a record' if number == 1 else 'records'}"
        lines = (*lines, f"{told}: {told_reasons(rejected)}")
        if difference is None and not request.skip_rejects:
            difference = _Difference(f"the same {counted(rows, 'record')}, but {told}.", {"rejected": rejected}, ())
    if difference is None:
        return JobReport(
            job="compare",
            outcome="equal",
            summary=f"Equal: {left.name} and {right.name} have the same {counted(rows, 'record')} ({what}).",
            rows=rows,
            seconds=seconds,
            details=details,
            lines=lines,
        )
    return JobReport(
        job="compare",
        outcome="different",
        summary=f"Different: {left.name} and {right.name}, {difference.sentence}",
        rows=rows,
        seconds=seconds,
        details={**details, "first_difference": difference.facts},
        lines=(*difference.lines, *lines),
    )


@dataclass(frozen=True, slots=True)
class _Difference:
    """The first difference: the end of the summary, the same as facts for programs, and the records for people."""

    sentence: str
    facts: Mapping[str, object]
    lines: tuple[str, ...]


def _topic_side(spark: SparkSession, address: TopicAddress, request: CompareRequest) -> _Side:
    with open_client(address) as client:
        wanted = resolve_range(client, address, request.start, request.end)
    rows = read_range(spark, wanted, headers="headers" in request.compared, has_byte_names=True)
    name = (
        address.topic
        if address.topic != getattr(request.right, "topic", "") or address is request.right
        else f"{address.topic} of {address.url}"
    )
    return _Side(name, _comparable(rows, request, ("partition", "offset")), wanted)


def _file_side(spark: SparkSession, source: FileSource, request: CompareRequest) -> _Side:
    why = why_not_independent(source)
    if why is None:
        records = independent_records(spark, source, request.expressions)
        return _Side(str(source), _comparable(records, request, (REASON,)))
    rows, corrupt = read_files(spark, source)
    records = record_rows(rows, request.expressions, corrupt=corrupt)
    note = f"{source} is read as load reads it, because {why}: what load changes cannot be seen"
    return _Side(str(source), _comparable(records, request, (REASON,)), note=note)


def _comparable(rows: DataFrame, request: CompareRequest, kept: tuple[str, ...]) -> DataFrame:
    """Return the compared parts, with times in milliseconds, and the columns ``kept`` unchanged."""
    parts = [
        F.unix_millis("timestamp").alias("timestamp")
        if name == "timestamp"
        else F.coalesce(F.col("headers").cast(_HEADERS), F.array().cast(_HEADERS)).alias("headers")
        if name == "headers"
        else F.col(name)
        for name in request.compared
    ]
    return rows.select(*kept, *parts)


_Found = tuple[int, dict[str, object], _Difference | None, dict[str, int]]
"""Number of records of the left side, details, the difference if there is one, and rejected rows by reason."""


def _compare_in_order(left: _Side, right: _Side, request: CompareRequest) -> _Found:
    columns = ["position", *request.compared]
    placed = [_with_positions(side.rows) for side in (left, right)]
    ours, theirs = (digests_by("partition", rows, columns) for rows in placed)
    total = sum(count for count, _ in ours.values())
    details: dict[str, object] = {
        "left": {str(number): {"rows": count, "digest": digest} for number, (count, digest) in sorted(ours.items())},
        "right": {str(number): {"rows": count, "digest": digest} for number, (count, digest) in sorted(theirs.items())},
    }
    differing = sorted(number for number in ours.keys() | theirs.keys() if ours.get(number) != theirs.get(number))
    if not differing:
        return total, details, None, {}
    first = _first_in_order(placed[0], placed[1], differing[0], columns)
    number, position = int(first["number"]), int(first["position"])
    sides = {"left": _shown(first["left"]), "right": _shown(first["right"])}
    counts = f"{ours.get(number, (0, ''))[0]:,} and {theirs.get(number, (0, ''))[0]:,} records"
    difference = _Difference(
        sentence=f"in {counted(len(differing), 'partition')}; the first difference is in partition {number} "
        f"({counts}), record {position:,} from its beginning:",
        facts={"partition": number, "position": position, **sides},
        lines=(f"{left.name}: {_told(sides['left'])}", f"{right.name}: {_told(sides['right'])}"),
    )
    return total, details, difference, {}


def _with_positions(rows: DataFrame) -> DataFrame:
    """Return the rows with ``position``, the record's number in its partition from 0. Offsets have gaps for markers."""
    in_order = Window.partitionBy("partition").orderBy("offset")
    return rows.withColumn("position", F.row_number().over(in_order) - 1)


def _first_in_order(left: DataFrame, right: DataFrame, number: int, columns: list[str]) -> Row:
    """Return the first position of partition ``number`` where the two sides differ. There must be one."""
    sides = []
    for name, rows in (("left", left), ("right", right)):
        shown = F.struct(*[each for each in rows.columns if each not in ("partition", "position")])
        sides.append(
            rows.where(F.col("partition") == number).select(
                F.col("position"), row_hash(columns, 1).alias(f"{name}_hash"), shown.alias(name)
            )
        )
    differ = ~F.col("left_hash").eqNullSafe(F.col("right_hash"))
    found = sides[0].join(sides[1], "position", "full_outer").where(differ).orderBy("position").limit(1)
    first: Row = found.select(F.lit(number).alias("number"), "position", "left", "right").collect()[0]
    return first


def _compare_as_bags(left: _Side, right: _Side, request: CompareRequest) -> _Found:
    columns = list(request.compared)
    ours = whole_digest(left.rows, columns)
    theirs, rejected = _digest_of_records(right, columns)
    details: dict[str, object] = {
        "left": {"rows": ours[0], "digest": ours[1]},
        "right": {"rows": theirs[0], "digest": theirs[1]},
    }
    if ours == theirs:
        return ours[0], details, None, rejected
    first, only_left, only_right = _first_of_bags(left, right, columns)
    shown = _shown(first)
    more = int(first["more"])
    where = left.name if more > 0 else right.name
    details |= {"only_left": only_left, "only_right": only_right}
    difference = _Difference(
        sentence=f"{ours[0]:,} and {theirs[0]:,} records: {counted(only_left, 'record')} only in the first, "
        f"{only_right:,} only in the second.",
        facts={"only_in": "left" if more > 0 else "right", "times": abs(more), "record": shown},
        lines=(f"e.g. {abs(more):,} more of this in {where}: {_told(shown)}",),
    )
    return ours[0], details, difference, rejected


def _digest_of_records(side: _Side, columns: list[str]) -> tuple[tuple[int, str], dict[str, int]]:
    """Return count and digest of the side's records, and the rejected rows by reason, with one read."""
    if REASON not in side.rows.columns:
        return whole_digest(side.rows, columns), {}
    found = digests_by(REASON, side.rows, columns)
    records = found.pop(None, NOTHING)
    return records, {reason: found[reason][0] for reason in sorted(found)}


def _first_of_bags(left: _Side, right: _Side, columns: list[str]) -> tuple[Row, int, int]:
    """Return a record that one side has more often, and the total surplus of the left and of the right side.

    It is the first such record by partition and offset, if the left side has one.
    """
    ours = left.rows.select("partition", "offset", *columns, F.lit(1).alias("more"))
    nowhere = [F.lit(None).cast("int").alias("partition"), F.lit(None).cast("bigint").alias("offset")]
    theirs = right.records.select(*nowhere, *columns, F.lit(-1).alias("more"))
    grouped = (
        ours.unionByName(theirs)
        .groupBy(*columns)
        .agg(F.sum("more").alias("more"), F.min(F.struct("partition", "offset")).alias("place"))
        .where("more <> 0")
    )
    counts = grouped.agg(
        F.sum(F.greatest("more", F.lit(0))).alias("left"), F.sum(F.greatest(-F.col("more"), F.lit(0))).alias("right")
    ).collect()[0]
    in_order = grouped.orderBy(F.col("place.offset").isNull(), "place.partition", "place.offset")
    first = in_order.select("more", "place.partition", "place.offset", *columns).limit(1).collect()[0]
    return first, int(counts["left"]), int(counts["right"])


def _shown(row: Row | None) -> dict[str, object] | None:
    """Return a record as JSON values; ``None`` if there is none."""
    if row is None:
        return None
    return {name: _shown_value(value) for name, value in row.asDict().items() if name != "more"}


def _shown_value(value: object) -> object:
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "backslashreplace")[:SHOWN_CHARACTERS_MAX]
    if isinstance(value, list):
        return [_shown_value(each) for each in value]
    if isinstance(value, Row):
        return {name: _shown_value(each) for name, each in value.asDict().items()}
    return value


def _told(record: Mapping[str, object] | None) -> str:
    if record is None:
        return "no record"
    return ", ".join(f"{name} {value!r}" for name, value in record.items() if value is not None and value != [])


def _ranges(left: _Side, right: _Side) -> dict[str, object]:
    return {
        f"{name}_range": side.range.as_json()
        for name, side in (("left", left), ("right", right))
        if side.range is not None
    }


def _plan(request: CompareRequest, left: _Side, right: _Side, started: float) -> JobReport:
    offsets = left.range.offset_count if left.range is not None else 0
    how = "record by record in each partition" if request.is_ordered else "as bags, whatever the order"
    return JobReport(
        job="compare",
        outcome="dry_run",
        summary=f"Dry run: {left.name} (at most {counted(offsets, 'record')}) would be compared with {right.name}, "
        f"{', '.join(request.compared)}, {how}.",
        rows=offsets,
        seconds=time.monotonic() - started,
        details={"compared": list(request.compared), "in_order": request.is_ordered, **_ranges(left, right)},
    )
