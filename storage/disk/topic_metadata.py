"""Two small files that name the owner of data: ``partition.metadata`` (topic) and ``meta.properties`` (cluster)."""

from __future__ import annotations

import base64
import binascii
import re
import uuid
from dataclasses import dataclass
from pathlib import Path

from log_model.errors import CorruptionError
from storage.disk.file_names import META_PROPERTIES, PARTITION_METADATA
from storage.disk.file_system import FileSystem
from storage.disk.whole_files import read_file, read_text, write_file_atomically

_SIZE_BYTES_MAX = 64 * 1024
_NUMBER = re.compile(r"[0-9]{1,10}", re.ASCII)
_ID_LENGTH = 22
_PLAIN_VALUE = re.compile(r"[a-zA-Z0-9._-]{1,249}", re.ASCII)
_ESCAPED = re.compile(r"\\(.)")
_SPLIT_PROPERTY = re.compile(r"\s*[=:]\s*|\s+")
_METADATA_VERSION = 0
_PROPERTIES_VERSION = 1
_JOURNAL_LINES = (
    "\n# Rollway runs, or was not stopped cleanly: the segments may lack records that its journal has.\n"
    "version=1000\n"
    "rollway.journal.id="
)
_META_REMEDY = "restore it from a backup, or move it away: the directory then gets another cluster id"


class CorruptMetadataError(CorruptionError):
    """``partition.metadata`` or ``meta.properties`` has been damaged. The message names the file."""


def new_topic_id() -> str:
    """Make an id for a topic, a cluster or a directory: 22 characters, url-safe base64 of a random UUID.

    The id is never one of the two that Kafka reserves: those are almost all zero bits, and a random UUID holds its
    version. It never begins with a dash, which command lines take for an option.
    """
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes)[:_ID_LENGTH].decode()
        if not text.startswith("-"):
            return text


def is_topic_id(text: str) -> bool:
    """Return whether ``text`` is 22 characters of url-safe base64 for 16 bytes that are not all zero."""
    if len(text) != _ID_LENGTH or not text.isascii():
        return False
    try:
        identity = base64.b64decode(text + "==", altchars=b"-_", validate=True)
    except binascii.Error:
        return False
    return any(identity) and base64.urlsafe_b64encode(identity)[:_ID_LENGTH].decode() == text


def read_partition_metadata(file_system: FileSystem, directory: Path) -> str | None:
    """Read the id of the topic to which a partition's directory belongs; ``None`` without the file.

    File ``partition.metadata``: ``version: 0\\ntopic_id: <22 characters>``, without a final line end.

    Raises:
        CorruptMetadataError: damaged, another version, or an impossible id.
    """
    path = directory / PARTITION_METADATA
    text = read_text(file_system, path, _SIZE_BYTES_MAX, CorruptMetadataError)
    if text is None:
        return None
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    if len(lines) != 2 or lines[0] != f"version: {_METADATA_VERSION}" or not lines[1].startswith("topic_id: "):
        raise CorruptMetadataError(f"{path}: not the lines 'version: {_METADATA_VERSION}' and 'topic_id: ...'")
    topic_id = lines[1].removeprefix("topic_id: ")
    if not is_topic_id(topic_id):
        raise CorruptMetadataError(f"{path}: {topic_id[:100]!r} is no topic id")
    return topic_id


def write_partition_metadata(file_system: FileSystem, directory: Path, topic_id: str) -> None:
    """Write ``partition.metadata`` atomically; call before the first append. Durable: on return.

    Raises:
        ValueError: ``topic_id`` is no topic id.
    """
    write_file_atomically(file_system, directory / PARTITION_METADATA, partition_metadata(topic_id))


def partition_metadata(topic_id: str) -> bytes:
    """Return the content of ``partition.metadata`` for a partition of this topic.

    Raises:
        ValueError: ``topic_id`` is no topic id.
    """
    if not is_topic_id(topic_id):
        raise ValueError(f"{topic_id!r} is no topic id")
    return f"version: {_METADATA_VERSION}\ntopic_id: {topic_id}".encode()


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """The cluster and the node that own a log directory. Old files have no ``directory_id``.

    ``journal_id``: the journal whose entries the segments may lack, so that nothing else may write to them.
    ``mark_journal`` sets it.
    """

    cluster_id: str
    node_id: int
    directory_id: str | None = None
    journal_id: str | None = None


def read_meta_properties(file_system: FileSystem, directory: Path) -> MetaProperties | None:
    """Read ``meta.properties`` of a log directory; ``None`` without the file.

    File: Java properties. ``version=1`` has ``cluster.id``, ``node.id`` and optionally ``directory.id``. ``version=0``
    has ``broker.id`` instead of ``node.id``; ``cluster.id`` is optional there, and empty here if absent. Behind them
    may be the lines of ``mark_journal``.

    Raises:
        CorruptMetadataError: damaged, another version, or a value is missing.
    """
    path = directory / META_PROPERTIES
    try:
        text = read_text(file_system, path, _SIZE_BYTES_MAX, CorruptMetadataError)
    except CorruptMetadataError as error:
        raise CorruptMetadataError(f"{error}; {_META_REMEDY}") from error
    if text is None:
        return None
    text, is_marked, mark = text.partition(_JOURNAL_LINES)
    values = _parse_properties(text)
    version = values.get("version")
    if version not in {"0", "1"}:
        raise CorruptMetadataError(f"{path}: version is {version!r}, not 0 or 1; {_META_REMEDY}")
    node_key = "node.id" if version == "1" else "broker.id"
    node_id = values.get(node_key, "")
    if _NUMBER.fullmatch(node_id) is None or int(node_id) >= 2**31:
        raise CorruptMetadataError(f"{path}: {node_key} is missing or no number from 0 to {2**31 - 1}; {_META_REMEDY}")
    cluster_id = values.get("cluster.id", "")
    if version == "1" and not cluster_id:
        raise CorruptMetadataError(f"{path}: cluster.id is missing; {_META_REMEDY}")
    journal_id = mark.strip() if is_marked else None
    if journal_id is not None and not is_topic_id(journal_id):
        raise CorruptMetadataError(f"{path}: {journal_id[:100]!r} is no journal id; restore the file from a backup")
    return MetaProperties(cluster_id, int(node_id), values.get("directory.id"), journal_id)


def write_meta_properties(file_system: FileSystem, directory: Path, properties: MetaProperties) -> None:
    """Write ``meta.properties``, version 1, atomically, and without a journal. Durable: on return.

    Raises:
        ValueError: an id has characters that a properties file would have to escape, or a number is negative.
    """
    values = {"version": str(_PROPERTIES_VERSION), "cluster.id": properties.cluster_id}
    values["node.id"] = str(properties.node_id)
    if properties.directory_id is not None:
        values["directory.id"] = properties.directory_id
    for key, value in values.items():
        if _PLAIN_VALUE.fullmatch(value) is None:
            raise ValueError(f"{key} cannot be {value!r}")
    content = "".join(f"{key}={value}\n" for key, value in values.items())
    write_file_atomically(file_system, directory / META_PROPERTIES, content.encode())


def mark_journal(file_system: FileSystem, directory: Path, journal_id: str | None) -> None:
    """Note in ``meta.properties`` whose entries the segments may lack; ``None``: they lack none. Durable: on return.

    The lines of the file stay as they are. Lines behind them give it a version that brokers, and services without a
    journal, refuse.
    """
    path = directory / META_PROPERTIES
    content = read_file(file_system, path, _SIZE_BYTES_MAX).partition(_JOURNAL_LINES.encode())[0]
    if journal_id is not None:
        content += f"{_JOURNAL_LINES}{journal_id}\n".encode()
    write_file_atomically(file_system, path, content)


def _parse_properties(text: str) -> dict[str, str]:
    """Parse the part of Java's format that Kafka's files use: comments, ``key=value``, ``\\`` before a character."""
    values = {}
    for line in text.splitlines():
        stripped = line.lstrip()
        if not stripped or stripped[0] in "#!":
            continue
        key, _, value = _SPLIT_PROPERTY.sub("=", stripped, count=1).partition("=")
        values[key] = _ESCAPED.sub(r"\1", value)
    return values
