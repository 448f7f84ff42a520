"""Records into a topic with the library's load jobs, and back: run in an environment by ``test_install.py``.

The data directory is the only argument. It needs the installed distributions, and the demo beside it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from demo.service import Service
from rollway.client import ClientSettings, OffsetAsk, RollwayClient
from rollway.records import BinaryColumn, RecordColumns, committed_batches, decode_batch, encode_batch, split_batches

TOPIC = "readings"
FIRST_MS = 1_714_564_800_000
VALUES = [b"value %d" % number for number in range(1_000)]
LOST = VALUES[:10]
"""Records of an attempt that does not count."""


def main() -> None:
    """Start a service, load, read back, look a time up, and stop it."""
    directory = Path(sys.argv[1])
    directory.mkdir()
    service = Service.start(directory)
    try:
        with RollwayClient(ClientSettings(service.url)) as client:
            client.create_topic(TOPIC, 1, {"retention.ms": -1})
            load(client)
            assert read(client) == VALUES
            [answer] = client.offsets_for_times([OffsetAsk(TOPIC, 0, FIRST_MS + 700)])
            assert answer.offset == len(LOST) + 700, answer
    finally:
        status = service.stop()
    assert status == 0, status


def load(client: RollwayClient) -> None:
    """All values as one load job, whose task had an attempt before the one that counts."""
    job = client.begin_job("wheels", 1, mode="transactional", timeout_ms=60_000, topics=[TOPIC])
    lost, won = (client.enlist(job.job_id, 0, attempt) for attempt in range(2))
    for attempt, values in ((lost, LOST), (won, VALUES)):
        columns = RecordColumns(
            np.arange(len(values)),
            FIRST_MS + np.arange(len(values)),
            BinaryColumn.from_list([None] * len(values)),
            BinaryColumn.from_list(values),
        )
        batch = encode_batch(
            columns,
            producer_id=attempt.producer_id,
            producer_epoch=attempt.producer_epoch,
            base_sequence=0,
            transactional=True,
        )
        client.produce_batches(TOPIC, 0, [batch])
    decided = client.commit_job(job.job_id, [(won.producer_id, len(VALUES))])
    assert decided.state == "committed", decided


def read(client: RollwayClient) -> list[bytes | None]:
    """The values of all committed records."""
    fetched = client.fetch(TOPIC, 0, offset=0, max_bytes=1 << 24, isolation="read_committed")
    batches = committed_batches(split_batches(fetched.batches), fetched.aborted)
    return [value for batch in batches for value in decode_batch(batch).values.to_list()]


if __name__ == "__main__":
    main()
