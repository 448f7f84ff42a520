"""An error as problem+json (RFC 9457).

A client decides from ``retryable`` and ``applied`` alone; people read ``detail``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec
from starlette.responses import Response
from starlette.types import Scope

from app.problems import kinds
from app.problems.kind import Applied, Kind

MEDIA_TYPE = "application/problem+json"
ERRORS_MAX = 100
"""A document lists at most this many single faults."""


class Fault(NamedTuple):
    """One fault of a request: its place, a stable name, a sentence.

    The place is a JSON pointer into the body, or the name of a parameter or a header. Example: ``Fault("acks",
    "invalid_value", "must be 0, 1 or all")``.
    """

    pointer: str
    code: str
    detail: str

    def below(self, prefix: str) -> Fault:
        """Return the same fault in a document that holds this one at ``prefix``."""
        return self._replace(pointer=prefix + self.pointer)


class Problem(Exception):  # noqa: N818 - the name of the document it becomes
    """An error that becomes an answer. Raise it anywhere below a route.

    ``errors`` are single faults of the request; ``headers`` go out beside the document; ``extra`` are members of this
    kind of problem, such as ``log_end_offset``.

    Example: ``Problem(kinds.JOB_NOT_FOUND, "there is no load job 'a'")`` is answered with status 404.
    """

    def __init__(
        self,
        kind: Kind,
        detail: str,
        *,
        retry_after_ms: int | None = None,
        errors: Iterable[Fault] = (),
        headers: Mapping[str, str] | None = None,
        **extra: Any,
    ) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.retryable = kind.retryable
        """As the kind says; differs where the problem stands for several."""
        self.applied: Applied = kind.applied
        """As the kind says; differs where the problem stands for several, or if the request has changed something."""
        self.retry_after_ms = kind.retry_after_ms if retry_after_ms is None else retry_after_ms
        self.errors: list[dict[str, Any]] = [fault._asdict() for fault in errors]
        self.headers = dict(headers or {})
        self.extra = extra

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.kind.status

    @property
    def code(self) -> str:
        """The stable name that programs compare."""
        return self.kind.code

    @property
    def kafka_code(self) -> int:
        """Kafka's number; -1 where Kafka has none."""
        return self.kind.kafka_code

    def document(self, instance: str) -> dict[str, Any]:
        """Return the members of the document, for the request of ``instance``."""
        kind = self.kind
        return {
            "type": kind.type,
            "title": kind.title,
            "status": kind.status,
            "detail": self.detail,
            "instance": instance,
            "code": kind.code,
            "kafka_code": kind.kafka_code,
            "retryable": self.retryable,
            "applied": self.applied,
            "retry_after_ms": self.retry_after_ms,
            "errors": self.errors,
            **self.extra,
        }

    def body(self, instance: str) -> bytes:
        """Return the document as UTF-8; lone surrogates, which are not, become question marks."""
        document = self.document(instance)
        try:
            # Ten times as quick: an answer may have thousands of results.
            return msgspec.json.encode(document)
        except (UnicodeEncodeError, OverflowError):
            return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")

    def all_headers(self) -> dict[str, str]:
        """Return the headers of the answer, without its length."""
        headers = {"Content-Type": MEDIA_TYPE, "Cache-Control": "no-store", **self.headers}
        if self.retry_after_ms is not None:
            headers["Retry-After"] = str(-(-self.retry_after_ms // 1000))
        return headers

    def response(self, instance: str) -> Response:
        """Return the answer."""
        return Response(self.body(instance), self.status, self.all_headers())


def invalid(faults: Iterable[Fault], detail: str | None = None, *, kind: Kind = kinds.INVALID_REQUEST) -> Problem:
    """Return the answer to a request with these faults, of which there is one at least: 422, unless ``kind`` differs.

    Without ``detail`` it says the first fault and its place, as in "/positions: a group has at most 1000 positions".
    """
    listed = list(faults)[:ERRORS_MAX]
    if detail is None:
        detail = f"{listed[0].pointer or 'the body'}: {listed[0].detail}"
    return Problem(kind, detail, errors=listed)


def invalid_value(pointer: str, detail: str, kind: Kind = kinds.INVALID_REQUEST) -> Problem:
    """Return the answer to one wrong value at ``pointer``; ``detail`` names it, and is the whole sentence."""
    return invalid([Fault(pointer, "invalid_value", detail)], detail, kind=kind)


def instance_of(scope: Scope) -> str:
    """Return the path that was asked, as a URI reference."""
    raw: bytes | None = scope.get("raw_path")
    return quote(raw if raw is not None else scope.get("path", ""), safe="/%:@!$&'()*+,;=~-._")


def json_pointer(steps: Iterable[int | str]) -> str:
    """Return the JSON pointer (RFC 6901) that walks ``steps``."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in steps)
