"""Servers under test: processes on a core of their own, with their CPU time."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from bench.machine import children_of, cpu_seconds, resident_bytes, running_on

ROOT = Path(__file__).resolve().parents[1]
START_SECONDS_MAX = 120.0
STOP_SECONDS_MAX = 60.0
Address = tuple[str, int]


class BenchError(Exception):
    """The benchmark cannot go on; the message is a sentence."""


class ServerProcess:
    """One server that listens on an address of this machine. Ends with its ``with`` block."""

    def __init__(self, name: str, command: Sequence[str], log: Path, cores: frozenset[int]) -> None:
        self.name = name
        self.address: Address = ("127.0.0.1", 0)
        self._command = list(command)
        self._log = log
        self._cores = cores
        self._process: subprocess.Popen[bytes] | None = None
        self.environment: Mapping[str, str] = dict(os.environ)
        self.start_seconds = 0.0
        self.inherited: tuple[int, ...] = ()
        """Descriptors that the process is given."""

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start it and return when it listens: it prints a line that ends in ``http://HOST:PORT`` or a bare port.

        Raises:
            BenchError: it ended, or said nothing in time.
        """
        started = time.monotonic()
        with self._log.open("ab") as output, running_on(self._cores):
            begin = output.tell()
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(self.environment),
                cwd=self._log.parent,
                pass_fds=self.inherited,
            )
        try:
            self.address = self._wait_until_ready(begin, started + START_SECONDS_MAX)
        except BaseException:
            self.kill()
            raise
        self.start_seconds = time.monotonic() - started

    def _address_in(self, said: bytes) -> Address | None:
        """The address in the output so far, if it is there."""
        found = re.search(rb"ready at https?://(\S+):(\d+)\s", said)
        return None if found is None else (found[1].decode("ascii"), int(found[2]))

    def _wait_until_ready(self, _begin: int, deadline: float) -> Address:
        assert self._process is not None
        while True:
            said = self._log.read_bytes()[_begin:]
            address = self._address_in(said)
            if address is not None:
                return address
            if self._process.poll() is not None:
                last = said.decode("utf-8", "replace").strip().splitlines()[-1:] or ["it said nothing"]
                raise BenchError(f"{self.name} ended with status {self._process.returncode}: {last[0]}")
            if time.monotonic() > deadline:
                raise BenchError(f"{self.name} was not ready after {START_SECONDS_MAX:.0f} s.")
            time.sleep(0.005)

    def cpu_seconds(self) -> float:
        """CPU time of the process, its threads and its children so far.

        Raises:
            BenchError: it has ended.
        """
        try:
            return cpu_seconds(self.pid) + sum(cpu_seconds(child) for child in children_of(self.pid))
        except OSError:
            status = self._process.poll() if self._process is not None else None
            raise BenchError(f"{self.name} ended with status {status} while it was measured.") from None

    def clear(self, file: Path) -> None:
        """SIGHUP: servers of ``bench/limits`` that write empty their file; returns when it is empty.

        Raises:
            BenchError: it is not.
        """
        assert self._process is not None
        self._process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + STOP_SECONDS_MAX
        while file.stat().st_size:
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise BenchError(f"{self.name} did not empty its file.")
            time.sleep(0.002)

    def resident_bytes(self) -> int:
        return resident_bytes(self.pid)

    def stop(self) -> None:
        """SIGTERM, and wait; SIGKILL when that does not help."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def limit_server(module: str, log: Path, cores: frozenset[int], *arguments: str) -> ServerProcess:
    """A server of ``bench/limits``, by the name of its module."""
    server = ServerProcess(
        module.replace("_", " "), [sys.executable, "-m", f"bench.limits.{module}", *arguments], log, cores
    )
    server.environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return server
