"""A standalone Spark: a master, and two workers at two addresses, since Spark runs a copy of a task on another host."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyspark

from rollway.spark.java import java_home
from tests.spark_faults.harness import Stand
from tests.spark_faults.scenarios import (
    ROWS,
    TASKS,
    Scenario,
    all_of_spark_is_killed,
    judge,
    load,
    new_application,
    options,
    succeed,
    workers_exit,
)

_MASTER = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = re.compile(r"Successfully registered with master")
_SPECULATING = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "2",
    "spark.cores.max": "4",
}


class _Daemon:
    """A master or a worker."""

    def __init__(self, directory: Path, name: str, *arguments: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._log = directory / "log"
        home = Path(pyspark.__file__).parent
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [home / "bin" / "spark-class", f"org.apache.spark.deploy.{name}", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=directory,
                env={
                    **os.environ,
                    "SPARK_HOME": str(home),
                    "JAVA_HOME": str(java_home()),
                    "SPARK_DAEMON_MEMORY": "256m",
                    "SPARK_NO_DAEMONIZE": "1",
                },
            )

    def wait_for(self, pattern: re.Pattern[str]) -> re.Match[str]:
        """Return when its log says this."""
        while True:
            is_over = self._process.poll() is not None
            text = self._log.read_text(errors="replace")
            found = pattern.search(text)
            if found is not None:
                return found
            assert not is_over, text[-4000:]

    def stop(self) -> None:
        """End it, and what it has started."""
        self._process.terminate()
        self._process.wait()


@contextlib.contextmanager
def cluster(directory: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """The master's address, and the settings of a session that speculates on it."""
    with contextlib.ExitStack() as stack:
        ports = ("--port", "0", "--webui-port", "0")
        master = _Daemon(directory / "master", "master.Master", "--host", "127.0.0.1", *ports)
        stack.callback(master.stop)
        url = master.wait_for(_MASTER)[1]
        workers = []
        for host in ("127.0.0.1", "127.0.0.2"):
            place = directory / f"worker-{host}"
            size = ("--cores", "2", "--memory", "1g", "--work-dir", str(place))
            worker = _Daemon(place, "worker.Worker", "--host", host, *ports, *size, url)
            stack.callback(worker.stop)
            workers.append(worker)
        for worker in workers:
            worker.wait_for(_REGISTERED)
        yield url, _SPECULATING


def a_slow_task_is_copied(stand: Stand) -> None:
    """A task stops at a random row; its copy on the other worker is the one that counts."""
    topic = stand.new_topic()
    slow = {
        "task": stand.source.randrange(TASKS),
        "attempts": 1,
        "row": stand.source.randrange(ROWS // TASKS),
        "how": "hang",
    }
    succeed(load(stand, options(stand, topic, new_application()), faults=[slow]))
    judge(stand, topic, range(ROWS))
    attempts = [passing for passing in stand.proxy.passed if passing.path.endswith("/attempts")]
    assert len(attempts) > TASKS, "nothing was copied"


SCENARIOS: tuple[Scenario, ...] = (a_slow_task_is_copied, workers_exit, all_of_spark_is_killed)
