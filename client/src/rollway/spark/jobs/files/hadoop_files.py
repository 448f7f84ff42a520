"""Files on Spark's file systems: local, HDFS, object stores. They use the JVM's Hadoop with the session's settings.

Small files in a local folder, or on NFS, are read and written without Hadoop. Hadoop keeps a checksum in a second file:
after a kill between the two writes the first one is unreadable. It also does not wait for the disk.
"""

from __future__ import annotations

import errno
import os
import uuid
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from rollway.spark.jobs.errors import JobError

_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
"""Errors of a file system without hard links."""


class HadoopFiles:
    """A few operations on Spark's paths. Thread: one.

    Raises:
        JobError: the session is one of Spark Connect, which has no JVM here; or a file cannot be read or written.
    """

    def __init__(self, spark: SparkSession) -> None:
        jvm = getattr(spark, "_jvm", None)
        if jvm is None:
            raise JobError("Export needs a classic Spark session: one of Spark Connect cannot rename files.")
        self._jvm: Any = jvm
        self._settings: Any = spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001 - there is no public way
        self._locals: dict[str, Path | None] = {}

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(path)

    def _system(self, path: str) -> Any:
        return self._path(path).getFileSystem(self._settings)

    def _local(self, path: str) -> Path | None:
        """Return the local path, if the file system is the local one. A path that was asked for before needs no JVM,
        which may have ended together with this process."""
        if path not in self._locals:
            uri = self._system(path).makeQualified(self._path(path)).toUri()
            self._locals[path] = Path(uri.getPath()) if uri.getScheme() == "file" else None
        return self._locals[path]

    def read_text(self, path: str) -> str | None:
        """Read a whole small file; return ``None`` if there is none. Bytes that are not UTF-8 are replaced."""
        try:
            local = self._local(path)
            if local is not None:
                return local.read_bytes().decode("utf-8", "replace")
            if not self._system(path).exists(self._path(path)):
                return None
            with closing(self._system(path).open(self._path(path))) as stream:
                return bytes(stream.readAllBytes()).decode("utf-8", "replace")
        except FileNotFoundError:
            return None
        except (Py4JJavaError, OSError) as error:
            raise _file_error(path, "read", error) from None

    def create_text(self, path: str, text: str) -> bool:
        """Create a file with ``text``. Return false if it exists already.

        Of several callers at once one succeeds, if the file system supports that. A local one does, and never shows a
        part of the text.
        """
        try:
            local = self._local(path)
            if local is not None:
                return _create(local, text)
            with closing(self._system(path).create(self._path(path), False)) as stream:
                stream.write(text.encode("utf-8"))
        except Py4JJavaError as error:
            if error.java_exception.getClass().getSimpleName() == "FileAlreadyExistsException":
                return False
            raise _file_error(path, "written", error) from None
        except OSError as error:
            raise _file_error(path, "written", error) from None
        return True

    def replace_text(self, path: str, text: str) -> None:
        """Replace the content of ``path`` with ``text``. Readers find the old or the new text, never a part. In a local
        folder the text is durable on return."""
        unfinished = f"{path}.unfinished"
        try:
            local = self._local(path)
            if local is not None:
                _replace(local, text)
                return
            with closing(self._system(path).create(self._path(unfinished), True)) as stream:
                stream.write(text.encode("utf-8"))
            self._rename(unfinished, path, replace=True)
        except (Py4JJavaError, OSError) as error:
            raise _file_error(path, "written", error) from None

    def move(self, source: str, target: str) -> None:
        """Move a file and create its folders. Replace an existing target. Do nothing if the file was moved before."""
        try:
            system = self._system(target)
            if not system.exists(self._path(source)) and system.exists(self._path(target)):
                return
            system.mkdirs(self._path(target).getParent())
            self._rename(source, target, replace=True)
        except Py4JJavaError as error:
            raise _file_error(target, "written", error) from None

    def _rename(self, source: str, target: str, *, replace: bool) -> None:
        rename = self._jvm.org.apache.hadoop.fs.Options.Rename
        flags = self._jvm.java.lang.reflect.Array.newInstance(rename.NONE.getClass(), 1)
        self._jvm.java.lang.reflect.Array.set(flags, 0, rename.OVERWRITE if replace else rename.NONE)
        absolute = self._system(target).makeQualified(self._path(target))
        context = self._jvm.org.apache.hadoop.fs.FileContext.getFileContext(absolute.toUri(), self._settings)
        context.rename(self._system(source).makeQualified(self._path(source)), absolute, flags)

    def exists(self, path: str) -> bool:
        """Return whether there is a file or folder."""
        try:
            return bool(self._system(path).exists(self._path(path)))
        except Py4JJavaError as error:
            raise _file_error(path, "read", error) from None

    def delete(self, path: str) -> None:
        """Delete a file, or a folder with its content. A missing path is no error."""
        try:
            local = self._local(path)
            if local is not None and not local.is_dir():
                local.unlink(missing_ok=True)
                local.with_name(f".{local.name}.crc").unlink(missing_ok=True)
                return
            self._system(path).delete(self._path(path), True)
        except (Py4JJavaError, OSError) as error:
            raise _file_error(path, "deleted", error) from None

    def files_below(self, folder: str) -> list[tuple[str, int]]:
        """Return the path relative to ``folder`` and the size in bytes of every file in it and its subfolders,
        sorted."""
        try:
            root = self._system(folder).makeQualified(self._path(folder)).toUri().getPath().rstrip("/")
            listing = self._system(folder).listFiles(self._path(folder), True)
            found = []
            while listing.hasNext():
                status = listing.next()
                found.append((status.getPath().toUri().getPath()[len(root) + 1 :], int(status.getLen())))
            return sorted(found)
        except Py4JJavaError as error:
            raise _file_error(folder, "listed", error) from None


def _replace(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.unfinished")
    _write(unfinished, text)
    # A checksum of an earlier file that Hadoop wrote: Hadoop would refuse the new file because of it.
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    unfinished.replace(path)
    _sync_folder(path.parent)


def _create(path: Path, text: str) -> bool:
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        _write(whole, text)
        try:
            os.link(whole, path)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            # Without hard links the file is empty for a moment.
            with suppress(FileExistsError):
                _write(path, text, os.O_EXCL)
                return True
            return False
    finally:
        whole.unlink(missing_ok=True)
    _sync_folder(path.parent)
    return True


def _write(path: Path, text: str, flag: int = os.O_TRUNC) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | flag, 0o666), "wb") as file:
        file.write(text.encode("utf-8"))
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _file_error(path: str, verb: str, error: Py4JJavaError | OSError) -> JobError:
    if isinstance(error, OSError):
        return JobError(f"{path} cannot be {verb}: {error.strerror or error}.")
    cause = error.java_exception
    return JobError(f"{path} cannot be {verb}: {cause.getClass().getSimpleName()}: {cause.getMessage()}.")
