"""Health, answered in the least time: the process is alive if its loop turns."""

from __future__ import annotations

from app.fast_path.request import PlainRequest
from app.http.connection.fast_path_interface import PlainAnswer, make_head
from schemas.health import Health

_BODY = Health().model_dump_json().encode()
_ANSWER = PlainAnswer(
    make_head(
        200,
        [("Content-Length", str(len(_BODY))), ("Content-Type", "application/json"), ("Vary", "Accept-Encoding")],
    ),
    _BODY,
)


def answer_health(_: None, request: PlainRequest) -> PlainAnswer:
    """Answer as ``getHealth`` does."""
    request.compiled_handler = _answer
    return _ANSWER


def _answer(_: int | bytes | None, __: bytes | memoryview) -> PlainAnswer:
    return _ANSWER
