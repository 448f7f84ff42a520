"""The records of ``__load_jobs``: text keys and JSON values.

::

    job/<job id>                 everything about a job
    task/<job id>/<task>         {"version": 1, "producer_id"}: the producer of a task of an idempotent job
    application/<application>    {"version": 1, "forgotten_version", "forgotten_ms"}: the rest of forgotten jobs

The last record of a key counts. A null value says that the key is forgotten. A task counts while its job is known and
not over, so no record forgets a task.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from app.engine.state import Change
from app.load_jobs.state import AbortReason, Forgotten, JobMode, JobState, JobTable, Loaded, LoadJob
from log_model.errors import CorruptionError
from log_model.names import PartitionName

TOPIC = "__load_jobs"
_VERSION = 1


def job_change(job: LoadJob) -> Change:
    """Return the record with the whole content of ``job``."""
    loaded = [[*each.partition, each.rows, each.size_bytes] for each in job.loaded]
    value = {
        "version": _VERSION,
        "application_id": job.application_id,
        "application_version": job.version,
        "mode": job.mode,
        "timeout_ms": job.timeout_ms,
        "topics": job.topics,
        "begun_ms": job.begun_ms,
        "updated_ms": job.updated_ms,
        "state": job.state,
        "winners": job.winners,
        "loaded": loaded,
        "rows": job.rows,
        "size_bytes": job.size_bytes,
        "reason": job.reason,
        "task_count": job.task_count,
        "driver_id": job.driver_id,
        "once": job.once,
    }
    return f"job/{job.job_id}".encode(), _dump(value)


def job_forgotten(job_id: str) -> Change:
    """Return the record that forgets a job."""
    return f"job/{job_id}".encode(), None


def task_change(job_id: str, task: int, producer_id: int) -> Change:
    """Return the record that gives a task its producer."""
    return f"task/{job_id}/{task}".encode(), _dump({"version": _VERSION, "producer_id": producer_id})


def application_change(application_id: str, forgotten: Forgotten | None) -> Change:
    """Return the record of the rest of an application's forgotten jobs; see ``Forgotten``."""
    value = None
    if forgotten is not None:
        value = _dump({"version": _VERSION, "forgotten_version": forgotten.version, "forgotten_ms": forgotten.at_ms})
    return f"application/{application_id}".encode(), value


def all_changes(table: JobTable) -> Iterator[Change]:
    """Yield every record that counts, each made when it is needed."""
    for job in table:
        yield job_change(job)
    for job_id, tasks in table.tasks.items():
        for task, producer_id in tasks.items():
            yield task_change(job_id, task, producer_id)
    for name, forgotten in table.forgotten.items():
        yield application_change(name, forgotten)


def read_table(known: Mapping[bytes, bytes]) -> JobTable:
    """Return the table that the records describe.

    Raises:
        CorruptionError: a record is none of this topic's.
    """
    table = JobTable()
    for key, value in known.items():
        try:
            _read(table, key.decode(), json.loads(value))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise CorruptionError(f"a record of {TOPIC} is damaged: {key[:100]!r}: {error!r}") from error
    for job_id in tuple(table.tasks):
        job = table.find(job_id)
        if job is None or job.is_over:
            table.drop_tasks(job_id)
    # Logs of earlier revisions have these records in another order.
    for name, forgotten in sorted(table.forgotten.items(), key=lambda left: left[1].at_ms):
        table.keep_forgotten(name, forgotten)
    return table


def _read(table: JobTable, key: str, value: dict[str, Any]) -> None:
    if value["version"] != _VERSION:
        raise ValueError(f"version {value['version']!r} is not {_VERSION}")
    kind, _, name = key.partition("/")
    match kind:
        case "job":
            table.put(_job(name, value))
        case "task":
            job_id, _, task = name.partition("/")
            table.tasks.setdefault(job_id, {})[int(task)] = int(value["producer_id"])
        case "application":
            forgotten = Forgotten(int(value["forgotten_version"]), int(value["forgotten_ms"]))
            table.keep_forgotten(name, forgotten)
        case _:
            raise ValueError("it is of no kind that is known")


def _job(job_id: str, value: dict[str, Any]) -> LoadJob:
    return LoadJob(
        job_id,
        application_id=str(value["application_id"]),
        version=int(value["application_version"]),
        mode=JobMode(value["mode"]),
        timeout_ms=int(value["timeout_ms"]),
        topics=tuple(value["topics"]),
        begun_ms=int(value["begun_ms"]),
        updated_ms=int(value["updated_ms"]),
        state=JobState(value["state"]),
        winners=tuple(value["winners"]),
        loaded=tuple(Loaded(PartitionName(topic, number), *counts) for topic, number, *counts in value["loaded"]),
        rows=int(value["rows"]),
        size_bytes=int(value["size_bytes"]),
        reason=None if value["reason"] is None else AbortReason(value["reason"]),
        task_count=int(value["task_count"]),
        driver_id=value.get("driver_id"),
        once=bool(value.get("once", False)),
    )


def _dump(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
