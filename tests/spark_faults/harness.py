"""A real Spark, a real service and the proxy between them; who may kill which of them; and what a reader then sees."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import httpx

from tests.spark.conftest import WORKER_DAEMON, spark_environment, spark_settings
from tests.spark_faults.lossy_proxy import LossyProxy
from tests.support.servers import ServerProcess, http_client

REPOSITORY = Path(__file__).parents[2]
ANSWER_SECONDS_MAX = 240.0
READ_BYTES = 1 << 24
LOCAL = "local[2,4]"
# Words of their own in a command line: Spark's has one of them in a setting, too.
_DAEMONS = frozenset({WORKER_DAEMON.encode(), b"pyspark.daemon"})
_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
}


def seed() -> int:
    """Where the random numbers of a run begin; printed, so that a run can be had again."""
    return int(os.environ.get("SPARK_FAULT_SEED", "0")) or random.SystemRandom().randrange(1, 2**31)


# Processes


def _parents() -> dict[int, int]:
    found: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                found[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    return found


def descendants(pid: int) -> list[int]:
    """The processes that ``pid`` and its children have started, those that are there now."""
    parents = _parents()
    family = {pid}
    while more := {child for child, parent in parents.items() if parent in family} - family:
        family |= more
    return sorted(family - {pid})


def _is_daemon(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return not _DAEMONS.isdisjoint(Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"))
    return False


def python_workers(pid: int) -> list[int]:
    """Spark's Python workers below ``pid``: daemons whose parent is a daemon."""
    parents = _parents()
    return [each for each in descendants(pid) if _is_daemon(each) and _is_daemon(parents.get(each, 0))]


def kill_all(pids: Sequence[int]) -> None:
    """kill -9, of those that are still there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


class SparkProcess:
    """A driver with its JVM and its workers."""

    def __init__(self, scratch: Path, master: str, settings: Mapping[str, str]) -> None:
        scratch.mkdir(parents=True, exist_ok=True)
        self._errors = scratch / "driver.stderr"
        with self._errors.open("ab") as errors:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "tests.spark_faults.spark_driver"),
                    *(master, json.dumps({**spark_settings(scratch), **_SETTINGS, **settings})),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=REPOSITORY,
                env={**os.environ, **spark_environment()},
            )

    def wait_ready(self) -> Self:
        """Return when it has a session."""
        found = self._read()
        assert found is not None, self.errors()
        assert "ready" in found, found
        return self

    def send(self, **command: Any) -> None:
        """Begin a command."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{json.dumps(command)}\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any] | None:
        """How the command ended; ``None`` when it was killed meanwhile."""
        return self._read()

    def call(self, **command: Any) -> dict[str, Any] | None:
        """Do a command to its end."""
        self.send(**command)
        return self.answer()

    def _read(self) -> dict[str, Any] | None:
        assert self._process.stdout is not None
        guard = threading.Timer(ANSWER_SECONDS_MAX, self.kill)
        guard.start()
        try:
            line = self._process.stdout.readline()
        finally:
            guard.cancel()
        found: dict[str, Any] | None = json.loads(line) if line.endswith("\n") else None
        return found

    def errors(self) -> str:
        """What it wrote to stderr, the last of it."""
        return self._errors.read_text(errors="replace")[-4000:]

    def kill_worker(self, source: random.Random) -> None:
        """kill -9 of one of its Python workers."""
        workers = python_workers(self._process.pid)
        if workers:
            kill_all([source.choice(workers)])

    def kill_workers(self) -> None:
        """kill -9 of all its Python workers."""
        kill_all(python_workers(self._process.pid))

    def kill(self) -> None:
        """kill -9 of the driver, its JVM and all workers."""
        kill_all([self._process.pid, *descendants(self._process.pid)])

    def end(self) -> None:
        """Leave no process behind."""
        if self._process.poll() is None:
            family = descendants(self._process.pid)
            with contextlib.suppress(OSError):
                self.send(do="stop")
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self.kill()
            kill_all([pid for pid in family if _is_daemon(pid)])
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()


# The stand


@dataclass
class Stand:
    """Service, proxy and Spark. Whoever kills one of them has another at once."""

    directory: Path
    source: random.Random
    proxy: LossyProxy
    service: ServerProcess
    master: str = LOCAL
    settings: Mapping[str, str] = field(default_factory=dict)
    _spark: SparkProcess | None = None
    _spark_count: int = 0
    _topic_count: int = 0
    _began: float = field(default_factory=time.monotonic)

    @property
    def spark(self) -> SparkProcess:
        """A Spark that is alive; a new one where there is none."""
        if self._spark is None:
            self._spark_count += 1
            self._spark = SparkProcess(
                self.directory / f"spark-{self._spark_count}", self.master, self.settings
            ).wait_ready()
            self.note("Spark is ready")
        return self._spark

    def kill_spark(self) -> None:
        """kill -9 of all of Spark."""
        if self._spark is not None:
            self._spark.kill()

    def lose_spark(self) -> None:
        """Take note that it was killed."""
        if self._spark is not None:
            self._spark.end()
            self._spark = None

    def restart_service(self) -> None:
        """kill -9, and a new start on the same data."""
        self.proxy.point_to(None)
        self.service.kill_if_alive()
        self.service = ServerProcess(self.directory / "data").start()
        self.proxy.point_to(self.service.url)

    def start_over(self) -> None:
        """Without this Spark, its loads and the proxy's faults, on the same data."""
        self.proxy.reset()
        self.kill_spark()
        self.lose_spark()
        self.restart_service()

    @contextlib.contextmanager
    def reader(self) -> Iterator[httpx.Client]:
        """Asks the service, and not the proxy."""
        with http_client(self.service.url) as client:
            yield client

    def new_topic(self, partitions: int = 3) -> str:
        """A topic that nobody wrote to."""
        self._topic_count += 1
        name = f"faults-{self._topic_count}"
        with self.reader() as client:
            assert client.put(f"/v1/topics/{name}", json={"partitions": partitions}).status_code == 201
        return name

    def note(self, line: str) -> None:
        """Say how far it is, to whoever looks."""
        print(f"{time.monotonic() - self._began:6.1f} s {line}", flush=True)

    def close(self) -> None:
        """Leave nothing running."""
        if self._spark is not None:
            self._spark.end()
        self.service.kill_if_alive()


@contextlib.contextmanager
def stand(directory: Path, master: str = LOCAL, **settings: str) -> Iterator[Stand]:
    """Everything, up and pointed at each other; ``settings`` are Spark's."""
    began = seed()
    print(f"SPARK_FAULT_SEED={began}")
    source = random.Random(began)
    service = ServerProcess(directory / "data").start()
    with LossyProxy(source) as proxy:
        proxy.point_to(service.url)
        made = Stand(directory, source, proxy, service, master, settings)
        try:
            yield made
        finally:
            made.close()


# The judge: a reader that is neither Spark nor this project's client.


def rows_seen(client: httpx.Client, topic: str, isolation: str = "read_committed") -> Counter[str]:
    """The keys in a topic, how often each; every value is that of its key. No transaction may be open."""
    found: Counter[str] = Counter()
    partitions = client.get(f"/v1/topics/{topic}/partitions").json()["partitions"]
    for each in partitions:
        assert not _is_held_up(each), f"{topic}: readers are held up: {each}"
        offset = each["log_start_offset"]
        while offset < each["last_stable_offset"]:
            answer = client.get(
                f"/v1/topics/{topic}/partitions/{each['partition']}/records",
                params={"offset": offset, "isolation": isolation, "max_bytes": READ_BYTES},
            )
            assert answer.status_code == 200, answer.text
            document = answer.json()
            for record in document["records"]:
                assert record["value"] == record["key"].rjust(12, "0") + "x" * 88, record
                found[record["key"]] += 1
            assert document["next_offset"] > offset, document
            offset = document["next_offset"]
    return found


def _is_held_up(partition: dict[str, Any]) -> bool:
    return bool(partition["last_stable_offset"] < partition["high_watermark"])


def held_up(client: httpx.Client, topic: str) -> bool:
    """Whether an open transaction holds up readers of committed records."""
    return any(map(_is_held_up, client.get(f"/v1/topics/{topic}/partitions").json()["partitions"]))


def check_rows(client: httpx.Client, topic: str, *expected: range) -> None:
    """Each row of these is there once, and nothing else."""
    found = rows_seen(client, topic)
    wanted = Counter(str(number) for numbers in expected for number in numbers)
    missing, surplus = wanted - found, found - wanted
    wrong = (
        f"{topic}: {sum(missing.values())} rows are missing ({sorted(missing)[:5]}), "
        f"{sum(surplus.values())} are too many ({sorted(surplus)[:5]}), of {sum(wanted.values())}"
    )
    assert found == wanted, wrong


def jobs_of(client: httpx.Client, application: str) -> list[dict[str, Any]]:
    """The application's load jobs, the newest first."""
    answer = client.get("/v1/jobs", params={"application_id": application, "limit": 1000})
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["data"]
    return found
