"""What tests of the library share: those of sections hold for the compiled way and for the one in Python."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rollway.records import compiled


@pytest.fixture(scope="module", params=["compiled", "python"])
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    """Which way sections are read and written."""
    if request.param == "compiled" and not compiled.is_compiled():
        pytest.skip("the package was installed without a compiler")
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "python":
            patch.setattr(compiled, "sections", None)
        yield request.param
