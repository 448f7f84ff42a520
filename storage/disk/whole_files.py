"""Small files, which are read and written as a whole, on any file system."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterable
from pathlib import Path

from log_model.errors import CorruptionError
from storage.disk.file_names import TEMPORARY_SUFFIX
from storage.disk.file_system import FileSystem


class NotDurableError(OSError):
    """A change is visible, but the disk refused to make it durable: the next start may find it or not."""


def read_file(file_system: FileSystem, path: Path, size_max: int) -> bytes:
    """Read a whole small file.

    Raises:
        FileNotFoundError: it does not exist.
        OSError: EFBIG if it is longer than ``size_max`` bytes.
    """
    with contextlib.closing(file_system.open(path, writable=False)) as file:
        size = file.size()
        if size > size_max:
            raise OSError(errno.EFBIG, f"longer than {size_max} bytes", str(path))
        return file.read(0, size)


def read_text(file_system: FileSystem, path: Path, size_max: int, damaged: type[CorruptionError]) -> str | None:
    """Read a whole small text file; return ``None`` if it does not exist.

    Raises:
        CorruptionError: of the class ``damaged``: it is longer than ``size_max`` bytes, or not UTF-8.
    """
    try:
        return read_file(file_system, path, size_max).decode()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise damaged(f"{path}: not UTF-8 at byte {error.start}") from None
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise damaged(f"{path}: longer than {size_max} bytes") from None
        raise


def write_file_atomically(file_system: FileSystem, path: Path, content: bytes) -> None:
    """Replace ``path`` atomically: after a crash it has the old or the new content. Durable: on return.

    Raises:
        NotDurableError: it has the new content, which the next start may find or not.
        OSError: it has the old content.
    """
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    if file_system.exists(temporary):
        file_system.unlink(temporary)
    with contextlib.closing(file_system.open(temporary, create=True)) as file:
        try:
            if content:
                file.write(0, [content])
            file.sync()
        except OSError:
            # On a full disk a partial file takes space that other writes need.
            with contextlib.suppress(OSError):
                file_system.unlink(temporary)
            raise
    file_system.rename(temporary, path)
    try:
        file_system.sync_directory(path.parent)
    except OSError as error:
        raise NotDurableError(error.errno, error.strerror, error.filename) from error


def write_new_file(file_system: FileSystem, path: Path, content: bytes) -> None:
    """Make a file that no reader depends on yet. Durable: after ``sync_new_file`` and a sync of its directory."""
    with contextlib.closing(file_system.open(path, create=True)) as file:
        file.write(0, [content])


def sync_new_file(file_system: FileSystem, path: Path) -> None:
    """Make the content that ``write_new_file`` wrote durable, but not its name."""
    with contextlib.closing(file_system.open(path)) as file:
        file.sync()


def remove_files(file_system: FileSystem, paths: Iterable[Path]) -> None:
    """Remove files that may be there. Durable: on return."""
    for path in paths:
        if file_system.exists(path):
            file_system.unlink(path)
        file_system.sync_directory(path.parent)
