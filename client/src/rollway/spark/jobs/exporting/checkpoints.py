"""The progress of an export, in files beside the exported ones, so that every record is exported once.

``checkpoint.json`` has the offsets up to which finished runs have exported. ``run.json`` exists while a run is under
way, and has the offsets that the run exports. A run writes to a separate folder in ``staging``, then moves its files to
their folders under names with the number of the run, then replaces the checkpoint, then removes ``run.json``. The run
after one that was killed finds ``run.json``. With ``"staged": true`` it finishes the moves (a moved file stays), else
it exports the range again.

``lock.json`` exists while a run is under way: see ``export_lock``.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from rollway.spark.jobs.errors import JobError
from rollway.spark.jobs.exporting.export_lock import ExportLock
from rollway.spark.jobs.files.hadoop_files import HadoopFiles

FOLDER = "_rollway"
"""Name of the folder. Spark and other readers ignore names that begin with an underscore."""
_VERSION = 1

Content = TypeVar("Content")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportCheckpoint:
    """The state of an export: the next offsets to export. ``run`` counts from 1, and is 0 before the first records."""

    topic: str
    topic_id: str
    run: int
    offsets: Mapping[int, int]
    rows: int
    """Number of records of all runs together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunIntent:
    """The range that a run is about to export: ``[starts, ends)`` of each partition."""

    run: int
    topic_id: str
    starts: Mapping[int, int]
    ends: Mapping[int, int]
    run_id: str
    """Name of its folder in staging."""
    staged: bool = False
    rows: int = 0
    files: tuple[str, ...] = ()
    """All files that it has staged, relative to its folder there."""
    is_topic_first: bool = False
    """True if an older version began the run, which named its files differently."""

    def prefix_of(self, topic: str) -> str:
        """Return the prefix of its files' names. The topic is not first: readers ignore names with ``_`` or ``.`` in
        front."""
        return f"{topic}-run-{self.run:06}" if self.is_topic_first else f"run-{self.run:06}-{topic}"


class CheckpointFolder:
    """The files and the staging folder of one topic's export to one destination, for one run."""

    def __init__(self, files: HadoopFiles, destination: str, topic: str) -> None:
        self._files = files
        self._topic = topic
        self._folder = f"{destination.rstrip('/')}/{FOLDER}/{topic}"
        self.run_id = uuid.uuid4().hex
        self.lock = ExportLock(files, f"{self._folder}/lock.json", topic, self.run_id)

    def staging_of(self, run_id: str) -> str:
        """Return the staging folder of a run."""
        return f"{self._folder}/staging/{run_id}"

    @property
    def staging(self) -> str:
        """The staging folder of this run."""
        return self.staging_of(self.run_id)

    def read(self) -> ExportCheckpoint | None:
        """Read the checkpoint; return ``None`` before the end of the first run.

        Raises:
            JobError: the file is not a checkpoint.
        """
        return self._read(
            "checkpoint.json",
            lambda document: ExportCheckpoint(
                topic=str(document["topic"]),
                topic_id=str(document["topic_id"]),
                run=int(document["run"]),
                offsets=_offsets(document["offsets"]),
                rows=int(document["rows"]),
            ),
        )

    def read_intent(self) -> RunIntent | None:
        """Read the intent of the run that is under way or was killed; return ``None`` if there is none.

        Raises:
            JobError: the file is not valid.
        """
        return self._read(
            "run.json",
            lambda document: RunIntent(
                run=int(document["run"]),
                topic_id=str(document["topic_id"]),
                starts=_offsets(document["starts"]),
                ends=_offsets(document["ends"]),
                run_id=str(document["run_id"]),
                staged=bool(document["staged"]),
                rows=int(document["rows"]),
                files=tuple(map(str, document["files"])),
                is_topic_first=bool(document.get("is_topic_first", True)),
            ),
        )

    def begin(self, intent: RunIntent) -> None:
        """Write the intent of a run. First delete the staged files of earlier runs."""
        self._files.delete(f"{self._folder}/staging")
        self._write_intent(intent)

    def staged(self, intent: RunIntent, rows: int, files: Sequence[str]) -> RunIntent:
        """Record that staging is complete, with these files. From now on any later run finishes this one."""
        complete = replace(intent, staged=True, rows=rows, files=tuple(files))
        self._write_intent(complete)
        return complete

    def finish(self, checkpoint: ExportCheckpoint) -> None:
        """Replace the checkpoint, and remove the intent."""
        document = {
            "version": _VERSION,
            "topic": checkpoint.topic,
            "topic_id": checkpoint.topic_id,
            "run": checkpoint.run,
            "offsets": _written(checkpoint.offsets),
            "rows": checkpoint.rows,
        }
        self._files.replace_text(f"{self._folder}/checkpoint.json", f"{json.dumps(document)}\n")
        self.clear()

    def clear(self) -> None:
        """Remove the intent and the staged files of the run that is under way."""
        self._files.delete(f"{self._folder}/run.json")
        self._files.delete(f"{self._folder}/staging")

    def _write_intent(self, intent: RunIntent) -> None:
        document = {
            "version": _VERSION,
            "run": intent.run,
            "topic_id": intent.topic_id,
            "starts": _written(intent.starts),
            "ends": _written(intent.ends),
            "run_id": intent.run_id,
            "staged": intent.staged,
            "rows": intent.rows,
            "files": list(intent.files),
            "is_topic_first": intent.is_topic_first,
        }
        self._files.replace_text(f"{self._folder}/run.json", f"{json.dumps(document)}\n")

    def _read(self, name: str, parse: Callable[[dict[str, Any]], Content]) -> Content | None:
        text = self._files.read_text(f"{self._folder}/{name}")
        if text is None:
            return None
        try:
            document = json.loads(text)
            if document["version"] != _VERSION:
                raise ValueError(document["version"])
            return parse(document)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise JobError(
                f"{self._folder}/{name} is not of an export of {self._topic} by this version: restore it from a "
                "backup. Without it everything would be exported again."
            ) from None


def _offsets(value: object) -> dict[int, int]:
    if not isinstance(value, dict):
        raise TypeError(value)
    return {int(number): int(offset) for number, offset in value.items()}


def _written(offsets: Mapping[int, int]) -> dict[str, int]:
    return {str(number): offset for number, offset in sorted(offsets.items())}
