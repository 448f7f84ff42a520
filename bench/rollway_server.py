"""Rollway as it is measured: this revision's or another's, with its topics and their data."""

from __future__ import annotations

import http.client
import json
import os
import ssl
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from bench.closed_loop import LargeRequest, connect, take_answer
from bench.machine import congestion
from bench.processes import ROOT, BenchError, ServerProcess
from bench.requests import batch_of_bytes, post_head, records_path

MIB = 1024 * 1024
FILL_BODY_BYTES = 8 * MIB
DELETE_SECONDS_MAX = 60
_QUIET = {
    "retention_check_interval_ms": "86400000",
    "log_level": "warning",
    "file_delete_delay_ms": "0",
    "file_delete_check_interval_ms": "250",
}


class Source:
    """A checked-out tree of Rollway, and the interpreter that has its dependencies."""

    def __init__(self, name: str = "Rollway", root: Path = ROOT, python: str = sys.executable) -> None:
        self.name = name
        self.root = root
        self.python = python

    def environment(self) -> dict[str, str]:
        """Its modules before any that are installed; none of the caller's settings."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("ROLLWAY_")}
        return {**inherited, "PYTHONPATH": f"{self.root}{os.pathsep}{self.root / 'client/src'}"}


HERE = Source()


class RollwayServer(ServerProcess):
    """One service on a data directory of its own."""

    def __init__(
        self,
        directory: Path,
        cores: frozenset[int],
        source: Source = HERE,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.data_dir = directory / "data"
        self.topics: set[str] = set()
        self.authorization: str | None = None
        """The credential of ``call``, where the service asks for one."""
        self.tls: ssl.SSLContext | None = None
        """The context of a client, where the service speaks TLS."""
        command = [source.python, "-c", "from app.cli import main; main()", "serve", "--port", "0"]
        super().__init__(source.name, [*command, "--data-dir", str(self.data_dir)], directory / "service.log", cores)
        chosen = {**_QUIET, "tcp_congestion": congestion(), **(settings or {})}
        self.environment = {
            **source.environment(),
            **{f"ROLLWAY_{name}".upper(): value for name, value in chosen.items()},
        }

    def _control(self) -> http.client.HTTPConnection:
        if self.tls is None:
            return http.client.HTTPConnection(*self.address, timeout=60)
        return http.client.HTTPSConnection(*self.address, timeout=60, context=self.tls)

    def call(self, method: str, path: str, document: object = None) -> dict[str, object]:
        """One request of the control plane; returns the answer's JSON.

        Raises:
            BenchError: it was refused.
        """
        connection = self._control()
        try:
            body = None if document is None else json.dumps(document).encode()
            headers = {"Content-Type": "application/json", "Accept": "application/json"}
            if self.authorization is not None:
                headers["Authorization"] = self.authorization
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            said = answer.read()
        finally:
            connection.close()
        if answer.status >= 300:
            raise BenchError(f"{method} {path} was answered {answer.status}: {said[:300].decode('utf-8', 'replace')}")
        return dict(json.loads(said)) if said else {}

    def metric(self, name: str) -> float:
        """The value of a gauge without labels; 0 if there is none of this name."""
        connection = self._control()
        try:
            connection.request("GET", "/metrics")
            lines = connection.getresponse().read().decode("utf-8").splitlines()
        finally:
            connection.close()
        return next((float(line.split()[1]) for line in lines if line.startswith(f"{name} ")), 0.0)

    def create_topic(self, topic: str, partitions: int = 1, **config: str) -> None:
        """A topic; ``flush_policy="interval"`` is Kafka's ``flush.policy=interval``.

        Raises:
            BenchError: it was refused.
        """
        names = {name.replace("_", "."): value for name, value in config.items()}
        self.call("PUT", f"/v1/topics/{topic}", {"partitions": partitions, "config": names})
        self.topics.add(topic)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic, and wait until its files are gone.

        Raises:
            BenchError: it was refused, or the files stay.
        """
        self.call("DELETE", f"/v1/topics/{topic}")
        self.topics.discard(topic)
        deadline = time.monotonic() + DELETE_SECONDS_MAX
        while any(path.name.startswith(f"{topic}-") for path in (self.data_dir / "logs").iterdir()):
            if time.monotonic() > deadline:
                raise BenchError(f"The files of the deleted topic {topic} are still there.")
            time.sleep(0.01)

    def log_file(self, topic: str, partition: int = 0) -> Path:
        """The first segment of a partition."""
        return self.data_dir / "logs" / f"{topic}-{partition}" / f"{0:020}.log"

    def fill(self, topic: str, batch_bytes: int, total_bytes: int, partition: int = 0) -> int:
        """Put ``total_bytes`` of batches of ``batch_bytes`` into a partition; returns the records of one batch.

        Raises:
            BenchError: it was refused.
        """
        batch, records = batch_of_bytes(batch_bytes)
        per_body = max(1, min(FILL_BODY_BYTES, total_bytes) // batch_bytes)
        path = records_path(topic, partition)
        head, body = post_head(path, per_body * batch_bytes), batch * per_body
        request = LargeRequest(head, body)
        buffer = memoryview(bytearray(65536))
        try:
            with connect(self.address, self.tls) as connection:
                for _ in range(max(1, total_bytes // (per_body * batch_bytes))):
                    if self.tls is None:
                        request.send(connection)
                    else:
                        connection.sendall(head + body)
                    take_answer(connection, buffer)
        finally:
            request.close()
        return records
