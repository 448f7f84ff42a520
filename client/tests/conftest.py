"""Fixtures of the library's tests. Tests of sections and of hashes run on the compiled and on the plain modules."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from client.tests.twins import plain_python
from rollway.records.compiled import is_compiled


@pytest.fixture(scope="module", params=["compiled", "plain"])
def twin(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run the test twice: with the compiled modules, and with their twins in plain Python."""
    if request.param == "plain":
        with plain_python():
            yield "plain"
    elif is_compiled():
        yield "compiled"
    else:
        pytest.skip("the package was installed without a compiler")
