"""Every difference to a broker that a decision allows; docs/reference/kafka-cases.md has the same table."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import NamedTuple

from tests.kafka.cases import Case


class Difference(NamedTuple):
    """A row about produce requests: its cases, and what the two sides answer to those of their bodies that differ.

    ``kafka_codes`` and ``rollway_codes`` are error codes, 0 for a success. The row covers no other code.
    """

    cases: tuple[str, ...]
    """Names, with ``*`` for any text."""
    kafka_codes: frozenset[int]
    rollway_codes: frozenset[int]
    columns: tuple[str, str, str, str]
    """What the page says: the subject, Kafka's answer, Rollway's, and the reason."""

    def covers(self, case: Case) -> bool:
        return any(fnmatchcase(case.name, pattern) for pattern in self.cases)


def _row(cases: tuple[str, ...], codes: tuple[int | tuple[int, ...], int], *columns: str) -> Difference:
    subject, kafka, rollway, because = columns
    kafka_codes = codes[0] if isinstance(codes[0], tuple) else (codes[0],)
    return Difference(cases, frozenset(kafka_codes), frozenset({codes[1]}), (subject, kafka, rollway, because))


# fmt: off
DIFFERENCES: tuple[Difference, ...] = (
    # Timestamps
    _row(("log append time flag: to-gzip, none", "log append time flag: to-gzip, zstd"), (0, 0),
         "flag of LogAppendTime, topic of create time that stores another codec",
         "stored; all records get the header's maximum timestamp", "stored; the records keep their timestamps",
         "as where the codec stays: only the flag was wrong"),
    _row(("log append time flag: maximum too large",), (0, 0),
         "flag of LogAppendTime, topic of create time, the header's maximum is too large",
         "stored; the header's maximum is kept", "stored; the maximum is worked out from the records",
         "as for every batch (V-16): look-ups by time find what is there"),
    _row(("timestamps: negative *", "judged: timestamp-minus-5", "record: time delta overflows, *"), (0, 32),
         "timestamp below -1", "stored", "32", "no producer sends one, and no look-up by time finds it"),
    # Headers
    _row(("header: delete horizon",), (0, 87),
         "flag of a delete horizon", "stored", "87", "compaction writes it, and no producer does"),
    _row(("header: codec *",), (-1, 76),
         "codec 5, 6 or 7", "-1", "76", "76 says what is wrong; -1 is a failure of the broker"),
    _row(("header: producer: epoch -1", "judged: epoch-minus-1"), (0, 87),
         "producer id with the epoch -1", "stored", "87", "a producer id is given out together with an epoch"),
    _row(("header: producer: epoch -2",), (47, 87),
         "producer id with the epoch -2", "47", "87", "the batch is wrong; its producer is not fenced"),
    _row(("header: producer: id 2^62", "header: producer: largest id"), (0, 87),
         "producer id of 2^62 or more", "stored", "87", "the upper half is kept for requests with an Idempotency-Key"),
    # Records
    _row(("record: key length -2, *", "record: value length -2, *", "record: header value length -2, *"), (0, 87),
         "length of -2 of a key, a value or a header's value", "stored; read as null", "87",
         "only -1 means null, and no producer sends -2"),
    _row(("record: varint of six bytes, uncompressed",), (-1, 87),
         "varint of six bytes", "-1", "87", "87 says what is wrong; -1 is a failure of the broker"),
    _row(("record: length *, compressed",), (0, 87),
         "compressed record with a wrong length", "stored", "87",
         "brokers skip over compressed records; consumers would stop at them"),
    _row(("record: offset delta*, uncompressed",), (0, 87),
         "offset deltas that are not 0, 1, 2, ..., uncompressed", "stored as they are", "87",
         "two records would have one offset, or an offset beyond their batch"),
    _row(("record: offset delta*, compressed",), (-1, 0),
         "offset deltas that are not 0, 1, 2, ..., compressed with the codec that the topic stores", "-1",
         "stored, numbered again", "old clients number so, and brokers do the same between two codecs (V-17)"),
    # Compressed streams
    _row(("stream: cut, *", "stream: without its last byte, *", "stream: none, *", "stream: no stream, *",
          "stream: framed, snappy", "stream: zlib, gzip", "stream: bytes behind it, snappy",
          "stream: bytes behind it, zstd", "stream: in two, lz4"), ((-1, 87), 2),
         "compressed stream that is cut, damaged or of another form", "-1, or 87", "2",
         "2 says what is wrong; -1 is a failure of the broker"),
    _row(("stream: bytes behind it, gzip", "stream: bytes behind it, lz4"), (0, 2),
         "bytes behind the end of a gzip or lz4 stream", "stored", "2",
         "the stream is not what its producer meant to send"),
    _row(("stream: blocks linked, *", "judged: lz4-linked-blocks"), (-1, 87),
         "lz4 frame of linked blocks", "-1", "87", "refused by both: Java cannot read it; 87 says what is wrong"),
    _row(("judged: lz4-linked-blocks to-zstd",), (-1, 0),
         "lz4 frame of linked blocks, topic that stores another codec", "-1", "stored in the topic's codec",
         "nothing that Java cannot read is stored"),
    # Bodies
    _row(("body: empty",), (87, 0),
         "no bytes", "87", "success, base offset -1", "nothing was to be appended, as in V-26"),
    _row(("body: two batches",), (87, 0),
         "two batches in one request", "87", "stored, all or none (V-3)",
         "several batches in one raw body are validated and appended together"),
    _row(("body: a batch and a half", "body: a batch and a byte"), (0, 2),
         "bytes behind the last whole batch", "stored; the rest is cut off", "2 (V-6)",
         "one request is all or nothing for each partition"),
    _row(("body: * bytes of a batch", "body: a batch without its last byte", "header: length one too large",
          "header: length 2147483647"), ((87, -1), 2),
         "a batch that is longer than the request", "87, or -1", "2", "the bytes are damaged, as in V-6"),
    _row(("body: a batch and zeros", "body: zeros"), (2, 87),
         "zeros in place of a batch", "2", "87", "refused by both: Rollway looks at the magic before the length"),
    # Producers
    _row(("producer: repeated", "producer: the oldest of five repeated"), (0, 0),
         "repeated batch, topic of create time", "`log_append_time` is the batch's maximum timestamp",
         "`log_append_time` is -1", "the answer is that of the first request"),
    _row(("header: transactional without a producer", "transaction: no producer, compressed",
          "transaction: a control batch of a producer", "judged: every header byte 255"), (53, 87),
         "transactional batch without a producer, or a control batch", "53", "87",
         "the request of a broker names a transaction, and is judged before the batch is"),
    _row(("transaction: without a name",), (53, 49),
         "transactional batch of a producer without a transaction", "53", "49",
         "over HTTP the producer id names the transaction"),
)
# fmt: on


class ReadDifference(NamedTuple):
    """A row about look-ups and fetches. ``tests.kafka.test_produce_agrees`` says exactly when it applies."""

    columns: tuple[str, str, str, str]


READ_ON = ReadDifference(
    (
        "a fetch that comes to the end of a segment",
        "ends there",
        "goes on in the next segment",
        "fewer requests for the same records",
    )
)
NO_TIMES = ReadDifference(
    (
        "the largest timestamp of a log whose records have none",
        "the first record, with the time -1",
        "none",
        "there is no timestamp to be found",
    )
)
READ_DIFFERENCES = (READ_ON, NO_TIMES)


def page_rows() -> list[str]:
    """Return the rows of the page's table."""
    rows = [row.columns for row in DIFFERENCES] + [row.columns for row in READ_DIFFERENCES]
    return [f"| {' | '.join(columns)} |" for columns in rows]


def difference_of(case: Case) -> Difference | None:
    """Return the row that covers a case. No two rows cover the same one."""
    rows = [row for row in DIFFERENCES if row.covers(case)]
    assert len(rows) <= 1, f"{case.name}: {[row.columns[0] for row in rows]}"
    return rows[0] if rows else None
