"""For all tests: no example has a deadline, JVMs start quickly, and how tests are dealt out (``pytest -n``)."""

from __future__ import annotations

import os
import signal

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from tests.quick_java import set_quick_java

# How long an example takes is the machine's affair. CI draws the same examples each time, so that a commit that passed
# passes again; every other run draws its own, and so goes on looking.
settings.register_profile("rollway", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("rollway")
set_quick_java(os.environ)
# A test run in the background of a shell ignores Ctrl-C, and hands that down to the programs that tests send it to.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

SPARK = ("tests/spark/", "tests/failures/test_spark_")
ONE_BY_ONE = ("tests/bench/", "tests/crash/", "tests/differential/", "tests/docs/", "tests/histories/")
"""Long tests that share nothing: the processes that are done with their files take them one by one."""


class FilesAndLongTests(LoadScopeScheduling):
    """A file's tests go to one process, where they share its server; all of Spark's do, since Spark starts slowly.

    What has most tests is dealt out first, so that single tests fill the end.
    """

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(SPARK):
            return SPARK[0]
        return nodeid if nodeid.startswith(ONE_BY_ONE) else nodeid.partition("::")[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """Deal out as above."""
    return FilesAndLongTests(config, log)
