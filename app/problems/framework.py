"""The framework's own errors as problems, and how an application answers every error with one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Protocol

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.problems import kinds
from app.problems.engine import problem_for
from app.problems.fault_words import model_words
from app.problems.kind import Kind
from app.problems.problem import ERRORS_MAX, Fault, Problem, instance_of, invalid, json_pointer
from log_model.errors import StorageError, let_go_of_frames
from rollway.records.errors import RecordFormatError

_KINDS = {
    kind.status: kind
    for kind in (kinds.MALFORMED_REQUEST, kinds.NOT_FOUND, kinds.METHOD_NOT_ALLOWED, kinds.REQUEST_TOO_LARGE)
}


class Paths(Protocol):
    """The paths of an application; the module ``app.http.methods`` is one."""

    def methods_of_path(self, scope: Scope) -> list[str]:
        """Return every method that a route has at the path of ``scope``; none if there is no such path."""

    def template_below(self, scope: Scope, method: str) -> str | None:
        """Return the path directly below that of ``scope`` that takes ``method``, such as ``/v1/topics/{topic}``."""


def http_problem(error: HTTPException, scope: Scope, paths: Paths) -> Problem:
    """Return the answer to a refusal by the framework itself."""
    try:
        phrase = HTTPStatus(error.status_code).phrase
    except ValueError:
        phrase = "Error"
    kind = _KINDS.get(error.status_code)
    if kind is None:
        kind = Kind(re.sub(r"[^a-z0-9]+", "_", phrase.lower()).strip("_"), error.status_code, phrase)
    detail = str(error.detail)
    if detail == phrase:
        detail = {
            404: _nothing_at(scope),
            405: _not_allowed(scope, paths),
        }.get(error.status_code, detail)
    headers = dict(error.headers or {})
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED and "app" in scope:
        headers["Allow"] = ", ".join(paths.methods_of_path(scope))
    return Problem(kind, detail, headers=headers)


def _nothing_at(scope: Scope) -> str:
    detail = f"there is nothing at {instance_of(scope)}"
    if scope["path"] == "/":
        return f"{detail}: the interface is below /v1, and /docs shows it"
    if b"%2f" in scope.get("raw_path", b"").lower():
        return f"{detail}: a name in a path cannot have a slash, %2F neither"
    return detail


def _not_allowed(scope: Scope, paths: Paths) -> str:
    detail = f"{scope.get('method')} is not possible here"
    template = paths.template_below(scope, "PUT") if scope.get("method") == "POST" and "app" in scope else None
    return f"{detail}; to create one: PUT {template}" if template else detail


def validation_problem(error: RequestValidationError) -> Problem:
    """Return the 422 for parameters and bodies that do not fit their model; 400 for a body that is no JSON."""
    found = error.errors()
    for fault in found:
        if fault["type"] == "json_invalid":
            return Problem(kinds.MALFORMED_BODY, "the body is no JSON")
    return invalid(
        Fault(_pointer(fault["loc"]), _fault_code(fault["type"]), model_words(fault)) for fault in found[:ERRORS_MAX]
    )


def _fault_code(kind: str) -> str:
    """Return the fault's code: there is one for all wrong values."""
    return kind if kind in ("missing", "extra_forbidden") else "invalid_value"


def _pointer(location: Sequence[int | str]) -> str:
    """Return a JSON pointer for a place in the body; the plain name for a parameter."""
    place, *steps = location
    return json_pointer(steps) if place == "body" else ".".join(str(step) for step in steps)


def install(app: FastAPI, paths: Paths) -> None:
    """Answer every error of ``app``, whose paths are ``paths``, with a problem, also its 404, 405, 422 and 500."""

    async def answer(request: Request, error: Exception) -> Response:
        return problem_for(error).response(instance_of(request.scope))

    async def answer_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        let_go_of_frames(error)
        return http_problem(error, request.scope, paths).response(instance_of(request.scope))

    async def answer_validation(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        let_go_of_frames(error)
        return validation_problem(error).response(instance_of(request.scope))

    # Exception: an error of a middleware outside of ``ProblemMiddleware``, which answers all errors inside.
    for kind in (Problem, StorageError, RecordFormatError, Exception):
        app.add_exception_handler(kind, answer)
    app.add_exception_handler(HTTPException, answer_http)
    app.add_exception_handler(RequestValidationError, answer_validation)
    app.add_middleware(ProblemMiddleware)


class ProblemMiddleware:
    """ASGI middleware: answers errors that no handler caught. Costs one call for a request that does not fail.

    The framework's own handler for unforeseen errors raises again after it answered, which would log them twice.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = False

        async def watched_send(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self.app(scope, receive, watched_send)
        except ClientDisconnect:
            # There is no client left to answer.
            return
        except Exception as error:
            if started:
                # The head is out: only a cut connection can say that the rest is missing.
                raise
            await problem_for(error).response(instance_of(scope))(scope, receive, send)
