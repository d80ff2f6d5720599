"""Download of published files: resumed if interrupted, verified by size and SHA-256, and installed atomically."""

from __future__ import annotations

import hashlib
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

TIMEOUT = 30.0  # seconds of silence before a connection counts as broken
ATTEMPTS = 4  # requests for one file before giving up; each resumes where the last one broke off
PAUSE = 0.5  # seconds before the second request, twice that before the third, ...
CHUNK = 1 << 16

Progress = Callable[[str, int, int], object]


class DatasetError(RuntimeError):
    """A dataset that cannot be read or downloaded; the message says what to do."""


class PublishedFile(NamedTuple):
    """A file as its authors published it."""

    home: str
    name: str
    size: int
    rows: int
    sha256: str

    @property
    def url(self) -> str:
        """Its public address."""
        return self.home + self.name


def read_verified(file: PublishedFile, path: Path, remedy: str) -> bytes:
    """Read a file from disk and verify its size and SHA-256; the remedy is for a file that differs."""
    try:
        data = _read_start(path, file.size + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise DatasetError(f"{path} cannot be read: {error.strerror or error}") from error
    if fault := mismatch(file, data):
        raise DatasetError(f"{path} is not the published file ({fault}): {remedy}")
    return data


def _read_start(path: Path, size: int) -> bytes:
    with path.open("rb") as stream:
        return stream.read(size)


def mismatch(file: PublishedFile, data: bytes | bytearray) -> str:
    """Describe how the bytes differ from the published ones; empty if they do not."""
    if len(data) != file.size:
        return f"expected {file.size} bytes, got {'more' if len(data) > file.size else len(data)}"
    digest = hashlib.sha256(data).hexdigest()
    return "" if digest == file.sha256 else f"expected SHA-256 {file.sha256}, got {digest}"


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an error of the disk into a DatasetError."""
    try:
        yield
    except OSError as error:
        raise DatasetError(f"{path} cannot be written: {error.strerror or error}") from error


def install(data: bytes, path: Path) -> None:
    """Write verified bytes to a new file and rename it, so that concurrent downloads do not interfere."""
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}.new")
    with writing(path):
        try:
            with temporary.open("xb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    with suppress(OSError):  # a remaining part file is harmless
        part_path(path).unlink()


def part_path(path: Path) -> Path:
    """Return the path of the part file, from which a download resumes."""
    return path.with_name(path.name + ".part")


def _one_line(text: object) -> str:
    """Make text from a server safe for a terminal: one line, printable, short."""
    return " ".join("".join(c if c.isprintable() else " " for c in str(text)[:200]).split())


class _Redirects(HTTPRedirectHandler):
    """Follow redirects to http and https only, and never from https to http."""

    def redirect_request(self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Request | None:
        allowed = ("https",) if urlsplit(req.full_url).scheme == "https" else ("https", "http")
        if urlsplit(newurl).scheme not in allowed:
            raise HTTPError(req.full_url, code, f"redirect to {newurl} rejected", headers, fp)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class Download:
    """The download of one file: the bytes so far, in memory and in a part file from which a later run can resume."""

    def __init__(self, file: PublishedFile, url: str, folder: Path, manual_steps: str, report: Progress) -> None:
        self.file: PublishedFile = file
        self.url: str = url
        self.manual_steps: str = manual_steps
        self.report: Progress = report
        self.part: Path = part_path(folder / file.name)
        self.data: bytearray = bytearray()
        with writing(self.part), suppress(FileNotFoundError):
            self.data += _read_start(self.part, file.size + 1)
        self.resumed: bool = bool(self.data)
        self.problem: str = "no usable response"

    def run(self) -> bytes:
        """Download and verify the file. A resumed download that fails the check is repeated once from the start."""
        self._request_all()
        if self.resumed and mismatch(self.file, self.data):
            self._restart()
            self._request_all()
        if fault := mismatch(self.file, self.data):
            self._restart()
            raise self._error(f"does not give the published file ({fault}):")
        return bytes(self.data)

    def _request_all(self) -> None:
        """Send requests until nothing is missing."""
        for number in range(ATTEMPTS):
            if len(self.data) >= self.file.size:
                return
            time.sleep(PAUSE * number)
            self._request_rest()
        if len(self.data) < self.file.size:
            received = f"{len(self.data)} of {self.file.size} bytes"
            raise self._error(f"broke off at {received} ({self.problem}): run the same command again to resume, or")

    def _request_rest(self) -> None:
        """Request once what is missing, and store what arrives."""
        response = self._open()
        if response is None:
            self._restart()
            return
        with response:
            for chunk in self._chunks(response, self._expected_bytes(response)):
                self.data += chunk
                with writing(self.part), self.part.open("ab") as stream:
                    stream.write(chunk)
                self.report(self.file.name, len(self.data), self.file.size)

    def _open(self) -> HTTPResponse | None:
        """Return the response of the server; None if it does not have this range (416)."""
        headers = {"User-Agent": "exchangeable"} | ({"Range": f"bytes={len(self.data)}-"} if self.data else {})
        try:
            request = Request(self.url, headers=headers)  # noqa: S310 - https, or a checked mirror
            response: HTTPResponse = build_opener(_Redirects).open(request, timeout=TIMEOUT)
        except HTTPError as error:
            error.close()
            if error.code == 416 and self.data:
                return None
            raise self._error(f"answered {error.code} {_one_line(error.reason)}:") from error
        except (OSError, HTTPException, ValueError) as error:  # ValueError: a redirect to an impossible host
            raise self._error(f"cannot be reached ({_one_line(getattr(error, 'reason', error))}):") from error
        return response

    def _expected_bytes(self, response: HTTPResponse) -> int:
        """Return how many bytes to read: 0 if the response is of no use, one too many if its length is unknown."""
        size, done = self.file.size, len(self.data)
        if response.status == 206:
            self.resumed = True
            if response.headers["Content-Range"] not in [f"bytes {done}-{size - 1}/{n}" for n in (size, "*")]:
                self._restart()
                return 0
        else:  # the full file, perhaps because the server does not support ranges
            if response.length not in (None, size):
                raise self._error(f"offers {response.length} bytes, not the {size} of the published file:")
            self._restart()
        missing = size - len(self.data)
        return missing if response.length == missing else missing + 1

    def _chunks(self, response: HTTPResponse, expected: int) -> Iterator[bytes]:
        """Yield the body until it ends or breaks off; ``read1`` returns what has arrived without waiting for more."""
        self.problem = "the connection was closed"
        while expected > 0:
            try:
                chunk = response.read1(min(expected, CHUNK))
            except (OSError, HTTPException) as error:
                self.problem = _one_line(error)
                return
            if not chunk:
                return
            expected -= len(chunk)
            yield chunk

    def _restart(self) -> None:
        """Discard everything received so far."""
        self.data.clear()
        self.resumed = False
        with writing(self.part):
            self.part.unlink(missing_ok=True)

    def _error(self, what: str) -> DatasetError:
        """Return an error that says what happened and what to do."""
        return DatasetError(f"{self.url} {what} {self.manual_steps}")
