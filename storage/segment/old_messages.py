"""Messages of magic 0 and 1 in a segment file, as a log directory of an old Kafka has them.

They are not read where they lie. But they are data, so they are told from damage and from the torn tail of a crash.
"""

from __future__ import annotations

from rollway.records import RecordFormatError, walk_entries
from rollway.records.message_set import ENTRY_HEAD_BYTES, MESSAGE_BYTES_MIN, read_message
from storage.disk.file_system import File

_MESSAGE_BYTES_MAX = 256 * 1024 * 1024
_SIZE_AT = 8
_MAGIC_AT = 16


def old_message_at(file: File, position: int, size_bytes: int) -> str | None:
    """What to say of a whole message of magic 0 or 1, its CRC right, at ``position``; ``None`` if there is none.

    ``size_bytes`` is where the file ends.

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
