"""A service with authentication for programs: a process of its own, on a port that the system chose."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_ROLLWAY = (sys.executable, "-c", "from app.cli import main; main()")
_PRINCIPAL = "User:sdks"
_READY = re.compile(r"ready at (http://\S+)")


@dataclass(frozen=True)
class LiveService:
    """Where a service listens, and a key that may do everything."""

    url: str
    api_key: str


@contextlib.contextmanager
def live_service(directory: Path) -> Iterator[LiveService]:
    """A service with its data below ``directory``, until the end of the block.

    Raises:
        RuntimeError: it did not start; its last words are in the message.
    """
    data = ("--data-dir", str(directory / "data"))
    made = subprocess.run(
        [*_ROLLWAY, "keys", "create", *data, "--principal", _PRINCIPAL], capture_output=True, text=True, check=False
    )
    if made.returncode:
        raise RuntimeError(made.stderr)
    log = directory / "service.log"
    command = [*_ROLLWAY, "serve", *data, "--port", "0", "--authentication", "--super-user", _PRINCIPAL]
    with log.open("wb") as output, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=output) as process:
        try:
            yield LiveService(_address(process, log), made.stdout.strip())
        finally:
            process.terminate()


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if found := _READY.search(line.decode()):
            # The rest of its output is not read, and must not block the service.
            os.set_blocking(process.stdout.fileno(), False)
            return found[1]
    raise RuntimeError(f"the service did not start:\n{log.read_text()}")
