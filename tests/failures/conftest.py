"""One service in a thread for all tests of a module, and a topic for each; see ``tests/http/conftest.py``."""

from __future__ import annotations

from tests.http.conftest import client, data_dir, server, topic

__all__ = ["client", "data_dir", "server", "topic"]
