"""Messages of magic 0 and 1 in a segment file, as in a log directory of an old Kafka.

Rollway does not read them in the file. They are data, so they are distinguished from damage and a crash's torn tail.
"""

from __future__ import annotations

from rollway.records import RecordFormatError, walk_entries
from rollway.records.message_sets.messages import ENTRY_HEAD_BYTES, MESSAGE_BYTES_MIN, read_message
from storage.disk.file_system import File

_MESSAGE_BYTES_MAX = 256 * 1024 * 1024
_SIZE_AT = 8
_MAGIC_AT = 16


def old_message_at(file: File, position: int, size_bytes: int) -> str | None:
    """Return the error text for a whole message of magic 0 or 1, CRC right, at ``position``; ``None`` without one.

    ``size_bytes`` is the length of the file.

    Raises:
        OSError: the disk refused.
    """
    if size_bytes - position < ENTRY_HEAD_BYTES + MESSAGE_BYTES_MIN:
        return None
    head = file.read(position, ENTRY_HEAD_BYTES + MESSAGE_BYTES_MIN)
    if len(head) <= _MAGIC_AT or head[_MAGIC_AT] > 1:
        return None
    message_bytes = int.from_bytes(head[_SIZE_AT : _SIZE_AT + 4], "big", signed=True)
    entry_bytes = ENTRY_HEAD_BYTES + message_bytes
    if not MESSAGE_BYTES_MIN <= message_bytes <= min(size_bytes - position - ENTRY_HEAD_BYTES, _MESSAGE_BYTES_MAX):
        return None
    content = memoryview(file.read(position, entry_bytes))
    try:
        magic = read_message(content, next(walk_entries(content))).magic
    except (RecordFormatError, StopIteration):
        return None
    return (
        f"unsupported message format: magic {magic}; to convert the messages, produce the bytes from there on as "
        "application/vnd.kafka.message-set"
    )
