"""The body of a produce request to many partitions, from JSON to the records and batches to append.

``schemas.produce`` describes the same document. A test checks that both give the same results.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from app.problems.problem import Fault, invalid
from app.produce.idempotence import ProducerStamp
from app.record_json.strict_json import check, decode, refuse_duplicates
from app.record_json.translate import EncodedRecord, Encoding, JsonRecord, ParsedRecords, TextRecord, parsed_records
from log_model.producers import KEYED_PRODUCER_ID_MIN
from schemas.names import PARTITION_MAX
from schemas.produce import TOPIC_TEXT_LENGTH_MAX

EPOCH_MAX = 2**15 - 1
SEQUENCE_MAX = 2**31 - 1
TRANSACTIONAL_ID_LENGTH_MAX = 249

Record = TypeVar("Record")


class _Part(msgspec.Struct, Generic[Record], gc=False, forbid_unknown_fields=True):
    topic: Annotated[str, Meta(max_length=TOPIC_TEXT_LENGTH_MAX)]
    partition: Annotated[int, Meta(ge=0, le=PARTITION_MAX)]
    records: list[Record] | UnsetType | None = UNSET
    record_batches: bytes | UnsetType | None = UNSET
    base_sequence: Annotated[int, Meta(ge=0, le=SEQUENCE_MAX)] | UnsetType | None = UNSET


class _Request(msgspec.Struct, Generic[Record], gc=False, forbid_unknown_fields=True):
    partitions: list[_Part[Record]]
    transactional_id: Annotated[str, Meta(min_length=1, max_length=TRANSACTIONAL_ID_LENGTH_MAX)] | UnsetType | None = (
        UNSET
    )
    producer_id: Annotated[int, Meta(ge=0, lt=KEYED_PRODUCER_ID_MIN)] | UnsetType | None = UNSET
    producer_epoch: Annotated[int, Meta(ge=0, le=EPOCH_MAX)] | UnsetType | None = UNSET


_DECODERS: dict[Encoding, msgspec.json.Decoder[Any]] = {
    "utf8": msgspec.json.Decoder(_Request[TextRecord]),
    "base64": msgspec.json.Decoder(_Request[EncodedRecord]),
    "json": msgspec.json.Decoder(_Request[JsonRecord]),
}


@dataclass(frozen=True, slots=True)
class PartRequest:
    """The records or the record batches to append to one partition. ``stamp`` is for records."""

    topic: str
    partition: int
    records: ParsedRecords | None
    record_batches: bytes | None
    stamp: ProducerStamp | None


@dataclass(frozen=True, slots=True)
class ProduceRequest:
    """The parts to append, in the order of the request. A partition may occur more than once."""

    parts: list[PartRequest]
    transactional_id: str | None


def parse_produce_request(
    body: bytes | bytearray, encoding: Encoding, *, part_count_max: int, now_ms: int
) -> ProduceRequest:
    """Return the request in a JSON body. Records without a timestamp get ``now_ms``.

    Raises:
        Problem: 400 or 422 with pointers such as ``/partitions/2/records/0/value``.
    """
    if encoding == "json":
        check(body)
    request = decode(_DECODERS[encoding], body)
    if encoding != "json":
        refuse_duplicates(body)
    if len(request.partitions) > part_count_max:
        detail = f"at most {part_count_max} partitions at a time"
        raise invalid([Fault("/partitions", "invalid_value", detail)])
    producer = _producer_of(request)
    faults = [fault for place, part in enumerate(request.partitions) for fault in _faults_of(part, place, producer)]
    if faults:
        raise invalid(faults)
    parts = [_parsed(part, place, encoding, producer, now_ms) for place, part in enumerate(request.partitions)]
    return ProduceRequest(parts, request.transactional_id or None)


def _is_given(value: object) -> bool:
    return value is not UNSET and value is not None


_Producer = tuple[int, int, bool] | None


def _producer_of(request: Any) -> _Producer:
    """Return the id, the epoch, and whether it is a transaction's; ``None`` without them.

    Raises:
        Problem: 422, some of it is missing.
    """
    given = {name: getattr(request, name) for name in ("producer_id", "producer_epoch", "transactional_id")}
    missing = [name for name in ("producer_id", "producer_epoch") if not _is_given(given[name])]
    if len(missing) == 2 and not _is_given(given["transactional_id"]):
        return None
    if missing and any(_is_given(part.records) for part in request.partitions):
        raise invalid([Fault(f"/{name}", "missing_field", "a producer has an id and an epoch") for name in missing])
    if missing:
        # Record batches carry both. The transactional id alone names the transaction that they must be of.
        return None
    return request.producer_id, request.producer_epoch, _is_given(given["transactional_id"])


def _faults_of(part: Any, place: int, producer: _Producer) -> list[Fault]:
    at = f"/partitions/{place}"
    has_records, has_batches = _is_given(part.records), _is_given(part.record_batches)
    if has_records == has_batches:
        return [Fault(at, "invalid_value", "give either records or record_batches")]
    has_sequence = _is_given(part.base_sequence)
    if has_batches and has_sequence:
        return [Fault(f"{at}/base_sequence", "invalid_value", "record batches carry their sequences themselves")]
    if has_records and producer is not None and not has_sequence:
        return [Fault(f"{at}/base_sequence", "missing_field", "the records of a producer are numbered")]
    if has_sequence and producer is None:
        return [Fault(f"{at}/base_sequence", "invalid_value", "there is no producer_id whose sequence this is")]
    return []


def _parsed(part: Any, place: int, encoding: Encoding, producer: _Producer, now_ms: int) -> PartRequest:
    if not _is_given(part.records):
        return PartRequest(part.topic, part.partition, None, part.record_batches, None)
    records = parsed_records(part.records, encoding, now_ms, f"/partitions/{place}/records/{{}}".format)
    records.check_partition(part.partition)
    stamp = None if producer is None else ProducerStamp(producer[0], producer[1], part.base_sequence, producer[2])
    return PartRequest(part.topic, part.partition, records, None, stamp)
