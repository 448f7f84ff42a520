"""The service as a process of its own that was forked from one where its modules are imported already.

A start from nothing spends more than a second of CPU on imports, which tests that start it dozens of times pay
each time. What runs afterwards is the same: ``rollway`` with its arguments, in a process with descriptors, signals
and exit status of its own. How a start from nothing goes is what tests/http/test_serve.py looks at.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    [
        "app.cli",
        "app.cli.serve",
        "app.server.server",
        "uvicorn.lifespan.on",
        "uvicorn.loops.uvloop",
        __name__,
        "tests.support.frozen",
    ]
)


class ForkedProgram:
    """``rollway`` with these arguments and exactly this environment; what tests use of ``subprocess.Popen``.

    With ``module`` it is ``python -m`` of that module, which is not imported before.

    Attributes:
        stdout: what it prints, as text.
    """

    def __init__(
        self, arguments: Sequence[str], *, errors: Path, environment: Mapping[str, str], module: str | None = None
    ) -> None:
        reader, writer = os.pipe()
        stderr = os.open(errors, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            streams = _Streams(writer, stderr)
            self._process = _CONTEXT.Process(target=_run, args=(list(arguments), dict(environment), streams, module))
            self._process.start()
        finally:
            os.close(writer)
            os.close(stderr)
        self.stdout = os.fdopen(reader, "r")

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        """The exit status, or ``None`` while it runs; minus the signal's number if one ended it."""
        return self._process.exitcode

    def wait(self, seconds: float) -> int:
        """The exit status, as soon as there is one.

        Raises:
            subprocess.TimeoutExpired: it runs on.
        """
        self._process.join(seconds)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("rollway", seconds)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        """Send a signal, if it is still there."""
        if self._process.exitcode is None:
            # It may have ended, with nobody told yet.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """kill -9."""
        self.send_signal(signal.SIGKILL)

    def __del__(self) -> None:
        if hasattr(self, "stdout"):
            self.stdout.close()


class _Streams:
    """Descriptors that become stdout and stderr of the process they are sent to."""

    def __init__(self, stdout: int, stderr: int) -> None:
        self._descriptors = (stdout, stderr)

    def __getstate__(self) -> list[Any]:
        return [DupFd(descriptor) for descriptor in self._descriptors]

    def __setstate__(self, sent: list[Any]) -> None:
        self._descriptors = tuple(duplicate.detach() for duplicate in sent)  # type: ignore[assignment]

    def install(self) -> None:
        for descriptor, number in zip(self._descriptors, (1, 2), strict=True):
            os.dup2(descriptor, number)
            os.close(descriptor)


def _run(arguments: list[str], environment: dict[str, str], streams: _Streams, module: str | None) -> None:
    from app.cli import main

    streams.install()
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["rollway", *arguments]
    if module is None:
        main()
    else:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
