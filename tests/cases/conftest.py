"""Logs for the cases."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.cases.logs import CaseLog


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """fsync answers at once: what it is for, no kill of a process can show, and thousands of starts need it.

    Power cuts are tests/crash's. Where a case is about the order of fsyncs, it looks at the operations asked for.
    """
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    monkeypatch.setattr(os, "fdatasync", lambda descriptor: None)


@pytest.fixture
def eager_threads() -> Iterator[None]:
    """Threads change places often, which finds more and waits less for the interpreter."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    yield
    sys.setswitchinterval(interval)


@pytest.fixture
def new_log(tmp_path: Path) -> Iterator[Callable[..., CaseLog]]:
    """Makes a log in a directory of its own; all locks are let go at the end."""
    made: list[CaseLog] = []

    def make(config: Mapping[str, object] | None = None, **options: object) -> CaseLog:
        log = CaseLog(tmp_path / f"data-{len(made)}", config, **options)
        made.append(log)
        return log

    yield make
    for log in made:
        log.kill()
