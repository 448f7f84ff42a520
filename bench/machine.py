"""The machine that is measured: its cores, who runs on which, CPU time of a process, congestion control."""

from __future__ import annotations

import contextlib
import mmap
import os
import platform
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rollway.records.compiled import is_compiled

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
CONGESTION_WANTED = "cubic"
"""BBR, the default of some machines, paces the sender and so throttles loopback to a quarter."""
TOUCHED_BYTES_MAX = 3 * 1024**3
"""More than anybody here writes in the seconds that follow."""
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


class Cores(NamedTuple):
    """Who runs where. With a single core both share it, and rates say little."""

    server: frozenset[int]
    generator: frozenset[int]


# As the process began: a bench asks when it runs on the generator's core alone.
_USABLE_CORES = sorted(os.sched_getaffinity(0))


def choose_cores() -> Cores:
    """One core for servers, another for the load generator, out of those this process began with."""
    return Cores(frozenset(_USABLE_CORES[:1]), frozenset(_USABLE_CORES[1:2] or _USABLE_CORES[:1]))


@contextlib.contextmanager
def running_on(cores: frozenset[int]) -> Iterator[None]:
    """Run this thread, and what it starts meanwhile, on ``cores``."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _fields_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()


def cpu_seconds(pid: int) -> float:
    """CPU time, user and system, that ``pid`` with all its threads has used, to 10 ms.

    Raises:
        OSError: it has ended.
    """
    fields = _fields_of(pid)
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND


def children_of(pid: int) -> list[int]:
    """The processes that ``pid`` started, such as nginx's workers."""
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(number) for number in path.read_text("ascii").split()] if path.exists() else []


def resident_bytes(pid: int) -> int:
    """Physical memory that ``pid`` holds."""
    return int(_fields_of(pid)[21]) * os.sysconf("SC_PAGE_SIZE")


def touch_memory() -> int:
    """Use memory that is free for a moment, half of it at most, and return how many bytes.

    Pages that a virtual machine has let go its host may take back, within seconds. To have one again took 12 us where
    it was measured, a third of a GB/s: who writes most into the page cache would be measured by that.
    """
    fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text("ascii").splitlines())
    free_bytes = int(fields["MemAvailable"].split()[0]) * 1024
    with contextlib.suppress(OSError, ValueError):
        free_bytes = min(free_bytes, int(_CGROUP_LIMIT.read_text("ascii")))
    size_bytes = min(free_bytes // 2, TOUCHED_BYTES_MAX)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
    mmap.mmap(-1, size_bytes, flags=flags).close()
    return size_bytes


def congestion() -> str:
    """The congestion control that every socket here is given: cubic where the system has it."""
    with socket.socket() as probe:
        with contextlib.suppress(OSError):
            probe.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, CONGESTION_WANTED.encode())
        name = probe.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
    return name.partition(b"\0")[0].decode("ascii")


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


def description() -> dict[str, str | int]:
    """What a reader must know of the machine to weigh the figures."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "sections": "compiled" if is_compiled() else "in Python",
        "congestion": congestion(),
    }
