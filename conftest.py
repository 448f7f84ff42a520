"""For all tests: no example has a deadline, since how long one takes is the machine's affair."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("rollway", deadline=None)
settings.load_profile("rollway")
