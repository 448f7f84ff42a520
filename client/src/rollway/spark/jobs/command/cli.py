"""The command ``rollway-spark``: it checks its arguments, then spark-submit starts Spark, and the job runs.

Exit status: 0 done or equal, 1 failed (one sentence says why), 2 a wrong command line, 3 a comparison that found a
difference, 130 Ctrl-C, 143 SIGTERM. The report goes to stdout. Progress goes to stderr, and an error is its last line.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from itertools import takewhile
from typing import Annotated, Any

import typer
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from rollway.client import AuthenticationError, RollwayError
from rollway.printable import escape_unprintable
from rollway.spark.errors import OptionError
from rollway.spark.jobs.command import job_options as options
from rollway.spark.jobs.command.explaining import escape_warnings, explain, leave_errors_to_us
from rollway.spark.jobs.command.submitting import DEFAULT_MASTER, Submission, submit
from rollway.spark.jobs.command.terminating import Termination, cancel_when_interrupted
from rollway.spark.jobs.comparing.compare_job import CompareRequest, compare
from rollway.spark.jobs.copy_job import CopyRequest, copy
from rollway.spark.jobs.errors import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_TERMINATED,
    EXIT_USAGE,
    JobError,
    JobUsageError,
)
from rollway.spark.jobs.exporting.export_job import ExportRequest, export
from rollway.spark.jobs.expressions import RecordExpressions
from rollway.spark.jobs.files.file_sources import FileSource
from rollway.spark.jobs.loading.load_job import LoadRequest, Rejects, load
from rollway.spark.jobs.places import parse_place
from rollway.spark.jobs.progress import ConsoleProgress
from rollway.spark.jobs.replaying.replay_job import ReplayRequest, replay
from rollway.spark.jobs.reports import JobReport
from rollway.spark.jobs.writing import LoadIdentity

application = typer.Typer(
    name="rollway-spark",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@dataclass(slots=True)
class _Run:
    """The place where a command line runs: beside an existing driver, or before one is started."""

    arguments: Sequence[str]
    is_beside_driver: bool
    submission: Submission = field(default_factory=Submission)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rollway-spark {version('rollway')}")
        raise typer.Exit


@application.callback()
def _root(
    context: typer.Context,
    master: Annotated[
        str, typer.Option("--master", envvar="ROLLWAY_SPARK_MASTER", metavar="URL", help="Spark's master.")
    ] = DEFAULT_MASTER,
    deploy_mode: Annotated[
        str | None, typer.Option("--deploy-mode", metavar="MODE", help="client or cluster, as for spark-submit.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark; may be repeated.")
    ] = None,
    packages: Annotated[
        str | None, typer.Option("--packages", metavar="LIST", help="Maven packages, for Avro or Kafka.")
    ] = None,
    jars: Annotated[str | None, typer.Option("--jars", metavar="LIST", help="Jars, as for spark-submit.")] = None,
    properties_file: Annotated[
        str | None, typer.Option("--properties-file", metavar="FILE", help="File with settings of Spark.")
    ] = None,
    log_level: Annotated[
        str, typer.Option("--log-level", metavar="LEVEL", help="Spark's own log: off, error, warn, info, debug.")
    ] = "off",
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Load, export, copy, compare and replay topics with Spark.

    Options of Spark precede the name of the job, options of the job follow it. Every job has --dry-run, which writes
    nothing, and --json, which prints the report for programs. Reports go to stdout. Progress goes to stderr, and an
    error is its last line.

    The API key, token or JWT is taken from ROLLWAY_API_KEY in the driver's environment. With --deploy-mode cluster the
    driver has a different environment, and this command does not pass the key on: other users can read command lines.
    On YARN, set spark.yarn.appMasterEnv.ROLLWAY_API_KEY in a --properties-file. On Kubernetes, take it from a secret
    with --conf spark.kubernetes.driver.secretKeyRef.ROLLWAY_API_KEY=SECRET:KEY. --url and ROLLWAY_SERVER are passed
    on.

    \b
    Examples:
      rollway-spark load flights.csv --topic flights --key carrier --dry-run
      rollway-spark --master spark://host:7077 --conf spark.cores.max=8 load 's3a://lake/*.parquet' --topic orders
      rollway-spark export orders --to /data/orders
      rollway-spark compare orders orders-copy
    """
    run: _Run = context.obj
    run.submission = Submission(
        master=master,
        deploy_mode=deploy_mode,
        settings=tuple(settings or ()),
        packages=packages,
        jars=jars,
        properties_file=properties_file,
        log_level=log_level.lower(),
    )


def _carry_out(
    context: typer.Context, job: Callable[..., JobReport], request: Any, *, dry_run: bool, as_json: bool
) -> None:
    """Run the job and print its report, here, or in the driver that it is submitted to."""
    run: _Run = context.obj
    if not run.is_beside_driver:
        name = str(context.info_name)
        # The address may come from the environment, which a driver in a cluster does not have. An address on the
        # command line follows it, and wins.
        address = ["--url", str(context.params["url"])]
        submit(run.submission, [name, *address, *arguments_of_job(run.arguments, name)])
    leave_errors_to_us()
    escape_warnings()
    spark = SparkSession.builder.appName(f"rollway-spark {context.info_name}").getOrCreate()
    # A session of Spark Connect has no context, and raises several kinds of errors.
    with suppress(PySparkException, AttributeError):
        cancel_when_interrupted(spark.sparkContext)
    report = job(spark, request, progress=ConsoleProgress(), dry_run=dry_run)
    typer.echo(json.dumps(report.document()) if as_json else report.text())
    raise typer.Exit(report.exit_status)


def arguments_of_job(arguments: Sequence[str], name: str) -> list[str]:
    """Return the arguments behind the job's name: its first occurrence that is not the value of a Spark option."""
    rest = iter(arguments)
    for argument in rest:
        if argument == name:
            return list(rest)
        if argument.startswith("--") and "=" not in argument:
            next(rest, None)
    raise AssertionError(arguments)


@application.command("load")
def _load(
    context: typer.Context,
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Files, folders or globs that Spark can read.")],
    topic: Annotated[str, typer.Option("--topic", "-t", metavar="TOPIC", help="Topic to load the rows into.")],
    url: options.Url = options.DEFAULT_URL,
    kind: options.Format = "",
    schema: options.FileSchema = None,
    read_options: options.ReadOptions = None,
    where: options.Where = None,
    key: options.Key = None,
    value: options.Value = None,
    timestamp: options.Timestamp = None,
    partition: Annotated[
        str | None, typer.Option("--partition-by", metavar="EXPR", help="Partition; without it the key decides.")
    ] = None,
    headers: options.Headers = None,
    partitions: Annotated[
        int | None, typer.Option("--partitions", min=1, metavar="N", help="Create the topic with this many partitions.")
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option(
            "--config", metavar="KEY=VALUE", help="Setting of a created topic; an existing one must have it already."
        ),
    ] = None,
    skip_rejects: options.SkipRejects = False,
    rejects_topic: options.RejectsTopic = None,
    rejects_to: options.RejectsTo = None,
    max_rejects: options.MaxRejects = None,
    allow_expired: options.AllowExpired = False,
    app_id: options.AppId = None,
    app_version: options.AppVersion = None,
    format_options: options.FormatOptions = None,
    dry_run: options.DryRun = False,
    as_json: options.AsJson = False,
) -> None:
    """Load files into a topic, every row once.

    FILE may be CSV (RFC 4180, with a header line), JSON lines, Parquet, ORC, text, or Avro if Spark has its package.
    EXPR are SQL expressions over its columns. Without --value a line of JSON or text is written unchanged, and any
    other row as JSON. Fields of CSV are text, unless --schema or --read-option inferSchema=true gives types. The first
    row that cannot be a record ends the load, unless --skip-rejects or --rejects-... is given. A load that ends early
    leaves no row visible. By default a topic keeps records for 7 days: older rows are refused.

    \b
    Examples:
      rollway-spark load flights.csv --topic flights --partitions 6 --key carrier --timestamp time_hour
      rollway-spark load app.log --topic lines --key "split(value, ' ')[0]" --where "value <> ''"
      rollway-spark load 'orders/*.parquet' --topic orders --key id --app-id nightly --version 20130704
      rollway-spark load in.json --topic in --schema 'id BIGINT, at TIMESTAMP' --rejects-to bad --max-rejects 100
    """
    request = LoadRequest(
        source=FileSource(
            paths=tuple(files),
            format=kind,
            schema=schema,
            options=options.pairs("--read-option", read_options),
            where=where,
        ),
        target=options.address(topic, url, format_options),
        expressions=RecordExpressions(key=key, value=value, headers=headers, timestamp=timestamp, partition=partition),
        rejects=Rejects(skip=skip_rejects, topic=rejects_topic, files=rejects_to, rows_max=max_rejects),
        identity=LoadIdentity(application_id=app_id, version=app_version),
        partitions=partitions,
        topic_config=options.pairs("--config", config),
        allow_expired=allow_expired,
    )
    _carry_out(context, load, request, dry_run=dry_run, as_json=as_json)


@application.command("export")
def _export(
    context: typer.Context,
    topic: options.TopicArgument,
    destination: Annotated[str, typer.Option("--to", metavar="FOLDER", help="Folder for the files.")],
    url: options.Url = options.DEFAULT_URL,
    start: options.Start = "earliest",
    end: options.End = "latest",
    select: Annotated[
        list[str] | None, typer.Option("--select", metavar="EXPR", help="A column of the files; may be repeated.")
    ] = None,
    codec: Annotated[str, typer.Option("--codec", metavar="NAME", help="Compression of the files.")] = "zstd",
    file_size: options.FileSize = "128m",
    on_data_loss: options.OnLoss = "fail",
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Continue after a dead run that still has the folder's lock.")
    ] = False,
    format_options: options.FormatOptions = None,
    dry_run: options.DryRun = False,
    as_json: options.AsJson = False,
) -> None:
    """Export a topic to Parquet files by date and hour, from the end of the last run.

    Files go to FOLDER/date=.../hour=..., by the records' timestamps in UTC. FOLDER/_rollway, which readers ignore, has
    the progress of the export. A killed run leaves no record twice: the next run finishes or repeats it. --from is for
    the first run. EXPR are SQL over key, value, headers, topic, partition, offset, timestamp.

    The records of an hour become one file, or several of about --file-size, by their size in the log. For that they are
    sorted by hour, partition and offset, which takes about their size on disk. With --file-size 0 they are not sorted,
    and each partition and hour has a file.

    A lock in the folder allows one run at a time for a topic and a folder. After a run was killed on another host, the
    next run needs --take-over.

    \b
    Examples:
      rollway-spark export orders --to /data/orders
      rollway-spark export orders --to hdfs:///orders --from 2013-07-04 --select "cast(key as string) AS id" --select
      value
    """
    request = ExportRequest(
        source=options.address(topic, url, format_options),
        destination=destination,
        start=parse_place(start),
        end=parse_place(end),
        columns=tuple(select or ()),
        codec=codec,
        file_bytes=options.file_bytes(file_size),
        on_data_loss=options.on_data_loss(on_data_loss),
        take_over=take_over,
    )
    _carry_out(context, export, request, dry_run=dry_run, as_json=as_json)


@application.command("copy")
def _copy(
    context: typer.Context,
    source: Annotated[str, typer.Argument(metavar="FROM", help="Topic to read.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="Topic to write.")],
    url: options.Url = options.DEFAULT_URL,
    to_url: options.ToUrl = None,
    from_kafka: Annotated[
        str | None, typer.Option("--from-kafka", metavar="SERVERS", help="FROM is a topic of Kafka at these servers.")
    ] = None,
    to_kafka: Annotated[
        str | None, typer.Option("--to-kafka", metavar="SERVERS", help="TO is a topic of Kafka at these servers.")
    ] = None,
    start: options.Start = "earliest",
    end: options.End = "latest",
    by_key: options.ByKey = False,
    config: options.TargetConfig = None,
    app_id: options.AppId = None,
    app_version: options.AppVersion = None,
    on_data_loss: options.OnLoss = "fail",
    allow_expired: options.AllowExpired = False,
    format_options: options.FormatOptions = None,
    to_format_options: options.ToFormatOptions = None,
    dry_run: options.DryRun = False,
    as_json: options.AsJson = False,
) -> None:
    """Copy a topic to another, in order within each partition.

    If TO does not exist, it is created with the partitions and the own settings of FROM, unless FROM is Kafka's. All
    records become visible at once, or none. To Kafka, Spark writes at least once, and with new timestamps. Kafka needs
    --packages before the job.

    \b
    Examples:
      rollway-spark copy orders orders-2
      rollway-spark copy orders orders --to-url http://other:8080 --app-id mirror --version 1
      rollway-spark --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0 copy orders orders --from-kafka
      host:9092
    """
    given, given_to = options.options_of_both(format_options, to_format_options)
    request = CopyRequest(
        source=options.topic_address(source, url, from_kafka, given),
        target=options.topic_address(target, to_url or url, to_kafka, given_to),
        start=parse_place(start),
        end=parse_place(end),
        keep_partitions=not by_key,
        topic_config=options.pairs("--config", config),
        identity=LoadIdentity(application_id=app_id, version=app_version),
        on_data_loss=options.on_data_loss(on_data_loss),
        allow_expired=allow_expired,
    )
    _carry_out(context, copy, request, dry_run=dry_run, as_json=as_json)


@application.command("compare")
def _compare(
    context: typer.Context,
    topic: options.TopicArgument,
    other: Annotated[str | None, typer.Argument(metavar="[OTHER]", help="The other topic, unless --files.")] = None,
    files: Annotated[
        list[str] | None, typer.Option("--files", metavar="FILE", help="Files to compare with; may be repeated.")
    ] = None,
    url: options.Url = options.DEFAULT_URL,
    to_url: options.ToUrl = None,
    kind: options.Format = "",
    schema: options.FileSchema = None,
    read_options: options.ReadOptions = None,
    where: options.Where = None,
    key: options.Key = None,
    value: options.Value = None,
    timestamp: options.Timestamp = None,
    headers: options.Headers = None,
    start: options.Start = "earliest",
    end: options.End = "latest",
    any_order: Annotated[
        bool, typer.Option("--any-order", help="Order and partitions of topics do not count.")
    ] = False,
    ignore: Annotated[
        list[str] | None, typer.Option("--ignore", metavar="PART", help="key, value, headers or timestamp; repeatable.")
    ] = None,
    skip_rejects: options.SkipRejects = False,
    format_options: options.FormatOptions = None,
    to_format_options: options.ToFormatOptions = None,
    dry_run: options.DryRun = False,
    as_json: options.AsJson = False,
) -> None:
    """Compare two topics, or a topic and files; exit status 3 and the first difference if they differ.

    Two topics must have the same records in the same order in each partition; offsets may differ. Files must have the
    same records in any order; rows that cannot be records are also a difference, unless they are skipped. CSV, JSON
    lines and text are read by a different reader than in load, which finds changes made by a load. Other files are read
    as in load, which the report says.

    \b
    Examples:
      rollway-spark compare orders orders-copy
      rollway-spark compare orders orders --to-url http://other:8080 --ignore timestamp
      rollway-spark compare flights --files flights.csv --key carrier
    """
    if (other is None) == (not files):
        raise JobUsageError("Compare needs either a second topic or --files.")
    options.refuse_unused(context, *(options.OF_A_SECOND_TOPIC if files else options.OF_FILES))
    given_to = to_format_options if to_format_options is not None else format_options
    request = CompareRequest(
        left=options.address(topic, url, format_options),
        right=options.address(other, to_url or url, given_to)
        if other is not None
        else FileSource(
            paths=tuple(files or ()),
            format=kind,
            schema=schema,
            options=options.pairs("--read-option", read_options),
            where=where,
        ),
        start=parse_place(start),
        end=parse_place(end),
        expressions=RecordExpressions(key=key, value=value, headers=headers, timestamp=timestamp),
        any_order=any_order,
        ignored=tuple(ignore or ()),
        skip_rejects=skip_rejects,
    )
    _carry_out(context, compare, request, dry_run=dry_run, as_json=as_json)


@application.command("replay")
def _replay(
    context: typer.Context,
    source: Annotated[str, typer.Argument(metavar="FROM", help="Topic to read.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="Topic to replay into.")],
    url: options.Url = options.DEFAULT_URL,
    to_url: options.ToUrl = None,
    start: options.Start = "earliest",
    end: options.End = "latest",
    speed: Annotated[
        float, typer.Option("--speed", metavar="X", help="1: original speed; 10: ten times; 0: at once.")
    ] = 1.0,
    interval: Annotated[
        float, typer.Option("--interval", metavar="SECONDS", help="Make records visible in steps of this many seconds.")
    ] = 2.0,
    timestamps: Annotated[
        str, typer.Option("--timestamps", metavar="WHICH", help="keep, or now: the times of the replay.")
    ] = "keep",
    by_key: options.ByKey = False,
    config: options.TargetConfig = None,
    app_id: options.AppId = None,
    app_version: options.AppVersion = None,
    on_data_loss: options.OnLoss = "fail",
    allow_expired: options.AllowExpired = False,
    format_options: options.FormatOptions = None,
    to_format_options: options.ToFormatOptions = None,
    dry_run: options.DryRun = False,
    as_json: options.AsJson = False,
) -> None:
    """Replay a range of a topic into another, at its original speed or a multiple of it.

    Each step of --interval is one transaction. A step that cannot be written in time is late; none is left out. If TO
    does not exist, it is created with the partitions and the own settings of FROM.

    With --app-id and --version an interrupted replay continues after its last step when it runs again, with records
    that have come to the range since. --speed and --interval may differ then. A different range, --timestamps or
    --by-key is refused.

    \b
    Examples:
      rollway-spark replay orders orders-test --from 2013-07-04T08:00:00Z --until 2013-07-04T09:00:00Z
      rollway-spark replay orders orders-test --from 2013-07-04 --until 2013-07-05 --speed 60 --timestamps now
    """
    if timestamps not in ("keep", "now"):
        raise JobUsageError(f"--timestamps {timestamps!r} is neither keep nor now.")
    given, given_to = options.options_of_both(format_options, to_format_options)
    request = ReplayRequest(
        source=options.topic_address(source, url, None, given),
        target=options.topic_address(target, to_url or url, None, given_to),
        start=parse_place(start),
        end=parse_place(end),
        speed=speed,
        interval_seconds=interval,
        timestamps="keep" if timestamps == "keep" else "now",
        keep_partitions=not by_key,
        topic_config=options.pairs("--config", config),
        identity=LoadIdentity(application_id=app_id, version=app_version),
        on_data_loss=options.on_data_loss(on_data_loss),
        allow_expired=allow_expired,
    )
    _carry_out(context, replay, request, dry_run=dry_run, as_json=as_json)


def run(arguments: Sequence[str], *, is_beside_driver: bool) -> int:
    """Run one command line and return its exit status. Errors that a user can cause are printed, not raised."""
    as_json = "--json" in takewhile(lambda argument: argument != "--", arguments)
    where = _Run(arguments, is_beside_driver)
    odd = next((argument for argument in arguments if not _is_utf8(argument)), None)
    if odd is not None:
        # Python shows such bytes as lone surrogates, and Java would turn them into question marks.
        return _fail(f"the argument {odd!r} is not UTF-8", EXIT_USAGE, as_json=as_json)
    try:
        status = application(list(arguments) or ["--help"], prog_name="rollway-spark", standalone_mode=False, obj=where)
        sys.stdout.flush()
    except JobError as error:
        return _fail(str(error), error.exit_status, as_json=as_json)
    except OptionError as error:
        return _fail(str(error), EXIT_USAGE, as_json=as_json)
    except AuthenticationError as error:
        hint = "the key is taken from ROLLWAY_API_KEY in the driver's environment: see rollway-spark --help"
        return _fail(f"{error}; {hint}", EXIT_FAILED, as_json=as_json)
    except RollwayError as error:
        return _fail(str(error), EXIT_FAILED, as_json=as_json)
    except (PySparkException, Py4JError) as error:
        return _fail(explain(error), EXIT_FAILED, as_json=as_json)
    except typer.TyperException as error:
        return _fail(error.format_message(), error.exit_code, as_json=as_json)
    except (KeyboardInterrupt, typer.Abort):
        return EXIT_INTERRUPTED
    return status if isinstance(status, int) else 0


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _fail(sentence: str, status: int, *, as_json: bool) -> int:
    document = json.dumps({"error": sentence, "exit_status": status})
    typer.echo(document if as_json else escape_unprintable(f"rollway-spark: {sentence}"), err=True)
    return status


def run_here(arguments: Sequence[str]) -> int:
    """Run a command line beside the driver that spark-submit started."""
    return _run_heeding_sigterm(arguments, is_beside_driver=True)


def _run_heeding_sigterm(arguments: Sequence[str], *, is_beside_driver: bool) -> int:
    """Run as ``run``. After SIGTERM, which ends a job as Ctrl-C does, return ``EXIT_TERMINATED``."""
    status = EXIT_TERMINATED
    with Termination() as termination:
        status = run(arguments, is_beside_driver=is_beside_driver)
    return EXIT_TERMINATED if termination.was_asked else status


def main() -> None:
    """Run the console script ``rollway-spark``."""
    sys.exit(_run_heeding_sigterm(sys.argv[1:], is_beside_driver=False))
