"""Failures of schemathesis that are none, read from ``deviations.toml``, each with its reason."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PATH = Path(__file__).parent / "deviations.toml"


@dataclass(frozen=True, slots=True)
class Deviation:
    """One kind of answer that is right although a check says otherwise.

    Attributes:
        check: the check that fails, by its name in schemathesis.
        statuses: the answer has one of these.
        codes: the answer is a problem with one of these codes; empty: it need not be a problem.
        reason: why the answer is right.
        operations: method and path of the operations it is right for; empty: all.
        detail: a regular expression that is found in the problem's detail.
        document: the document that cannot say it, ``published`` or ``whole``; empty: both.
    """

    check: str
    statuses: tuple[int, ...]
    reason: str
    codes: tuple[str, ...] = ()
    operations: tuple[str, ...] = ()
    detail: str = ""
    document: str = ""

    def matches(self, check: str, operation: str, status: int, body: bytes, *, document: str) -> bool:
        """Whether this is the answer that is meant."""
        return (
            check == self.check
            and status in self.statuses
            and self.document in ("", document)
            and (not self.operations or operation in self.operations)
            and (not self.codes or self._is_meant(body))
        )

    def _is_meant(self, body: bytes) -> bool:
        try:
            problem = json.loads(body)
        except ValueError:
            return False
        if not isinstance(problem, dict) or problem.get("code") not in self.codes:
            return False
        return "detail" in problem and re.search(self.detail, problem["detail"]) is not None


def read_deviations(path: Path = PATH) -> Sequence[Deviation]:
    """All deviations, in the order of the file.

    Raises:
        TypeError: an entry has a member that there is not, or lacks one.
    """
    entries: list[dict[str, Any]] = tomllib.loads(path.read_text(encoding="utf-8"))["deviation"]
    return [
        Deviation(**{name: tuple(value) if isinstance(value, list) else value for name, value in entry.items()})
        for entry in entries
    ]
