"""Kafka's programs of one version: brokers on directories of a test, and the tools that judge files and topics."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from bench.peers import kafka_packages
from bench.peers.kafka import server_properties
from bench.peers.peer import CannotRunError
from bench.peers.sockets import Started, free_port
from tests.kafka.wire import Wire

CLUSTER = "4L6g3nShT-eMCtK--X86sw"
START_ATTEMPTS_MAX = 3
READY_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 60.0
TOOL_SECONDS_MAX = 120
POLL_SECONDS = 0.05
_JAVA = ["java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
_BROKER_HEAP, _TOOL_HEAP = "-Xmx384m", "-Xmx256m"
_SMALL = {
    "log.segment.bytes": str(64 * 2**20),
    "log.index.size.max.bytes": str(64 * 2**10),
    "log.cleaner.dedupe.buffer.size": str(4 * 2**20),
    "log.cleaner.threads": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "auto.create.topics.enable": "false",
    "controlled.shutdown.enable": "false",
}
"""What lets a broker live with a small heap, and alone."""


class Programs:
    """The programs of one version of Kafka."""

    def __init__(self, version: str, cache: Path) -> None:
        """Raises CannotRunError if there are no such packages."""
        self.version = version
        self._class_path = kafka_packages.class_path(version, cache, may_install=True)

    def command(self, name: str, *arguments: str, heap: str = _TOOL_HEAP) -> list[str]:
        """Return the command line of a program, by the name of its class."""
        return [*_JAVA, heap, "-cp", self._class_path, name, *arguments]

    def tool(self, name: str, *arguments: str) -> tuple[int, str]:
        """Run one of Kafka's tools; return its exit status and what it printed, errors last."""
        done = subprocess.run(
            self.command(name, *arguments),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=TOOL_SECONDS_MAX,
        )
        return done.returncode, done.stdout + done.stderr

    def answer(self, name: str, *arguments: str) -> str:
        """Run one of Kafka's tools, which must succeed; return what it printed."""
        status, said = self.tool(name, *arguments)
        assert status == 0, f"{name} of Kafka {self.version} ended with status {status}: {said}"
        return said


class Broker:
    """A broker with one log directory, which may be a directory that was made before.

    The first broker of a cluster is also its controller. ``beside`` is the first broker of the cluster that this one
    joins under the node id ``node``.
    """

    def __init__(
        self,
        programs: Programs,
        directory: Path,
        settings: Mapping[str, str] | None = None,
        *,
        node: int = 1,
        beside: Broker | None = None,
    ) -> None:
        self.programs = programs
        self.directory = directory
        self.data = directory / "logs"
        self._node = node
        self._beside = beside
        self._settings = {**_SMALL, **(settings or {})}
        self._port = self.controller_port = 0
        self._properties = directory / "server.properties"
        self._started: Started | None = None
        directory.mkdir(parents=True, exist_ok=True)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def output(self) -> str:
        """What the broker printed so far, at the level WARN."""
        return (self.directory / "output.log").read_text(errors="replace")

    def storage(self, command: str, *arguments: str) -> tuple[int, str]:
        """Run Kafka's storage tool for the log directory: its exit status, and what it printed."""
        if not self._port:
            self._choose_ports()
        return self.programs.tool("kafka.tools.StorageTool", command, *arguments, "-c", str(self._properties))

    def start(self) -> None:
        """Return when every broker of the cluster answers. A new log directory is formatted first.

        Raises:
            CannotRunError: the broker ends at once, or does not listen in time.
        """
        for attempt in range(1, START_ATTEMPTS_MAX + 1):
            self._choose_ports()
            if not (self.data / "meta.properties").exists():
                status, said = self.storage("format", "-t", CLUSTER)
                assert status == 0, said
            command = self.programs.command("kafka.Kafka", str(self._properties), heap=_BROKER_HEAP)
            cores = frozenset(os.sched_getaffinity(0))
            try:
                self._started = Started("Kafka", command, self._port, self.directory, cores)
                break
            except CannotRunError:
                # Another process may have taken its ports since they were chosen.
                if attempt == START_ATTEMPTS_MAX or "Address already in use" not in self.output:
                    raise
        self._wait_until_ready()

    def stop(self) -> None:
        """Send SIGTERM. The log directory has the marker of a clean stop afterwards."""
        started, self._started = self._started, None
        assert started is not None, "the broker does not run"
        started.stop(STOP_SECONDS_MAX)
        assert (self.data / ".kafka_cleanshutdown").exists(), f"Kafka did not stop cleanly: {self.output[-2000:]}"

    def kill(self) -> None:
        """Send SIGKILL; nothing happens if the broker does not run."""
        started, self._started = self._started, None
        if started is not None:
            started.kill()

    @contextmanager
    def running(self) -> Iterator[Broker]:
        """Run the broker for a while, and stop it cleanly; after an error it is killed."""
        try:
            self.start()
            yield self
            if self._started is not None:
                self.stop()
        finally:
            self.kill()

    def wire(self) -> Wire:
        """Return a connection that speaks Kafka's protocol; its user closes it."""
        return Wire(("127.0.0.1", self._port))

    def _choose_ports(self) -> None:
        self._port = free_port()
        first = self._beside or self
        if first is self:
            self.controller_port = free_port()
        own = {
            "node.id": str(self._node),
            "controller.quorum.voters": f"1@127.0.0.1:{first.controller_port}",
        }
        if first is not self:
            own["process.roles"] = "broker"
            own["listeners"] = f"PLAINTEXT://127.0.0.1:{self._port}"
        lines = server_properties(self._port, self.controller_port, str(self.data), {**self._settings, **own})
        self._properties.write_text(lines, "utf-8")

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + READY_SECONDS_MAX
        while True:
            with self.wire() as wire:
                if self._node in wire.brokers():
                    return
            assert time.monotonic() < deadline, f"Kafka does not answer: {self.output[-2000:]}"
            time.sleep(POLL_SECONDS)
