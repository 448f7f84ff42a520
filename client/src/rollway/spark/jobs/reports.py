"""What a job did: a few lines for people, one JSON document for programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from rollway.printable import escape_unprintable
from rollway.spark.jobs.errors import EXIT_DIFFERENT, EXIT_DONE

Outcome = Literal["done", "already_done", "nothing_to_do", "equal", "different", "dry_run"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReport:
    """The end of a job that did not fail.

    ``rows`` and ``size_bytes`` are of what was written, or compared; in a dry run of what would be. ``details`` are the
    job's own facts, ``lines`` the same for people.
    """

    job: str
    outcome: Outcome
    summary: str
    rows: int | None = None
    size_bytes: int | None = None
    seconds: float = 0.0
    details: Mapping[str, object] = field(default_factory=dict)
    lines: tuple[str, ...] = ()

    @property
    def exit_status(self) -> int:
        """0, or 3 when a comparison found a difference."""
        return EXIT_DIFFERENT if self.outcome == "different" else EXIT_DONE

    def document(self) -> dict[str, object]:
        """All of it but ``lines``, as JSON has it."""
        return {
            "job": self.job,
            "outcome": self.outcome,
            "summary": self.summary,
            "rows": self.rows,
            "size_bytes": self.size_bytes,
            "seconds": round(self.seconds, 3),
            "details": dict(self.details),
        }

    def text(self) -> str:
        """For people: the summary, then what belongs to it. Each is one line, with unprintable characters escaped."""
        return "\n".join(escape_unprintable(line) for line in (self.summary, *(f"  {line}" for line in self.lines)))


def format_bytes(count: float) -> str:
    """A size in the unit people would choose: ``31.1 MB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def counted(count: int, noun: str) -> str:
    """``1 record``, ``2,500 records``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def rate(rows: int, seconds: float) -> str:
    """``in 1.2 s, 280,000 rows/s``."""
    return f"in {seconds:.1f} s, {rows / max(seconds, 0.001):,.0f} rows/s"
