"""For all tests: no example has a deadline, JVMs start quickly, and how tests are dealt out (``pytest -n``)."""

from __future__ import annotations

import os
import re
import signal
from collections import OrderedDict

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from tests.support.quick_java import set_quick_java

# How long an example takes is the machine's affair. CI draws the same examples each time, so that a commit that passed
# passes again; every other run draws its own, and so goes on looking.
settings.register_profile("rollway", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("rollway")
set_quick_java(os.environ)
# A test run in the background of a shell ignores Ctrl-C, and below nohup the end of its terminal; it would hand that
# down to the programs that tests send these signals to.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)

SPARK = re.compile("tests/spark/|tests/failures/test_([a-z_]+_)?(spark|csv_(headers|names))")
"""Tests with Spark, which takes 20 s of CPU to start and to do its first job: one process runs all of a folder."""
ONE_BY_ONE = ("tests/bench/", "tests/crash/", "tests/differential/", "tests/docs/", "tests/histories/")
"""Long tests that share nothing: the processes that are done with their files take them one by one."""
FIRST = (
    "tests/spark/",
    "tests/failures/spark/",
    "tests/http/test_openapi.py",
    "tests/http/test_demo.py",
    "tests/histories/test_service.py",
    "tests/histories/test_clock_steps.py",
    "tests/model/test_log_model.py",
    "tests/spark_faults/",
    "tests/crash/test_disk_errors.py",
    "tests/http/test_kill.py",
    "tests/differential/",
)
"""What takes longest in one piece. At the end one process alone would be busy with it for half a minute."""


class FilesAndLongTests(LoadScopeScheduling):
    """A file's tests go to one process, where they share its server; so do all of a folder's with Spark, which starts
    slowly.

    What takes longest is dealt out first, and then what has most tests, so that short single tests fill the end.
    """

    is_ordered = False

    def _split_scope(self, nodeid: str) -> str:
        if SPARK.match(nodeid):
            return "tests/spark/" if nodeid.startswith("tests/spark/") else "tests/failures/spark/"
        return nodeid if nodeid.startswith(ONE_BY_ONE) else nodeid.partition("::")[0]

    def _assign_work_unit(self, node: WorkerController) -> None:
        if not self.is_ordered:
            # All of it is there, by the number of tests, and nothing of it was dealt out.
            self.workqueue = OrderedDict(sorted(self.workqueue.items(), key=lambda unit: place_of(unit[0])))
            self.is_ordered = True
        super()._assign_work_unit(node)


def place_of(scope: str) -> int:
    """When a part of the tests is dealt out: among the first, in their order, or behind them."""
    places = [place for place, prefix in enumerate(FIRST) if scope.startswith(prefix)]
    return places[0] if places else len(FIRST)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """Deal out as above."""
    return FilesAndLongTests(config, log)
