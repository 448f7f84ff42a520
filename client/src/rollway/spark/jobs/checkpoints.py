"""How far an export is, in files beside what it exports, so that every record is exported once.

``checkpoint.json`` says up to where the finished runs have come; ``run.json`` is there while a run is under way and
says what it is about to do. A run writes to ``staging``, then moves its files to their folders by names that say
which run they are of, then replaces the checkpoint, then removes ``run.json``. Whoever comes after a run that was
killed finds ``run.json``: with ``"staged": true`` the moving goes on (a file that is moved already stays), else it
begins anew.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from rollway.spark.jobs.errors import JobError
from rollway.spark.jobs.hadoop_files import HadoopFiles

FOLDER = "_rollway"
"""Readers of Spark and others leave out what begins with an underscore."""
_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportCheckpoint:
    """Up to where a topic is exported: offsets are the next to be exported, ``run`` numbers from 1."""

    topic: str
    topic_id: str
    run: int
    offsets: Mapping[int, int]
    rows: int
    """Of all runs together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunIntent:
    """What a run is about to export: ``[starts, ends)`` of each partition."""

    run: int
    topic_id: str
    starts: Mapping[int, int]
    ends: Mapping[int, int]
    staged: bool = False
    rows: int = 0


class CheckpointFolder:
    """The two files and the staging folder of one topic's export to one place."""

    def __init__(self, files: HadoopFiles, destination: str, topic: str) -> None:
        self._files = files
        self._topic = topic
        self._folder = f"{destination.rstrip('/')}/{FOLDER}/{topic}"
        self.staging = f"{self._folder}/staging"

    def read(self) -> ExportCheckpoint | None:
        """The checkpoint, or ``None`` before the first run ended.

        Raises:
            JobError: the file is not a checkpoint.
        """
        document = self._document("checkpoint.json")
        if document is None:
            return None
        try:
            return ExportCheckpoint(
                topic=str(document["topic"]),
                topic_id=str(document["topic_id"]),
                run=int(document["run"]),
                offsets=_offsets(document["offsets"]),
                rows=int(document["rows"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            raise self._broken("checkpoint.json") from None

    def read_intent(self) -> RunIntent | None:
        """The run that is under way or was killed.

        Raises:
            JobError: the file says nothing that makes sense.
        """
        document = self._document("run.json")
        if document is None:
            return None
        try:
            return RunIntent(
                run=int(document["run"]),
                topic_id=str(document["topic_id"]),
                starts=_offsets(document["starts"]),
                ends=_offsets(document["ends"]),
                staged=bool(document["staged"]),
                rows=int(document["rows"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            raise self._broken("run.json") from None

    def begin(self, intent: RunIntent) -> None:
        """Say what is about to happen; what an earlier run left in staging is deleted first."""
        self._files.delete(self.staging)
        self._write_intent(intent)

    def staged(self, intent: RunIntent, rows: int) -> RunIntent:
        """Say that staging is complete: from here on the run will be finished, by whoever comes."""
        complete = replace(intent, staged=True, rows=rows)
        self._write_intent(complete)
        return complete

    def finish(self, checkpoint: ExportCheckpoint) -> None:
        """Replace the checkpoint, and forget the run."""
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
        """Forget the run that is under way."""
        self._files.delete(f"{self._folder}/run.json")
        self._files.delete(self.staging)

    def _write_intent(self, intent: RunIntent) -> None:
        document = {
            "version": _VERSION,
            "run": intent.run,
            "topic_id": intent.topic_id,
            "starts": _written(intent.starts),
            "ends": _written(intent.ends),
            "staged": intent.staged,
            "rows": intent.rows,
        }
        self._files.replace_text(f"{self._folder}/run.json", f"{json.dumps(document)}\n")

    def _document(self, name: str) -> dict[str, Any] | None:
        text = self._files.read_text(f"{self._folder}/{name}")
        if text is None:
            return None
        try:
            document = json.loads(text)
        except ValueError:
            raise self._broken(name) from None
        if not isinstance(document, dict) or document.get("version") != _VERSION:
            raise self._broken(name)
        return document

    def _broken(self, name: str) -> JobError:
        return JobError(
            f"{self._folder}/{name} is not of an export of {self._topic} by this version; look at it, or remove it."
        )


def _offsets(value: object) -> dict[int, int]:
    if not isinstance(value, dict):
        raise TypeError(value)
    return {int(number): int(offset) for number, offset in value.items()}


def _written(offsets: Mapping[int, int]) -> dict[str, int]:
    return {str(number): offset for number, offset in sorted(offsets.items())}
