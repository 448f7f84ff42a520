"""The service as a process of its own, started, killed and stopped as an operator would."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

MARKER = ".rollway-demo"
LOG = "service.log"
START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 60.0

_READY = re.compile(rb"ready at (https?://\S+)")


class DemoError(Exception):
    """The demo cannot go on; the message is a sentence."""


def prepare_directory(directory: Path) -> None:
    """Make ``directory`` empty: a new one, or that of an earlier demo, which its marker file tells.

    Raises:
        DemoError: it holds something else.
    """
    if directory.exists() and any(directory.iterdir()):
        if not (directory / MARKER).exists():
            raise DemoError(f"{directory} is not empty and not an earlier demo's: choose another with --data-dir.")
        _remove_tree(directory)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / MARKER).write_text("The data of `make demo`, which deletes this directory when it runs again.\n")


def _remove_tree(directory: Path) -> None:
    for path in sorted(directory.rglob("*"), key=lambda path: len(path.parts), reverse=True):
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink()


def rollway_command() -> list[str]:
    """The ``rollway`` that belongs to this interpreter."""
    script = Path(sys.executable).parent / "rollway"
    return [str(script)] if script.exists() else [sys.executable, "-c", "from app.cli import main; main()"]


def _wait_until_ready(process: subprocess.Popen[bytes], log: Path, log_start: int, deadline: float) -> str:
    """The URL of the ready line that ``process`` writes to ``log`` behind ``log_start``."""
    while True:
        said = log.read_bytes()[log_start:]
        match = _READY.search(said, 0, said.rfind(b"\n") + 1)
        if match is not None:
            return match.group(1).decode("ascii")
        if process.poll() is not None:
            last = said.decode("utf-8", "replace").strip().splitlines()[-1:] or ["it said nothing"]
            raise DemoError(f"The service ended with status {process.returncode}: {last[0]}")
        if time.monotonic() > deadline:
            raise DemoError(f"The service was not ready after {START_SECONDS_MAX:.0f} s; see {log}.")
        time.sleep(0.01)


class Service:
    """One running service on a data directory."""

    def __init__(self, process: subprocess.Popen[bytes], data_dir: Path, url: str, start_seconds: float) -> None:
        self._process = process
        self.data_dir = data_dir
        self.url = url
        self.start_seconds = start_seconds

    @classmethod
    def start(cls, data_dir: Path) -> Service:
        """Start on a free port and return when it is ready.

        Raises:
            DemoError: it ended, or was not ready in time.
        """
        started = time.monotonic()
        log = data_dir / LOG
        with log.open("ab") as output:
            log_start = output.tell()
            process = subprocess.Popen(  # noqa: S603 - our own command
                [*rollway_command(), "serve", "--data-dir", str(data_dir), "--port", "0"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            url = _wait_until_ready(process, log, log_start, started + START_SECONDS_MAX)
        except BaseException:
            process.kill()
            process.wait()
            raise
        return cls(process, data_dir, url, time.monotonic() - started)

    def kill(self) -> None:
        """kill -9: no chance to flush or to clean up."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        """SIGTERM, and wait for the clean stop; returns the exit status."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            raise DemoError(f"The service did not stop within {STOP_SECONDS_MAX:.0f} s of SIGTERM.") from None

    def wait(self) -> int:
        """Wait until somebody else stops it."""
        return self._process.wait()
