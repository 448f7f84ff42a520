"""What a peer is to the runner: something that starts, takes messages, gives them back, and stops."""

from __future__ import annotations

import random
import string
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, Self

from bench.closed_loop import Idle
from bench.machine import Cores, children_of, cpu_seconds

BATCH_MESSAGES = 500
CONNECTIONS = 4
FILL_BATCHES = 200
"""What is stored before it is fetched: 100,000 messages."""

IDLE = Idle()
"""How long clients had no answer to take."""

Operation = Literal["append", "fetch"]


class CannotRunError(Exception):
    """The peer cannot be run here; the message is a sentence."""


class Surroundings(NamedTuple):
    """What a peer is given."""

    cache: Path
    """Where downloads and builds stay, outside of the repository."""
    directory: Path
    """For its data, gone afterwards."""
    cores: Cores
    may_install: bool
    scale: float
    """1 in earnest; less when only whether it runs is asked."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What one measurement achieved. CPU is in shares of one core."""

    messages_per_second: float
    server_cpu: float
    client_cpu: float


@dataclass(frozen=True, slots=True)
class Way:
    """One way of doing an operation, such as JSON over HTTP."""

    operation: Operation
    name: str
    durability: str
    """What an answer to an append promises; empty for a fetch."""
    measure: Callable[[float], Figures]
    """Measures for about so many seconds."""
    is_http: bool = False


class Peer(Protocol):
    """One system. It runs within its ``with`` block."""

    name: str
    batching: str
    """What the messages are to it, as a reader must know to weigh the figures."""

    def __enter__(self) -> Self:
        """Install it if needed, and start it.

        Raises:
            CannotRunError: it cannot be installed, or does not start.
        """
        ...

    def __exit__(self, *_: object) -> None: ...

    def version(self) -> str: ...

    def ways(self, message_bytes: int) -> Iterator[Way]:
        """How messages of this size go in and out; each is measured before the next is asked for."""
        ...


@dataclass
class PeerRow:
    """One line of the table: the medians of a way's rounds, or why there are none."""

    peer: str
    version: str = ""
    operation: str = ""
    way: str = ""
    message_bytes: int = 0
    durability: str = ""
    is_http: bool = False
    messages_per_second: float | None = None
    server_cpu: float | None = None
    client_cpu: float | None = None
    rounds: list[float] = field(default_factory=list)
    batching: str = ""
    reason: str = ""
    """Why the peer could not be run."""

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> PeerRow:
        return cls(**document)


def messages(size_bytes: int, count: int = BATCH_MESSAGES) -> list[bytes]:
    """The same messages for everybody: letters and digits, so that JSON carries them as they are."""
    letters = (string.ascii_letters + string.digits).encode()
    generator = random.Random(size_bytes)
    return [bytes(generator.choices(letters, k=size_bytes)) for _ in range(count)]


class Work(Protocol):
    """Does one batch on one connection: sends, and returns when all of it is answered, with how many messages."""

    def send(self) -> None: ...

    def finish(self) -> int: ...


def closed_loop(pid: int, works: Sequence[Work], seconds: float) -> Figures:
    """One batch outstanding on each connection; the next goes out when the answer is there."""
    done = 0
    for work in works:
        work.send()
    server_before, idle_before, started = process_tree_seconds(pid), IDLE.seconds, time.perf_counter()
    deadline = started + seconds
    while time.perf_counter() < deadline:
        for work in works:
            done += work.finish()
            work.send()
    elapsed = time.perf_counter() - started
    server, idle = process_tree_seconds(pid) - server_before, IDLE.seconds - idle_before
    for work in works:
        work.finish()
    return Figures(done / elapsed, server / elapsed, 1 - idle / elapsed)


def process_tree_seconds(pid: int) -> float:
    """CPU time of a process and of those it started."""
    return cpu_seconds(pid) + sum(cpu_seconds(child) for child in children_of(pid))


@contextmanager
def said_why(what: str) -> Iterator[None]:
    """Turns what goes wrong with files and sockets into a reason."""
    try:
        yield
    except OSError as error:
        raise CannotRunError(f"{what}: {error.strerror or error}.") from None
