"""What may happen to a Spark load, each time at another moment, and what a reader of committed records sees then.

A scenario runs on a ``Stand`` whose Spark is warm; it makes its own topic and application, and asserts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

from tests.spark_faults.harness import Stand, check_rows, held_up, jobs_of
from tests.spark_faults.lossy_proxy import LOSSY, Fault, Passing, Trap, number_is, path_ends

Scenario = Callable[[Stand], None]

ROWS = 20_000
TASKS = 4
BATCH_BYTES = 65_536
REQUESTS = 50
"""A load sends a few more: kill points lie among these."""
ORPHAN_TIMEOUT_MS = 2_000

FILES = 3
FILE_ROWS = 2_000
STREAM_REQUESTS = 5 * FILES

_numbers = count()


def new_application() -> str:
    """One that loaded nothing so far."""
    return f"loader-{next(_numbers)}"


def options(stand: Stand, topic: str, application: str, version: int | None = 1, **more: Any) -> dict[str, str]:
    """Options of a write through the proxy."""
    given = {"url": stand.proxy.url, "topic": topic, "txnAppId": application, "batchBytes": BATCH_BYTES, **more}
    if version is not None:
        given["txnVersion"] = version
    return {name: str(value) for name, value in given.items()}


def load(stand: Stand, written: dict[str, str], **more: Any) -> dict[str, Any] | None:
    """Load all rows; how it ended."""
    return stand.spark.call(do="load", **{"rows": ROWS, "tasks": TASKS, "options": written, **more})


def succeed(answer: dict[str, Any] | None) -> None:
    """Assert that a command came to its end."""
    assert answer == {"ok": True}, answer


def fail(answer: dict[str, Any] | None) -> None:
    """Assert that a command failed, in a driver that lives."""
    assert answer is not None
    assert not answer["ok"]


def judge(stand: Stand, topic: str, *expected: range) -> None:
    """Assert that exactly these rows are there."""
    with stand.reader() as client:
        check_rows(client, topic, *expected)


def at_random(stand: Stand, action: Callable[[], None], requests: int = REQUESTS) -> Trap:
    """Do something at one of the first requests, before or after the service has seen it."""
    is_after = stand.source.random() < 0.5
    return stand.proxy.set_trap(Trap(number_is(stand.source.randint(1, requests)), action, is_after=is_after))


# Batches


def _failing(stand: Stand, how: str) -> None:
    topic = stand.new_topic()
    faults = [
        {
            "task": task,
            "attempts": stand.source.randint(1, 3),
            "row": stand.source.randrange(ROWS // TASKS),
            "how": how,
        }
        for task in stand.source.sample(range(TASKS), 2)
    ]
    succeed(load(stand, options(stand, topic, new_application()), faults=faults))
    judge(stand, topic, range(ROWS))


def workers_exit(stand: Stand) -> None:
    """Up to three of four attempts of two tasks end their process."""
    _failing(stand, "exit")


def workers_raise(stand: Stand) -> None:
    """Up to three of four attempts of two tasks raise."""
    _failing(stand, "raise")


def a_load_fails(stand: Stand) -> None:
    """One task never comes to its end: nothing is seen. The same version, loaded again, is."""
    topic = stand.new_topic()
    task, row = stand.source.randrange(TASKS), stand.source.randrange(ROWS // TASKS)
    written = options(stand, topic, new_application())
    how = stand.source.choice(("raise", "exit"))
    fail(load(stand, written, faults=[{"task": task, "attempts": 99, "row": row, "how": how}]))
    judge(stand, topic)
    succeed(load(stand, written))
    judge(stand, topic, range(ROWS))


def a_worker_is_killed(stand: Stand) -> None:
    """kill -9 of one Python worker at a random request."""
    topic = stand.new_topic()
    trap = at_random(stand, lambda: stand.spark.kill_worker(stand.source))
    succeed(load(stand, options(stand, topic, new_application())))
    assert trap.sprung.is_set()
    judge(stand, topic, range(ROWS))


def _raising_commit(stand: Stand, fault: Fault) -> None:
    topic, application = stand.new_topic(), new_application()
    stand.proxy.rule = lambda passing: fault if passing.path.endswith("/commit") else None
    written = options(stand, topic, application)
    fail(load(stand, {**written, "retries": "2"}))
    is_decided = fault is Fault.LOST_ANSWER
    judge(stand, topic, range(ROWS if is_decided else 0))
    stand.proxy.reset()
    succeed(load(stand, written))
    judge(stand, topic, range(ROWS))
    with stand.reader() as client:
        assert jobs_of(client, application)[-1]["state"] == ("committed" if is_decided else "aborted")


def a_commit_is_not_answered(stand: Stand) -> None:
    """The driver is never told of its commit, and Spark aborts: it stays committed. The next run changes nothing."""
    _raising_commit(stand, Fault.LOST_ANSWER)


def a_commit_does_not_arrive(stand: Stand) -> None:
    """The driver's commit raises, and Spark aborts. The next run loads everything."""
    _raising_commit(stand, Fault.LOST_REQUEST)


def a_lossy_network(stand: Stand) -> None:
    """15 % of all answers are lost, 10 % of all requests are 503 and 10 % 429."""
    topic = stand.new_topic()
    stand.proxy.reset(LOSSY)
    succeed(load(stand, options(stand, topic, new_application())))
    counts = stand.proxy.counts
    assert all(counts[fault] for fault in (Fault.LOST_ANSWER, Fault.UNAVAILABLE, Fault.THROTTLED)), counts
    judge(stand, topic, range(ROWS))


def the_same_version_again(stand: Stand) -> None:
    """It changes nothing; the next version does."""
    topic, application = stand.new_topic(), new_application()
    written = options(stand, topic, application)
    for _ in range(2):
        succeed(load(stand, written))
        judge(stand, topic, range(ROWS))
    more = stand.source.randrange(1, ROWS)
    succeed(load(stand, options(stand, topic, application, version=2), first=ROWS, rows=ROWS + more))
    judge(stand, topic, range(ROWS + more))


def all_of_spark_is_killed(stand: Stand) -> None:
    """Driver, JVM and workers. What the next run loads is seen when it ends: nothing of the dead holds readers up."""
    topic = stand.new_topic()
    at_random(stand, stand.kill_spark)
    written = options(stand, topic, new_application())
    assert load(stand, written) is None
    stand.lose_spark()
    succeed(load(stand, written))
    judge(stand, topic, range(ROWS))


def an_orphan_is_aborted(stand: Stand) -> None:
    """A load whose Spark is killed, and that nobody tries again, holds up a load of somebody else for its timeout."""
    # A cold Spark may take longer to its first row than the timeout: its tasks would begin a second job.
    succeed(load(stand, options(stand, stand.new_topic(), new_application())))
    topic, orphan = stand.new_topic(), new_application()
    trap = Trap(path_ends("/commit"), stand.kill_spark, fault=Fault.LOST_REQUEST)
    stand.proxy.set_trap(trap)
    assert load(stand, options(stand, topic, orphan, transactionTimeout=ORPHAN_TIMEOUT_MS)) is None
    stand.lose_spark()
    with stand.reader() as client:
        while held_up(client, topic):
            pass
        # Readers go on when the last marker is written, just before the job is done.
        (job,) = jobs_of(client, orphan)
        while job["state"] == "aborting":
            (job,) = jobs_of(client, orphan)
    assert (job["state"], job["reason"]) == ("aborted", "timed_out")
    took_ms = job["elapsed_ms"]
    stand.note(f"the orphan was aborted {took_ms} ms after it began, its timeout is {ORPHAN_TIMEOUT_MS} ms")
    judge(stand, topic)


def the_service_is_killed(stand: Stand) -> None:
    """kill -9 and a new start while the load goes on."""
    topic = stand.new_topic()
    trap = at_random(stand, stand.restart_service)
    succeed(load(stand, options(stand, topic, new_application())))
    assert trap.sprung.is_set()
    judge(stand, topic, range(ROWS))


def a_zombie_writes(stand: Stand) -> None:
    """A worker's request is on its way when the worker dies, and arrives when the job is committed: it is refused."""
    topic, application = stand.new_topic(), new_application()

    def outlive_the_job() -> None:
        stand.spark.kill_workers()
        with stand.reader() as client:
            while [job["state"] for job in jobs_of(client, application)] != ["committed"]:
                pass

    late = stand.source.randint(4, REQUESTS // 2)

    def is_late_write(passing: Passing) -> bool:
        return passing.number >= late and path_ends("/record-batches")(passing)

    trap = stand.proxy.set_trap(Trap(is_late_write, outlive_the_job))
    succeed(load(stand, options(stand, topic, application)))
    trap.wait_answered()
    assert trap.status == 409
    judge(stand, topic, range(ROWS))


# Streams


class _Stream:
    """A query over a few files, each a batch."""

    def __init__(self, stand: Stand) -> None:
        self._stand = stand
        self.topic = stand.new_topic()
        directory = stand.directory / f"stream-{next(_numbers)}"
        self._command = {"do": "stream", "input": str(directory / "in"), "checkpoint": str(directory / "checkpoint")}
        (directory / "in").mkdir(parents=True)
        for number in range(FILES):
            lines = "".join(f"{row}\n" for row in range(number * FILE_ROWS, (number + 1) * FILE_ROWS))
            (directory / "in" / f"{number}.txt").write_text(lines)

    def run(self, **more: str) -> dict[str, Any] | None:
        """Until there are no more files; how it ended."""
        written = {"url": self._stand.proxy.url, "topic": self.topic, "batchBytes": str(BATCH_BYTES), **more}
        return self._stand.spark.call(**self._command, options=written)

    def judge(self) -> None:
        """Assert that every row is there once."""
        judge(self._stand, self.topic, range(FILES * FILE_ROWS))


@contextmanager
def _one_lost_commit(stand: Stand, fault: Fault) -> Iterator[None]:
    """Of a random batch, all requests to commit it."""
    spared = stand.source.randrange(FILES)
    seen: list[str] = []

    def rule(passing: Passing) -> Fault | None:
        if not passing.path.endswith("/commit"):
            return None
        if passing.path not in seen:
            seen.append(passing.path)
        return fault if seen.index(passing.path) == spared else None

    stand.proxy.rule = rule
    yield
    stand.proxy.reset()


def _broken_stream(stand: Stand, fault: Fault) -> None:
    stream = _Stream(stand)
    with _one_lost_commit(stand, fault):
        fail(stream.run(retries="1"))
    succeed(stream.run())
    stream.judge()


def a_stream_fails_before_its_commit(stand: Stand) -> None:
    """The commit of a random batch does not arrive, the query fails, and starts again from its checkpoint."""
    _broken_stream(stand, Fault.LOST_REQUEST)


def a_stream_fails_after_its_commit(stand: Stand) -> None:
    """A random batch is committed and its query is never told; it is run again from the checkpoint, and skipped."""
    _broken_stream(stand, Fault.LOST_ANSWER)


def a_worker_of_a_stream_is_killed(stand: Stand) -> None:
    """kill -9 of a Python worker of a query, which goes on."""
    stream = _Stream(stand)
    at_random(stand, lambda: stand.spark.kill_worker(stand.source), STREAM_REQUESTS)
    answer = stream.run()
    # The worker may have been the one in which the driver's side of the source lives.
    if answer != {"ok": True}:
        fail(answer)
        succeed(stream.run())
    stream.judge()


def a_stream_is_killed(stand: Stand) -> None:
    """All of Spark, at a random request; the query starts again from its checkpoint."""
    stream = _Stream(stand)
    at_random(stand, stand.kill_spark, STREAM_REQUESTS)
    assert stream.run() is None
    stand.lose_spark()
    succeed(stream.run())
    stream.judge()


IN_SHORT: tuple[Scenario, ...] = (
    a_lossy_network,
    a_commit_is_not_answered,
    the_service_is_killed,
    all_of_spark_is_killed,
)
"""What CI runs, in this order: the last one needs a second Spark."""

ALL: tuple[Scenario, ...] = (
    *IN_SHORT,
    workers_exit,
    workers_raise,
    a_worker_is_killed,
    a_load_fails,
    a_commit_does_not_arrive,
    the_same_version_again,
    a_zombie_writes,
    a_stream_fails_before_its_commit,
    a_stream_fails_after_its_commit,
    a_worker_of_a_stream_is_killed,
    a_stream_is_killed,
    an_orphan_is_aborted,
)
