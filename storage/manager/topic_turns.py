"""Changes of one topic take turns. Changes of different topics run side by side."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator

from log_model.errors import InvalidTopicError, ShuttingDownError


class TopicTurns:
    """The names of the topics that are being changed, each by one thread. Thread: any."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._busy: set[str] = set()
        self._made: set[str] = set()
        self._is_over = False

    @contextlib.contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Wait until no other thread changes the topic, and keep others from it in the context.

        Raises:
            ShuttingDownError: ``end`` was called.
        """
        with self._changed:
            self._changed.wait_for(lambda: name not in self._busy)
            if self._is_over:
                raise ShuttingDownError("the service is stopping")
            self._busy.add(name)
        try:
            yield
        finally:
            with self._changed:
                self._busy.discard(name)
                self._changed.notify_all()

    @contextlib.contextmanager
    def making(self, name: str, others: Iterable[str]) -> Iterator[None]:
        """Reserve the name of a new topic. It must differ from ``others``, and from other names that are being made, in
        more than '.' and '_': ``a.b`` and ``a_b`` collide in metrics, as in Kafka.

        Raises:
            InvalidTopicError: it collides with such a name.
        """
        collides = name.replace(".", "_")
        with self._changed:
            for other in (*others, *self._made):
                if other.replace(".", "_") == collides:
                    raise InvalidTopicError(f"topic {name} collides with {other}: they differ only in '.' and '_'")
            self._made.add(name)
        try:
            yield
        finally:
            self._made.discard(name)

    def end(self) -> None:
        """Wait for the changes under way, and refuse later ones."""
        with self._changed:
            self._is_over = True
            self._changed.wait_for(lambda: not self._busy)
