"""The demo's main job: flights into the topic with Spark, in partitions, and back, as a data engineer would do it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from demo.checks import MAIN_CONFIG, MAIN_TOPIC, PARTITION_COUNT, Partitions
from demo.flights import Flight
from demo.log_client import LogClient
from demo.report import Step
from rollway.spark.jobs import (
    CompareRequest,
    ConsoleProgress,
    FileSource,
    LoadIdentity,
    LoadRequest,
    RecordExpressions,
    TopicAddress,
    compare,
    load,
)
from rollway.spark.jobs.command.submitting import Submission, submit

COLUMNS = (
    "year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,carrier,flight,tailnum,origin,"
    "dest,air_time,distance,hour,minute,time_hour"
)
SPLIT_BYTES = 4 << 20
"""Large enough for a task to be worth it, small enough for each core to have several."""

RECORDS = RecordExpressions(
    key="split(value, ',')[9]",
    timestamp="unix_millis(to_timestamp(split(value, ',')[18])) + 60000 * int(split(value, ',')[17])",
)
"""The carrier, and the scheduled departure; the value is the line as it is."""


def write_source(path: Path, flights: Sequence[Flight]) -> FileSource:
    """The flights as the CSV file they came in, for Spark to read."""
    path.write_bytes(b"\n".join([COLUMNS.encode(), *(flight.value for flight in flights), b""]))
    return FileSource(paths=(str(path),), format="text", where="value NOT LIKE 'year,%'")


def start_spark() -> SparkSession:
    """A session on all cores of this machine, whose tasks are tried again as in a cluster.

    Raises:
        JobError: there is no Java, or no Spark.
    """
    settings = ("spark.ui.enabled=false", f"spark.sql.files.maxPartitionBytes={SPLIT_BYTES}")
    submit(Submission(settings=settings), ["demo"])
    return SparkSession.builder.getOrCreate()


class SparkFlights:
    """The flights on their way through Spark. One session, one service."""

    def __init__(self, spark: SparkSession, url: str, source: FileSource, *, shows_progress: bool) -> None:
        self._spark = spark
        self._target = TopicAddress(topic=MAIN_TOPIC, url=url)
        self._source = source
        self._progress = ConsoleProgress() if shows_progress else None

    def _request(self) -> LoadRequest:
        return LoadRequest(
            source=self._source,
            target=self._target,
            expressions=RECORDS,
            identity=LoadIdentity(application_id="demo", version=2013),
            partitions=PARTITION_COUNT,
            topic_config=MAIN_CONFIG,
        )

    def load(self, flight_count: int, step: Step) -> None:
        """Load all flights as one load job: visible at once, each once."""
        report = load(self._spark, self._request(), progress=self._progress)
        step.check(report.rows == flight_count, f"{report.rows} of {flight_count:,} rows were loaded")
        step.answer = report.summary
        step.rate = f"{flight_count / max(report.seconds, 0.001):,.0f} records/s, with Spark's planning"

    def load_again(self, step: Step) -> None:
        """The same version once more must write nothing."""
        report = load(self._spark, self._request(), progress=self._progress)
        step.check(report.outcome == "already_done", f"the second load was {report.outcome}: {report.rows} rows")
        step.answer = report.summary

    def compare(self, step: Step) -> int:
        """Are the topic's records those of the file, by count and digest? Returns how many there are."""
        request = CompareRequest(left=self._target, right=self._source, expressions=RECORDS)
        report = compare(self._spark, request, progress=self._progress)
        step.check(report.outcome == "equal", report.text())
        step.answer = report.summary
        return report.rows or 0

    def delays(self, flights: Sequence[Flight], step: Step) -> None:
        """Read the topic back, aggregate delays per carrier, and compare with the source."""
        rows = self._spark.read.format("rollway").option("url", self._target.url).option("subscribe", MAIN_TOPIC).load()
        delays = rows.selectExpr(
            "cast(key AS string) AS carrier", "try_cast(split(cast(value AS string), ',')[5] AS int) AS delay"
        )
        found = delays.groupBy("carrier").agg({"*": "count", "delay": "sum"}).collect()
        answer = {row["carrier"]: (int(row["count(1)"]), int(row["sum(delay)"] or 0)) for row in found}
        expected = delays_of(flights)
        for carrier in sorted(expected.keys() | answer.keys()):
            there, wanted = answer.get(carrier), expected.get(carrier)
            step.check(there == wanted, f"{carrier}: Spark says {there} flights and minutes, the source {wanted}")
        worst = max(expected, key=lambda carrier: expected[carrier][1] / expected[carrier][0])
        count, minutes = expected[worst]
        step.answer = (
            f"{len(answer)} carriers equal to the source; {worst} is latest: {minutes / count:.1f} min on average"
        )


def delays_of(flights: Sequence[Flight]) -> dict[str, tuple[int, int]]:
    """Flights and minutes of delay at departure of each carrier; a flight that did not depart has none."""
    counts: Counter[str] = Counter()
    minutes: Counter[str] = Counter()
    for flight in flights:
        delay = flight.value.split(b",")[5]
        carrier = flight.key.decode("ascii")
        counts[carrier] += 1
        minutes[carrier] += int(delay) if delay.lstrip(b"-").isdigit() else 0
    return {carrier: (count, minutes[carrier]) for carrier, count in counts.items()}


def stored_order(client: LogClient, source: Partitions, step: Step) -> Partitions:
    """What each partition holds, in its order: the source's flights, but in the order in which tasks brought them."""
    stored: Partitions = []
    for number, flights in enumerate(source):
        records = list(client.records(MAIN_TOPIC, number))
        there = [Flight(record.timestamp, record.key, record.value) for record in records]
        step.check(sorted(there) == sorted(flights), f"partition {number} does not hold the source's records")
        offsets = [record.offset for record in records]
        step.check(offsets == list(range(len(offsets))), f"partition {number} has gaps between its offsets")
        stored.append(there)
    counts = [len(each) for each in stored]
    step.answer = (
        ", ".join(f"{count:,}" for count in counts) + f": {sum(counts):,}, each where Kafka's partitioner puts it"
    )
    return stored
