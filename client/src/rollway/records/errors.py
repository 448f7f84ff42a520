"""The errors of record bytes.

RecordFormatError (a ValueError)
├── BrokenBatchError        kafka 2    the bytes are no whole batch: lengths, CRC, truncation, damaged compression
├── BrokenFrameError        kafka 2    the framing of a fetch answer does not add up
├── BrokenRecordError       kafka 87   the batch is whole, a record in it is not
├── UnknownCodecError       kafka 76   no codec has that number
├── UnsupportedMagicError   kafka 43   the format of another age (magic 0 and 1)
└── DecompressedSizeError   kafka 10   would grow beyond the limit of the reader
"""

from __future__ import annotations

from typing import ClassVar


class RecordFormatError(ValueError):
    """Any error of this package about bytes.

    ``kafka_code`` is the number of the error in Kafka's protocol.
    """

    kafka_code: ClassVar[int] = -1


class BrokenBatchError(RecordFormatError):
    """The bytes are not a whole, undamaged record batch: a wrong length, a wrong CRC, an end too early."""

    kafka_code = 2


class BrokenFrameError(RecordFormatError):
    """The lengths in the framing of a fetch answer do not add up to the bytes that are there."""

    kafka_code = 2


class BrokenRecordError(RecordFormatError):
    """A record inside a batch breaks the format.

    ``record_errors`` has one pair (place in the batch, fault) per record that is known to be broken. It is empty if the
    fault is the whole batch's, such as a wrong count. Example: ``((2, "has a header without a name"),)``.
    """

    kafka_code = 87

    def __init__(self, message: str, record_errors: tuple[tuple[int, str], ...] = ()) -> None:
        super().__init__(message)
        self.record_errors = record_errors


class UnknownCodecError(RecordFormatError):
    """The batch names a compression codec that does not exist."""

    kafka_code = 76


class UnsupportedMagicError(RecordFormatError):
    """The bytes carry another magic than the reader's: 2 for record batches, 0 or 1 for message sets.

    ``is_known``: the magic is 0, 1 or 2, so that the bytes are of the other format. No format has another magic.
    """

    kafka_code = 43

    def __init__(self, message: str, *, is_known: bool = False) -> None:
        super().__init__(message)
        self.is_known = is_known


class DecompressedSizeError(RecordFormatError):
    """Decompressed, the records would be larger than the reader allows. No memory beyond the limit was taken."""

    kafka_code = 10
