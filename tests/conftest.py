"""For all tests: the fixture ``twin``, and quick HTTP clients.

What the crash suites counted is printed at the end of a run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.support.quick_clients import set_quick_clients

pytest_plugins = ("tests.support.engine_plugin",)

COUNTED = (
    "crash points",
    "crash images",
    "known images",
    "second crashes",
    "failed operations",
    "images after an error",
    "flipped bits",
)

set_quick_clients()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    totals: Counter[str] = Counter()
    for report in terminalreporter.stats.get("passed", []):
        for name, value in getattr(report, "user_properties", []):
            if name in COUNTED:
                totals[name] += value
    if totals:
        counts = ", ".join(f"{totals[name]:,} {name}" for name in COUNTED if totals[name])
        terminalreporter.write_line(f"in the crash tests that passed: {counts}; none was wrong")


@pytest.fixture(params=["compiled", "plain"])
def twin(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run the test twice: with the compiled modules, and with what replaces them where there is no compiler."""
    # Here, because these modules import the whole service, which few tests need.
    from tests.support import twins

    if request.param == "plain":
        with twins.plain_python():
            yield "plain"
    elif twins.is_compiled():
        yield "compiled"
    else:
        pytest.skip("the service was installed without a compiler")
