"""Keys and ACLs of a data directory without a running service: this is how the first key is created."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from app.access.registry import AccessChangeError, AccessRegistry
from app.cli.command_errors import CommandError
from log_model.clock import SystemClock
from log_model.errors import StorageError
from storage.disk.file_names import LOCK
from storage.disk.file_system import LocalFileSystem
from storage.disk.whole_files import NotDurableError

_LOGS = "logs"
_OWN = "rollway"


@contextmanager
def open_registry(data_dir: Path, *, may_make: bool = True) -> Iterator[AccessRegistry]:
    """Open the registry of a data directory, and lock the directory against services in the block.

    A missing directory is created, unless ``may_make`` is false: commands that list or revoke create none.

    Raises:
        CommandError: a service uses the directory, a file is damaged, a change is not valid, or there is no data
            directory and ``may_make`` is false.
        OSError: the disk refused.
    """
    disk = LocalFileSystem()
    if not may_make and not (data_dir / _OWN).is_dir():
        raise CommandError(f"{data_dir} is no data directory: no service has used it, and no key was made in it.")
    for directory in (*reversed([path for path in data_dir.parents if not path.exists()]), data_dir):
        disk.make_directory(directory)
    for name in (_LOGS, _OWN):
        disk.make_directory(data_dir / name)
    disk.sync_directory(data_dir)
    try:
        lock = disk.lock(data_dir / _LOGS / LOCK)
    except BlockingIOError:
        raise CommandError(
            f"The data directory {data_dir} is in use by a service: ask that one with --server and --api-key."
        ) from None
    try:
        yield AccessRegistry.open(data_dir / _OWN, disk, SystemClock().now_ms)
    except NotDurableError as error:
        raise CommandError(
            f"The change is made, but the disk did not make it durable ({error.strerror}): look whether it is there "
            "after the next start."
        ) from None
    except (AccessChangeError, StorageError) as error:
        raise CommandError(f"{str(error).rstrip('.')}.") from None
    finally:
        lock.release()
