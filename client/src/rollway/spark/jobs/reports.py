"""The report of a job: a few lines for people, one JSON document for programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from rollway.printable import escape_unprintable
from rollway.spark.jobs.errors import EXIT_DIFFERENT, EXIT_DONE

Outcome = Literal["done", "already_done", "nothing_to_do", "equal", "different", "dry_run"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReport:
    """The report of a job that did not fail.

    ``rows`` and ``size_bytes`` count the written or compared records, in a dry run the records that would be written.
    ``details`` are facts of this kind of job for programs, ``lines`` the same for people.

    Example::

        report = load(spark, request)
        print(report.text())
        sys.exit(report.exit_status)
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
        """0, or 3 if a comparison found a difference."""
        return EXIT_DIFFERENT if self.outcome == "different" else EXIT_DONE

    def document(self) -> dict[str, object]:
        """Return the report as a JSON document, without ``lines``."""
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
        """Return the report for people: the summary, then ``lines``, with unprintable characters escaped."""
        return "\n".join(escape_unprintable(line) for line in (self.summary, *(f"  {line}" for line in self.lines)))


def format_bytes(count: float) -> str:
    """Return a size in a suitable unit: ``31.1 MB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def counted(count: int, noun: str) -> str:
    """Return a number with its noun: ``1 record``, ``2,500 records``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def rate(rows: int, seconds: float) -> str:
    """Return a duration and a rate: ``in 1.2 s, 280,000 rows/s``."""
    return f"in {seconds:.1f} s, {rows / max(seconds, 0.001):,.0f} rows/s"
