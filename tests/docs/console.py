"""Reads the command blocks of a page and runs them as a reader would: in order, in one shell.

A ``console`` block holds commands, each behind ``$ ``, continued by ``> ``, followed by the output it shows. In output
``...`` stands for anything within a line, and a line of ``...`` alone for any number of lines. A block without
output shows none on purpose: only the exit status counts then. ``<!-- exit: 1 -->`` above a block says that its
last command is meant to fail. A ``sh`` block cannot run in a test (systemd, Docker, another machine): only its
syntax is checked.
"""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

COMMAND_SECONDS_MAX = 120.0
OUTPUT_BYTES_MAX = 8 * 1024 * 1024

_FENCE = re.compile(r"^( *)```(\w*)\s*$")
_EXIT_MARK = re.compile(r"^<!-- exit: (\d+) -->$")
# What a shell without a terminal says about jobs that ended; an interactive one says it elsewhere.
_JOB_NOTICE = re.compile(r"^(bash: line \d+: +\d+ (Killed|Terminated|Done).*|\[\d+\].*)$")


@dataclass
class Command:
    """One command of a page and what the page says it prints."""

    line_number: int
    text: str
    expected: list[str] = field(default_factory=list)
    exit_status: int = 0


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, the line it starts at, its lines, the exit status its mark names."""

    language: str
    line_number: int
    lines: list[str]
    exit_status: int


def read_blocks(page: Path) -> list[Block]:
    """All fenced blocks of ``page``, in order."""
    blocks: list[Block] = []
    open_block: Block | None = None
    exit_status = 0
    indent = ""
    for number, line in enumerate(page.read_text("utf-8").splitlines(), 1):
        fence = _FENCE.match(line)
        if open_block is not None:
            if fence:
                blocks.append(open_block)
                open_block, exit_status = None, 0
            else:
                open_block.lines.append(line.removeprefix(indent))
        elif fence:
            indent = fence[1]
            open_block = Block(fence[2], number, [], exit_status)
        elif mark := _EXIT_MARK.match(line):
            exit_status = int(mark[1])
    assert open_block is None, f"{page}:{open_block.line_number}: block is never closed"
    return blocks


def read_commands(page: Path) -> list[Command]:
    """The commands of the ``console`` blocks of ``page``, in order."""
    commands: list[Command] = []
    for block in read_blocks(page):
        if block.language != "console":
            continue
        in_block: list[Command] = []
        for number, line in enumerate(block.lines, block.line_number + 1):
            if line.startswith("$ "):
                in_block.append(Command(number, line[2:]))
            elif (line.startswith("> ") or line == ">") and in_block and not in_block[-1].expected:
                in_block[-1].text += "\n" + line[2:]
            else:
                assert in_block, f"{page}:{number}: output before the first command"
                in_block[-1].expected.append(line)
        assert in_block, f"{page}:{block.line_number}: a console block without a command"
        in_block[-1].exit_status = block.exit_status
        commands += in_block
    return commands


def output_matches(expected: list[str], actual: str) -> bool:
    """Whether ``actual`` is what a page shows, ``...`` standing for what may differ; the width of columns may too."""
    pieces = []
    for line in (re.sub(" +", " ", line) for line in expected):
        if line.strip() == "...":
            pieces.append(r"(?:.*\n)*?")
        else:
            pieces.append(".*?".join(re.escape(part.rstrip()) for part in line.rstrip().split("...")) + r"[ \t]*\n")
    text = actual if not actual or actual.endswith("\n") else actual + "\n"
    return re.fullmatch("".join(pieces), re.sub(" +", " ", text)) is not None


class Shell:
    """One bash that runs commands one after the other; what it starts in the background ends with it."""

    def __init__(self, directory: Path, environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=directory,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._command_count = 0

    def run(self, command: str) -> tuple[int, str]:
        """Run ``command`` and return its exit status and what it printed."""
        assert self._process.stdin is not None
        self._command_count += 1
        end = f"--end-of-command-{self._command_count}--"
        # The command reads no more of the shell's own input than the page gives it.
        script = f"{{\n{command}\n}} </dev/null\nprintf '%s%s\\n' '{end}' \"$?\"\n"
        self._process.stdin.write(script.encode())
        self._process.stdin.flush()
        output = self._read_until(end.encode())
        text, _, status = output.decode("utf-8", "replace").rpartition(end)
        lines = [line for line in text.splitlines(keepends=True) if not _JOB_NOTICE.match(line.rstrip())]
        return int(status), "".join(lines)

    def _read_until(self, end: bytes) -> bytes:
        assert self._process.stdout is not None
        pattern = re.compile(re.escape(end) + rb"\d+\n")
        output = bytearray()
        deadline = time.monotonic() + COMMAND_SECONDS_MAX
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while not pattern.search(output):
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise TimeoutError(
                        f"no end after {COMMAND_SECONDS_MAX} s; so far:\n{output.decode(errors='replace')}"
                    )
                part = os.read(self._process.stdout.fileno(), 65536)
                if not part:
                    raise EOFError(f"the shell ended:\n{output.decode(errors='replace')}")
                output += part
                assert len(output) <= OUTPUT_BYTES_MAX
        return bytes(output)

    def close(self) -> None:
        """End the shell and everything it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
