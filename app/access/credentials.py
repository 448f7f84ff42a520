"""API keys and scoped tokens: the secret that their owner gets once, and the hash that the service keeps.

A secret has 256 random bits. A plain SHA-256 of it reveals nothing and costs a microsecond; slow hashes are for
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
    """One right of a token: an operation on the resources of a pattern."""

    operation: Operation
    pattern: Pattern


@dataclass(frozen=True, slots=True)
class Credential:
    """A key or a token as the service keeps it: with the hash of its secret. Times are wall time in milliseconds."""

    number: str
    principal: str
    secret_sha256: bytes
    created_ms: int
    expires_ms: int | None
    description: str

    def matches(self, secret: str) -> bool:
        """Return whether this is its secret. A wrong secret takes as long as the right one."""
        return hmac.compare_digest(self.secret_sha256, hash_secret(secret))

    def is_expired(self, now_ms: int) -> bool:
        return self.expires_ms is not None and now_ms >= self.expires_ms


@dataclass(frozen=True, slots=True)
class Key(Credential):
    """An API key. Its owner acts as ``principal``."""


@dataclass(frozen=True, slots=True)
class Token(Credential):
    """A scoped token: some of the rights of its issuer ``principal``, and never more than these.

    ``issuer_key`` is the API key that created it, or ``None`` if another credential did. The token ends with that key.
    """

    issuer_key: str | None
    grants: tuple[Grant, ...]


def new_number() -> str:
    """Return the public half of a new key or token."""
    return secrets.token_hex(8)


def new_secret() -> str:
    """Return the secret half: 256 random bits in 43 characters."""
    return secrets.token_urlsafe(_SECRET_BYTES)


def hash_secret(secret: str) -> bytes:
    """Return the hash of a secret, which is stored in its place."""
    return hashlib.sha256(secret.encode()).digest()


def compare_with_nothing(secret: str) -> None:
    """Compare with nothing, so that a number that does not exist takes as long as one that does."""
    hmac.compare_digest(_NOTHING, hash_secret(secret))


def written(prefix: str, number: str, secret: str) -> str:
    """Return the whole credential, which its owner gets: ``rwk_`` or ``rwt_``, number, ``_``, secret."""
    return f"{prefix}{number}_{secret}"


def read(text: str) -> tuple[str, str, str] | None:
    """Return prefix, number and secret of a credential; ``None`` if the text is not in the form of one."""
    found = _FORM.fullmatch(text)
    return None if found is None else (found[1], found[2], found[3])
