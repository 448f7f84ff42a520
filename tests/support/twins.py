"""The service on its compiled modules, and on what replaces them where there is no compiler."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from client.tests.twins import plain_python as plain_library

CHOOSERS = (
    "app.fast_path.fetch.compiled_handlers",
    "app.engine_local.partitions.group_flushes.plain_append",
    "app.engine_local.partitions.turn_flushes.compiled",
    "app.engine_local.partitions.turn_flushes.compiled_thread",
    "app.fast_path.fetch_crowds.compiled_connections",
    "app.fast_path.produce.compiled_handlers",
    "app.metrics.distributions.compiled",
    "app.record_json.json_values.compiled",
    "app.record_json.record_batches.compiled",
    "app.record_json.record_texts.compiled",
    "app.server.connections.compiled",
    "storage.index.key_samples.compiled",
    "storage.journal.pieces.compiled",
    "storage.segment.batch_search.compiled",
)
"""The variables of the service that hold a compiled module, or ``None`` where there is no compiler."""

OTHERS = (
    # The parser: without it no request is answered on its connection, which is not what the plain twin of a test is.
    "app.http.connection.fast_path_interface.plain_heads",
    # Used by the compiled handlers alone, which compiled_handlers stands for.
    "app.fast_path.produce.plain_append",
)
"""Variables of the same kind that ``plain_python`` leaves as they are."""


def is_compiled() -> bool:
    """Whether every compiled module was built and is wanted."""
    return all(_value(name) is not None for name in CHOOSERS)


@contextmanager
def plain_python() -> Iterator[None]:
    """Run without compiled modules, those of the library with them, for as long as the block runs."""
    with plain_library(), pytest.MonkeyPatch.context() as patch:
        for name in CHOOSERS:
            patch.setattr(name, None)
        yield


def _value(name: str) -> object:
    module, _, variable = name.rpartition(".")
    return getattr(importlib.import_module(module), variable)
