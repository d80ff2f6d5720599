"""Datasets for experiments: the paper's two, downloaded and verified, scikit-learn's digits, and a synthetic stream."""

from __future__ import annotations

import gzip
import io
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import urlsplit

import numpy as np

from exchangeable._extras import needed
from exchangeable.protocols import Floats, Integers
from exchangeable.research.download import (
    DatasetError,
    Download,
    Progress,
    PublishedFile,
    install,
    read_verified,
    writing,
)

__all__ = [
    "PUBLISHED",
    "Dataset",
    "DatasetError",
    "Folder",
    "cache_folder",
    "decreasing_noise",
    "digits",
    "fetch",
    "satellite",
    "smooth",
    "usps",
]

Folder = str | os.PathLike[str]


class Dataset(NamedTuple):
    """Examples in order: a row of X and a label of y for each."""

    X: Floats
    y: Integers


_ESL = "https://hastie.su.domains/ElemStatLearn/datasets/"
_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases/statlog/satimage/"
_USPS = (
    PublishedFile(
        _ESL, "zip.train.gz", 1829071, 7291, "66ebf231ab51f2cf6ac1a892d0f98ccffee1079d7a5db638c1f11f366046ca16"
    ),
    PublishedFile(
        _ESL, "zip.test.gz", 439208, 2007, "8dacc3c6e136af6c3488de9e5113a7daf140c8c2f1f0b61c54ee02f03f1a962f"
    ),
)
_SATELLITE = (
    PublishedFile(_UCI, "sat.trn", 525830, 4435, "e896dc88a960fa2404160fc4c3cb3dc53fcf4afd80ba920bf2d261bd42d12613"),
    PublishedFile(_UCI, "sat.tst", 236745, 2000, "4b9167b8a92baafafed7c8809aef86d0683a5e685c19d98d119fa6974f0f2479"),
)
PUBLISHED: Mapping[str, tuple[PublishedFile, ...]] = MappingProxyType({"usps": _USPS, "satellite": _SATELLITE})


def cache_folder() -> Path:
    """Return the folder of downloaded files: ``$EXCHANGEABLE_DATA`` if set, else the user's cache folder.

    >>> import os
    >>> os.environ["EXCHANGEABLE_DATA"] = "my-data"
    >>> cache_folder().name
    'my-data'
    >>> del os.environ["EXCHANGEABLE_DATA"]
    """
    chosen = os.environ.get("EXCHANGEABLE_DATA")
    if chosen:
        return Path(chosen)
    with needed("cli", "the user's cache folder (or set EXCHANGEABLE_DATA)"):
        import platformdirs
    return platformdirs.user_cache_path("exchangeable") / "datasets"


def usps(folder: Folder | None = None, *, flavour: str = "smoothed") -> Dataset:
    """Load handwritten digits 0-9: 9,298 images of 16 x 16 pixels in [-1, 1], the training file and then the test file.

    ``"raw"`` is the published file. ``"smoothed"`` is the flavour behind the paper's numbers, as circulated by LIBSVM:
    each image convolved with a 7 x 7 Gaussian of sigma 0.75 pixel, -1 outside, rounded to 6 decimals.
    """
    if flavour not in ("smoothed", "raw"):
        raise ValueError(f"flavour must be 'smoothed' or 'raw', got {flavour!r}")
    table = _table("usps", folder, columns=1 + 16 * 16)
    X = np.ascontiguousarray(table[:, 1:])
    return Dataset(smooth(X) if flavour == "smoothed" else X, table[:, 0].astype(np.int64))


def satellite(folder: Folder | None = None) -> Dataset:
    """Load Statlog Landsat: 6,435 pixels, 36 spectral values (27-157), soil class 1-5 or 7.

    The training file comes first, then the test file.

    Source: UCI Machine Learning Repository, dataset 146, https://doi.org/10.24432/C55887 (CC BY 4.0).
    """
    table = _table("satellite", folder, columns=36 + 1)
    return Dataset(np.ascontiguousarray(table[:, :-1]), table[:, -1].astype(np.int64))


def digits() -> Dataset:
    """Load the 1,797 digits of 8 x 8 pixels in 0-16 that come with scikit-learn, in their original order.

    >>> X, y = digits()
    >>> X.shape, y[:10].tolist()
    ((1797, 64), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
    """
    with needed("sklearn", "the digits"):
        from sklearn.datasets import load_digits
    X, y = load_digits(return_X_y=True)
    return Dataset(X.astype(np.float64), y.astype(np.int64))


def decreasing_noise(n: int, *, seed: int = 0) -> Dataset:
    """Draw two classes in ten dimensions whose noise decreases with time: later examples are ever more typical.

    ``X_t = centre[y_t] + sigma_t * normal``, with y_t a fair coin, the centres 0 and (2, ..., 2), and sigma_t going
    linearly from 1 to 0.3. The p-values gather near 1: the data is not exchangeable, although no example looks strange.

    >>> X, y = decreasing_noise(4)
    >>> X.shape, y.shape
    ((4, 10), (4,))

    Reference: Fedorova et al. (2012), end of section 4.
    """
    if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 1:
        raise ValueError(f"n must be a positive integer, got {n!r}")
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, size=n)
    sigma = np.linspace(1.0, 0.3, n)
    return Dataset(2.0 * y[:, None] + sigma[:, None] * rng.standard_normal((n, 10)), y)


def smooth(X: Floats) -> Floats:
    """Blur rows of 256 pixels as 16 x 16 images: 7 x 7 Gaussian, sigma 0.75, -1 outside, 6 decimals. O(pixels).

    Two passes of the one-dimensional kernel: its weights sum to 1, so the -1 outside stays -1 after the first.

    >>> image = -np.ones((1, 256))
    >>> bool((smooth(image) == image).all())
    True
    """
    images = X.reshape(-1, 16, 16)
    for _ in range(2):
        images = _blur_rows(images).swapaxes(1, 2)
    return np.round(images, 6).reshape(X.shape)


def _blur_rows(images: Floats) -> Floats:
    """Blur along the last axis."""
    weights = np.exp(-0.5 * (np.arange(-3, 4) / 0.75) ** 2)
    weights /= weights.sum()
    padded = np.pad(images, [(0, 0), (0, 0), (3, 3)], constant_values=-1.0)
    blurred: Floats = weights[3] * images
    for shift in (3, 2, 1):
        blurred += weights[3 - shift] * (padded[..., 3 - shift : 19 - shift] + padded[..., 3 + shift : 19 + shift])
    return blurred


def fetch(
    name: str,
    folder: Folder | None = None,
    *,
    mirror: str | None = None,
    source: Folder | None = None,
    progress: Progress | None = None,
) -> list[Path]:
    """Download the files of a dataset into ``folder`` (default: the cache) and return their paths.

    They come from their publishers, from ``mirror + "/" + filename``, or from the folder ``source`` on disk. Files that
    are already there are not downloaded again; an interrupted download resumes from ``filename.part``. A file appears
    under its name only after its size and SHA-256 are verified. ``progress(filename, done, total)`` is called as bytes
    arrive, and once more when the file is in place; ``done`` decreases if a download has to start over.
    """
    files = _published(name)
    if mirror is not None and source is not None:
        raise ValueError(f"mirror and source must not both be given, got {mirror!r} and {str(source)!r}")
    base = None if mirror is None else _check_mirror(mirror)
    target = _folder(folder)
    report = progress or (lambda filename, done, total: None)
    with writing(target):
        target.mkdir(parents=True, exist_ok=True)
    for file in files:
        if not _is_present(name, file, target):
            if source is not None:
                data = _read(name, file, Path(source))
            else:
                url = file.url if base is None else f"{base}/{file.name}"
                data = Download(file, url, target, _manual_steps(name, file, target), report).run()
            install(data, target / file.name)
        report(file.name, file.size, file.size)
    return [target / file.name for file in files]


def _published(name: str) -> tuple[PublishedFile, ...]:
    if name not in tuple(PUBLISHED):
        raise ValueError(f"name must be one of {', '.join(map(repr, sorted(PUBLISHED)))}, got {name!r}")
    return PUBLISHED[name]


def _folder(folder: Folder | None) -> Path:
    return cache_folder() if folder is None else Path(folder)


def _check_mirror(mirror: str) -> str:
    """Check an http or https URL, and return it without its last slash."""
    with suppress(ValueError, AttributeError, TypeError):
        parts = urlsplit(mirror)
        if parts.scheme in ("http", "https") and parts.hostname and re.fullmatch(r"[!-~]+", mirror):
            return mirror.rstrip("/")
    raise ValueError(f"mirror must be an http:// or https:// URL, got {mirror!r}")


def _fetch_command(name: str, folder: Path) -> str:
    with suppress(ImportError):  # without platformdirs there is no cache folder, so another one was named
        if folder == cache_folder():
            return f"run `exchangeable fetch {name}`"
    return f"run `exchangeable fetch {name} --to {folder}`"


def _manual_steps(name: str, file: PublishedFile, folder: Path) -> str:
    """Describe how to download the file by hand, as the end of a sentence."""
    return (
        f"download {file.url} with a browser on a machine with network and put it into {folder}, or run "
        f"`exchangeable fetch {name} --from DIR` with the folder that holds it (SHA-256 {file.sha256})"
    )


def _table(name: str, folder: Folder | None, columns: int) -> Floats:
    """Read all files of a dataset as one table, the rows of the first file first."""
    return np.concatenate([_rows(name, file, _folder(folder), columns) for file in _published(name)])


def _rows(name: str, file: PublishedFile, folder: Path, columns: int) -> Floats:
    data = _read(name, file, folder)
    text = gzip.decompress(data) if file.name.endswith(".gz") else data
    table: Floats = np.loadtxt(io.BytesIO(text), dtype=np.float64, ndmin=2)
    if table.shape != (file.rows, columns):
        raise DatasetError(f"{folder / file.name} must hold {(file.rows, columns)} numbers, got {table.shape}")
    return table


def _read(name: str, file: PublishedFile, folder: Path) -> bytes:
    command = _fetch_command(name, folder)
    try:
        return read_verified(file, folder / file.name, f"{command} to replace it")
    except FileNotFoundError:
        remedy = f"{command}, or {_manual_steps(name, file, folder)}"
        raise DatasetError(f"{file.name} is missing in {folder}: {remedy}") from None


def _is_present(name: str, file: PublishedFile, folder: Path) -> bool:
    try:
        return bool(_read(name, file, folder))
    except DatasetError:
        return False
