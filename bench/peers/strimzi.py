"""Strimzi's HTTP bridge in front of Apache Kafka, from its Maven artifact: producing text records as JSON."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator
from functools import partial
from typing import Self

from bench.peers import packages
from bench.peers.kafka import Kafka
from bench.peers.peer import CONNECTIONS, Figures, Surroundings, Way, closed_loop, messages
from bench.peers.sockets import HttpWork, Started, connect, free_port

VERSION = "0.32.0"
_TEXT = "application/vnd.kafka.text.v2+json"


class StrimziBridge:
    name = "Strimzi HTTP bridge"
    batching = "500 records in one JSON request; the bridge gives them to Kafka's producer"

    def __init__(self, surroundings: Surroundings) -> None:
        self._surroundings = surroundings
        self._stack = contextlib.ExitStack()
        self._bridge: Started | None = None

    def __enter__(self) -> Self:
        around = self._surroundings
        artifact = ("io.strimzi", "kafka-bridge", VERSION)
        classes = packages.maven("kafka-bridge", [artifact], around.cache, may_install=around.may_install)
        directory = around.directory / "strimzi"
        directory.mkdir(parents=True)
        kafka = self._stack.enter_context(Kafka(around._replace(directory=directory)))
        port = free_port()
        lines = {
            "bridge.id": "bench",
            "http.host": "127.0.0.1",
            "http.port": str(port),
            "kafka.bootstrap.servers": f"{kafka.address[0]}:{kafka.address[1]}",
            "kafka.producer.acks": "all",
        }
        properties = directory / "bridge.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in lines.items()), "utf-8")
        java = [shutil.which("java") or "java", "-Xmx1g", "-cp", classes, "io.strimzi.kafka.bridge.Application"]
        command = [*java, f"--config-file={properties}"]
        self._bridge = Started(self.name, command, port, directory, around.cores.server)
        self._stack.callback(self._bridge.stop)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def version(self) -> str:
        return VERSION

    def ways(self, message_bytes: int) -> Iterator[Way]:
        assert self._bridge is not None
        values = [{"value": message.decode()} for message in messages(message_bytes)]
        body = json.dumps({"records": values}, separators=(",", ":"))
        head = f"POST /topics/bench-{message_bytes} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {_TEXT}\r\n"
        request = f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()
        yield Way("append", "JSON over HTTP", "written", partial(_append, self._bridge, request), is_http=True)


def _append(bridge: Started, request: bytes, seconds: float) -> Figures:
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(connect(bridge.address)) for _ in range(CONNECTIONS)]
        works = [HttpWork(each, request) for each in opened]
        return closed_loop(bridge.pid, works, seconds)
