"""The quick generators: each client is made, compiled, and does all steps against both services; its example runs.

Contents of 10 MB take most of the time of a program. `make sdks` sends them, this does not.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.openapi.document import PATH
from sdks.generators import GENERATORS, Generator
from sdks.growing_proxy import GrowingProxy, Growth
from sdks.live_service import LiveService, live_service
from sdks.running import Workshop, missing_programs, run
from sdks.steps import STEPS
from tests.support.every_value import SMALL

QUICK = [each for each in GENERATORS if each.is_quick]
WORKSHOP = Path(__file__).parents[2] / ".venv" / "sdks"
"""Where ``make test`` has installed the tools."""


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LiveService, LiveService]]:
    """The service of today, and that of tomorrow."""
    growth = Growth(json.loads(PATH.read_text("utf-8")))
    with (
        live_service(tmp_path_factory.mktemp("service")) as today,
        GrowingProxy(today.url, growth) as proxy,
    ):
        yield today, LiveService(proxy.url, today.api_key)


@pytest.mark.parametrize("generator", QUICK, ids=lambda each: each.slug)
def test_the_client_does_all_steps(generator: Generator, services: tuple[LiveService, LiveService]) -> None:
    if missing := missing_programs(generator):
        pytest.skip(f"{generator.name} needs {', '.join(missing)}")
    WORKSHOP.mkdir(parents=True, exist_ok=True)
    workshop = Workshop(WORKSHOP, PATH.resolve(), SMALL)
    if not workshop.has_installed(generator):
        pytest.skip(f"{generator.name} could not be installed: python -m sdks --quick --install says why")
    outcome = run(generator, workshop, *services, "sdk.")
    assert outcome.failures == []
    expected = len(STEPS) - len(generator.defects)
    assert outcome.passed == {"today": expected, "tomorrow": expected}
