"""Suggestions for misspelt names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest_or_all(name: str, known: Iterable[str]) -> str:
    """Return the name of ``known`` nearest to ``name``, as a question; all known names if none is near."""
    names = sorted(known)
    # The time of difflib grows with the length.
    nearest = difflib.get_close_matches(name[:100], names, n=1, cutoff=0.6)
    if nearest:
        return f"did you mean {nearest[0]}?"
    return f"allowed: {', '.join(names)}" if names else "none is allowed"
