"""Results that are kept in a folder, so that an interrupted benchmark can go on where it was."""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import exchangeable

Arrays = dict[str, NDArray[Any]]
EVERYWHERE = ("detection_runs", "detectors", "changes", "streams", "numpy", "scipy")  # what every result depends on
PARTS = {  # of our package
    "river adapter": ("adapters/*.py", "monitor.py", "tracker.py"),
    "ranks": ("pvalues.py", "measures/*.py"),
    "exchangeable": (
        "pvalues.py",
        "measures/*.py",
        "alarms.py",
        "martingale.py",
        "rate*.py",
        "bets/*.py",
        "native/*.[ch]",
    ),
}


def files(module: str) -> list[Path]:
    """The files of a module of the benchmark, or of a part of our package."""
    if module in PARTS:
        folder = Path(exchangeable.__file__).parent
        return sorted(file for pattern in PARTS[module] for file in folder.glob(pattern))
    return [Path(__file__).with_name(f"{module}.py")]


@cache
def digest(module: str) -> str:
    """A hash of the text of a module; of a library that is none of the benchmark's, of its version."""
    texts = [file.read_bytes() if file.exists() else library(module).encode() for file in files(module)]
    return hashlib.sha256(b"".join(texts)).hexdigest()


def library(name: str) -> str:
    """The version of an installed library."""
    try:
        return f"{name} {version(name)}"
    except PackageNotFoundError:
        return f"no {name}"


class Store:
    """Arrays by key, one file each; without a folder nothing is kept.

    A result is found again only if the modules that it depends on have not changed since. Their text is read when the
    store is made, which is when the processes import them.
    """

    def __init__(self, folder: Path | None, modules: Iterable[str] = ()) -> None:
        self.folder = folder
        for module in (*EVERYWHERE, *modules):
            digest(module)
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)

    def get(self, key: Sequence[object], modules: tuple[str, ...], make: Callable[[], Arrays]) -> Arrays:
        """The arrays of this key: from the folder, or made now and kept."""
        file = self._file(key, modules)
        if file is not None and file.exists():
            with np.load(file, allow_pickle=False) as kept:
                return {name: kept[name] for name in kept.files}
        start = time.perf_counter()
        found = make()
        print(f"{time.perf_counter() - start:6.0f} s: {label(key)}", file=sys.stderr, flush=True)
        if file is not None:
            self._keep(file, found)
        return found

    def _file(self, key: Sequence[object], modules: tuple[str, ...]) -> Path | None:
        if self.folder is None:
            return None
        text = " ".join([*map(digest, (*EVERYWHERE, *modules)), repr(key)])
        return self.folder / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.npz"

    def _keep(self, file: Path, found: Arrays) -> None:
        half = file.with_suffix(".half")  # so that an interruption leaves no half of a result
        with half.open("wb") as out:
            np.savez_compressed(out, **found)  # type: ignore[arg-type]
        half.replace(file)


def label(key: Sequence[object]) -> str:
    """The short parts of a key, for the log."""
    return ", ".join(str(part) for part in key if isinstance(part, str | int))
