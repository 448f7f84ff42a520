"""The parts of a service on the local engine, which answer plain requests."""

from __future__ import annotations

from app.engine_local.engine import LocalEngine
from app.service.parts import Parts


class LocalParts(Parts):
    """Parts whose engine is the local one: a service on another engine has no fast path."""

    engine: LocalEngine
