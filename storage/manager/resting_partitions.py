"""Which partitions rest: decided at a start, kept up to date during a run, and written down at a clean stop.

After a clean stop ``resting-partitions`` has the states of all that may rest, and the marker of the stop names that
file. After an unclean stop those rest that ``opened-partitions`` does not name, if it belongs to the file, and if the
journal's mark in ``meta.properties`` proves that no other program has written since. Otherwise all are opened.
"""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Iterable
from pathlib import Path

from log_model.errors import NO_ROOM_ERRNOS, CorruptionError
from log_model.names import PartitionName
from storage.disk.ballast import Ballast
from storage.disk.file_names import CLEAN_SHUTDOWN_MARKER
from storage.disk.file_system import FileSystem
from storage.disk.topic_metadata import new_topic_id
from storage.disk.whole_files import read_file, write_file_atomically
from storage.log.partition_log import PartitionLog
from storage.manager.opened_partitions import OpenedList, OpenedPartitions
from storage.manager.partition_logs import PartitionLogs
from storage.manager.resting_states import NEW, RestingFile, RestingState, RestingStates, state_of
from storage.manager.topic_registry import TopicRecord, TopicState

_logger = logging.getLogger(__name__)

RESTING = "resting-partitions"
OPENED = "opened-partitions"
_MARKER_BYTES_MAX = 64 * 1024
_MEMBER = "rollwayRestingPartitions"


class RestingPartitions:
    """The two files of one data directory, and the marker of a clean stop. Thread: one at a time; ``opened``: any.

    Attributes:
        opened: the list of the partitions that may have changed in this run.
        opened_path: its file. A run that keeps no list must remove that of an earlier run.
    """

    def __init__(self, file_system: FileSystem, own_directory: Path, logs_directory: Path, ballast: Ballast) -> None:
        self.opened = OpenedPartitions(file_system, own_directory / OPENED)
        self.opened_path = own_directory / OPENED
        self._file = RestingFile(file_system, own_directory / RESTING)
        self._marker = logs_directory / CLEAN_SHUTDOWN_MARKER
        self._file_system = file_system
        self._ballast = ballast
        self._states: dict[str, RestingStates] = {}
        self._list: OpenedList | None = None

    # The start

    def find(self, *, was_clean: bool, is_marked: bool, is_empty: bool) -> None:
        """Read what the last stop left.

        ``is_marked``: it was unclean, and the journal's mark is there; ``is_empty``: there are no topics.

        Raises:
            OSError: the disk refused.
        """
        if is_empty:
            try:
                self._list = OpenedList(self._write(()))
            except OSError as error:
                _logger.warning("after a crash all partitions will be opened: %s", error)
            return
        content = self._file.read() if was_clean or is_marked else None
        if content is None:
            return
        content_id, states = content
        found = OpenedList(self._marked_id()) if was_clean else self.opened.read()
        if found is not None and found.resting_id == content_id:
            self._list, self._states = found, states

    def _marked_id(self) -> str:
        try:
            return str(json.loads(read_file(self._file_system, self._marker, _MARKER_BYTES_MAX)).get(_MEMBER, ""))
        except (ValueError, AttributeError, RecursionError):
            # The marker of another program.
            return ""

    @property
    def is_known(self) -> bool:
        """Whether the last stop has left states that hold."""
        return self._list is not None

    def state_of(self, record: TopicRecord, name: PartitionName) -> RestingState | None:
        """Return the state of a partition that may rest; ``None`` if it must be opened."""
        topic_id, number = record.topic_id, name.partition
        is_made = record.state is TopicState.READY and record.was_ready(name)
        if self._list is None or not is_made or self._list.has(topic_id, number):
            return None
        state = self._states[topic_id].get(number) if topic_id in self._states else None
        return NEW if state is None and self._list.is_new(topic_id, number) else state

    def begin(self, records: Iterable[TopicRecord]) -> None:
        """Begin the list of this run with those partitions of these topics that must be opened.

        Raises:
            OSError: the disk refused. A full disk does not matter before the first change of a partition.
        """
        assert self._list is not None
        for record in records:
            for name in record.partition_names():
                if self.state_of(record, name) is None:
                    self._list.add(record.topic_id, name.partition)
        try:
            self._ballast.run(functools.partial(self.opened.begin, self._list))
        except OSError as error:
            if error.errno not in NO_ROOM_ERRNOS:
                raise

    # The stop

    def mark_clean(self, topics: Iterable[tuple[str, PartitionLogs]]) -> None:
        """Write the states of all partitions, and then the marker of a clean stop. Durable: on return.

        The caller has closed all logs.

        Raises:
            OSError: the disk refused.
        """
        content_id = self._write([(topic_id, _states_of(logs)) for topic_id, logs in topics])
        content = {"version": 0, "brokerEpoch": -1, _MEMBER: content_id}
        write_file_atomically(self._file_system, self._marker, json.dumps(content).encode())

    def _write(self, topics: Iterable[tuple[str, RestingStates]]) -> str:
        content_id = new_topic_id()
        self._ballast.run(lambda: self._file.write(content_id, topics))
        return content_id


def _states_of(logs: PartitionLogs) -> RestingStates:
    states = RestingStates()
    for number in range(len(logs)):
        seen = logs.seen(number)
        states.add(seen if isinstance(seen, RestingState) else _state_or_none(seen))
    return states


def _state_or_none(log: PartitionLog) -> RestingState | None:
    try:
        return state_of(log)
    except (OSError, CorruptionError) as error:
        _logger.warning("%s will be opened at the next start: %s", log.name, error)
        return None
