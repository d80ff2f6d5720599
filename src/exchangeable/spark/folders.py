"""Files of a checkpoint, on any file system that Spark can use."""

from __future__ import annotations

from typing import Any, cast

from pyspark.sql import SparkSession


class Folder:
    """A folder, through Hadoop's file systems."""

    def __init__(self, spark: SparkSession, name: str) -> None:
        self.name = name
        self._jvm = cast(Any, spark._jvm)
        self._settings = spark._jsparkSession.sessionState().newHadoopConf()
        self._files = self._path("").getFileSystem(self._settings)

    def _path(self, name: str) -> Any:
        path = self._jvm.org.apache.hadoop.fs.Path
        return path(self.name, name) if name else path(self.name)

    def exists(self, name: str = "") -> bool:
        """Return whether the folder exists, or a file or folder in it."""
        return bool(self._files.exists(self._path(name)))

    def newest(self, name: str) -> int | None:
        """Return the highest number among the files of a log; None if there are none."""
        if not self.exists(name):
            return None
        return max((int(one) for one in self.names(name) if one.isdigit()), default=None)

    def names(self, name: str) -> list[str]:
        """Return the names of the files and folders in a folder."""
        return [status.getPath().getName() for status in self._files.listStatus(self._path(name))]

    def read(self, name: str) -> str:
        """Return the text of a file."""
        stream = self._files.open(self._path(name))
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
        """Replace a file."""
        stream = self._files.create(self._path(name), True)
        try:
            stream.write(text.encode())
        finally:
            stream.close()

    def copy(self, name: str, other: Folder) -> None:
        """Copy a file or a folder into another folder."""
        utilities = self._jvm.org.apache.hadoop.fs.FileUtil
        source, target = self._path(name), other._path(name)
        if not utilities.copy(self._files, source, other._files, target, False, self._settings):
            raise OSError(f"{source.toString()} could not be copied to {target.toString()}")

    def move(self, name: str, target: str) -> None:
        """Rename a file."""
        if not self._files.rename(self._path(name), self._path(target)):
            raise OSError(f"{self._path(name).toString()} could not be renamed to {target}")

    def delete(self, name: str = "") -> None:
        """Delete the folder, or a part of it, if it exists."""
        self._files.delete(self._path(name), True)
