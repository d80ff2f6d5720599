"""A web server on 127.0.0.1 that serves files well or badly: ``server.mirror("cut")`` misbehaves in that manner."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple


class Asked(NamedTuple):
    """One request as it came in."""

    manner: str
    name: str
    span: str | None


class FileServer(ThreadingHTTPServer):
    """Serves ``files`` (name to bytes) and remembers what it was asked."""

    request_queue_size = 64

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = files
        self.asked: list[Asked] = []
        self.closing = threading.Event()

    def mirror(self, manner: str) -> str:
        return f"http://127.0.0.1:{self.server_port}/{manner}"

    def spans(self, manner: str) -> list[str | None]:
        """The Range headers that came to one mirror, in order."""
        return [asked.span for asked in self.asked if asked.manner == manner]


@contextmanager
def serving(files: dict[str, bytes]) -> Iterator[FileServer]:
    with FileServer(files) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.closing.set()
            server.shutdown()
            thread.join()


class Handler(BaseHTTPRequestHandler):
    """One request: ``GET /manner/name``."""

    server: FileServer

    def do_GET(self) -> None:
        _, manner, name = self.path.split("/", 2)
        self.server.asked.append(Asked(manner, name, self.headers["Range"]))
        with suppress(ConnectionError):  # clients that have seen enough hang up
            if manner.isdigit():
                self.send_error(int(manner))
            else:
                MANNERS[manner](self, name, self.server.files[name])

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the signature is given
        pass

    def head(self, status: int, **headers: object) -> None:
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key.replace("_", "-"), str(value))
        self.end_headers()

    def start(self) -> int:
        """Where the wanted range begins."""
        return int((self.headers["Range"] or "bytes=0-").removeprefix("bytes=").removesuffix("-"))

    def range_head(self, size: int) -> int:
        """The right head for a body of ``size`` bytes; returns where the body begins."""
        start = self.start()
        if self.headers["Range"]:
            self.head(206, Content_Length=size - start, Content_Range=f"bytes {start}-{size - 1}/{size}")
        else:
            self.head(200, Content_Length=size)
        return start

    def visit(self) -> int:
        """How many requests this mirror has seen, this one included."""
        return len(self.server.spans(self.path.split("/")[1]))


def plain(http: Handler, name: str, data: bytes) -> None:
    if http.start() >= len(data):
        http.head(416, Content_Range=f"bytes */{len(data)}", Content_Length=0)
    else:
        http.wfile.write(data[http.range_head(len(data)) :])


def rangeless(http: Handler, name: str, data: bytes) -> None:
    http.head(200, Content_Length=len(data))
    http.wfile.write(data)


def cut(http: Handler, name: str, data: bytes) -> None:
    """A tenth, then goodbye."""
    start = http.range_head(len(data))
    http.wfile.write(data[start : start + len(data) // 10])


def cut_once(http: Handler, name: str, data: bytes) -> None:
    (cut if http.visit() == 1 else plain)(http, name, data)


def cut_chunked(http: Handler, name: str, data: bytes) -> None:
    """A tenth in the chunked encoding, without its end; then well."""
    if http.visit() > 1:
        return plain(http, name, data)
    http.protocol_version = "HTTP/1.1"
    http.head(200, Transfer_Encoding="chunked", Connection="close")
    http.wfile.write(b"%x\r\n" % len(data) + data[: len(data) // 10])
    return None


def corrupt(http: Handler, name: str, data: bytes) -> None:
    plain(http, name, bytes([data[0] ^ 1]) + data[1:-1] + bytes([data[-1] ^ 1]))


def corrupt_rangeless(http: Handler, name: str, data: bytes) -> None:
    rangeless(http, name, data[:-1] + bytes([data[-1] ^ 1]))


def cut_then_corrupt(http: Handler, name: str, data: bytes) -> None:
    """Breaks off, then goes on with wrong bytes, then well."""
    {1: cut, 2: corrupt}.get(http.visit(), plain)(http, name, data)


def longer(http: Handler, name: str, data: bytes) -> None:
    plain(http, name, data + b"more")


def shorter(http: Handler, name: str, data: bytes) -> None:
    """A page in place of the file, as hotel networks do."""
    http.head(200, Content_Length=13)
    http.wfile.write(b"Please log in")


def endless(http: Handler, name: str, data: bytes) -> None:
    """No Content-Length and no end."""
    http.head(200)
    while not http.server.closing.is_set():
        http.wfile.write(data)


def wrong_range(http: Handler, name: str, data: bytes) -> None:
    """Answers a range with another one."""
    if not http.headers["Range"]:
        return plain(http, name, data)
    start = http.start() + 1
    http.head(206, Content_Length=len(data) - start, Content_Range=f"bytes {start}-{len(data) - 1}/{len(data)}")
    http.wfile.write(data[start:])
    return None


def no_ranges_today(http: Handler, name: str, data: bytes) -> None:
    """Answers 416 to every range."""
    if http.headers["Range"]:
        http.head(416, Content_Length=0)
    else:
        plain(http, name, data)


def silent(http: Handler, name: str, data: bytes) -> None:
    """Accepts the connection and never answers."""
    http.server.closing.wait(30)


def stall(http: Handler, name: str, data: bytes) -> None:
    """A tenth, then silence on an open connection."""
    cut(http, name, data)
    http.server.closing.wait(30)


def drip(http: Handler, name: str, data: bytes) -> None:
    """A hundredth at a time."""
    step = max(1, len(data) // 100)
    for start in range(http.range_head(len(data)), len(data), step):
        http.wfile.write(data[start : start + step])
        if http.server.closing.wait(0.02):
            return


def garbage(http: Handler, name: str, data: bytes) -> None:
    """Not HTTP at all."""
    http.wfile.write(b"220 \x1b[2J smtp.example.org ready" + b"!" * 10_000 + b"\r\n\r\n")


def to(place: str) -> Callable[[Handler, str, bytes], None]:
    """A redirect."""

    def redirect(http: Handler, name: str, data: bytes) -> None:
        http.head(302, Location=place + name, Content_Length=0)

    return redirect


MANNERS: dict[str, Callable[[Handler, str, bytes], None]] = {
    "plain": plain,
    "rangeless": rangeless,
    "cut": cut,
    "cut-once": cut_once,
    "cut-chunked": cut_chunked,
    "corrupt": corrupt,
    "corrupt-rangeless": corrupt_rangeless,
    "cut-then-corrupt": cut_then_corrupt,
    "longer": longer,
    "shorter": shorter,
    "endless": endless,
    "wrong-range": wrong_range,
    "no-ranges-today": no_ranges_today,
    "silent": silent,
    "stall": stall,
    "drip": drip,
    "garbage": garbage,
    "redirect": to("/plain/"),
    "loop": to("/loop/"),
    "to-ftp": to("ftp://127.0.0.1/"),
    "to-disk": to("file:///"),
    "to-nowhere": to("http://a..b/"),
}
