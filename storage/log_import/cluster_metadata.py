"""The topics of a KRaft cluster, from its metadata log. Each broker keeps a copy: ``__cluster_metadata-0``.

The log has records of many types. Each is a frame version (1), the type and the type's version, all unsigned varints,
and its fields. Four types matter here. A snapshot (``<end offset>-<epoch>.checkpoint``) stands for all records below
its end offset.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field
from pathlib import Path

from log_model.errors import CorruptionError
from rollway.records import RecordBatch, RecordFormatError, decode_batch, parse_header
from storage.disk.file_names import LOG_SUFFIX, parse_offset_file_name
from storage.disk.file_system import FileSystem
from storage.disk.whole_files import read_file

CLUSTER_METADATA = "__cluster_metadata-0"
_FILE_BYTES_MAX = 1 << 30
_SNAPSHOT_NAME = re.compile(r"[0-9]{20}-[0-9]{10}\.checkpoint")
_OFFSET_DIGITS = 20
_FRAME_VERSION = 1
_TOPIC, _PARTITION, _CONFIG, _REMOVE_TOPIC = 2, 3, 4, 9
_TOPIC_RESOURCE = 2
_ID_BYTES = 16


@dataclass(slots=True)
class ClusterTopic:
    """A topic as the cluster knows it. ``settings`` are its own, as text; brokers' defaults are not among them."""

    name: str
    topic_id: str
    partitions: set[int] = field(default_factory=set)
    settings: dict[str, str] = field(default_factory=dict)


def read_cluster_topics(file_system: FileSystem, directory: Path) -> dict[str, ClusterTopic] | None:
    """Return the topics of the cluster by name, from the metadata log in ``directory``; ``None`` if it has no such log.

    Raises:
        CorruptionError: the log is damaged below its end, or has records of an unknown form.
        OSError: the disk refused.
    """
    if not file_system.is_directory(directory):
        return None
    names = file_system.list_directory(directory)
    state = _ClusterState()
    end_offset = 0
    newest = max(filter(_SNAPSHOT_NAME.fullmatch, names), default=None)
    if newest is not None:
        end_offset = int(newest[:_OFFSET_DIGITS])
        state.apply_file(file_system, directory / newest, 0)
    for name in sorted(names):
        parsed = parse_offset_file_name(name)
        if parsed is not None and (parsed.suffix, parsed.state) == (LOG_SUFFIX, ""):
            state.apply_file(file_system, directory / name, end_offset)
    return state.topics


class _ClusterState:
    """The topics after some of the log's records."""

    def __init__(self) -> None:
        self.topics: dict[str, ClusterTopic] = {}
        self._by_id: dict[str, ClusterTopic] = {}
        self._settings: dict[str, dict[str, str]] = {}

    def apply_file(self, file_system: FileSystem, path: Path, from_offset: int) -> None:
        """Apply the records of a segment or snapshot whose batches begin at ``from_offset`` or above."""
        content = memoryview(read_file(file_system, path, _FILE_BYTES_MAX))
        try:
            for batch in _whole_batches(content):
                if batch.header.is_control or batch.header.base_offset < from_offset:
                    continue
                batch.check_crc()
                for value in decode_batch(batch).values.to_list():
                    self._apply(_Fields(value or b""))
        except (RecordFormatError, ValueError) as error:
            raise CorruptionError(f"{path} is not a log of cluster metadata that can be read: {error}") from error
        for name, topic in self.topics.items():
            topic.settings = dict(self._settings.get(name, {}))

    def _apply(self, fields: _Fields) -> None:
        if (version := fields.unsigned_varint()) != _FRAME_VERSION:
            raise ValueError(f"a record has the frame version {version}, not {_FRAME_VERSION}")
        kind, _ = fields.unsigned_varint(), fields.unsigned_varint()
        if kind == _TOPIC:
            topic = ClusterTopic(fields.text() or "", fields.topic_id())
            self.topics[topic.name] = self._by_id[topic.topic_id] = topic
        elif kind == _PARTITION:
            number, topic_id = fields.int32(), fields.topic_id()
            if topic_id in self._by_id:
                self._by_id[topic_id].partitions.add(number)
        elif kind == _CONFIG:
            resource, name, setting, value = fields.int8(), fields.text() or "", fields.text() or "", fields.text()
            if resource == _TOPIC_RESOURCE:
                self._change_setting(name, setting, value)
        elif kind == _REMOVE_TOPIC:
            removed = self._by_id.pop(fields.topic_id(), None)
            if removed is not None:
                del self.topics[removed.name]
                self._settings.pop(removed.name, None)

    def _change_setting(self, name: str, setting: str, value: str | None) -> None:
        settings = self._settings.setdefault(name, {})
        if value is None:
            settings.pop(setting, None)
        else:
            settings[setting] = value


def _whole_batches(content: memoryview) -> list[RecordBatch]:
    """Return the batches up to the end of the log, which a killed broker may have left inside a batch."""
    batches = []
    position = 0
    while position < len(content):
        try:
            header = parse_header(content, position)
        except RecordFormatError:
            break
        end = position + header.size_bytes
        if end > len(content):
            break
        batches.append(RecordBatch(content[position:end]))
        position = end
    return batches


class _Fields:
    """The fields of one record, read in order.

    Raises:
        ValueError: the record ends inside of a field.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def _take(self, count: int) -> bytes:
        start, self._position = self._position, self._position + count
        if self._position > len(self._data):
            raise ValueError("a record ends inside of a field")
        return self._data[start : self._position]

    def unsigned_varint(self) -> int:
        number = shift = 0
        while True:
            (byte,) = self._take(1)
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7
            if shift > 28:
                raise ValueError("a varint has more than five bytes")

    def int8(self) -> int:
        return int.from_bytes(self._take(1), "big", signed=True)

    def int32(self) -> int:
        return int.from_bytes(self._take(4), "big", signed=True)

    def topic_id(self) -> str:
        """Return an id as ``partition.metadata`` has it."""
        return base64.urlsafe_b64encode(self._take(_ID_BYTES)).rstrip(b"=").decode()

    def text(self) -> str | None:
        """Read a compact string: its length plus 1, 0 for null."""
        length = self.unsigned_varint()
        return None if length == 0 else self._take(length - 1).decode()
