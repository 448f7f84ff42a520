"""The headers of a fetch response: limits of the log, where to go on, and which caches may keep the response."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from app.engine.partitions import Limits, Partition
from app.engine.reading import ReadOutcome
from log_model.offsets import Offset
from log_model.reads import FetchData

IMMUTABLE = "max-age=60, immutable"
"""How long caches keep stored records, which never change. But records may be deleted, and a topic that is created
again has the same URLs. So after a minute caches ask again, with the ETag of the response.
"""
REVALIDATE = "no-cache"
NO_STORE = "no-store"


class Asked(Protocol):
    """The parameters of a fetch that say whether its range is fixed."""

    @property
    def offset(self) -> object: ...

    @property
    def until(self) -> int | None: ...


RECORD_FORM = "pairs"
"""The form of records in JSON, for ETags. It changes with that form, so that no cache keeps JSON of the form before."""


def fetched_headers(
    partition: Partition,
    outcome: ReadOutcome,
    next_offset: Offset,
    asked: Asked,
    form: str,
    others: Mapping[str, str],
    *,
    is_exact: bool = False,
    may_be_kept: bool = True,
) -> dict[str, str]:
    """Return the headers of a response with the records of ``outcome``, which end before ``next_offset``.

    Once the range is complete and durable they have an ETag. ``form`` is the form of the records, as the ETag names it.
    With ``is_exact`` equal tags mean equal bytes. ``others`` are headers to add.
    """
    headers = {
        **offset_headers(outcome.limits),
        "Next-Offset": str(next_offset),
        "Cache-Control": NO_STORE,
        "Vary": "Accept",
        **others,
    }
    if outcome.end is not None and may_be_kept and is_durable(partition, max(outcome.end, next_offset)):
        etag = f'"{partition.topic_id}-{partition.name.partition}-{outcome.start}-{next_offset}-{form}"'
        if not is_exact:
            # The same records, but the watermarks beside them may have moved.
            etag = f"W/{etag}"
        is_fixed = isinstance(asked.offset, int) and asked.until is None and not partition.config.compacts
        headers |= {"ETag": etag, "Cache-Control": IMMUTABLE if is_fixed else REVALIDATE}
    return headers


def aborted_header(data: FetchData) -> dict[str, str]:
    """Return the header with the aborted transactions that a read for committed records lists; may be empty."""
    if data.aborted is None:
        return {}
    return {"Aborted-Transactions": ", ".join(f"{one.producer_id}/{one.first_offset}" for one in data.aborted)}


def is_durable(partition: Partition, end: int) -> bool:
    """Return whether caches may keep the records below ``end``: no power cut can replace them by other records."""
    return end <= partition.recovery_point


def offset_headers(limits: Limits) -> dict[str, str]:
    """Return the headers with the limits of a partition."""
    return {
        "Log-Start-Offset": str(limits.log_start_offset),
        "High-Watermark": str(limits.high_watermark),
        "Last-Stable-Offset": str(limits.last_stable_offset),
    }
