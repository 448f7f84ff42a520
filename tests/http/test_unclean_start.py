"""What `/readyz` says over HTTP while a service recovers after a kill -9: how far it is, how fast, how long to go."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import httpx
import pytest

from log_model.clock import ManualClock
from schemas.health import OpeningProgress
from storage.recovery.recovery_progress import RecoveryMeter
from tests.support.servers import ServerProcess, ThreadedServer
from tests.support.writers import record_batch

pytestmark = pytest.mark.needs_local("it runs the service as a process of its own, to restart, kill or measure it")

RAW = "application/vnd.kafka.record-batch.v2"
PARTITIONS = 4
BATCH = record_batch(random.Random(3).randbytes(500_000))


def killed(data_dir: Path) -> None:
    """A data directory whose logs nobody has closed, 2 MB in each of four."""
    with ServerProcess(data_dir) as process, httpx.Client(base_url=process.url) as client:
        client.put("/v1/topics/t", json={"partitions": PARTITIONS}).raise_for_status()
        for partition in range(PARTITIONS):
            for _ in range(4):
                path = f"/v1/topics/t/partitions/{partition}/records"
                client.post(path, content=BATCH, headers={"Content-Type": RAW}).raise_for_status()
        process.kill()


def test_readyz_tells_how_far_a_recovery_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed(tmp_path / "data")
    clock = ManualClock()
    reached, go_on = threading.Event(), threading.Event()
    scanned = RecoveryMeter.scanned

    def held(meter: RecoveryMeter, byte_count: int) -> None:
        """Recovery stops where it is once it has read something, half a second after it began."""
        if not reached.is_set():
            clock.advance(500)
        scanned(meter, byte_count)
        if byte_count:
            reached.set()
            assert go_on.wait(30)

    monkeypatch.setattr(RecoveryMeter, "scanned", held)
    server = ThreadedServer(tmp_path / "data", clock=clock)
    starting = threading.Thread(target=server.start)
    starting.start()
    try:
        assert reached.wait(30)
        with httpx.Client(base_url=server.url, timeout=30) as client:
            assert client.get("/healthz").status_code == 200
            answer = client.get("/readyz")
            assert (answer.status_code, answer.json()["code"]) == (503, "starting")
            assert int(answer.headers["retry-after"]) >= 1
            progress = OpeningProgress.model_validate(answer.json()["progress"])
            assert progress.partition_count >= PARTITIONS
            assert progress.partitions_done < progress.partition_count
            assert 0 < progress.scanned_bytes < progress.byte_count
            assert progress.byte_count >= PARTITIONS * 4 * len(BATCH)
            assert progress.bytes_per_second == progress.scanned_bytes * 1000 // progress.elapsed_ms
            assert progress.remaining_ms is not None
            assert progress.remaining_ms > 0
            go_on.set()
            starting.join(60)
            assert client.get("/readyz").status_code == 200
            partition = client.get(f"/v1/topics/t/partitions/{PARTITIONS - 1}").json()
            assert partition["log_end_offset"] == 4
    finally:
        go_on.set()
        starting.join(60)
        server.stop()
