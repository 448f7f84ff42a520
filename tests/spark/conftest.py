"""One Spark for all tests of a process, with a door for Spark Connect; one service; a topic for each test."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pyspark
import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from rollway.client import ClientSettings, RollwayClient
from rollway.spark.java import java_home
from tests.support.servers import ServerProcess

ROOT = Path(__file__).parents[2]
PARTITION_COUNT = 3
WORKER_DAEMON = "tests.spark.worker_daemon"
_numbers = count()


def spark_environment() -> dict[str, str]:
    """What a process needs in its environment to run Spark with this Python and the tests' modules."""
    return {
        "JAVA_HOME": str(java_home()),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def spark_settings(directory: Path) -> dict[str, str]:
    """Settings of a session that starts quickly and keeps to itself. ``directory`` is for its files."""
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
        "spark.driver.memory": "1g",
        "spark.python.daemon.module": WORKER_DAEMON,
        "spark.local.dir": str(directory / "local"),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.session.timeZone": "UTC",
    }


def start_session(directory: Path) -> SparkSession:
    """A classic session whose tasks are tried up to four times, with a door for Spark Connect."""
    builder = SparkSession.builder.master("local[2,4]").appName("tests of Rollway")
    connect = {
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
    }
    for name, value in {**spark_settings(directory), **connect}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def check_version(session: SparkSession) -> None:
    """It is the Spark that the Makefile wants, if it wants one: another may have been found first."""
    wanted = os.environ.get("SPARK_WANTED", pyspark.__version__)
    assert session.version == wanted, f"this is Spark {session.version}, and {wanted} was to be tested"


def end_session(session: SparkSession) -> None:
    """Stop it, and wait until its JVM has ended."""
    gateway = SparkContext._gateway
    session.stop()
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()
    SparkContext._gateway = SparkContext._jvm = None


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    # Tests elsewhere import this fixture, which is then another one to pytest: the first to begin is the last to end.
    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    directory = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in spark_environment().items():
            patch.setenv(name, value)
        session = start_session(directory)
        check_version(session)
        yield session
        end_session(session)


@pytest.fixture(scope="session")
def connect_spark(spark: SparkSession) -> Iterator[SparkSession]:
    """A session of Spark Connect in the same Spark."""
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    package = spark.sparkContext._jvm.org.apache.spark.sql.connect.service  # type: ignore[union-attr]
    port = getattr(getattr(package, "SparkConnectService$"), "MODULE$").localPort()
    session = ConnectSession.builder.remote(f"sc://127.0.0.1:{port}").create()
    yield session  # type: ignore[misc]
    session.stop()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    # A process of its own: py4j waits with select, which refuses descriptors above 1023, and a service has many.
    # Records of these tests are old, and nothing may delete them while the tests run.
    environment = {"ROLLWAY_RETENTION_CHECK_INTERVAL_MS": "86400000"}
    with ServerProcess(tmp_path_factory.mktemp("service") / "data", environment=environment) as running:
        yield running


@pytest.fixture(scope="session")
def client(server: ServerProcess) -> Iterator[RollwayClient]:
    with RollwayClient(ClientSettings(server.url)) as client:
        yield client


@pytest.fixture
def topic(client: RollwayClient) -> str:
    """A new topic with three partitions."""
    return client.create_topic(f"t{next(_numbers)}", PARTITION_COUNT).name


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A topic of its own for each test."""
    return str(request.node.name).partition("[")[0].removeprefix("test_")
