"""Brokers of each supported version: ``make kafka-test`` has them, ``make kafka-quick-test`` the newest alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bench.peers.kafka_packages import NEWEST, VERSIONS
from tests.kafka.broker import Programs

PACKAGES = "KAFKA_PACKAGES_DIR"
SAMPLE = int(os.environ.get("KAFKA_SAMPLE", "0"))
"""How many cases a short run draws; 0: a full run, with all of them and every version."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Elsewhere the tests with brokers are left out. In the targets nothing is: what is missing fails."""
    if PACKAGES in os.environ:
        return
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here) and item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.skip(reason="make kafka-test runs it"))


@pytest.fixture(scope="session")
def cache() -> Path:
    """The directory of the packages."""
    return Path(os.environ[PACKAGES]).resolve()


@pytest.fixture(scope="session", params=[NEWEST] if SAMPLE else VERSIONS)
def programs(request: pytest.FixtureRequest, cache: Path) -> Programs:
    """The programs of one version of Kafka."""
    return Programs(request.param, cache)
