"""The address of a service, the credential, and the timeouts of requests."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

CONNECT_TIMEOUT_MS_DEFAULT = 10_000
READ_TIMEOUT_MS_DEFAULT = 60_000
REQUEST_TIMEOUT_MS_DEFAULT = 300_000
ANSWER_BYTES_MAX_DEFAULT = 257 * 1024 * 1024
"""A fetch returns at least one whole batch, even above its ``max_bytes``, and a log may have one of 256 MiB."""
RETRIES_DEFAULT = 10
BACKOFF_MS_DEFAULT = 100
BACKOFF_MS_MAX_DEFAULT = 10_000


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """The settings of a ``RollwayClient``. Picklable. Their ``repr`` shows no token and no password.

    ``token`` is an API key, a token or a JWT. A failed request is sent again up to ``retries`` times. The pauses begin
    with ``backoff_ms`` and double up to ``backoff_ms_max``, or are as long as the service asks for.

    On each try, at most ``read_timeout_ms`` may pass without a byte of the response, and it must be complete after
    ``request_timeout_ms``. The wait that a call asks for is added to both. A response has at most ``answer_bytes_max``
    bytes, or the bytes that a call asks for and 1 MiB if that is more; otherwise the call raises
    ``AnswerTooLargeError``.

    Example: ``ClientSettings("https://rollway.example:8080", token="rwk_...", retries=3)`` tries each request at most
    four times.

    Raises:
        ValueError: a setting has no valid value. The message is one sentence and shows no secret.
    """

    url: str
    token: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    client_certificate: str | None = None
    client_key: str | None = None
    client_key_password: str | None = field(default=None, repr=False)
    connect_timeout_ms: int = CONNECT_TIMEOUT_MS_DEFAULT
    read_timeout_ms: int = READ_TIMEOUT_MS_DEFAULT
    request_timeout_ms: int = REQUEST_TIMEOUT_MS_DEFAULT
    answer_bytes_max: int = ANSWER_BYTES_MAX_DEFAULT
    retries: int = RETRIES_DEFAULT
    backoff_ms: int = BACKOFF_MS_DEFAULT
    backoff_ms_max: int = BACKOFF_MS_MAX_DEFAULT
    client_id: str = "rollway"

    def __post_init__(self) -> None:
        object.__setattr__(self, "url", _checked_url(self.url))
        for name in (
            "connect_timeout_ms",
            "read_timeout_ms",
            "request_timeout_ms",
            "answer_bytes_max",
            "backoff_ms",
            "backoff_ms_max",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, but must be at least 1")
        if self.retries < 0:
            raise ValueError(f"retries is {self.retries}, but must be at least 0")
        if self.client_key is not None and self.client_certificate is None:
            raise ValueError("client_key needs client_certificate")
        for name in ("token", "client_id"):
            text = getattr(self, name)
            if text is not None and not (text.isascii() and text.isprintable() and text.strip() == text and text):
                raise ValueError(f"{name} must be printable ASCII without spaces around it")


def _checked_url(url: str) -> str:
    """Return ``url`` without a slash at its end.

    Raises:
        ValueError: it is not the address of a service.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"{url!r} is not an address: {error}") from None
    if parts.username is not None or parts.password is not None:
        raise ValueError("the address must not have a user or a password in it; give the key or token by itself")
    if not url.isprintable() or " " in url:
        raise ValueError(f"{url!r} has characters that no address has")
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise ValueError(f"{url!r} is not an address like http://127.0.0.1:8080")
    if parts.query or parts.fragment:
        raise ValueError(f"{url!r} has a query or a fragment; the address of a service has neither")
    return url.rstrip("/")
