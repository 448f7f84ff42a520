"""A standalone Spark: a master, and two workers at two addresses, since Spark runs a copy of a task on another host."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pyspark

from tests.spark.conftest import spark_environment
from tests.spark_faults.harness import descendants, kill_all
from tests.support.quick_java import quick_java

_HOSTS = ("127.0.0.1", "127.0.0.2")
_CORES = 2
_MASTER = re.compile(rb"Starting Spark master at (spark://\S+)")
_REGISTERED = re.compile(rb"Successfully registered with master")
_JAVA = quick_java()
_SETTINGS = {
    "spark.executor.cores": str(_CORES),
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": _JAVA,
    # A load begins when both workers are there.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "10min",
    # When all tasks but one of four have ended, that one is copied soon, and no other.
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.75",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "100ms",
}


class _Daemon:
    """A master or a worker."""

    def __init__(self, directory: Path, name: str, *arguments: str) -> None:
        directory.mkdir(parents=True)
        self._log = directory / "log"
        home = Path(pyspark.__file__).parent
        self._process = subprocess.Popen(
            [home / "bin" / "spark-class", f"org.apache.spark.deploy.{name}", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=directory,
            env={
                **os.environ,
                **spark_environment(),
                "SPARK_HOME": str(home),
                "SPARK_DAEMON_MEMORY": "256m",
                "SPARK_DAEMON_JAVA_OPTS": _JAVA,
            },
        )
        self._draining: threading.Thread | None = None

    def wait_for(self, pattern: re.Pattern[bytes]) -> str:
        """The line that has this in it, from there on; what follows is kept in a file."""
        assert self._process.stdout is not None
        with self._log.open("wb") as log:
            for line in self._process.stdout:
                log.write(line)
                if found := pattern.search(line):
                    break
            else:
                log.flush()
                raise AssertionError(self._log.read_text(errors="replace"))
        self._draining = threading.Thread(target=self._drain, name="log of a daemon")
        self._draining.start()
        return found[found.lastindex or 0].decode()

    def _drain(self) -> None:
        assert self._process.stdout is not None
        with self._log.open("ab") as log:
            shutil.copyfileobj(self._process.stdout, log)

    def stop(self) -> None:
        """End it, and what it has started."""
        family = descendants(self._process.pid)
        self._process.terminate()
        self._process.wait()
        kill_all(family)
        if self._draining is not None:
            self._draining.join()
        assert self._process.stdout is not None
        self._process.stdout.close()


@contextlib.contextmanager
def cluster(directory: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """The master's address, and the settings of a session that has all of the cluster and speculates."""
    with contextlib.ExitStack() as stack:

        def start(place: str, name: str, *arguments: str) -> _Daemon:
            daemon = _Daemon(directory / place, name, "--port", "0", "--webui-port", "0", *arguments)
            stack.callback(daemon.stop)
            return daemon

        url = start("master", "master.Master", "--host", _HOSTS[0]).wait_for(_MASTER)
        size = ("--cores", str(_CORES), "--memory", "1g")
        workers = [
            start(host, "worker.Worker", "--host", host, *size, "--work-dir", str(directory / host / "work"), url)
            for host in _HOSTS
        ]
        for worker in workers:
            worker.wait_for(_REGISTERED)
        yield url, {**_SETTINGS, "spark.cores.max": str(_CORES * len(_HOSTS))}


class Gate:
    """A port of this machine that closes its connections once there are as many as it waits for."""

    def __init__(self, awaited: int) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._awaited = awaited
        self._thread = threading.Thread(target=self._run, name="gate")
        self.port: int = self._listener.getsockname()[1]

    def _run(self) -> None:
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for _ in range(self._awaited):
                stack.enter_context(self._listener.accept()[0])

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()
