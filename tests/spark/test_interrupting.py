"""Ctrl-C and SIGTERM while a job waits for Spark, at every point of the talk with its JVM."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from rollway.spark.jobs.command.terminating import Termination, cancel_when_interrupted

GROUP = "interrupted"
SLOWLY = "reflect('java.lang.Thread', 'sleep', cast(4000 as bigint))"


@pytest.fixture
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


class InterruptedSocket:
    """A socket to the JVM; when the command that begins a job has left it, ``interrupt`` is called."""

    def __init__(self, inner: Any, interrupt: Callable[[], None]) -> None:
        self._inner = inner
        self._interrupt = interrupt

    def sendall(self, data: bytes) -> None:
        self._inner.sendall(data)
        if b"collectToPython" in data:
            self._interrupt()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@pytest.mark.parametrize("is_waiting", [False, True], ids=["before the answer is read", "while the answer is read"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_cancels_what_spark_does(
    spark: SparkSession, handlers: None, number: signal.Signals, is_waiting: bool
) -> None:
    context = spark.sparkContext
    group = f"{GROUP}-{number}-{is_waiting}"

    def interrupt() -> None:
        tracker = context.statusTracker()
        while not tracker.getActiveStageIds():
            threading.Event().wait(0.01)
        signal.pthread_kill(threading.main_thread().ident or 0, number)

    interrupting = threading.Thread(target=interrupt)

    def interrupt_here() -> None:
        interrupting.start()
        if not is_waiting:
            interrupting.join()

    cancel_when_interrupted(context)
    context.setJobGroup(group, "slow")
    connection: Any = context._gateway._gateway_client.get_thread_connection()  # type: ignore[union-attr]
    connection.socket = InterruptedSocket(connection.socket, interrupt_here)
    with Termination() as termination:
        try:
            spark.range(1).selectExpr(SLOWLY).collect()
        except KeyboardInterrupt:
            assert termination.was_asked == (number == signal.SIGTERM)
        else:
            pytest.fail("the job was not interrupted")
    interrupting.join()
    # The same thread goes on, and is told what it asks for.
    assert spark.range(3).count() == 3
    (job,) = context.statusTracker().getJobIdsForGroup(group)
    assert _how_it_ended(context, job) == "FAILED"


def _how_it_ended(context: SparkContext, job: int) -> str:
    while (known := context.statusTracker().getJobInfo(job)) is None or known.status == "RUNNING":
        threading.Event().wait(0.01)
    return str(known.status)
