"""API keys and scoped tokens: what is given out once, and what is kept of it.

A secret has 256 random bits, so a plain SHA-256 of it tells nothing and costs a microsecond; slow hashes are for
passwords that people choose.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass

from app.access.operations import Operation, Pattern

KEY_PREFIX = "rwk_"
TOKEN_PREFIX = "rwt_"  # noqa: S105 - a prefix, no secret
_SECRET_BYTES = 32
_FORM = re.compile(r"(rwk_|rwt_)([0-9a-f]{16})_([A-Za-z0-9_-]{43})", re.ASCII)
_NOTHING = bytes(32)


@dataclass(frozen=True, slots=True)
class Grant:
    """What a token may be used for: one operation on the resources of a pattern."""

    operation: Operation
    pattern: Pattern


@dataclass(frozen=True, slots=True)
class Credential:
    """What the service keeps of a key or a token: everything but its secret. Times are wall time in ms."""

    number: str
    principal: str
    secret_sha256: bytes
    created_ms: int
    expires_ms: int | None
    description: str

    def matches(self, secret: str) -> bool:
        """Whether this is its secret. Takes as long for a wrong one as for the right one."""
        return hmac.compare_digest(self.secret_sha256, hash_secret(secret))

    def is_expired(self, now_ms: int) -> bool:
        return self.expires_ms is not None and now_ms >= self.expires_ms


@dataclass(frozen=True, slots=True)
class Key(Credential):
    """An API key: whoever has it is ``principal``."""


@dataclass(frozen=True, slots=True)
class Token(Credential):
    """A scoped token: some of what its issuer ``principal`` may do, and never more than that.

    ``issuer_key`` is the API key it was made with, if it was one: the token ends with it.
    """

    issuer_key: str | None
    grants: tuple[Grant, ...]


def new_number() -> str:
    """The public half of a new key or token."""
    return secrets.token_hex(8)


def new_secret() -> str:
    """The secret half: 256 random bits in 43 characters."""
    return secrets.token_urlsafe(_SECRET_BYTES)


def hash_secret(secret: str) -> bytes:
    """What is stored of a secret."""
    return hashlib.sha256(secret.encode()).digest()


def compare_with_nothing(secret: str) -> None:
    """What a comparison costs: a number that does not exist takes as long as one that does."""
    hmac.compare_digest(_NOTHING, hash_secret(secret))


def written(prefix: str, number: str, secret: str) -> str:
    """The whole credential, as it is given to its owner."""
    return f"{prefix}{number}_{secret}"


def read(text: str) -> tuple[str, str, str] | None:
    """Prefix, number and secret of a credential; ``None`` when it has not the form of one."""
    found = _FORM.fullmatch(text)
    return None if found is None else (found[1], found[2], found[3])
