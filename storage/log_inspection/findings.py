"""The findings of a verification, as sentences that name the file and the position."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from storage.disk.file_system import FileSystem
from storage.log_inspection.stored_files import StoredFileError, read_small_file

FINDINGS_PER_FILE_MAX = 20

Content = TypeVar("Content")


class Severity(StrEnum):
    """The severity of a finding."""

    DAMAGE = "damage"
    """Stored bytes are wrong, or two files contradict each other."""

    NOTE = "note"
    """Useful to know and no fault, such as traces of an unclean stop or a file that will be unlinked."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding. ``position`` is a byte position in ``path``."""

    path: Path
    message: str
    position: int | None = None
    severity: Severity = Severity.DAMAGE

    @property
    def sentence(self) -> str:
        place = str(self.path) if self.position is None else f"{self.path}, position {self.position}"
        return f"{place}: {self.message}."


class Findings:
    """A collection of findings. A file with very many gets the first few, and a count of the rest."""

    def __init__(self) -> None:
        self._findings: list[Finding] = []
        self._per_file: Counter[tuple[Path, Severity]] = Counter()

    def damage(self, path: Path, message: str, position: int | None = None) -> None:
        self._add(Finding(path, message, position, Severity.DAMAGE))

    def note(self, path: Path, message: str, position: int | None = None) -> None:
        self._add(Finding(path, message, position, Severity.NOTE))

    def _add(self, finding: Finding) -> None:
        self._per_file[finding.path, finding.severity] += 1
        if self._per_file[finding.path, finding.severity] <= FINDINGS_PER_FILE_MAX:
            self._findings.append(finding)

    def all(self) -> tuple[Finding, ...]:
        """Return the kept findings, then one for each file that had more than ``FINDINGS_PER_FILE_MAX``."""
        cut = (
            Finding(path, f"{count - FINDINGS_PER_FILE_MAX} more of the same file are not listed", None, severity)
            for (path, severity), count in self._per_file.items()
            if count > FINDINGS_PER_FILE_MAX
        )
        return (*self._findings, *cut)


def read_sound(
    file_system: FileSystem, path: Path, read: Callable[[bytes], Content], findings: Findings
) -> Content | None:
    """Return ``read`` of a small file; ``None`` if the file is missing, or if it is damaged, which is a finding."""
    try:
        return read(read_small_file(file_system, path))
    except FileNotFoundError:
        return None
    except StoredFileError as error:
        findings.damage(path, str(error), error.position)
        return None
