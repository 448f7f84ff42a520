"""The plan of an export, as JSON for programs and as text for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from app.cli.rendering import format_bytes, plural, print_table, say
from rollway.printable import escape_unprintable
from storage.log_export import ExportPlan, PartitionScan, Refusal, TopicPlan, WrittenPartition, cluster_settings

_SHOWN_KEYS_MAX = 10

Document = dict[str, Any]


def plan_document(plan: ExportPlan) -> Document:
    """Return the plan as JSON. ``partitions`` of a topic are empty if the directory must be recovered first."""
    return {
        "source": str(plan.source),
        "directory_id": plan.directory_id,
        "producer_shift": plan.shift,
        "clean": plan.is_clean,
        "recovered": plan.was_recovered,
        "size_bytes": plan.size_bytes,
        "topics": [_topic_document(topic) for topic in plan.topics],
        "refusals": refusal_documents(plan.refusals),
    }


def refusal_documents(refusals: Iterable[Refusal]) -> list[Document]:
    return [{"subject": refusal.subject, "why": refusal.why, "mend": refusal.mend} for refusal in refusals]


def written_document(written: WrittenPartition) -> Document:
    """Return one partition that is in place."""
    return {
        "topic": written.topic,
        "partition": written.partition,
        "log_start_offset": written.log_start_offset,
        "log_end_offset": written.log_end_offset,
        "size_bytes": sum(written.sizes.values()),
    }


def _topic_document(plan: TopicPlan) -> Document:
    return {
        "topic": plan.topic.name,
        "topic_id": plan.topic.topic_id,
        "cluster_topic_id": None if plan.cluster is None else plan.cluster.topic_id,
        "partition_count": plan.topic.partition_count,
        "settings": cluster_settings(plan.topic),
        "notes": list(plan.notes),
        "in_place": sorted(name.partition for name in plan.finished),
        "partitions": [_partition_document(scan) for scan in plan.scans],
    }


def _partition_document(scan: PartitionScan) -> Document:
    counts = scan.rewritten
    return {
        "partition": scan.name.partition,
        "log_start_offset": scan.log_start_offset,
        "log_end_offset": scan.log_end_offset,
        "segment_count": scan.segment_count,
        "size_bytes": scan.size_bytes,
        "batch_count": scan.batch_count,
        "rewritten": {
            "leader_epochs": counts.epochs,
            "producers": counts.producers,
            "keys": counts.keys,
            "keys_without_producer": counts.forgotten_keys,
            "lz4": counts.lz4,
        },
        "open_transactions": [
            {"producer_id": each.producer_id, "producer_epoch": each.producer_epoch, "first_offset": each.first_offset}
            for each in scan.open_transactions
        ],
        "remembered_key_count": scan.remembered_key_count,
        "forgotten_keys": [
            {"producer_id": key.producer_id, "last_offset": key.last_offset, "why": key.why}
            for key in scan.forgotten_keys
        ],
    }


def print_plan(plan: ExportPlan) -> None:
    """Print the plan: a row for each partition, then what is left behind, what is refused, and a last sentence."""
    scans = [scan for topic in plan.topics for scan in topic.scans]
    if scans:
        print_table(
            ["PARTITION", "OFFSETS", "BATCHES", "SIZE", "EPOCHS", "PRODUCERS", "KEYS", "LZ4"],
            [_row(scan) for scan in scans],
        )
    for topic in plan.topics:
        for sentence in topic.notes:
            say(escape_unprintable(f"{topic.topic.name}: {sentence}"))
    for scan in scans:
        _print_forgotten(scan)
    print_refusals(plan.refusals)
    say(_verdict(plan))


def print_refusals(refusals: Sequence[Refusal]) -> None:
    """Print what is refused, each with the command that mends it."""
    for refusal in refusals:
        say(escape_unprintable(f"refused: {refusal.subject}: {refusal.why}."))
        say(escape_unprintable(f"    to mend it: {refusal.mend}"))


def _row(scan: PartitionScan) -> tuple[object, ...]:
    counts = scan.rewritten
    return (
        str(scan.name),
        f"[{scan.log_start_offset}, {scan.log_end_offset})",
        scan.batch_count,
        format_bytes(scan.size_bytes),
        counts.epochs,
        counts.producers,
        counts.keys + counts.forgotten_keys,
        counts.lz4,
    )


def _print_forgotten(scan: PartitionScan) -> None:
    for key in scan.forgotten_keys[:_SHOWN_KEYS_MAX]:
        say(
            f"{scan.name}: the Idempotency-Key of producer {key.producer_id}, whose records end at offset "
            f"{key.last_offset}, loses its memory: {key.why}."
        )
    more = len(scan.forgotten_keys) - _SHOWN_KEYS_MAX
    if more > 0:
        say(f"{scan.name}: {plural(more, 'more key')} lose their memory; --json lists them.")


def _verdict(plan: ExportPlan) -> str:
    partitions = sum(len(topic.partitions) for topic in plan.topics)
    topics = f"{plural(len(plan.topics), 'topic')} with {plural(partitions, 'partition')}"
    what = f"{topics} and {format_bytes(plan.size_bytes)}"
    if not plan.is_clean:
        return (
            f"{what}. The directory was not stopped cleanly: the export recovers it first, as a start would, and reads "
            "it then. To see the whole plan, start Rollway and stop it."
        )
    if plan.refusals:
        return f"{what}: {plural(len(plan.refusals), 'refusal')}, so nothing would be exported."
    in_place = sum(len(topic.finished) for topic in plan.topics)
    done = f", {in_place:,} of them in place" if in_place else ""
    return f"{what}{done}. Producer ids are moved by {plan.shift}. Nothing stands in the way."
