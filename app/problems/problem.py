"""An error as problem+json (RFC 9457).

A client decides from ``retryable`` and ``applied`` alone; people read ``detail``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Literal
from urllib.parse import quote

import msgspec
from starlette.responses import Response
from starlette.types import Scope

MEDIA_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:rollway:problem:"
ERRORS_MAX = 100

Applied = Literal["no", "unknown"]


class Problem(Exception):  # noqa: N818 - the name of the document it becomes
    """An error on its way to the client. Raise it anywhere below a route.

    ``errors`` are single faults, each a mapping with pointer, code and detail; ``headers`` go out beside the
    document; ``extra`` are members of this kind of problem, such as ``log_end_offset``.
    """

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        kafka_code: int = -1,
        retryable: bool = False,
        applied: Applied = "no",
        retry_after_ms: int | None = None,
        errors: Iterable[Mapping[str, Any]] = (),
        headers: Mapping[str, str] | None = None,
        **extra: Any,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.kafka_code = kafka_code
        self.retryable = retryable
        self.applied: Applied = applied
        self.retry_after_ms = retry_after_ms
        self.errors = [dict(error) for error in errors]
        self.headers = dict(headers or {})
        self.extra = extra

    def document(self, instance: str) -> dict[str, Any]:
        """The members of the document, for the request of ``instance``."""
        return {
            "type": TYPE_PREFIX + self.code,
            "title": title_of(self.code),
            "status": self.status,
            "detail": self.detail,
            "instance": instance,
            "code": self.code,
            "kafka_code": self.kafka_code,
            "retryable": self.retryable,
            "applied": self.applied,
            "retry_after_ms": self.retry_after_ms,
            "errors": self.errors,
            **self.extra,
        }

    def body(self, instance: str) -> bytes:
        """The document as UTF-8; lone surrogates, which are not, become question marks."""
        document = self.document(instance)
        try:
            # Ten times as quick: an answer may have thousands of results.
            return msgspec.json.encode(document)
        except (UnicodeEncodeError, OverflowError):
            return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")

    def all_headers(self) -> dict[str, str]:
        """The headers of the answer, without its length."""
        headers = {"Content-Type": MEDIA_TYPE, "Cache-Control": "no-store", **self.headers}
        if self.retry_after_ms is not None:
            headers["Retry-After"] = str(-(-self.retry_after_ms // 1000))
        return headers

    def response(self, instance: str) -> Response:
        """The answer."""
        return Response(self.body(instance), self.status, self.all_headers())


def title_of(code: str) -> str:
    """A kind of problem for people: its code in words."""
    return code.replace("_", " ").capitalize()


def instance_of(scope: Scope) -> str:
    """The path that was asked, as a URI reference."""
    raw: bytes | None = scope.get("raw_path")
    return quote(raw if raw is not None else scope.get("path", ""), safe="/%:@!$&'()*+,;=~-._")


def json_pointer(steps: Iterable[int | str]) -> str:
    """The JSON pointer (RFC 6901) that walks ``steps``."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in steps)
