"""``rollway log export``: topics as a Kafka broker adopts them, without loss."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from app.cli import options
from app.cli.command_errors import EXIT_FAILED, CommandError, UsageProblem
from app.cli.log_files.export_documents import (
    plan_document,
    print_plan,
    print_refusals,
    refusal_documents,
    written_document,
)
from app.cli.log_files.transaction_names import TransactionNames
from app.cli.options import named_path
from app.cli.rendering import format_bytes, note, plural, print_json, progress_bar, say
from log_model.errors import StorageError
from rollway.printable import escape_unprintable
from storage.disk.file_system import LocalFileSystem
from storage.disk.whole_files import write_file_atomically
from storage.log_export import (
    ClusterTopic,
    ExportPlan,
    ExportProgress,
    ExportRefusedError,
    LogExport,
    TopicListError,
    WrittenPartition,
    parse_topics,
)

DESCRIBED_FILE = "topic-ids.txt"
_FILE_BYTES_MAX = 256 << 20

Target = Annotated[
    Path | None,
    typer.Option(
        "--to",
        metavar="DIR",
        help="Log directory of a stopped broker, or a new directory: write the partitions there.",
        parser=named_path,
        show_default=False,
    ),
]
TopicIds = Annotated[
    Path | None,
    typer.Option(
        "--topic-ids",
        metavar="FILE",
        help="Saved output of kafka-topics.sh --describe, which the script of --script writes.",
        parser=named_path,
        show_default=False,
    ),
]
Script = Annotated[
    Path | None,
    typer.Option(
        "--script",
        metavar="FILE",
        help="Only write the shell script that creates the topics in the cluster.",
        parser=named_path,
        show_default=False,
    ),
]
Verify = Annotated[
    str | None,
    typer.Option(
        "--verify",
        metavar="kafka://HOST:PORT",
        help="Only compare the partitions with those of a running cluster, record for record.",
        show_default=False,
    ),
]
Topics = Annotated[
    list[str] | None,
    typer.Option("--topic", metavar="TOPIC", help="Only this topic; repeatable.", show_default=False),
]
ServiceConfig = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="The service's settings file, for its topic defaults.",
        parser=named_path,
        show_default=False,
    ),
]


def export_log(
    directory: Annotated[
        Path, typer.Argument(metavar="DATA", help="The data directory of a stopped service.", parser=named_path)
    ],
    to: Target = None,
    topic_ids: TopicIds = None,
    script: Script = None,
    broker: Annotated[
        int, typer.Option("--broker", min=0, metavar="ID", help="With --script: the broker that adopts the topics.")
    ] = 1,
    topic: Topics = None,
    verify: Verify = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be done, and change nothing.")
    ] = False,
    config: ServiceConfig = None,
    as_json: options.AsJson = False,
) -> None:
    """Export topics to a Kafka cluster: the directories of their partitions, as a broker adopts them.

    A broker must not get the directories as they are: it would lose acknowledged records, and delete or bring back
    others. The export has four steps. --script writes a script that creates the topics with their settings; run it
    against the cluster. --dry-run shows what would be changed, and what is refused, with the command that mends it.
    Then stop the broker, export into its log directory, and start it. --verify compares all records at last; it needs
    the library kio, which comes with `pip install rollway-server[kafka]`.

    In each batch the leader epoch becomes 0, and producer ids are moved away from those of the cluster. Batches with an
    Idempotency-Key get the producer of the Kafka engine, and LZ4 frames that Java cannot read are compressed again.
    Indexes and producer snapshots are left out: the broker rebuilds them. Log starts and recovery points go into the
    broker's checkpoints.

    A service that runs on DATA is refused. A directory that was not stopped cleanly is recovered first, as a start
    would. An export that was interrupted is repeated: partitions that are in place stay. Nothing is written if anything
    is refused. The topics of the service itself stay behind. Exit status: 0 done, 1 refused or failed.

    \b
    Examples:
      rollway log export rollway-data --script create-topics.sh --broker 1
      sh create-topics.sh broker:9092
      rollway log export rollway-data --to /var/lib/kafka --topic-ids topic-ids.txt --dry-run
      rollway log export rollway-data --to /var/lib/kafka --topic-ids topic-ids.txt
      rollway log export rollway-data --verify kafka://broker:9092
    """
    if sum(option is not None for option in (to, script, verify)) + (dry_run and to is None) != 1:
        raise UsageProblem("Give one of --script, --dry-run, --to and --verify; --to also takes --dry-run.")
    if to is not None and topic_ids is None:
        raise UsageProblem(
            "--to needs --topic-ids FILE: the cluster's ids of the topics. The script of --script saves them."
        )
    export = LogExport(directory, topic, _topic_defaults(config), how_to_end=TransactionNames(directory).how_to_end)
    try:
        clusters = None if topic_ids is None else _read_topics(topic_ids)
        if script is not None:
            _write_script(export, script, broker, as_json=as_json)
        elif verify is not None:
            _verify(export, verify, as_json=as_json)
        elif dry_run:
            _show_plan(export, clusters, to, as_json=as_json)
        else:
            assert to is not None
            assert clusters is not None
            _Run(shown=not as_json and sys.stderr.isatty()).run(export, clusters, to, as_json=as_json)
    except StorageError as error:
        raise CommandError(f"{str(error).rstrip('.')}.") from None
    except OSError as error:
        raise CommandError(f"{error.filename or directory}: {error.strerror}.") from None


def _verify(export: LogExport, address: str, *, as_json: bool) -> None:
    try:
        # Imported late: the library that it needs is an extra of the service.
        from app.cli.log_files.export_verify import verify_export
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "kio":
            raise
        raise CommandError("--verify needs the library kio: pip install 'rollway-server[kafka]'.") from None
    if not verify_export(export, address, as_json=as_json):
        raise typer.Exit(EXIT_FAILED)


def _topic_defaults(config: Path | None) -> Mapping[str, object]:
    # Imported late: no other command on log files needs the settings.
    from app.settings import SettingsError, load_settings

    try:
        return load_settings(**({} if config is None else {"config": config})).topic_defaults
    except SettingsError as error:
        raise UsageProblem(str(error)) from None


def _read_topics(path: Path) -> dict[str, ClusterTopic]:
    if path.stat().st_size > _FILE_BYTES_MAX:
        raise CommandError(f"{path} is too large for a list of topics.")
    try:
        return parse_topics(path.read_text())
    except (TopicListError, UnicodeDecodeError) as error:
        raise CommandError(f"{path}: {error}.") from None


def _write_script(export: LogExport, path: Path, broker: int, *, as_json: bool) -> None:
    write_file_atomically(LocalFileSystem(), path, export.script(broker, DESCRIBED_FILE).encode())
    sentence = f"{path} creates the topics: sh {path} HOST:PORT. It saves their description in {DESCRIBED_FILE}."
    if as_json:
        print_json({"script": str(path), "topic_ids": DESCRIBED_FILE})
    else:
        say(sentence)


def _show_plan(
    export: LogExport, clusters: Mapping[str, ClusterTopic] | None, to: Path | None, *, as_json: bool
) -> None:
    with progress_bar(shown=not as_json and sys.stderr.isatty(), knows_size=False) as bar:
        task = bar.add_task("plan", total=None)
        plan = export.plan(clusters, to, ExportProgress(on_read=lambda count: bar.update(task, advance=count)))
    if as_json:
        print_json(plan_document(plan))
    else:
        print_plan(plan)
    if plan.refusals:
        raise typer.Exit(EXIT_FAILED)


@dataclass(slots=True)
class _Run:
    """One export with its lines on the terminal."""

    shown: bool
    done: int = 0
    partition_count: int = 0

    def run(self, export: LogExport, clusters: Mapping[str, ClusterTopic], to: Path, *, as_json: bool) -> None:
        progress = ExportProgress(on_plan=self._begin, on_partition=self._placed)
        try:
            report = export.run(to, clusters, progress)
        except ExportRefusedError as error:
            if as_json:
                print_json({"refusals": refusal_documents(error.refusals)})
            else:
                print_refusals(error.refusals)
            raise typer.Exit(EXIT_FAILED) from None
        if as_json:
            print_json({**plan_document(report.plan), "written": [written_document(each) for each in report.written]})
            return
        if report.plan.was_recovered:
            note(f"{export.source} was not stopped cleanly, and was recovered first.")
        size_bytes = sum(file.size_bytes for written in report.written for file in written.files)
        exported = f"{plural(len(report.written), 'partition')} with {format_bytes(size_bytes)}"
        say(f"Exported {exported} to {to}. Give the files to the broker's user, then start the broker.")

    def _begin(self, plan: ExportPlan) -> None:
        self.partition_count = sum(len(topic.partitions) for topic in plan.topics)

    def _placed(self, written: WrittenPartition, is_new: bool) -> None:
        self.done += 1
        if self.shown:
            what = "written" if is_new else "was in place"
            note(escape_unprintable(f"[{self.done}/{self.partition_count}] {written.name} {what}"))
