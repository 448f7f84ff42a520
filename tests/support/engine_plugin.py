"""pytest on another engine: leaves out the tests that need the local one, and takes no other excuse."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.support.engine_list import MARKER, write_page
from tests.support.engines import ENGINE, ENGINES

_LEFT_OUT = pytest.StashKey[Counter[str]]()
_OPTION = "--engine-page"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(_OPTION, action="store_true", help="write docs/reference/engines.md if all tests pass")


def _is_local() -> bool:
    return ENGINES[0] == ENGINE


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out: Counter[str] = Counter()
    kept, dropped = [], []
    for item in items:
        mark = item.get_closest_marker(MARKER)
        if mark is None or _is_local():
            kept.append(item)
        else:
            dropped.append(item)
            left_out[mark.args[0]] += 1
    config.stash[_LEFT_OUT] = left_out
    config.hook.pytest_deselected(items=dropped)
    items[:] = kept


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    report: pytest.TestReport = yield
    if report.skipped and not _is_local() and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped on the engine {ENGINE!r}, without the mark {MARKER}: {report.longrepr}"
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config) -> None:
    if _is_local():
        return
    left_out = config.stash.get(_LEFT_OUT, Counter())
    for reason, count in left_out.most_common():
        terminalreporter.write_line(f"{count:5} need the local engine: {reason}")
    if config.getoption(_OPTION) and exitstatus == pytest.ExitCode.OK:
        write_page(len(terminalreporter.stats.get("passed", [])), left_out)
