"""Control batches: the markers that end a transaction in each partition it touched.

docs/reference/on-disk-format.md#control-batch-in-log has their layout.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from rollway.records.batch import MAGIC, BatchHeader, Codec, TimestampType, attributes_of, build_batch
from rollway.records.columns import BinaryColumn, RecordColumns
from rollway.records.errors import BrokenRecordError
from rollway.records.sections.writer import write_section

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")
_VERSION = 0


class ControlType(IntEnum):
    """The end of a transaction: aborted or committed."""

    ABORT = 0
    COMMIT = 1


class ControlRecord(NamedTuple):
    """The one record of a control batch."""

    control_type: ControlType
    coordinator_epoch: int


def encode_control_batch(
    control_type: ControlType,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = 0,
) -> bytes:
    """Return the marker of one transaction of ``producer_id``: 78 bytes, without a sequence (-1), uncompressed.

    Layout of the record: key = version int16 (0), type int16; value = version int16 (0), coordinatorEpoch int32.
    """
    columns = RecordColumns(
        np.zeros(1, dtype=np.int64),
        np.array([timestamp], dtype=np.int64),
        BinaryColumn.from_list([_KEY.pack(_VERSION, control_type)]),
        BinaryColumn.from_list([_VALUE.pack(_VERSION, coordinator_epoch)]),
    )
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        partition_leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes_of(Codec.NONE, TimestampType.CREATE_TIME, transactional=True, control=True),
        last_offset_delta=0,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=-1,
        record_count=1,
    )
    return build_batch(header, write_section(columns))


def decode_control_record(key: bytes | None, value: bytes | None) -> ControlRecord:
    """Return the content of a control batch's record. Fields that later versions add are not read.

    Raises:
        BrokenRecordError: the record is too short, or its version is negative, or there is no such type.
    """
    if key is None or len(key) < _KEY.size or value is None or len(value) < _VALUE.size:
        raise BrokenRecordError("a control record needs a key of 4 bytes and a value of 6")
    key_version, type_number = _KEY.unpack_from(key)
    value_version, coordinator_epoch = _VALUE.unpack_from(value)
    if key_version < _VERSION or value_version < _VERSION:
        raise BrokenRecordError(f"control record of version {min(key_version, value_version)}")
    try:
        control_type = ControlType(type_number)
    except ValueError:
        raise BrokenRecordError(f"no control record has the type {type_number}") from None
    return ControlRecord(control_type, coordinator_epoch)
