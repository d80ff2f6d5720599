"""Data to try things on: readers of the paper's two datasets, their verified download, and a synthetic stream."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

import numpy as np

from exchangeable._extras import needed
from exchangeable.protocols import Floats, Integers

TIMEOUT = 30.0  # seconds of silence before a connection counts as broken
ATTEMPTS = 4  # requests for one file before giving up; each resumes where the last one broke off
PAUSE = 0.5  # seconds before the second request, twice that before the third, ...
CHUNK = 1 << 16

Folder = str | os.PathLike[str]
Progress = Callable[[str, int, int], object]


class DatasetError(RuntimeError):
    """A dataset that cannot be read or fetched; the message is one sentence that says what to do."""


class Dataset(NamedTuple):
    """Examples in their order: one row of X and one label of y each."""

    X: Floats
    y: Integers


class Published(NamedTuple):
    """One file as its authors published it."""

    home: str
    name: str
    size: int
    rows: int
    sha256: str

    @property
    def url(self) -> str:
        """Its public address."""
        return self.home + self.name


_ESL = "https://hastie.su.domains/ElemStatLearn/datasets/"
_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases/statlog/satimage/"
_USPS = (
    Published(_ESL, "zip.train.gz", 1829071, 7291, "66ebf231ab51f2cf6ac1a892d0f98ccffee1079d7a5db638c1f11f366046ca16"),
    Published(_ESL, "zip.test.gz", 439208, 2007, "8dacc3c6e136af6c3488de9e5113a7daf140c8c2f1f0b61c54ee02f03f1a962f"),
)
_SATELLITE = (
    Published(_UCI, "sat.trn", 525830, 4435, "e896dc88a960fa2404160fc4c3cb3dc53fcf4afd80ba920bf2d261bd42d12613"),
    Published(_UCI, "sat.tst", 236745, 2000, "4b9167b8a92baafafed7c8809aef86d0683a5e685c19d98d119fa6974f0f2479"),
)
PUBLISHED: Mapping[str, tuple[Published, ...]] = MappingProxyType({"usps": _USPS, "satellite": _SATELLITE})


def cache_folder() -> Path:
    """Where fetched files live: ``$EXCHANGEABLE_DATA`` if set, else the user's cache folder.

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
    """Handwritten digits 0-9: 9,298 images of 16 x 16 pixels in [-1, 1], the training file and then the test file.

    ``"raw"`` is the published file. ``"smoothed"`` is the flavour behind the paper's numbers, as circulated by LIBSVM:
    each image convolved with a 7 x 7 Gaussian of sigma 0.75 pixel, -1 outside, rounded to 6 decimals.
    """
    if flavour not in ("smoothed", "raw"):
        raise ValueError(f"flavour must be 'smoothed' or 'raw', got {flavour!r}")
    table = _table("usps", folder, columns=1 + 16 * 16)
    X = np.ascontiguousarray(table[:, 1:])
    return Dataset(smooth(X) if flavour == "smoothed" else X, table[:, 0].astype(np.int64))


def satellite(folder: Folder | None = None) -> Dataset:
    """Statlog Landsat: 6,435 pixels, 36 spectral values (27-157), soil class 1-5 or 7; training file, then test file.

    Source: UCI Machine Learning Repository, dataset 146, https://doi.org/10.24432/C55887 (CC BY 4.0).
    """
    table = _table("satellite", folder, columns=36 + 1)
    return Dataset(np.ascontiguousarray(table[:, :-1]), table[:, -1].astype(np.int64))


def digits() -> Dataset:
    """The 1,797 digits of 8 x 8 pixels in 0-16 that come with scikit-learn, in their original order.

    >>> X, y = digits()
    >>> X.shape, y[:10].tolist()
    ((1797, 64), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
    """
    with needed("sklearn", "the digits"):
        from sklearn.datasets import load_digits
    X, y = load_digits(return_X_y=True)
    return Dataset(X.astype(np.float64), y.astype(np.int64))


def decreasing_noise(n: int, *, seed: int = 0) -> Dataset:
    """Two classes in ten dimensions whose noise decreases with time: later examples are ever more typical.

    ``X_t = centre[y_t] + sigma_t * normal``, with y_t a fair coin, the centres 0 and (2, ..., 2), and sigma_t going
    linearly from 1 to 0.3. The p-values gather near 1: not exchangeable, though nothing ever looks strange.

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
        images = _blurred(images).swapaxes(1, 2)
    return np.round(images, 6).reshape(X.shape)


def _blurred(images: Floats) -> Floats:
    """One pass, along the last axis."""
    weights = np.exp(-0.5 * (np.arange(-3, 4) / 0.75) ** 2)
    weights /= weights.sum()
    framed = np.pad(images, [(0, 0), (0, 0), (3, 3)], constant_values=-1.0)
    blurred: Floats = weights[3] * images
    for reach in (3, 2, 1):
        blurred += weights[3 - reach] * (framed[..., 3 - reach : 19 - reach] + framed[..., 3 + reach : 19 + reach])
    return blurred


def fetch(
    name: str,
    folder: Folder | None = None,
    *,
    mirror: str | None = None,
    source: Folder | None = None,
    progress: Progress | None = None,
) -> list[Path]:
    """Bring the files of a dataset into ``folder`` (the cache by default) and return their paths.

    They come from their public homes, from ``mirror + "/" + filename``, or from the folder ``source`` on disk. A file
    already there is kept; a broken download resumes from ``filename.part``. Only when size and SHA-256 are right does a
    file appear, at once, under its name. ``progress(filename, done, total)`` is called as bytes arrive, and lastly when
    the file is in place; ``done`` falls back if a download has to start over.
    """
    files = _files(name)
    if mirror is not None and source is not None:
        raise ValueError(f"mirror and source must not both be given, got {mirror!r} and {str(source)!r}")
    home = None if mirror is None else _web_address(mirror)
    target = _folder(folder)
    report = progress or (lambda filename, done, total: None)
    with _writing(target):
        target.mkdir(parents=True, exist_ok=True)
    for file in files:
        if not _present(name, file, target):
            if source is not None:
                data = _read(name, file, Path(source))
            else:
                url = file.url if home is None else f"{home}/{file.name}"
                data = _Download(file, url, target, _advice(name, file, target), report).run()
            _install(data, target / file.name)
        report(file.name, file.size, file.size)
    return [target / file.name for file in files]


def _files(name: str) -> tuple[Published, ...]:
    if name not in tuple(PUBLISHED):
        raise ValueError(f"name must be one of {', '.join(map(repr, sorted(PUBLISHED)))}, got {name!r}")
    return PUBLISHED[name]


def _folder(folder: Folder | None) -> Path:
    return cache_folder() if folder is None else Path(folder)


def _web_address(mirror: str) -> str:
    """Admit an http or https URL, without its last slash."""
    with suppress(ValueError, AttributeError, TypeError):
        parts = urlsplit(mirror)
        if parts.scheme in ("http", "https") and parts.hostname and re.fullmatch(r"[!-~]+", mirror):
            return mirror.rstrip("/")
    raise ValueError(f"mirror must be an http:// or https:// URL, got {mirror!r}")


def _remedy(name: str, folder: Path) -> str:
    """The command that fills the folder."""
    with suppress(ImportError):  # without platformdirs there is no cache folder, so another one was named
        if folder == cache_folder():
            return f"run `exchangeable fetch {name}`"
    return f"run `exchangeable fetch {name} --to {folder}`"


def _advice(name: str, file: Published, folder: Path) -> str:
    """What to do by hand, as the end of a sentence."""
    return (
        f"download {file.url} with a browser on a machine with network and put it into {folder}, or run "
        f"`exchangeable fetch {name} --from DIR` with the folder that holds it (SHA-256 {file.sha256})"
    )


def _table(name: str, folder: Folder | None, columns: int) -> Floats:
    """All files of a dataset as one table, the rows of the first file first."""
    return np.concatenate([_rows(name, file, _folder(folder), columns) for file in _files(name)])


def _rows(name: str, file: Published, folder: Path, columns: int) -> Floats:
    data = _read(name, file, folder)
    text = gzip.decompress(data) if file.name.endswith(".gz") else data
    table: Floats = np.loadtxt(io.BytesIO(text), dtype=np.float64, ndmin=2)
    if table.shape != (file.rows, columns):
        raise DatasetError(f"{folder / file.name} must hold {(file.rows, columns)} numbers, got {table.shape}")
    return table


def _read(name: str, file: Published, folder: Path) -> bytes:
    """The verified bytes of one file on disk."""
    path = folder / file.name
    try:
        data = _head(path, file.size + 1)
    except FileNotFoundError:
        remedy = f"{_remedy(name, folder)}, or {_advice(name, file, folder)}"
        raise DatasetError(f"{file.name} is missing in {folder}: {remedy}") from None
    except OSError as error:
        raise DatasetError(f"{path} cannot be read: {error.strerror or error}") from error
    if fault := _fault(file, data):
        raise DatasetError(f"{path} is not the published file ({fault}): {_remedy(name, folder)} to replace it")
    return data


def _head(path: Path, size: int) -> bytes:
    with path.open("rb") as stream:
        return stream.read(size)


def _present(name: str, file: Published, folder: Path) -> bool:
    try:
        return bool(_read(name, file, folder))
    except DatasetError:
        return False


def _fault(file: Published, data: bytes | bytearray) -> str:
    """How the bytes differ from the published ones; empty if they do not."""
    if len(data) != file.size:
        return f"expected {file.size} bytes, got {'more' if len(data) > file.size else len(data)}"
    found = hashlib.sha256(data).hexdigest()
    return "" if found == file.sha256 else f"expected SHA-256 {file.sha256}, got {found}"


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Trouble with the disk as one sentence."""
    try:
        yield
    except OSError as error:
        raise DatasetError(f"{path} cannot be written: {error.strerror or error}") from error


def _install(data: bytes, path: Path) -> None:
    """Put verified bytes under their final name at once; two who fetch at the same time do not meet."""
    fresh = path.with_name(f"{path.name}.{secrets.token_hex(4)}.new")
    with _writing(path):
        try:
            with fresh.open("xb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(fresh, path)
        finally:
            fresh.unlink(missing_ok=True)
    with suppress(OSError):  # a leftover part does no harm
        _part(path).unlink()


def _line(words: object) -> str:
    """What a stranger says, fit for a terminal: one line, printable, short."""
    return " ".join("".join(c if c.isprintable() else " " for c in str(words)[:200]).split())


def _part(path: Path) -> Path:
    return path.with_name(path.name + ".part")


class _Redirects(HTTPRedirectHandler):
    """Follow redirects to the web only, and never from https down to http."""

    def redirect_request(self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Request | None:
        allowed = ("https",) if urlsplit(req.full_url).scheme == "https" else ("https", "http")
        if urlsplit(newurl).scheme not in allowed:
            raise HTTPError(req.full_url, code, f"redirect to {newurl} refused", headers, fp)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class _Download:
    """One file on its way: the bytes so far, in memory for the check and in the part file for a later run to resume."""

    def __init__(self, file: Published, url: str, folder: Path, advice: str, report: Progress) -> None:
        self.file, self.url, self.advice, self.report = file, url, advice, report
        self.part = _part(folder / file.name)
        self.data = bytearray()
        with _writing(self.part), suppress(FileNotFoundError):
            self.data += _head(self.part, file.size + 1)
        self.resumed = bool(self.data)
        self.trouble = "no usable answer"

    def run(self) -> bytes:
        """The verified bytes; those put together in several goes get a second chance from zero."""
        self.complete()
        if self.resumed and _fault(self.file, self.data):
            self.restart()
            self.complete()
        if fault := _fault(self.file, self.data):
            self.restart()
            raise self.failure(f"does not give the published file ({fault}):")
        return bytes(self.data)

    def complete(self) -> None:
        """Ask until nothing is missing."""
        for number in range(ATTEMPTS):
            if len(self.data) >= self.file.size:
                return
            time.sleep(PAUSE * number)
            self.attempt()
        if len(self.data) < self.file.size:
            held = f"{len(self.data)} of {self.file.size} bytes"
            raise self.failure(f"broke off at {held} ({self.trouble}): run the same again to resume there, or")

    def attempt(self) -> None:
        """Ask once for what is missing and keep what arrives."""
        response = self.answer()
        if response is None:
            self.restart()
            return
        with response:
            for chunk in self.chunks(response, self.awaited(response)):
                self.data += chunk
                with _writing(self.part), self.part.open("ab") as stream:
                    stream.write(chunk)
                self.report(self.file.name, len(self.data), self.file.size)

    def answer(self) -> HTTPResponse | None:
        """The server's answer, or None if it has no such range (416)."""
        headers = {"User-Agent": "exchangeable"} | ({"Range": f"bytes={len(self.data)}-"} if self.data else {})
        try:
            request = Request(self.url, headers=headers)  # noqa: S310 - https, or the mirror as admitted
            response: HTTPResponse = build_opener(_Redirects).open(request, timeout=TIMEOUT)
        except HTTPError as error:
            error.close()
            if error.code == 416 and self.data:
                return None
            raise self.failure(f"answered {error.code} {_line(error.reason)}:") from error
        except (OSError, HTTPException, ValueError) as error:  # ValueError: a redirect to an impossible host
            raise self.failure(f"cannot be reached ({_line(getattr(error, 'reason', error))}):") from error
        return response

    def awaited(self, response: HTTPResponse) -> int:
        """How many bytes of this answer to read: 0 if it is of no use, one too many if its length is unknown."""
        size, done = self.file.size, len(self.data)
        if response.status == 206:
            self.resumed = True
            if response.headers["Content-Range"] not in [f"bytes {done}-{size - 1}/{n}" for n in (size, "*")]:
                self.restart()
                return 0
        else:  # the whole file, perhaps because the server knows no ranges
            if response.length not in (None, size):
                raise self.failure(f"offers {response.length} bytes, not the {size} of the published file:")
            self.restart()
        missing = size - len(self.data)
        return missing if response.length == missing else missing + 1

    def chunks(self, response: HTTPResponse, awaited: int) -> Iterator[bytes]:
        """The body until it ends or breaks off; ``read1`` hands over what has arrived without waiting for more."""
        self.trouble = "the connection was closed"
        while awaited > 0:
            try:
                chunk = response.read1(min(awaited, CHUNK))
            except (OSError, HTTPException) as error:
                self.trouble = _line(error)
                return
            if not chunk:
                return
            awaited -= len(chunk)
            yield chunk

    def restart(self) -> None:
        """Forget everything that came so far."""
        self.data.clear()
        self.resumed = False
        with _writing(self.part):
            self.part.unlink(missing_ok=True)

    def failure(self, what: str) -> DatasetError:
        """One sentence: what happened, and what to do."""
        return DatasetError(f"{self.url} {what} {self.advice}")
