"""Keys, tokens and ACLs on the disk: ``<data>/rollway/access/{keys,tokens,acls}.json``.

Each file has a checksum and is replaced in one step. It holds the SHA-256 of a key's or a token's secret, never the
secret.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from app.access.acls import Acl, Permission
from app.access.credentials import Credential, Grant, Key, Token
from app.access.operations import Operation, Pattern, PatternKind, ResourceKind
from log_model.errors import CorruptionError
from storage.disk.checked_json import dump_checked, parse_checked
from storage.disk.file_names import TEMPORARY_SUFFIX
from storage.disk.file_system import FileSystem
from storage.disk.whole_files import read_file, write_file_atomically

_VERSION = 1
FILE_BYTES_MAX = 32 * 1024 * 1024
"""The longest file that a start reads. A longer file is never written: the service would not start again."""
_KEYS, _TOKENS, _ACLS = "keys", "tokens", "acls"

Entry = TypeVar("Entry")


class FullError(Exception):
    """A file would be longer than ``FILE_BYTES_MAX``. It was not written."""


@dataclass(frozen=True, slots=True)
class StoredAccess:
    """The content of the three files."""

    keys: tuple[Key, ...] = ()
    tokens: tuple[Token, ...] = ()
    acls: frozenset[Acl] = field(default_factory=frozenset)


class AccessFiles:
    """The three files in ``directory``. The first ``save_*`` creates the directory.

    Thread: one at a time.
    """

    def __init__(self, file_system: FileSystem, directory: Path) -> None:
        self.directory = directory
        self._file_system = file_system

    def load(self) -> StoredAccess:
        """Read the files. A file that does not exist counts as empty.

        Raises:
            CorruptionError: a file is damaged. A guess at its rights would be worse than no access at all.
            OSError: the disk refused.
        """
        return StoredAccess(
            tuple(self._read(_KEYS, _parse_key)),
            tuple(self._read(_TOKENS, _parse_token)),
            frozenset(self._read(_ACLS, _parse_acl)),
        )

    def save_keys(self, keys: Iterable[Key]) -> None:
        """Replace the keys. Durable: on return.

        Raises:
            NotDurableError: the file holds the new keys, but the next start may not find them.
            FullError, OSError: the file holds the old keys.
        """
        self._write(_KEYS, [_credential_document(key) for key in keys])

    def save_tokens(self, tokens: Iterable[Token]) -> None:
        """Replace the tokens. Durable: on return. Raises as ``save_keys``."""
        self._write(_TOKENS, [_token_document(token) for token in tokens])

    def save_acls(self, acls: Iterable[Acl]) -> None:
        """Replace the ACLs. Durable: on return. Raises as ``save_keys``."""
        documents = [
            {
                "principal": acl.principal,
                "permission": acl.permission.value,
                "operation": acl.operation.value,
                **_pattern_document(acl.pattern),
            }
            for acl in sorted(acls)
        ]
        self._write(_ACLS, documents)

    def _path_of(self, name: str) -> Path:
        return self.directory / f"{name}.json"

    def _write(self, name: str, entries: list[dict[str, Any]]) -> None:
        content = dump_checked({"version": _VERSION, name: entries})
        if len(content) > FILE_BYTES_MAX:
            raise FullError(f"{self._path_of(name)} would have {len(content)} bytes")
        if not self._file_system.is_directory(self.directory):
            self._file_system.make_directory(self.directory)
            self._file_system.sync_directory(self.directory.parent)
        write_file_atomically(self._file_system, self._path_of(name), content)

    def _read(self, name: str, parse: Callable[[dict[str, Any]], Entry]) -> list[Entry]:
        path = self._path_of(name)
        temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
        if self._file_system.exists(temporary):
            self._file_system.unlink(temporary)
        if not self._file_system.exists(path):
            return []
        try:
            content = parse_checked(read_file(self._file_system, path, FILE_BYTES_MAX), frozenset({"version", name}))
            if content["version"] != _VERSION:
                raise ValueError(f"version {content['version']!r} is not {_VERSION}")
            return [parse(entry) for entry in content[name]]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise CorruptionError(
                f"{path} is damaged: {error}. Restore it from a backup, or move it away to start without its {name}"
            ) from error


def size_of_tokens(tokens: Iterable[Token]) -> int:
    """Return about how many bytes these tokens take in their file."""
    return len(dump_checked({_TOKENS: [_token_document(token) for token in tokens]}))


def _token_document(token: Token) -> dict[str, Any]:
    return {
        **_credential_document(token),
        "issuer_key": token.issuer_key,
        "grants": [{"operation": grant.operation.value, **_pattern_document(grant.pattern)} for grant in token.grants],
    }


def _pattern_document(pattern: Pattern) -> dict[str, str]:
    return {
        "resource_type": pattern.kind.value,
        "resource_name": pattern.name,
        "pattern_type": pattern.pattern.value,
    }


def _parse_pattern(entry: dict[str, Any]) -> Pattern:
    return Pattern(
        ResourceKind(entry["resource_type"]), _text(entry["resource_name"]), PatternKind(entry["pattern_type"])
    )


def _credential_document(credential: Credential) -> dict[str, Any]:
    return {
        "id": credential.number,
        "principal": credential.principal,
        "secret_sha256": credential.secret_sha256.hex(),
        "created_ms": credential.created_ms,
        "expires_ms": credential.expires_ms,
        "description": credential.description,
    }


def _parse_key(entry: dict[str, Any]) -> Key:
    return Key(**_credential_fields(entry))


def _parse_token(entry: dict[str, Any]) -> Token:
    issuer_key = entry["issuer_key"]
    return Token(
        **_credential_fields(entry),
        issuer_key=None if issuer_key is None else _text(issuer_key),
        grants=tuple(Grant(Operation(each["operation"]), _parse_pattern(each)) for each in entry["grants"]),
    )


def _credential_fields(entry: dict[str, Any]) -> dict[str, Any]:
    digest = bytes.fromhex(entry["secret_sha256"])
    if len(digest) != 32:
        raise ValueError("a secret_sha256 has not 32 bytes")
    expires_ms = entry["expires_ms"]
    return {
        "number": _text(entry["id"]),
        "principal": _text(entry["principal"]),
        "secret_sha256": digest,
        "created_ms": _time(entry["created_ms"]),
        "expires_ms": None if expires_ms is None else _time(expires_ms),
        "description": _text(entry["description"]),
    }


def _parse_acl(entry: dict[str, Any]) -> Acl:
    return Acl(
        _text(entry["principal"]), Permission(entry["permission"]), Operation(entry["operation"]), _parse_pattern(entry)
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _time(value: object) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r} is no time")
    return value
