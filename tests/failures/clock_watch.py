"""What must hold of a real service while its wall clock jumps, judged from outside: the clock table.

The columns of the table are the steps of the wall clock, in ``test_clock_steps.py``. Its rows are what depends on time:
each background job, and each thing that is remembered or left open, see ``ClockWatch.findings``.
"""

from __future__ import annotations

import re
import time
from typing import Any

import httpx

from tests.support.servers import ServerProcess

DAY_MS = 86_400_000
INTERVAL_MS = 100
WATCH_SECONDS = 1.0
HEALTH_SECONDS_MAX = 1.0
RUN_COUNT_FACTOR = 3
"""A job may run this many times less, or more, often than its interval says: the machine may be busy."""

JOBS = (
    "flush",
    "roll",
    "retention",
    "checkpoint",
    "checkpoint_high_watermarks",
    "expire_producers",
    "delete_files",
    "load_jobs",
    "start_positions",
    "transactions",
)

ENVIRONMENT = {
    f"ROLLWAY_{name}": str(value)
    for name, value in {
        "FLUSH_CHECK_INTERVAL_MS": INTERVAL_MS,
        "ROLL_CHECK_INTERVAL_MS": INTERVAL_MS,
        "RETENTION_CHECK_INTERVAL_MS": INTERVAL_MS,
        "CHECKPOINT_INTERVAL_MS": INTERVAL_MS,
        "HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS": INTERVAL_MS,
        "PRODUCER_ID_EXPIRATION_CHECK_INTERVAL_MS": INTERVAL_MS,
        "FILE_DELETE_CHECK_INTERVAL_MS": INTERVAL_MS,
        "LOAD_JOB_CHECK_INTERVAL_MS": INTERVAL_MS,
        "START_POSITION_CHECK_INTERVAL_MS": INTERVAL_MS,
        "TRANSACTION_CHECK_INTERVAL_MS": INTERVAL_MS,
        # Shorter than every step forward: what goes by the wall clock is forgotten by it.
        "PRODUCER_ID_EXPIRATION_MS": DAY_MS,
        "TRANSACTIONAL_ID_EXPIRATION_MS": DAY_MS,
        "LOAD_JOB_EXPIRATION_MS": DAY_MS,
        "START_POSITION_EXPIRATION_MS": DAY_MS,
    }.items()
}
_RUNS = re.compile(r'^rollway_job_runs_total\{job="(\w+)"\} (\S+)$', re.MULTILINE)


class ClockWatch:
    """One service, with something of everything that may expire: kept, remembered, open, pinned, or in a session."""

    def __init__(self, server: ServerProcess, client: httpx.Client) -> None:
        self._client = client
        self._name = f"clock-{server.pid}"
        self._findings: list[str] = []
        self._slowest_seconds = 0.0

    def begin(self) -> None:
        """Make one of everything."""
        config = {"segment.ms": DAY_MS, "retention.ms": DAY_MS, "flush.policy": "interval", "flush.ms": INTERVAL_MS}
        self._ask("PUT", f"/v1/topics/{self._name}", {"partitions": 1, "config": config})
        self._key = self._send("pay", {"Idempotency-Key": "order-1"})
        self._producer = self._ask("POST", "/v1/producers", {})
        self._sequence = self._send("sequence", self._headers(self._producer))
        self._idle = self._ask("POST", "/v1/producers", {"transactional_id": "idle"})
        self._open = self._ask("POST", "/v1/producers", {"transactional_id": "open"})
        self._send("open", {**self._headers(self._open), "Transactional-Id": "open"})
        job = {"application_id": "open", "version": 1, "topics": [self._name], "timeout_ms": 60_000}
        self._open_job = self._ask("POST", "/v1/jobs", job)["job_id"]
        done = self._ask("POST", "/v1/jobs", {**job, "application_id": "done"})["job_id"]
        self._ask("POST", f"/v1/jobs/{done}/commit", {"winners": []})
        self._done_job = done
        self._ask("POST", "/v1/groups/readers/start-positions", {"positions": {self._name: {"0": 1}}})
        part = {"topic": self._name, "partition": 0, "fetch_offset": 0}
        self._session = self._ask("POST", "/v1/fetch", {"session_epoch": 0, "partitions": [part]})["session_id"]
        self._runs = self._job_runs()
        self._since = time.monotonic()

    def watch(self, seconds: float = WATCH_SECONDS) -> None:
        """Ask for its health for this long."""
        until = time.monotonic() + seconds
        while (asked := time.monotonic()) < until:
            if self._client.get("/healthz").status_code != 200 or self._client.get("/readyz").status_code != 200:
                self._findings.append("the service does not say that it is well")
            self._slowest_seconds = max(self._slowest_seconds, time.monotonic() - asked)

    def findings(self) -> list[str]:
        """Look at everything; what is wrong."""
        if self._slowest_seconds > HEALTH_SECONDS_MAX:
            self._findings.append(f"health was answered after {self._slowest_seconds:.1f} s")
        self._look_at_jobs()
        segments = self._ask("GET", f"/v1/topics/{self._name}/partitions/0/segments")["segments"]
        self._expect("segments", [segment["base_offset"] for segment in segments], [0])
        self._expect("the same key is another append", self._send("pay", {"Idempotency-Key": "order-1"}), self._key)
        again = self._send("sequence", self._headers(self._producer))
        self._expect("the same sequence is another append", again, self._sequence)
        ids = {name: self._client.get(f"/v1/transactions/{name}").json().get("state") for name in ("idle", "open")}
        self._expect("transactional ids", ids, {"idle": "empty", "open": "ongoing"})
        producer = {name: self._open[name] for name in ("producer_id", "producer_epoch")}
        self._expect("commit", self._client.post("/v1/transactions/open/commit", json=producer).status_code, 200)
        self._expect("the open load job", self._state_of(self._open_job), "open")
        self._expect("the load job that is done", self._state_of(self._done_job), "committed")
        pinned = self._ask("GET", "/v1/groups/readers/start-positions")["positions"]
        self._expect("start positions", pinned, {self._name: {"0": 1}})
        session = {"session_id": self._session, "session_epoch": 1}
        self._expect("the fetch session", self._client.post("/v1/fetch", json=session).status_code, 200)
        return self._findings

    def _look_at_jobs(self) -> None:
        seconds = time.monotonic() - self._since
        before, runs = self._runs, self._job_runs()
        wanted = 1000 * seconds / INTERVAL_MS
        for job in JOBS:
            count = runs.get(job, 0.0) - before.get(job, 0.0)
            if not wanted / RUN_COUNT_FACTOR <= count <= wanted * RUN_COUNT_FACTOR:
                self._findings.append(f"job {job} ran {count:g} times in {seconds:.1f} s, not about {wanted:.0f} times")

    def _expect(self, what: str, found: object, wanted: object) -> None:
        if found != wanted:
            self._findings.append(f"{what}: {found}, not {wanted}")

    def _state_of(self, job_id: str) -> object:
        return self._client.get(f"/v1/jobs/{job_id}").json().get("state")

    def _job_runs(self) -> dict[str, float]:
        return {job: float(count) for job, count in _RUNS.findall(self._client.get("/metrics").text)}

    def _send(self, value: str, headers: dict[str, str]) -> object:
        body = {"records": [{"value": value}]}
        path = f"/v1/topics/{self._name}/partitions/0/records"
        return self._client.post(path, json=body, headers=headers).json().get("base_offset")

    def _headers(self, producer: dict[str, Any]) -> dict[str, str]:
        return {
            "Producer-Id": str(producer["producer_id"]),
            "Producer-Epoch": str(producer["producer_epoch"]),
            "Base-Sequence": "0",
        }

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        answer = self._client.request(method, path, json=body)
        assert answer.is_success, f"{method} {path}: {answer.text}"
        return answer.json()
