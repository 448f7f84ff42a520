"""A Spark with the packages, a Kafka, a service: ``make spark-packages-test`` has them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bench.machine import Cores
from bench.peers.kafka import Kafka
from bench.peers.peer import CannotRunError, Surroundings
from rollway.client import ClientSettings, RollwayClient
from rollway.spark.jobs.command import cli
from rollway.spark.jobs.command.submitting import DEFAULT_SETTINGS
from tests.spark.conftest import check_version, end_session, spark_environment, spark_settings
from tests.spark_packages.fetching import jars_in
from tests.support.servers import ServerProcess

START_ATTEMPTS_MAX = 3
Job = Callable[..., tuple[int, str, str]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Elsewhere they are left out. In the target nothing is: what is missing fails."""
    if "SPARK_PACKAGES_DIR" not in os.environ:
        here = str(Path(__file__).parent)
        for item in items:
            if str(item.path).startswith(here):
                item.add_marker(pytest.mark.skip(reason="make spark-packages-test runs it"))


@pytest.fixture(scope="session")
def cache() -> Path:
    return Path(os.environ["SPARK_PACKAGES_DIR"]).resolve()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Iterator[SparkSession]:
    directory = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in spark_environment().items():
            patch.setenv(name, value)
        builder = SparkSession.builder.master("local[2,4]").appName("tests of Rollway with packages")
        settings = {**spark_settings(directory), **DEFAULT_SETTINGS, "spark.jars": ",".join(jars_in(cache).values())}
        for name, value in settings.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        check_version(session)
        yield session
        end_session(session)


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Iterator[str]:
    """The address of a broker."""
    cores = frozenset(os.sched_getaffinity(0))
    with contextlib.ExitStack() as stack:
        for attempt in range(START_ATTEMPTS_MAX):
            directory = tmp_path_factory.mktemp("broker")
            try:
                broker = stack.enter_context(Kafka(Surroundings(cache, directory, Cores(cores, cores), True, 1.0)))
                break
            except CannotRunError:
                # Others may have taken its ports since they were chosen.
                if attempt + 1 == START_ATTEMPTS_MAX:
                    raise
        yield f"{broker.address[0]}:{broker.address[1]}"


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    environment = {"ROLLWAY_RETENTION_CHECK_INTERVAL_MS": "86400000"}
    with ServerProcess(tmp_path_factory.mktemp("service") / "data", environment=environment) as running:
        yield running


@pytest.fixture(scope="session")
def client(server: ServerProcess) -> Iterator[RollwayClient]:
    with RollwayClient(ClientSettings(server.url)) as client:
        yield client


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A topic of its own for each test."""
    return str(request.node.name).replace("[", "-").replace("]", "").removeprefix("test_")


@pytest.fixture
def job(spark: SparkSession, server: ServerProcess, capsys: pytest.CaptureFixture[str]) -> Job:
    """Run a command line of ``rollway-spark`` in this Spark: its exit status, what it printed, and its last error."""

    def run(*line: str) -> tuple[int, str, str]:
        capsys.readouterr()
        status = cli.run_here([*line, "--url", server.url])
        printed = capsys.readouterr()
        errors = [each for each in printed.err.splitlines() if each.startswith("rollway-spark: ")]
        return status, printed.out, errors[-1] if errors else ""

    return run
