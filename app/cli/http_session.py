"""Requests to the service: one HTTP client per command, and sentences from problem+json."""

from __future__ import annotations

import ipaddress
import json
import os
import re
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import httpx

from app.cli.command_errors import AnswerError, CommandError, ServiceError, UnreachableError, UsageProblem
from app.record_json.text_encodings import unpaired_surrogates
from log_model.names import topic_name_problem

CONNECT_TIMEOUT_SECONDS = 5.0
ANSWER_TIMEOUT_SECONDS = 90.0
"""Time to wait for a response. It exceeds the longest long poll (60 s)."""

_KEY_FORM = re.compile(r"[A-Za-z0-9._~+/=-]+", re.ASCII)

# The service's details for a missing credential and for a missing topic.
_WHO_ARE_YOU = "say who you are"
_NO_TOPIC = re.compile(r"there is no topic '([A-Za-z0-9._-]+)'")

PAGE_LIMIT = 1000

# Segments of a path that clients resolve before they send it.
_NO_NAMES = frozenset({"", ".", ".."})
_WITHOUT_CONTENT = frozenset({204, 304})
_PORT_MAX = 65_535

JSON = "application/json"
NDJSON = "application/x-ndjson"
RECORD_BATCHES = "application/vnd.kafka.record-batch.v2"

type_of_params = Mapping[str, str | int]


def topic_path(topic: str, *parts: str | int) -> str:
    """Return ``/v1/topics/{topic}/...`` with all parts quoted.

    Raises:
        UsageProblem: no topic can have that name.
    """
    problem = topic_name_problem(topic)
    if problem is not None:
        raise UsageProblem(f"{topic[:60]!r} names no topic: {problem}.")
    return path_of("topics", topic, *parts)


def path_of(collection: str, name: str, *parts: str | int) -> str:
    """Return ``/v1/{collection}/{name}/...`` with all parts quoted.

    Raises:
        UsageProblem: a path cannot have that name.
    """
    if name in _NO_NAMES:
        raise UsageProblem(f"{name!r} cannot be a name: it would be another path.")
    return "/".join(["/v1", collection, *(quote(str(part), safe="") for part in (name, *parts))])


def client_settings(server: str, api_key: str | None = None) -> dict[str, Any]:
    """Return arguments for an httpx client of either kind. The key is sent only to this server, and only over TLS
    unless the server is on this machine.

    Raises:
        UsageProblem: ``server`` is not an HTTP address, or the key would travel without TLS.
    """
    url = _address(server)
    is_near = _is_loopback(url.host)
    # Within one machine compression costs more than it saves.
    headers = {"Accept-Encoding": "identity"} if is_near else {}
    if api_key:
        if url.scheme != "https" and not is_near:
            raise UsageProblem("The API key would travel without TLS; name the service with https://.")
        if _KEY_FORM.fullmatch(api_key) is None:
            raise UsageProblem("The API key has characters that no key has.")
        headers["Authorization"] = f"Bearer {api_key}"
    return {
        "base_url": url,
        "timeout": httpx.Timeout(ANSWER_TIMEOUT_SECONDS, connect=CONNECT_TIMEOUT_SECONDS),
        # A proxy in the environment cannot reach services of this machine.
        "trust_env": not is_near,
        "verify": _tls_context(needs_authorities=url.scheme == "https"),
        "headers": headers,
    }


def _address(server: str) -> httpx.URL:
    """Parse the address of a service, whose name can be looked up.

    Raises:
        UsageProblem: ``server`` is no such address. The message shows no password.
    """
    try:
        url = httpx.URL(server if "://" in server else f"http://{server}")
        # Labels of a name have 1 to 63 characters. A look-up of any other would raise an error without a reason.
        url.raw_host.decode("ascii").encode("idna")
        has_host = bool(url.host) and not re.search(r"\s|%", url.host.partition("%25")[0])
    except (httpx.InvalidURL, UnicodeError):
        raise UsageProblem(f"{server!r} is not the address of a service.") from None
    if url.userinfo:
        raise UsageProblem("The address has a user or a password in it: leave them out, and give a key with --api-key.")
    is_port = url.port is None or 0 < url.port <= _PORT_MAX
    if url.scheme not in ("http", "https") or not has_host or not is_port or url.query or url.fragment:
        raise UsageProblem(f"{server!r} is not the address of a service; an example is http://127.0.0.1:8080.")
    return url


def _tls_context(*, needs_authorities: bool) -> ssl.SSLContext:
    """Return the context for TLS. Without authorities it trusts no peer.

    To read the authorities takes longer than a request to a service nearby.

    Raises:
        CommandError: the file of authorities cannot be used.
    """
    if not needs_authorities:
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authorities = os.environ.get("SSL_CERT_FILE")
    try:
        return ssl.create_default_context(cafile=authorities)
    except OSError as error:
        why = "it has no certificate" if isinstance(error, ssl.SSLError) else error.strerror
        raise CommandError(f"The authorities in {authorities} (SSL_CERT_FILE) cannot be used: {why}.") from None


@contextmanager
def proxies_told() -> Iterator[None]:
    """Convert errors of the block, which makes a client: it reads the proxies of the environment.

    Raises:
        UsageProblem: a proxy cannot be used.
    """
    try:
        yield
    except (ImportError, ValueError, httpx.InvalidURL) as error:
        why = "SOCKS is not supported" if isinstance(error, ImportError) else str(error)
        raise UsageProblem(
            f"A proxy of the environment (HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY) cannot be used: {why}."
        ) from None


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def unreachable(error: httpx.HTTPError, server: str) -> CommandError:
    """Return the error for a request without a response."""
    if tls := _tls_error(error):
        return UnreachableError(f"No service answers at {server} over TLS: {tls}.", was_sent=False)
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        return UnreachableError(
            f"No service answers at {server}; start one with `rollway serve`, or name it with --server.", was_sent=False
        )
    if isinstance(error, httpx.TimeoutException):
        return UnreachableError(f"The service at {server} did not answer in time.", was_sent=True)
    return UnreachableError(
        f"The connection to the service at {server} broke: {str(error).rstrip('.')}.", was_sent=True
    )


def _tls_error(error: httpx.HTTPError) -> str | None:
    """Return the fault of TLS for a connection that was not made; ``None`` for any other error."""
    cause: BaseException | None = error if isinstance(error, httpx.ConnectError) else None
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({cause.verify_message}); SSL_CERT_FILE names the authorities"
    return None if cause is None else f"{cause.reason or cause}; is it a service without TLS, at http://?"


def check_whole(response: httpx.Response) -> None:
    """Refuse a success that has neither chunks nor a length, because it may be truncated.

    Raises:
        AnswerError: it has neither.
    """
    headers = response.headers
    if response.status_code not in _WITHOUT_CONTENT and not headers.keys() & {"content-length", "transfer-encoding"}:
        raise AnswerError(f"The answer of {response.url} does not say where it ends, so it may be cut.")


class Document(dict[str, Any]):
    """A JSON object of a response. A missing member raises an error with a sentence, at any depth."""

    def __missing__(self, name: str) -> Any:
        raise AnswerError(f"The answer has no {name!r}; is this the address of a Rollway service of this version?")


def document_of(response: httpx.Response) -> Document:
    """Return the JSON object of a successful response.

    Raises:
        AnswerError: the body is no JSON object.
    """
    try:
        document = _parsed(response, object_hook=Document)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, Document):
        kind = response.headers.get("Content-Type") or "an answer without a type"
        raise AnswerError(
            f"{response.url} answers {kind} and no JSON object; is this the address of a Rollway service?"
        )
    return document


def members_of(document: Document, name: str) -> list[Document]:
    """Return the list of objects in the member ``name`` of ``document``.

    Raises:
        AnswerError: the member is missing, or is no list of objects.
    """
    members = document[name]
    if not isinstance(members, list) or not all(isinstance(member, Document) for member in members):
        raise AnswerError(f"The answer has no list of objects as {name!r}; is this the address of a Rollway service?")
    return members


def _parsed(response: httpx.Response, **options: Any) -> Any:
    if unpaired_surrogates(response.content):
        raise ValueError("an unpaired surrogate, which no command could print")
    return json.loads(response.content.decode("utf-8"), **options)


def number_in(response: httpx.Response, header: str) -> int:
    """Return the number in a header that every response of this route has.

    Raises:
        AnswerError: the header is missing, or is no number.
    """
    try:
        return int(response.headers[header])
    except (KeyError, ValueError):
        raise AnswerError(f"The answer has no {header} header; is this the address of a Rollway service?") from None


def problem_error(response: httpx.Response) -> ServiceError:
    """Return the error of a refusal, whose body has been read."""
    try:
        problem = _parsed(response)
    except (ValueError, RecursionError):
        problem = None
    return error_of_problem(problem, response.status_code, response.reason_phrase)


def error_of_problem(problem: object, status: int, reason: str = "") -> ServiceError:
    """Return the error of a problem+json document. For any other document the sentence names the status."""
    if not isinstance(problem, dict):
        return ServiceError(f"The service answered {status} {reason}".rstrip() + ".", status=status)
    detail = str(problem.get("detail") or problem.get("title") or f"The service answered {status}")
    errors = problem.get("errors")
    reasons = [
        f"{item.get('pointer', '')}: {item.get('detail', '')}".removeprefix(": ")
        for item in (errors if isinstance(errors, list) else ())
        if isinstance(item, dict) and str(item.get("detail", "")) not in detail
    ]
    if reasons:
        detail = f"{detail.rstrip('.')} ({'; '.join(reasons[:5])})"
    return ServiceError(
        f"{_with_way_out(detail.rstrip('.'))}.",
        status=_integer_or_none(problem.get("status")) or status,
        code=str(problem.get("code", "")),
        retryable=bool(problem.get("retryable", False)),
        is_applied_unknown=problem.get("applied") == "unknown",
        retry_after_ms=max(0, _integer_or_none(problem.get("retry_after_ms")) or 0) or None,
        log_start_offset=_integer_or_none(problem.get("log_start_offset")),
        problem=problem,
    )


def _with_way_out(detail: str) -> str:
    """Return a detail of the service with a remedy for the command line: an option or a command instead of a header."""
    if detail.startswith(_WHO_ARE_YOU):
        return f"{_WHO_ARE_YOU}: set ROLLWAY_API_KEY, or give --api-key, to an API key, a token or a JWT"
    if missing := _NO_TOPIC.fullmatch(detail):
        return f"{detail}; create it with `rollway topics create {missing[1]}`"
    return detail


def _integer_or_none(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


class Session:
    """The requests of one command to the service."""

    def __init__(self, client: httpx.Client, server: str) -> None:
        self._client = client
        self.server = server

    def request(
        self,
        method: str,
        path: str,
        *,
        params: type_of_params | None = None,
        body: object = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        """Send one request and return its response if it is a success.

        Raises:
            ServiceError: the service refused.
            UnreachableError: it did not respond.
        """
        try:
            response = self._client.request(method, path, params=params, json=body, content=content, headers=headers)
        except httpx.HTTPError as error:
            raise unreachable(error, self.server) from error
        except httpx.InvalidURL:
            raise UsageProblem("A name or an option is longer than any that a service takes.") from None
        if not response.is_success:
            raise problem_error(response)
        check_whole(response)
        return response

    def get(self, path: str, params: type_of_params | None = None) -> Any:
        """Return the JSON object at ``path``. Raises as ``request``; AnswerError, there is none."""
        return document_of(self.request("GET", path, params=params))

    def pages(self, path: str, params: type_of_params) -> list[dict[str, Any]]:
        """Return all members of the list at ``path``, page by page. Raises as ``get``."""
        listed: list[dict[str, Any]] = []
        cursors = {""}
        cursor = ""
        while True:
            page = self.get(path, {"limit": PAGE_LIMIT, **params, **({"start_after": cursor} if cursor else {})})
            listed += members_of(page, "data")
            cursor = str(page.get("next_cursor") or "")
            if not cursor:
                return listed
            if cursor in cursors:
                raise AnswerError(f"{self.server} lists {path} without an end; is this a Rollway service?")
            cursors.add(cursor)

    def send(self, method: str, path: str, body: object = None) -> Any:
        """Send ``body`` and return the JSON object of the response; ``None`` if it is empty. Raises as ``get``."""
        response = self.request(method, path, body=body)
        return document_of(response) if response.status_code != 204 else None

    def delete(self, path: str) -> None:
        """Delete the resource at ``path``. Raises as ``request``; AnswerError, the response is not the service's."""
        response = self.request("DELETE", path)
        if response.status_code != 204:
            raise AnswerError(
                f"{response.url} answers {response.status_code} and not 204; is this the address of a Rollway service?"
            )

    @contextmanager
    def stream(self, path: str, params: type_of_params, accept: str) -> Iterator[httpx.Response]:
        """Yield a response whose body is still to be read. Raises as ``request``, also while it is read."""
        try:
            with self._client.stream("GET", path, params=params, headers={"Accept": accept}) as response:
                if not response.is_success:
                    response.read()
                    raise problem_error(response)
                check_whole(response)
                yield response
        except httpx.HTTPError as error:
            raise unreachable(error, self.server) from error

    def topic_id(self, topic: str) -> str:
        """Return the id of the topic. A later topic of the same name has another id. Raises as ``request``."""
        return str(self.get(topic_path(topic))["topic_id"])

    def partition_numbers(self, topic: str) -> list[int]:
        """Return the numbers of the topic's partitions. Raises as ``get``."""
        members = members_of(self.get(topic_path(topic)), "partitions")
        try:
            return [int(member["partition"]) for member in members]
        except (ValueError, TypeError):
            raise AnswerError(
                f"The answer has partitions of {topic} without a number; is this the address of a Rollway service?"
            ) from None


@contextmanager
def open_session(server: str, api_key: str | None) -> Iterator[Session]:
    """Open a session with the service at ``server``. Its connections close at the end of the block.

    Raises:
        UsageProblem: as ``client_settings``.
    """
    settings = client_settings(server, api_key)
    with proxies_told():
        client = httpx.Client(**settings)
    with client:
        yield Session(client, server)
