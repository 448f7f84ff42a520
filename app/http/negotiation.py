"""Media types: those that the client wants to read (Accept), and the one that it sends (Content-Type)."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request

from app.problems import kinds
from app.problems.problem import MEDIA_TYPE, Problem

_ANY = "*/*"


def accept(request: Request, offered: Sequence[str]) -> str:
    """Return the media type of ``offered`` that the client prefers, the first among equals.

    The most specific range of Accept decides for each type, and q=0 refuses it. Without Accept, any type is accepted
    (RFC 9110, 12.5.1). Parameters other than q are ignored. An Accept that names only problem documents describes
    errors, and any type is accepted: clients made by openapi-generator send it where answers are bytes.

    Raises:
        Problem: 406, the client accepts none of them.
    """
    header = ",".join(request.headers.getlist("accept"))
    if not header.strip():
        return offered[0]
    ranges = _ranges(header)
    if ranges.keys() == {MEDIA_TYPE}:
        return offered[0]
    best, best_quality = "", 0.0
    for media_type in offered:
        quality = _quality(media_type, ranges)
        if quality > best_quality:
            best, best_quality = media_type, quality
    if not best:
        raise Problem(kinds.NOT_ACCEPTABLE, f"this can be read as {', '.join(offered)}", offered=list(offered))
    return best


def _ranges(header: str) -> dict[str, float]:
    """Return the media ranges of Accept with their quality; elements that are no range are skipped."""
    ranges: dict[str, float] = {}
    for element in header.split(","):
        media_range, *parameters = (part.strip().lower() for part in element.split(";"))
        kind, slash, subtype = media_range.partition("/")
        if not (kind and slash and subtype) or (kind == "*" and subtype != "*"):
            continue
        quality = 1.0
        for parameter in parameters:
            name, _, value = parameter.partition("=")
            if name.strip() == "q":
                quality = _parse_quality(value.strip())
        ranges[media_range] = max(quality, ranges.get(media_range, 0.0))
    return ranges


def _parse_quality(text: str) -> float:
    """Parse a q-value. Text that is none counts as 0, so that a mistake in the header selects no type.

    The 0 before the point may be missing, as in ``q=.2`` of Java's ``URLConnection``.
    """
    whole, _, decimals = text.partition(".")
    if whole not in ("", "0", "1") or not (whole or decimals) or len(decimals) > 3 or not (decimals or "0").isdecimal():
        return 0.0
    return min(float(text), 1.0) if text.isascii() else 0.0


def _quality(media_type: str, ranges: dict[str, float]) -> float:
    kind = media_type.partition("/")[0]
    for media_range in (media_type.lower(), f"{kind}/*", _ANY):
        if media_range in ranges:
            return ranges[media_range]
    return 0.0


def content_type(request: Request, accepted: Sequence[str], *, absent: str | None = None) -> str:
    """Return the media type of the body, one of ``accepted``, or ``absent`` if the request does not name it.

    A charset other than UTF-8 is refused as another type is.

    Raises:
        Problem: 415, the request names another type, more than one, or none.
    """
    headers = request.headers.getlist("content-type")
    if not headers and absent is not None:
        return absent
    media_type, *parameters = (part.strip() for part in (headers[0] if len(headers) == 1 else "").split(";"))
    if media_type.lower() in accepted and all(_is_utf8(parameter) for parameter in parameters):
        return media_type.lower()
    wanted = f"send {' or '.join(accepted)}"
    raise Problem(
        kinds.UNSUPPORTED_MEDIA_TYPE,
        f"{wanted}, not {', '.join(headers)[:200]}" if headers else f"Content-Type is missing: {wanted}",
        headers={"Accept": ", ".join(accepted)},
    )


def _is_utf8(parameter: str) -> bool:
    name, _, value = parameter.partition("=")
    return name.strip().lower() != "charset" or value.strip().strip('"').lower() in ("utf-8", "utf8")
