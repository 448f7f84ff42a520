"""Logs for the cases."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.cases.logs import CaseLog


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
