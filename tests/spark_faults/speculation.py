"""Spark runs a slow task a second time beside itself, on another host, and both write all of their rows."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable

from tests.spark_faults.cluster import Gate
from tests.spark_faults.harness import ANSWER_SECONDS_MAX, Stand, jobs_of, rows_seen
from tests.spark_faults.lossy_proxy import Passing, path_ends
from tests.spark_faults.scenarios import ROWS, TASKS, Scenario, judge, load, new_application, options, succeed

SHARE = ROWS // TASKS


class _Finish:
    """Holds the answers that end the writing of the last two attempts, until both have written everything.

    The one with the place ``held`` among the two then waits until ``outlive`` returns; ``None``: neither does.
    """

    def __init__(self, held: int | None, outlive: Callable[[], None]) -> None:
        self._held = held
        self._outlive = outlive
        self._lock = threading.Lock()
        self._both = threading.Barrier(2)
        self._finished: list[int] = []
        self.rows: Counter[int] = Counter()
        """Rows that the service has acknowledged, by producer."""

    def __call__(self, passing: Passing, status: int) -> None:
        if status != 200 or not path_ends("/record-batches")(passing):
            return
        with self._lock:
            self.rows[passing.producer_id] += passing.rows
            if self.rows[passing.producer_id] < SHARE:
                return
            self._finished.append(passing.producer_id)
            place = len(self._finished) - TASKS
        if place < 0:
            return
        self._both.wait(ANSWER_SECONDS_MAX)
        if place == self._held:
            self._outlive()


def a_slow_task_is_copied(stand: Stand) -> None:
    """A task waits at a random row for its copy. When both have written everything, either of them is the winner.

    One of them, or neither, gets its last answer when the job is committed. Without a copy the load does not end.
    """
    topic, application = stand.new_topic(), new_application()
    slow, row = stand.source.randrange(TASKS), stand.source.randrange(SHARE)

    def outlive_the_job() -> None:
        with stand.reader() as client:
            while jobs_of(client, application)[0]["state"] in ("open", "committing"):
                pass

    finish = stand.proxy.hold = _Finish(stand.source.choice((None, 0, 1)), outlive_the_job)
    with Gate(2) as gate:
        fault = {"task": slow, "attempts": 2, "row": row, "how": "wait", "gate": gate.port}
        succeed(load(stand, options(stand, topic, application), faults=[fault]))
    assert sorted(finish.rows.values()) == [SHARE] * (TASKS + 1), finish.rows
    judge(stand, topic, range(ROWS))
    duplicates = Counter(str(number) for number in range(slow * SHARE, (slow + 1) * SHARE))
    with stand.reader() as client:
        assert rows_seen(client, topic, "read_uncommitted") - rows_seen(client, topic) == duplicates
    _check_that_spark_speculated(stand, slow)


def _check_that_spark_speculated(stand: Stand, slow: int) -> None:
    answer = stand.spark.call(do="attempts")
    assert answer is not None
    assert answer["ok"], answer
    attempts = answer["attempts"]
    assert Counter(each["task"] for each in attempts) == Counter([*range(TASKS), slow]), attempts
    original, copy = sorted((each for each in attempts if each["task"] == slow), key=lambda each: each["attempt"])
    assert [each for each in attempts if each["is_copy"]] == [copy], attempts
    assert original["host"] != copy["host"], attempts
    winner = "copy" if copy["status"] == "SUCCESS" else "original"
    assert [original["status"], copy["status"]].count("SUCCESS") == 1, attempts
    stand.note(f"task {slow} ran on {original['host']}, its copy on {copy['host']}: the {winner} won")


SCENARIOS: tuple[Scenario, ...] = (a_slow_task_is_copied,)
