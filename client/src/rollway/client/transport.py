"""Requests over reused connections, with retries where they can help.

Every request of this library may be sent again. Reading changes nothing, record batches carry the sequences of their
producer, and the routes for topics and load jobs create nothing twice. ``RollwayClient.produce_batches`` says what a
repetition does to batches without a producer.
"""

from __future__ import annotations

import contextlib
import json
import random
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import urllib3
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    IncompleteRead,
    LocationValueError,
    NewConnectionError,
    ProtocolError,
    ReadTimeoutError,
    SSLError,
)

from rollway.client.errors import (
    AnswerTooLargeError,
    InvalidAnswerError,
    ProblemError,
    RollwayError,
    ServiceUnavailableError,
    problem_error,
)
from rollway.client.settings import ClientSettings
from rollway.client.silence import Silence
from rollway.client.whole_answers import WholeAnswers, check_head, whole_within

JSON = "application/json"
PROBLEM = "application/problem+json"
USER_AGENT = "rollway/0.1.0"
"""This library and its version. A service refuses a library that is too old for it with 400 ``client_too_old``."""
IDLE_CONNECTIONS_MAX = 8
"""Connections that are kept open while no thread uses them."""
WAIT_MS_MAX = 60_000
"""The longest pause before the next try, even if the service names a longer one."""
_DIGITS_MAX = 15
_PIECE_BYTES = 16 * 1024
"""Bytes that are read at a time of a compressed response, or of one without a length. Decompression may yield a
thousand times as many."""
_OVERHEAD_BYTES = 1024 * 1024
"""Bytes that a response may have beside the requested records."""
_GATEWAY_STATUSES = frozenset({429, 502, 503, 504})
"""Statuses of a proxy while the service is away. Its response has no problem document."""

Body = bytes | Sequence[bytes | memoryview]


@dataclass(frozen=True, slots=True)
class Answer:
    """A successful response."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    def json(self) -> Any:
        """Return the JSON document of the response.

        Raises:
            InvalidAnswerError: the content is not JSON.
        """
        try:
            return json.loads(self.content)
        except (ValueError, RecursionError) as error:
            raise InvalidAnswerError(f"the answer is not JSON: {error}; is this the address of Rollway?") from None

    def number(self, header: str) -> int:
        """Return the number in a header that every response of this route has.

        Raises:
            InvalidAnswerError: the header is missing, or is no number.
        """
        try:
            return int(self.headers[header])
        except (KeyError, ValueError):
            raise InvalidAnswerError(f"the answer has no {header} header; is this the address of Rollway?") from None


class Transport:
    """Requests to one service, with retries; see the module. Thread-safe. A forked process must not use it."""

    def __init__(
        self,
        settings: ClientSettings,
        *,
        pause: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._pause = pause
        self._clock = clock
        self._random = random.SystemRandom()
        self._pool = WholeAnswers(
            maxsize=IDLE_CONNECTIONS_MAX,
            retries=False,
            headers=_headers(settings),
            ssl_context=_ssl_context(settings),
        )
        self._lock = threading.Lock()
        self._retry_count = 0
        self._muted_until = 0.0
        self._silence = Silence(settings.url, clock)

    @property
    def retry_count(self) -> int:
        """Number of requests that were sent again so far."""
        return self._retry_count

    def close(self) -> None:
        """Close the idle connections. A connection in use is closed when its request ends."""
        self._pool.clear()

    def request(
        self,
        method: str,
        path: str,
        body: Body | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        wait_ms: int = 0,
        asked_bytes: int = 0,
    ) -> Answer:
        """Send a request until the service responds, at most ``retries`` times more than once.

        ``path`` is already quoted. ``wait_ms`` is added to the time that the service may take. ``asked_bytes`` is the
        size of the requested content. A list of pieces is sent piece by piece, without joining.

        While there is no response, a logger reports it, for the first time within two seconds.

        Raises:
            ProblemError: the service refuses the request, and a retry cannot help.
            ServiceUnavailableError: every try had no response, or a refusal that allows a retry.
            InvalidAnswerError: a response is not one of this interface.
            AnswerTooLargeError: a response has more bytes than the settings and ``asked_bytes`` allow.
        """
        bytes_max = max(self._settings.answer_bytes_max, asked_bytes + _OVERHEAD_BYTES)
        began = self._clock()
        try_count = 0
        while True:
            self._wait_until_unmuted()
            try_count += 1
            retry_after_ms: int | None = None
            try:
                whole = whole_within((self._settings.request_timeout_ms + wait_ms) / 1_000)
                with self._silence.broken(wait_ms), whole:
                    return self._send(method, path, body, headers, wait_ms, bytes_max)
            except ProblemError as error:
                if not error.retryable:
                    raise
                is_last = False
                last_error = f"{error.status} {error.code}: {error.detail}"
                retry_after_ms = _milliseconds(error.problem.get("retry_after_ms"))
            except HTTPError as error:
                is_last = _is_for_good(error)
                last_error = _one_line(error)
            if is_last or try_count > self._settings.retries:
                elapsed_ms = round((self._clock() - began) * 1_000)
                raise ServiceUnavailableError(self._settings.url, try_count, elapsed_ms, last_error)
            with self._lock:
                self._retry_count += 1
            self._silence.tell(last_error, self._settings.retries + 1 - try_count)
            self._pause(self._pause_ms(try_count, retry_after_ms) / 1_000)

    def _pause_ms(self, try_count: int, retry_after_ms: int | None) -> float:
        """Return the pause after this many tries, in milliseconds.

        It doubles with each try, less a random part: tasks that failed together must not try again together.
        """
        settings = self._settings
        backoff_ms = min(settings.backoff_ms << min(try_count - 1, 30), settings.backoff_ms_max)
        pause_ms = backoff_ms * self._random.uniform(0.5, 1.0)
        if retry_after_ms is not None:
            pause_ms = max(pause_ms, min(retry_after_ms, WAIT_MS_MAX))
        return pause_ms

    def _wait_until_unmuted(self) -> None:
        """Wait as long as the service said after the client exceeded a quota. It refuses earlier requests."""
        left = self._muted_until - self._clock()
        if left > 0:
            self._pause(left)

    def _send(
        self,
        method: str,
        path: str,
        body: Body | None,
        headers: Mapping[str, str] | None,
        wait_ms: int,
        bytes_max: int,
    ) -> Answer:
        settings = self._settings
        sent = {**self._pool.headers, **(headers or {})}
        if body is not None and not isinstance(body, bytes):
            # With a length an iterable is sent piece by piece; without a length it would be sent in chunks.
            sent["Content-Length"] = str(sum(memoryview(piece).nbytes for piece in body))
        response = self._pool.request(
            method,
            settings.url + path,
            body=body,  # type: ignore[arg-type]  # memoryviews are sent as bytes are
            headers=sent,
            redirect=False,
            preload_content=False,
            timeout=urllib3.Timeout(
                connect=settings.connect_timeout_ms / 1_000, read=(settings.read_timeout_ms + wait_ms) / 1_000
            ),
        )
        content = _content_of(response, bytes_max)
        throttle_ms = _number(response.headers.get("Throttle-Time-Ms"))
        if throttle_ms:
            self._muted_until = self._clock() + min(throttle_ms, WAIT_MS_MAX) / 1_000
        if response.status >= 300:
            raise self._refusal(response, content)
        return Answer(response.status, response.headers, content)

    def _refusal(self, response: urllib3.BaseHTTPResponse, content: bytes) -> RollwayError:
        """Return the error for a response that is no success."""
        url, status = self._settings.url, response.status
        if response.headers.get("Content-Type", "").startswith(PROBLEM):
            with contextlib.suppress(ValueError, RecursionError):
                problem = json.loads(content)
                if isinstance(problem, dict):
                    return problem_error(url, status, problem)
        seconds = _number(response.headers.get("Retry-After"))
        problem = {
            "code": "no_problem_document",
            "detail": f"the answer has status {status} and is not Rollway's; is {url} its address?",
            "retryable": status in _GATEWAY_STATUSES,
            "retry_after_ms": None if seconds is None else seconds * 1_000,
        }
        return problem_error(url, status, problem)


def _content_of(response: urllib3.BaseHTTPResponse, bytes_max: int) -> bytes:
    """Return the whole content of a response. Keep its connection, or close it if unread bytes may follow.

    Raises:
        HTTPError: the content is truncated or cannot be read.
        AnswerTooLargeError: it has more than ``bytes_max``, decompressed. The rest is not read.
    """
    try:
        check_head(response)
        length = response.headers.get("Content-Length")
        if length is not None and int(length.split(",")[0]) > bytes_max:
            raise _too_large(bytes_max)
        if "Transfer-Encoding" not in response.headers and "Content-Encoding" not in response.headers:
            return response.data
        content = bytearray()
        for piece in response.stream(_PIECE_BYTES, decode_content=True):
            content += piece
            if len(content) > bytes_max:
                raise _too_large(bytes_max)
        return bytes(content)
    except (ValueError, OverflowError) as error:
        # A chunk has an impossible length. Errors of the connection and of codings are of other types.
        response.close()
        raise ProtocolError(f"the answer cannot be read: {error}") from None
    except BaseException:
        response.close()
        raise
    finally:
        response.release_conn()


def _too_large(bytes_max: int) -> AnswerTooLargeError:
    return AnswerTooLargeError(
        f"the answer has more than {bytes_max} bytes; answer_bytes_max of the settings may be more"
    )


def _number(text: str | None) -> int | None:
    """Return the number in a header; ``None`` for any other text, and for one with too many digits."""
    return int(text) if text is not None and text.isdecimal() and len(text) <= _DIGITS_MAX else None


def _milliseconds(value: object) -> int | None:
    """Return the time to wait of a problem document; ``None`` for any other value."""
    return value if type(value) is int and value >= 0 else None


def _headers(settings: ClientSettings) -> dict[str, str]:
    headers = {"User-Agent": USER_AGENT, "Client-Id": settings.client_id, "Accept-Encoding": "identity"}
    if settings.token is not None:
        headers["Authorization"] = f"Bearer {settings.token}"
    return headers


def _ssl_context(settings: ClientSettings) -> ssl.SSLContext | None:
    """Return the trusted authorities and the client's certificate for TLS; ``None`` without TLS.

    Raises:
        RollwayError: a file cannot be read, or has no certificate or key.
    """
    if not settings.url.startswith("https:"):
        return None
    named = settings.ca_file
    try:
        context = ssl.create_default_context(cafile=settings.ca_file)
        if settings.client_certificate is not None:
            named = settings.client_certificate
            # Without a password OpenSSL would prompt for one at the terminal of a task.
            password = settings.client_key_password or ""
            context.load_cert_chain(settings.client_certificate, settings.client_key, password)
    except (OSError, ValueError) as error:
        raise RollwayError(f"cannot use the certificates in {named}: {_one_line(error)}") from error
    return context


def _is_for_good(error: HTTPError) -> bool:
    """Return whether a retry cannot help: a certificate is not trusted, or the address is not valid."""
    if isinstance(error, LocationValueError):
        return True
    return isinstance(error, SSLError) and any(isinstance(cause, ssl.SSLCertVerificationError) for cause in error.args)


def _one_line(error: BaseException) -> str:
    """Return an error's message in one line, without object addresses and other noise of the upper layers."""
    match error:
        case ConnectTimeoutError() if not isinstance(error, NewConnectionError):
            return "the connection was not made in time"
        case ReadTimeoutError():
            return "no answer in time"
        case NewConnectionError() if error.__cause__ is not None:
            return str(error.__cause__)
        case IncompleteRead():
            return "the connection broke in the midst of the answer"
        case ProtocolError() if error.args:
            return " ".join(str(error.args[-1]).split())
        case _:
            return " ".join(str(error).split())
