"""The file of quotas: it has a checksum, and every change rewrites it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from app.quotas.limits import QUOTA_COUNT_MAX, QuotaEntity, QuotaKind, QuotaTable
from log_model.errors import CorruptionError, outcome_unknown, refused_by_system
from storage.disk.checked_json import dump_checked, parse_checked
from storage.disk.file_system import FileSystem
from storage.disk.whole_files import NotDurableError, read_file, write_file_atomically

FILE = "quotas"
_VERSION = 1
_MEMBERS = frozenset({"version", "quotas"})
_FILE_BYTES_MAX = 16 * 1024 * 1024


class QuotaStore:
    """The quotas on the disk.

    Thread: one at a time. Durable: the quotas that ``save`` wrote, once it returns.
    """

    def __init__(self, file_system: FileSystem, own_directory: Path) -> None:
        self._file_system = file_system
        self.path = own_directory / FILE

    def load(self) -> QuotaTable:
        """Return all quotas; none if there is no file.

        Raises:
            CorruptionError: the file is damaged.
        """
        if not self._file_system.exists(self.path):
            return QuotaTable()
        try:
            content = parse_checked(read_file(self._file_system, self.path, _FILE_BYTES_MAX), _MEMBERS)
            if content["version"] != _VERSION:
                raise ValueError(f"version {content['version']!r} is not {_VERSION}")
            return QuotaTable({_entity(entry): _limits(entry) for entry in content["quotas"][:QUOTA_COUNT_MAX]})
        except (ValueError, KeyError, TypeError, AttributeError, OSError, RecursionError) as error:
            raise CorruptionError(
                f"{self.path} is damaged: {error}. Restore it, or move it away to start without quotas"
            ) from error

    def save(self, table: QuotaTable) -> None:
        """Write all quotas.

        Raises:
            DiskFullError, TooManyOpenFilesError, DiskFailedError: the disk refused; the file holds the old quotas.
            ChangeOutcomeUnknownError: the file holds the new quotas, but the next start may not find them.
        """
        entries = [
            {
                "user": entity.user,
                "client_id": entity.client_id,
                **{kind.value: per_second for kind, per_second in limits.items()},
            }
            for entity, limits in table.items()
        ]
        try:
            write_file_atomically(self._file_system, self.path, dump_checked({"version": _VERSION, "quotas": entries}))
        except NotDurableError as error:
            raise outcome_unknown("the quotas are in force, but not durable", error) from error
        except OSError as error:
            raise refused_by_system(f"{self.path} could not be written", error) from error


def _entity(entry: dict[str, Any]) -> QuotaEntity:
    names = entry["user"], entry["client_id"]
    if not all(name is None or isinstance(name, str) for name in names) or names == (None, None):
        raise ValueError(f"{names!r} names neither a user nor a client of a quota")
    return QuotaEntity(*names)


def _limits(entry: dict[str, Any]) -> dict[QuotaKind, float]:
    limits = {kind: entry[kind.value] for kind in QuotaKind if kind.value in entry}
    for kind, per_second in limits.items():
        if isinstance(per_second, bool) or not isinstance(per_second, int | float) or not per_second > 0:
            raise ValueError(f"{kind.value} {per_second!r} is no positive number")
    return limits
