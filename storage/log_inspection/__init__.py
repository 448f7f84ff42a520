"""Reads a data directory without a server, and reports its damage.

``verify_directory`` checks everything that Kafka's DumpLogSegments checks and more: framing, CRCs and records of every
batch, offsets within and between segments, every index entry against the log, producer snapshots, checkpoints, epochs,
metadata and the journal (docs/reference/on-disk-format.md). The ``read_*`` functions show single files.

This package only reads. It parses layouts independently with ``struct``, and not with the classes that write them, so
that a mistake in those classes does not hide itself.
"""

from storage.log_inspection.directory_check import DirectoryReport, verify_directory
from storage.log_inspection.findings import Finding, Severity
from storage.log_inspection.journal_state import MissingBytes, MissingBytesSearch
from storage.log_inspection.partition_check import PartitionReport
from storage.log_inspection.stored_files import (
    ProducerEntry,
    StoredBatch,
    StoredFileError,
    TransactionEntry,
    read_batches,
    read_checkpoint,
    read_epochs,
    read_index_checkpoint,
    read_offset_entries,
    read_producer_snapshot,
    read_properties,
    read_small_file,
    read_time_entries,
    read_transaction_entries,
    read_truncation_gaps,
)
from storage.log_inspection.transaction_check import read_control_record

__all__ = [
    "DirectoryReport",
    "Finding",
    "MissingBytes",
    "MissingBytesSearch",
    "PartitionReport",
    "ProducerEntry",
    "Severity",
    "StoredBatch",
    "StoredFileError",
    "TransactionEntry",
    "read_batches",
    "read_checkpoint",
    "read_control_record",
    "read_epochs",
    "read_index_checkpoint",
    "read_offset_entries",
    "read_producer_snapshot",
    "read_properties",
    "read_small_file",
    "read_time_entries",
    "read_transaction_entries",
    "read_truncation_gaps",
    "verify_directory",
]
