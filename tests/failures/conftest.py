"""One service in a thread for all tests of a module, and a topic for each; see ``tests/http/conftest.py``."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.http.conftest import client, data_dir, server, topic

__all__ = ["client", "data_dir", "server", "topic"]


@pytest.fixture
def logging_as_before() -> Iterator[None]:
    """For tests that set up logs, to a stream that is closed after the test."""
    root = logging.getLogger()
    before = (root.handlers[:], root.level)
    yield
    root.handlers[:], root.level = before
