"""Errors of executors as one sentence, instead of a page of tracebacks of Python and Java."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from exchangeable.spark.columns import RefusedError, refusal

NEEDED = "exchangeable|narwhals|numpy|pandas|pyarrow"
MISSING = re.compile(rf"(?:ModuleNotFoundError|ImportError): No module named '((?:{NEEDED})[\w.]*)'")
NO_PROGRAM = re.compile(r'Cannot run program "([^"]+)"')
OTHER_PYTHON = re.compile(r"PYTHON_VERSION_MISMATCH\][^:]*version: ([\d.]+)[^:]*: ([\d.]+\d)")


class WorkerError(RuntimeError):
    """The Python of the executors cannot run this package."""


@contextmanager
def clear_errors() -> Iterator[None]:
    """Raise what fails in an executor as one sentence: `RefusedError`, for an invalid row, or `WorkerError`.

    Spark computes a frame when its rows are written or collected, and reports an error of an executor with the
    tracebacks of Python and Java. Other errors, of Spark or of your own functions, are left as they are. ::

        with exchangeable.spark.clear_errors():
            rows.write.parquet("out")

    >>> with clear_errors():
    ...     raise PySparkException("..\\nexchangeable.spark.columns.RefusedError: key 'a', order 3: x must be ..\\n..")
    Traceback (most recent call last):
    ...
    exchangeable.spark.columns.RefusedError: key 'a', order 3: x must be ..
    """
    try:
        yield
    except (PySparkException, Py4JError) as error:
        sentence = refusal(error)
        if sentence is not None:
            raise RefusedError(sentence) from None
        sentence = worker_fault(error)
        if sentence is not None:
            raise WorkerError(sentence) from None
        raise


def worker_fault(error: BaseException) -> str | None:
    """Return why the Python of the executors cannot run this package; None if it can, or if that is not known.

    >>> worker_fault(ValueError("ModuleNotFoundError: No module named 'exchangeable'"))[:59]
    "the Python of the executors has no module 'exchangeable': i"
    """
    advice = "set PYSPARK_PYTHON to an interpreter that has it, on every machine, before the session starts"
    absent = NO_PROGRAM.search(str(error))
    if absent:
        return f"the Python of the executors was not found: {absent[1]!r}; {advice}"
    missing, other = MISSING.search(str(error)), OTHER_PYTHON.search(str(error))
    if missing:
        name = missing[1]
        return f"the Python of the executors has no module {name!r}: install exchangeable[spark] there, or {advice}"
    if other:
        versions = f"has version {other[1]}, that of the driver {other[2]}"
        return f"the Python of the executors {versions}: both must have the same major and minor version; {advice}"
    return None
