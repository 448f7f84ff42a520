"""One service in a thread for all tests of a module, and a topic of its own for each: see ``tests/http``."""

from __future__ import annotations

from tests.http.conftest import client, data_dir, server, topic

__all__ = ["client", "data_dir", "server", "topic"]
