"""Verification of JWTs that another issuer signed, and the principals that they name.

Keys come from a file with a JWK set or a PEM public key. The service fetches nothing. The algorithm must be one of
the settings' and must fit the key: the token's header cannot choose another.
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jwt
from cryptography.hazmat.primitives.serialization import load_pem_public_key

PRINCIPAL_TYPE = "Jwt"
LEEWAY_SECONDS = 30
_TOKEN_LENGTH_MAX = 8_192
_SUBJECT_LENGTH_MAX = 200
# End of the year 9999.
_EXPIRES_MS_MAX = 253_402_300_800_000
_VERIFIED_MAX = 10_000
_FILE_BYTES_MAX = 1024 * 1024
_FILE_CHECK_INTERVAL_MS = 1_000


class JwtError(Exception):
    """The token is not accepted. The message gives the reason, without any part of the token."""


class KeyFileError(ValueError):
    """The file of keys cannot be used; the message is for people."""


class _VerifyingKey(NamedTuple):
    key: Any
    number: str | None
    algorithm: str | None


class _Verified(NamedTuple):
    principal: str
    expires_ms: float


class JwtVerifier:
    """The verifier of tokens. It caches the 10,000 latest, until they expire or the file of keys changes.

    When a token arrives, the verifier checks the file again, at most once a second: tokens of a key that was removed
    from the file are refused after that second. A new file that cannot be used changes nothing.

    Thread: the event loop. One verification takes about a tenth of a millisecond.
    """

    def __init__(
        self,
        path: Path,
        algorithms: Sequence[str],
        issuer: str,
        audience: str,
        now_ms: Callable[[], int],
        elapsed_ms: Callable[[], int],
    ) -> None:
        """Read the keys.

        Raises:
            KeyFileError: the file has no keys, or one of them is a secret or private key.
        """
        self._path = path
        self._algorithms = list(algorithms)
        self._issuer = issuer
        self._audience = audience
        self._now_ms = now_ms
        self._elapsed_ms = elapsed_ms
        self._verified: OrderedDict[bytes, _Verified] = OrderedDict()
        self._keys = _read_keys(path)
        self._stamp = _stamp_of(path)
        self._checked_ms = elapsed_ms()

    def principal_of(self, token: str) -> str:
        """Return the principal that the token names.

        Raises:
            JwtError: the token is not accepted.
        """
        if len(token) > _TOKEN_LENGTH_MAX:
            raise JwtError("it is too long")
        self._look_at_file()
        digest = hashlib.sha256(token.encode()).digest()
        known = self._verified.get(digest)
        if known is not None and self._now_ms() < known.expires_ms:
            self._verified.move_to_end(digest)
            return known.principal
        verified = self._verify(token)
        self._verified[digest] = verified
        if len(self._verified) > _VERIFIED_MAX:
            self._verified.popitem(last=False)
        return verified.principal

    def _verify(self, token: str) -> _Verified:
        try:
            header = jwt.get_unverified_header(token)
            algorithm = header.get("alg")
            if algorithm not in self._algorithms:
                raise JwtError("its algorithm is not one of the service's")
            claims = self._claims(token, algorithm, header.get("kid"))
            expires_ms = (int(claims["exp"]) + LEEWAY_SECONDS) * 1000
            if expires_ms > _EXPIRES_MS_MAX:
                raise JwtError("its expiry is no time that comes")
        except jwt.ExpiredSignatureError:
            raise JwtError("it has expired") from None
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as error:
            # The message could hold parts of the token.
            raise JwtError(f"it is not valid ({type(error).__name__})") from None
        subject = claims["sub"]
        if not subject or len(subject) > _SUBJECT_LENGTH_MAX or not subject.isprintable():
            raise JwtError("its subject is empty, too long, or not printable")
        return _Verified(f"{PRINCIPAL_TYPE}:{subject}", expires_ms)

    def _claims(self, token: str, algorithm: str, number: object) -> dict[str, Any]:
        candidates = [
            key
            for key in self._keys
            if key.algorithm in (None, algorithm) and (number is None or key.number in (None, number))
        ]
        error: Exception = jwt.InvalidSignatureError("no key of this kind")
        for candidate in candidates:
            try:
                claims: dict[str, Any] = jwt.decode(
                    token,
                    candidate.key,
                    algorithms=[algorithm],
                    audience=self._audience,
                    issuer=self._issuer,
                    leeway=LEEWAY_SECONDS,
                    options={"require": ["exp", "sub", "iss", "aud"]},
                )
            except (jwt.InvalidSignatureError, jwt.InvalidKeyError, TypeError) as failure:
                # Another key signed the token, or another kind of key.
                error = failure
            else:
                return claims
        raise error

    def _look_at_file(self) -> None:
        now_ms = self._elapsed_ms()
        if now_ms - self._checked_ms < _FILE_CHECK_INTERVAL_MS:
            return
        self._checked_ms = now_ms
        stamp = _stamp_of(self._path)
        if stamp is None or stamp == self._stamp:
            return
        try:
            keys = _read_keys(self._path)
        except KeyFileError:
            return
        self._keys, self._stamp = keys, stamp
        self._verified.clear()


def _stamp_of(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _read_keys(path: Path) -> list[_VerifyingKey]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise KeyFileError(f"{path} cannot be read: {error.strerror}") from None
    if len(content) > _FILE_BYTES_MAX:
        raise KeyFileError(f"{path} has more than {_FILE_BYTES_MAX} bytes")
    keys = _pem_keys(path, content) if b"-----BEGIN" in content else _jwk_keys(path, content)
    if not keys:
        raise KeyFileError(f"{path} has no key that verifies signatures")
    return keys


def _pem_keys(path: Path, content: bytes) -> list[_VerifyingKey]:
    if b"PRIVATE KEY" in content:
        raise KeyFileError(f"{path} holds a private key; the service needs the public one alone")
    try:
        return [_VerifyingKey(load_pem_public_key(content), None, None)]
    except ValueError:
        raise KeyFileError(f"{path} is no PEM public key") from None


def _jwk_keys(path: Path, content: bytes) -> list[_VerifyingKey]:
    try:
        document = json.loads(content)
        entries = document.get("keys", [document])
        keys = []
        for entry in entries:
            if entry.get("use", "sig") != "sig":
                continue
            if entry.get("kty") == "oct" or "d" in entry:
                raise KeyFileError(f"{path} holds a secret or private key; the service needs public ones alone")
            algorithm = entry.get("alg")
            key = jwt.PyJWK(entry).key
            keys.append(_VerifyingKey(key, entry.get("kid"), algorithm))
    except KeyFileError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, jwt.PyJWTError):
        raise KeyFileError(f"{path} is neither a JWK set nor a PEM public key") from None
    return keys
