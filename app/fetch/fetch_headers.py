"""What the headers of a fetch's answer say: limits of the log, where to go on, and who may keep the answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from app.fetch.fetch_range import FetchRange
from app.fetch.fetching import offset_headers
from log_model.offsets import Offset
from log_model.reads import FetchData
from storage.log.log_snapshot import LogSnapshot
from storage.log.partition_log import PartitionLog

IMMUTABLE = "max-age=60, immutable"
"""Nothing changes what is stored, but a topic made anew has the same URLs, and records are deleted: after a minute
caches ask again, with its ETag."""
REVALIDATE = "no-cache"
NO_STORE = "no-store"


class Asked(Protocol):
    """Of the parameters of a fetch, those that say whether its range is fixed."""

    @property
    def offset(self) -> object: ...

    @property
    def until(self) -> int | None: ...


RECORD_FORM = "pairs"
"""How records stand in JSON, for ETags; it changes when that does, so that no cache keeps the JSON of before."""


def fetched_headers(
    log: PartitionLog,
    snapshot: LogSnapshot,
    wanted: FetchRange,
    next_offset: Offset,
    asked: Asked,
    form: str,
    others: Mapping[str, str],
    *,
    is_exact: bool = False,
    may_be_kept: bool = True,
) -> dict[str, str]:
    """The headers of an answer with the records of ``wanted``, which end before ``next_offset``.

    Once the range is complete and durable they have an ETag; ``form`` is what that names beside the records. With
    ``is_exact`` equal tags mean equal bytes. ``others`` are put beside them.
    """
    headers = {
        **offset_headers(snapshot),
        "Next-Offset": str(next_offset),
        "Cache-Control": NO_STORE,
        "Vary": "Accept",
        **others,
    }
    if wanted.end is not None and may_be_kept and is_durable(log, max(wanted.end, next_offset)):
        etag = f'"{log.topic_id}-{log.name.partition}-{wanted.start}-{next_offset}-{form}"'
        if not is_exact:
            # The same records, but the watermarks beside them may have moved.
            etag = f"W/{etag}"
        is_fixed = isinstance(asked.offset, int) and asked.until is None and not log.config.compacts
        headers |= {"ETag": etag, "Cache-Control": IMMUTABLE if is_fixed else REVALIDATE}
    return headers


def aborted_header(data: FetchData) -> dict[str, str]:
    """The aborted transactions that a read for committed records lists."""
    if data.aborted is None:
        return {}
    return {"Aborted-Transactions": ", ".join(f"{one.producer_id}/{one.first_offset}" for one in data.aborted)}


def is_durable(log: PartitionLog, end: int) -> bool:
    """Whether records below ``end`` may be kept by caches: a power cut does not take them, to be written anew."""
    return end <= log.recovery_point
