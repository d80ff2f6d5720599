"""The seed of a call on Spark: passed by the user, drawn on the driver, or stored in a checkpoint folder."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from exchangeable.pvalues import draw_seed
from exchangeable.validation import check_integer, format_value

COLUMN = "seed"  # in every result
LARGEST = 2**63 - 1  # the largest long of Spark
FILE, FORMAT, VERSION = "exchangeable-seed.json", "exchangeable seed", 1
MAX_BYTES = 4096  # bytes that are read from the file


def choose(seed: int | None) -> int:
    """Return the seed, or one drawn from the operating system if it is None."""
    return draw_seed() if seed is None else check_integer("seed", seed, 0, LARGEST)


def add_column(rows: DataFrame, seed: int) -> DataFrame:
    """Add the seed as the last column, so that the result can be reproduced."""
    return rows.withColumn(COLUMN, F.lit(seed).cast("long"))


class SeedFile:
    """The seed of a streaming query, in a file in its checkpoint folder, on any file system that Spark can write to.

    A query is restarted by calling `monitor_streams` again, with the same code. So a seed that was drawn must be stored
    before the first event is processed, and read again afterwards. The file is created once and never overwritten.
    """

    def __init__(self, spark: SparkSession, checkpoint: str) -> None:
        if not isinstance(checkpoint, str) or not checkpoint.strip():
            raise ValueError(f"checkpoint must be the checkpoint folder of the query, got {format_value(checkpoint)}")
        try:
            self._jvm = cast(Any, spark._jvm)
            settings = spark._jsparkSession.sessionState().newHadoopConf()
        except AttributeError:
            expected = "checkpoint must be None with Spark Connect, which gives no access to the driver's file system"
            raise ValueError(f"{expected}, got {format_value(checkpoint)}: pass a seed instead") from None
        self._folder = checkpoint
        with self._storage_errors():
            self._path = self._jvm.org.apache.hadoop.fs.Path(checkpoint, FILE)
            self._files = self._path.getFileSystem(settings)

    def choose(self, seed: int | None) -> int:
        """Return the seed to use, without writing anything. A seed other than the stored one is rejected."""
        with self._storage_errors():
            stored, started = self._read(), self._is_started()
        if stored is None and seed is None and started:
            expected = f"seed must be given for checkpoint {self._folder!r}, which was started without storing one"
            raise ValueError(f"{expected}, got None: it is in the column {COLUMN!r} of the output")
        wanted = stored if stored is not None and seed is None else choose(seed)
        if stored not in (None, wanted):
            expected = f"seed must be {stored}, with which checkpoint {self._folder!r} was started"
            raise ValueError(f"{expected}, got {wanted}: another seed needs a new checkpoint")
        return wanted

    def store(self, seed: int) -> None:
        """Store the chosen seed, unless one is stored or the checkpoint was started without a seed file."""
        with self._storage_errors():
            if self._read() is None and not self._is_started():
                self._create(json.dumps({"format": FORMAT, "version": VERSION, "seed": seed}).encode())
        self.choose(seed)  # a concurrent start may have stored another one

    @contextmanager
    def _storage_errors(self) -> Iterator[None]:
        """Turn a Java exception, whose text fills a page, into a short `OSError`."""
        try:
            yield
        except (Py4JJavaError, PySparkException) as error:
            reason = " ".join(str(getattr(error, "java_exception", error)).split())
            raise OSError(f"the checkpoint folder {self._folder!r} cannot hold the seed: {reason}") from error

    def _is_started(self) -> bool:
        """Return whether a query has been started with this checkpoint."""
        return bool(self._files.exists(self._jvm.org.apache.hadoop.fs.Path(self._folder, "metadata")))

    def _create(self, data: bytes) -> None:
        try:
            stream = self._files.create(self._path, False)  # never overwrites
        except Py4JJavaError:
            if self._files.exists(self._path):
                return
            raise
        try:
            stream.write(data)
        finally:
            stream.close()

    def _read(self) -> int | None:
        """Return the stored seed, or None if there is no file."""
        if not self._files.exists(self._path):
            return None
        stream = self._files.open(self._path)
        try:
            data = bytes(stream.readNBytes(MAX_BYTES))
        except Py4JJavaError as error:
            if "ChecksumException" not in str(error.java_exception):
                raise
            data = b""
        finally:
            stream.close()
        return self._parse(data)

    def _parse(self, data: bytes) -> int:
        try:
            record = json.loads(data)
            if (record["format"], record["version"]) == (FORMAT, VERSION):
                return check_integer("seed", record["seed"], 0, LARGEST)
        except (ValueError, LookupError, TypeError, RecursionError):
            pass
        remedy = (
            f"remove it and pass the seed, which is in the column {COLUMN!r} of the output, or use a new checkpoint"
        )
        raise ValueError(f"{self._path.toString()} must hold the seed of the query, but is damaged: {remedy}")
