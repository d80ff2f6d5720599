"""`exchangeable serve` in a process of its own, and one who calls it: for benchmarks and tests of the real thing."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Self

from numpy.typing import NDArray

PATIENCE = 60.0  # seconds to wait for what takes one or two: the machine may be busy
FAILURES = (OSError, http.client.HTTPException)  # what a caller meets when the server dies


class Reply(NamedTuple):
    """Status and body, which is JSON unless it is a file."""

    status: int
    body: Any


class Caller:
    """Keeps a connection to a server on this machine, and opens another one when it breaks."""

    def __init__(self, port: int, *, timeout: float = PATIENCE) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)

    def __call__(self, method: str, path: str, body: Any = None, *, kind: str = "application/json") -> Reply:
        """Ask once; a failure of the connection is the caller's to handle."""
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        try:
            self.connection.request(method, path, data, {} if data is None else {"Content-Type": kind})
            answer = self.connection.getresponse()
            text = answer.read()
        except FAILURES:
            self.connection.close()
            raise
        is_json = answer.headers.get_content_type() == "application/json"
        return Reply(answer.status, json.loads(text) if is_json else text)

    def close(self) -> None:
        """Hang up."""
        self.connection.close()


class Server:
    """A server on a database; it may be started again after its end."""

    def __init__(self, db: Path, settings: str = "", *, folder: Path | None = None) -> None:
        self.db = db
        self.port = free_port()
        folder = folder or db.parent  # for its log and its settings
        self.log = folder / f"{db.stem}.log"
        config = folder / f"{db.stem}.toml"
        config.write_text(settings, encoding="utf-8")
        self.words = ["serve", "--db", str(db), "--port", str(self.port), "--config", str(config), "--no-page"]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, program: Sequence[str] = ("-m", "exchangeable")) -> None:
        """Begin; ``ready`` waits until it listens."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen([sys.executable, *program, *self.words], stderr=log, stdout=log)

    def ready(self) -> None:
        """Wait until the server takes observations."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            if self.process is not None and self.process.poll() is not None:
                break
            with suppress(*FAILURES):
                if self.ask("GET", "/readyz").status == 200:
                    return
            time.sleep(0.01)
        raise AssertionError(f"the server did not start: {self.said()}")

    def ask(self, method: str, path: str, body: Any = None, *, kind: str = "application/json") -> Reply:
        """One request on a connection of its own."""
        caller = Caller(self.port)
        try:
            return caller(method, path, body, kind=kind)
        finally:
            caller.close()

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and wait; the exit code (negative: the signal that killed it)."""
        assert self.process is not None
        process, self.process = self.process, None
        with suppress(ProcessLookupError):
            process.send_signal(how)
        return process.wait(PATIENCE)

    def resident(self) -> int:
        """Bytes of memory in use, from Linux."""
        assert self.process is not None
        pages = Path(f"/proc/{self.process.pid}/statm").read_text(encoding="ascii").split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def said(self) -> str:
        """What it wrote to its error stream."""
        return self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""

    def runs(self) -> bool:
        """Whether it was started and not ended by us."""
        return self.process is not None

    def __enter__(self) -> Self:
        self.start()
        self.ready()
        return self

    def __exit__(self, *_: object) -> None:
        if self.runs():
            self.end(signal.SIGKILL)


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


NDJSON = "application/x-ndjson"


def lines(first: int, x: NDArray[Any], **columns: Sequence[Any]) -> bytes:
    """Observations with seqs from ``first`` on as NDJSON; a column's None is left out."""
    if not columns and x.ndim == 1:
        return b"".join(b'{"seq":%d,"x":%r}\n' % (first + i, value) for i, value in enumerate(x.tolist()))
    rows = []
    for i, value in enumerate(x.tolist()):
        extra = {name: column[i] for name, column in columns.items() if column[i] is not None}
        rows.append(json.dumps({"seq": first + i, "x": value, **extra}))
    return "\n".join(rows).encode()
