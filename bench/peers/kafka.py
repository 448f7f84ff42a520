"""Apache Kafka from its libraries: its own performance tools, and raw sockets that send and take whole batches."""

from __future__ import annotations

import contextlib
import re
import resource
import shutil
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Self

from bench.machine import running_on
from bench.peers import kafka_packages, packages
from bench.peers.kafka_packages import OLDEST
from bench.peers.peer import (
    BATCH_MESSAGES,
    CONNECTIONS,
    FILL_BATCHES,
    CannotRunError,
    Figures,
    Surroundings,
    Way,
    closed_loop,
    process_tree_seconds,
)
from bench.peers.rollway import encoded_batch
from bench.peers.sockets import FixedWork, Started, connect, free_port

_CLUSTER = "4L6g3nShT-eMCtK--X86sw"
_PRODUCE, _FETCH, _LIST_OFFSETS, _METADATA = 0, 1, 2, 3
_LEADER_SECONDS_MAX = 30
_MESSAGES_PER_SECOND = {100: 600_000, 1024: 100_000}
"""About what the tools do in a second, to ask them for runs of some length."""


class Kafka:
    name = "Apache Kafka"
    batching = "its tools: 500 messages per batch, made by the client as it goes; raw: one batch of 500, made before"

    def __init__(self, surroundings: Surroundings) -> None:
        self._surroundings = surroundings
        self._classes = ""
        self._server: Started | None = None
        self.address = ("127.0.0.1", 0)

    def __enter__(self) -> Self:
        around = self._surroundings
        self._classes = kafka_packages.class_path(OLDEST, around.cache, may_install=around.may_install)
        port, controller = free_port(), free_port()
        directory = around.directory / "kafka"
        directory.mkdir(parents=True)
        properties = directory / "server.properties"
        properties.write_text(server_properties(port, controller, str(directory / "data")), "utf-8")
        java = self._java("kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(properties))
        packages.run(java, directory, "formatting Kafka's directory")
        command = self._java("kafka.Kafka", str(properties), heap="1g")
        self._server = Started(self.name, command, port, directory, around.cores.server)
        self.address = self._server.address
        return self

    def __exit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.stop()

    def version(self) -> str:
        return OLDEST

    def ways(self, message_bytes: int) -> Iterator[Way]:
        assert self._server is not None
        tools, raw = f"tools-{message_bytes}", f"raw-{message_bytes}"
        for topic in (tools, raw):
            self._create(topic)
        yield Way("append", "its producer tool", "written", partial(self._produce, tools, message_bytes))
        yield Way("fetch", "its consumer tool", "", partial(self._consume, tools, message_bytes))
        batch = encoded_batch(message_bytes)
        produce = partial(self._loop, _produce_request(raw, batch), _check_produced)
        yield Way("append", "raw batch on a socket", "written", produce)
        filled = f"filled-{message_bytes}"
        self._create(filled)
        self._fill(_produce_request(filled, batch))
        yield Way(
            "fetch",
            "raw batch on a socket",
            "",
            partial(self._loop, _fetch_request(filled, len(batch)), _check_fetched),
        )

    def _java(self, name: str, *arguments: str, heap: str = "512m") -> list[str]:
        java = shutil.which("java") or "java"
        options = [f"-Xms{heap}", f"-Xmx{heap}", "-XX:+UseG1GC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"]
        return [java, *options, "-cp", self._classes, name, *arguments]

    def _create(self, topic: str) -> None:
        """Ask for the topic, which makes it, until it has a leader: its records can be looked for then."""
        deadline = time.monotonic() + _LEADER_SECONDS_MAX
        with connect(self.address) as connection:
            while True:
                FixedWork(connection, _metadata_request(topic), _is_whole, 0)
                offsets = FixedWork(connection, _offsets_request(topic), _is_whole, 0).answer
                if _code(offsets, 8 + 4 + 2 + len(topic) + 8) == 0:
                    return
                if time.monotonic() > deadline:
                    raise CannotRunError("Kafka does not make a topic.")
                time.sleep(0.05)

    @property
    def _bootstrap(self) -> str:
        return f"{self.address[0]}:{self.address[1]}"

    def _produce(self, topic: str, message_bytes: int, seconds: float) -> Figures:
        count = _count(message_bytes, seconds)
        batch_bytes = BATCH_MESSAGES * (message_bytes + 12) + 61
        properties = [f"bootstrap.servers={self._bootstrap}", "acks=all", f"batch.size={batch_bytes}", "linger.ms=5"]
        arguments = ["--topic", topic, "--num-records", str(count), "--record-size", str(message_bytes)]
        command = self._java("org.apache.kafka.tools.ProducerPerformance", *arguments, "--throughput", "-1")
        said, server, client = self._tool([*command, "--producer-props", *properties])
        rates = re.findall(rf"^{count} records sent, ([\d.,]+) records/sec", said, re.MULTILINE)
        if not rates:
            raise CannotRunError(f"Kafka's producer tool says {said.strip()[-200:]!r}.")
        return Figures(float(rates[-1].replace(",", "")), server, client)

    def _consume(self, topic: str, message_bytes: int, seconds: float) -> Figures:
        arguments = ["--bootstrap-server", self._bootstrap, "--topic", topic, "--timeout", "20000"]
        arguments += ["--messages", str(_count(message_bytes, seconds)), "--group", f"g{time.monotonic_ns()}"]
        command = self._java("org.apache.kafka.tools.ConsumerPerformance", *arguments)
        said, server, client = self._tool(command)
        line = said.strip().splitlines()[-1].split(", ")
        if len(line) != 10:
            raise CannotRunError(f"Kafka's consumer tool says {said.strip()[-200:]!r}.")
        # The last is the rate while it fetches, without the time in which it joins its group.
        return Figures(float(line[-1]), server, client)

    def _tool(self, command: Sequence[str]) -> tuple[str, float, float]:
        """What a tool prints, and the CPU shares of server and tool over its run, the start of its JVM included."""
        assert self._server is not None
        server, client, started = process_tree_seconds(self._server.pid), _children_seconds(), time.perf_counter()
        with running_on(self._surroundings.cores.generator):
            said = packages.run(command, self._surroundings.directory, "Kafka's performance tool")
        elapsed = time.perf_counter() - started
        server, client = process_tree_seconds(self._server.pid) - server, _children_seconds() - client
        return said, server / elapsed, client / elapsed

    def _loop(self, request: bytes, check: Callable[[bytes], None], seconds: float) -> Figures:
        assert self._server is not None
        with contextlib.ExitStack() as stack:
            opened = [stack.enter_context(connect(self.address)) for _ in range(CONNECTIONS)]
            works = [FixedWork(each, request, _is_whole, BATCH_MESSAGES) for each in opened]
            check(works[0].answer)
            return closed_loop(self._server.pid, works, seconds)

    def _fill(self, request: bytes) -> None:
        with connect(self.address) as connection:
            work = FixedWork(connection, request, _is_whole, BATCH_MESSAGES)
            _check_produced(work.answer)
            for _ in range(max(1, int(FILL_BATCHES * self._surroundings.scale))):
                work.send()
                work.finish()


def server_properties(port: int, controller: int, data: str, settings: Mapping[str, str] | None = None) -> str:
    """Return the configuration of a broker that is its own controller, with its log directory at ``data``.

    ``settings`` come on top, and may replace any of it.
    """
    lines = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": data,
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
        "log.retention.bytes": str(4 * 2**30),
        **(settings or {}),
    }
    return "".join(f"{name}={value}\n" for name, value in lines.items())


def _count(message_bytes: int, seconds: float) -> int:
    return max(1_000, int(_MESSAGES_PER_SECOND.get(message_bytes, 100_000) * seconds))


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


# Kafka's protocol, as much as is needed: produce in version 3, fetch in version 4.


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _framed(key: int, version: int, body: bytes) -> bytes:
    request = struct.pack(">hhi", key, version, 1) + _string("bench") + body
    return struct.pack(">i", len(request)) + request


def _produce_request(topic: str, batch: bytes) -> bytes:
    partition = struct.pack(">iii", 1, 0, len(batch)) + batch
    return _framed(_PRODUCE, 3, struct.pack(">hhii", -1, -1, 30_000, 1) + _string(topic) + partition)


def _fetch_request(topic: str, max_bytes: int) -> bytes:
    partition = struct.pack(">iiqi", 1, 0, 0, max_bytes)
    return _framed(_FETCH, 4, struct.pack(">iiiibi", -1, 500, 1, 2**30, 0, 1) + _string(topic) + partition)


def _metadata_request(topic: str) -> bytes:
    return _framed(_METADATA, 1, struct.pack(">i", 1) + _string(topic))


def _offsets_request(topic: str) -> bytes:
    """The latest offset of partition 0."""
    return _framed(_LIST_OFFSETS, 1, struct.pack(">ii", -1, 1) + _string(topic) + struct.pack(">iiq", 1, 0, -1))


def _is_whole(answer: bytearray) -> bool:
    return len(answer) >= 4 and len(answer) >= 4 + int.from_bytes(answer[:4], "big")


def _check_produced(answer: bytes) -> None:
    """Raises CannotRunError when the answer has an error code."""
    name = int.from_bytes(answer[12:14], "big")
    _check_code(answer, 14 + name + 8)


def _check_fetched(answer: bytes) -> None:
    """Raises CannotRunError when the answer has an error code, or no records."""
    name = int.from_bytes(answer[16:18], "big")
    _check_code(answer, 18 + name + 8)
    if len(answer) < 18 + name + 34 + 61:
        raise CannotRunError("Kafka answers a fetch without records.")


def _check_code(answer: bytes, place: int) -> None:
    if code := _code(answer, place):
        raise CannotRunError(f"Kafka answers with error {code}.")


def _code(answer: bytes, place: int) -> int:
    (code,) = struct.unpack_from(">h", answer, place)
    return int(code)
