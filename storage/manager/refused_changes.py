"""Changes of topics that the system refused half way: continued or undone as soon as it permits."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from log_model.errors import UnavailableError, refused_by_system
from storage.manager.topic_turns import TopicTurns


class _Half(NamedTuple):
    """The remaining work, and its description in a message: "topic x <pending>"."""

    pending: str
    work: Callable[[], None]


class RefusedChanges:
    """The remaining work for each topic. Every step is repeatable, and a start finishes the work of a killed process.

    Thread: any; one at a time for each topic, see ``TopicTurns``.
    """

    def __init__(self) -> None:
        self._halves: dict[str, _Half] = {}

    def finish(self, name: str, pending: str, work: Callable[[], None]) -> None:
        """Do ``work`` for the topic. If the system refuses it, ``go_on`` or the next start continues.

        Raises:
            UnavailableError: the system refused; a part may be done.
        """
        self._halves[name] = _Half(pending, work)
        self.go_on(name)

    def go_on(self, name: str) -> None:
        """Finish refused work; call before the name or the topic is used again. Raises as ``finish``."""
        half = self._halves.get(name)
        if half is None:
            return
        try:
            half.work()
        except OSError as error:
            raise refused_by_system(f"topic {name} {half.pending}", error) from error
        del self._halves[name]

    def go_on_with_all(self, turns: TopicTurns) -> None:
        """Finish the refused work of all topics, each in its turn. Raises as ``finish``, after all were tried."""
        failure: UnavailableError | None = None
        for name in tuple(self._halves):
            try:
                with turns.of(name):
                    self.go_on(name)
            except UnavailableError as error:
                failure = error
        if failure is not None:
            raise failure
