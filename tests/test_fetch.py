"""Fetching against a real server on 127.0.0.1 that serves well, badly, or not at all. Never the internet."""

from __future__ import annotations

import hashlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPMessage
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request

import numpy as np
import pytest

from exchangeable.research import datasets, download
from exchangeable.research.datasets import fetch
from exchangeable.research.download import DatasetError, PublishedFile
from file_server import FileServer, serving

TINY = np.random.default_rng(1).bytes(100_000)
SHA256 = hashlib.sha256(TINY).hexdigest()
FILE = PublishedFile("https://example.org/", "tiny.bin", len(TINY), 0, SHA256)
SHARED = Path(__file__).parents[1].parent / "shared" / "data"


@pytest.fixture(autouse=True)
def tiny_world(monkeypatch: pytest.MonkeyPatch) -> None:
    """One small published file, no pauses, no proxy."""
    monkeypatch.setattr(datasets, "PUBLISHED", {"tiny": (FILE,)})
    monkeypatch.setattr(download, "PAUSE", 0.0)
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture(scope="module")
def running() -> Iterator[FileServer]:
    with serving({"tiny.bin": TINY}) as server:
        yield server


@pytest.fixture
def server(running: FileServer) -> FileServer:
    running.asked.clear()
    return running


def part(folder: Path) -> Path:
    return folder / "tiny.bin.part"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def refused(folder: Path, mirror: str | None, *, leaves: list[str]) -> str:
    """Fetching must fail with one sentence that tells how to go on by hand; returns it."""
    with pytest.raises(DatasetError) as caught:
        fetch("tiny", folder, mirror=mirror)
    message = str(caught.value)
    assert message.isprintable()
    assert len(message) < 1000
    assert f"download {FILE.url} with a browser on a machine with network and put it into {folder}" in message
    assert f"`exchangeable fetch tiny --from DIR` with the folder that holds it (SHA-256 {SHA256})" in message
    assert names(folder) == leaves
    return message


def test_a_file_arrives_and_nothing_else_stays(server: FileServer, tmp_path: Path) -> None:
    folder = tmp_path / "made" / "on the way"
    assert fetch("tiny", folder, mirror=server.mirror("plain")) == [folder / "tiny.bin"]
    assert (folder / "tiny.bin").read_bytes() == TINY
    assert names(folder) == ["tiny.bin"]
    assert server.spans("plain") == [None]


def test_the_file_has_ordinary_permissions(server: FileServer, tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    [path] = fetch("tiny", tmp_path, mirror=server.mirror("plain"))
    assert path.stat().st_mode == (tmp_path / "other").stat().st_mode


def test_the_slash_at_the_end_of_a_mirror_does_not_matter(server: FileServer, tmp_path: Path) -> None:
    fetch("tiny", tmp_path, mirror=server.mirror("plain") + "/")
    assert server.asked[0].name == "tiny.bin"


def test_the_default_folder_is_the_cache(server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXCHANGEABLE_DATA", str(tmp_path / "cache"))
    assert fetch("tiny", mirror=server.mirror("plain")) == [tmp_path / "cache" / "tiny.bin"]


def test_what_is_there_is_kept_without_network(tmp_path: Path) -> None:
    path = tmp_path / "tiny.bin"
    path.write_bytes(TINY)
    before = (path.stat().st_ino, path.stat().st_mtime_ns)
    assert fetch("tiny", tmp_path, mirror="http://127.0.0.1:1") == [path]
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == before


def test_a_damaged_file_is_replaced(server: FileServer, tmp_path: Path) -> None:
    (tmp_path / "tiny.bin").write_bytes(TINY[:-1] + b"?")
    fetch("tiny", tmp_path, mirror=server.mirror("plain"))
    assert (tmp_path / "tiny.bin").read_bytes() == TINY


def test_a_damaged_file_stays_if_no_better_one_comes(server: FileServer, tmp_path: Path) -> None:
    (tmp_path / "tiny.bin").write_bytes(b"precious?")
    refused(tmp_path, server.mirror("corrupt"), leaves=["tiny.bin"])
    assert (tmp_path / "tiny.bin").read_bytes() == b"precious?"


@pytest.mark.parametrize(
    ("manner", "spans"),
    [
        ("plain", ["bytes=40000-"]),
        ("rangeless", ["bytes=40000-"]),
        ("wrong-range", ["bytes=40000-", None]),
        ("no-ranges-today", ["bytes=40000-", None]),
        ("cut-once", ["bytes=40000-", "bytes=50000-"]),
    ],
)
def test_a_part_is_resumed(server: FileServer, tmp_path: Path, manner: str, spans: list[str | None]) -> None:
    part(tmp_path).write_bytes(TINY[:40_000])
    fetch("tiny", tmp_path, mirror=server.mirror(manner))
    assert (tmp_path / "tiny.bin").read_bytes() == TINY
    assert names(tmp_path) == ["tiny.bin"]
    assert server.spans(manner) == spans


def test_the_range_survives_a_redirect(server: FileServer, tmp_path: Path) -> None:
    part(tmp_path).write_bytes(TINY[:40_000])
    fetch("tiny", tmp_path, mirror=server.mirror("redirect"))
    assert (tmp_path / "tiny.bin").read_bytes() == TINY
    assert server.spans("plain") == ["bytes=40000-"]


@pytest.mark.parametrize("held", [b"x" * 40_000, b"x" * len(TINY), TINY + b"x", b"x" * 3 * len(TINY)])
def test_a_wrong_part_is_dropped_and_all_starts_over(server: FileServer, tmp_path: Path, held: bytes) -> None:
    part(tmp_path).write_bytes(held)
    fetch("tiny", tmp_path, mirror=server.mirror("plain"))
    assert (tmp_path / "tiny.bin").read_bytes() == TINY
    assert names(tmp_path) == ["tiny.bin"]
    assert server.spans("plain")[-1] is None


def test_starting_over_happens_once(server: FileServer, tmp_path: Path) -> None:
    part(tmp_path).write_bytes(b"x" * 40_000)
    refused(tmp_path, server.mirror("corrupt"), leaves=[])
    assert server.spans("corrupt") == ["bytes=40000-", None]


def test_wrong_bytes_in_one_go_get_no_second_chance(server: FileServer, tmp_path: Path) -> None:
    part(tmp_path).write_bytes(TINY[:40_000])
    refused(tmp_path, server.mirror("corrupt-rangeless"), leaves=[])
    assert server.spans("corrupt-rangeless") == ["bytes=40000-"]


def test_wrong_bytes_after_a_broken_connection_get_a_second_chance(server: FileServer, tmp_path: Path) -> None:
    fetch("tiny", tmp_path, mirror=server.mirror("cut-then-corrupt"))
    assert (tmp_path / "tiny.bin").read_bytes() == TINY
    assert server.spans("cut-then-corrupt") == [None, "bytes=10000-", None]


def test_a_part_that_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    part(tmp_path).mkdir()
    with pytest.raises(DatasetError, match=r"tiny\.bin\.part cannot be written: "):
        fetch("tiny", tmp_path, mirror="http://127.0.0.1:1")


def test_a_complete_part_needs_no_network(tmp_path: Path) -> None:
    part(tmp_path).write_bytes(TINY)
    fetch("tiny", tmp_path, mirror="http://127.0.0.1:1")
    assert (tmp_path / "tiny.bin").read_bytes() == TINY
    assert names(tmp_path) == ["tiny.bin"]


@pytest.mark.parametrize("manner", ["cut-once", "cut-chunked"])
def test_a_broken_connection_is_resumed(server: FileServer, tmp_path: Path, manner: str) -> None:
    fetch("tiny", tmp_path, mirror=server.mirror(manner))
    assert (tmp_path / "tiny.bin").read_bytes() == TINY
    assert server.spans(manner) == [None, "bytes=10000-"]


def test_a_connection_that_always_breaks_leaves_a_part_for_the_next_run(server: FileServer, tmp_path: Path) -> None:
    message = refused(tmp_path, server.mirror("cut"), leaves=["tiny.bin.part"])
    assert "broke off at 40000 of 100000 bytes" in message
    assert "run the same command again to resume" in message
    assert len(server.spans("cut")) == download.ATTEMPTS == 4
    assert part(tmp_path).read_bytes() == TINY[:40_000]
    fetch("tiny", tmp_path, mirror=server.mirror("plain"))
    assert server.spans("plain") == ["bytes=40000-"]
    assert (tmp_path / "tiny.bin").read_bytes() == TINY


def test_wrong_bytes_are_refused_with_both_checksums(server: FileServer, tmp_path: Path) -> None:
    wrong = hashlib.sha256(bytes([TINY[0] ^ 1]) + TINY[1:-1] + bytes([TINY[-1] ^ 1])).hexdigest()
    message = refused(tmp_path, server.mirror("corrupt"), leaves=[])
    assert f"expected SHA-256 {SHA256}, got {wrong}" in message
    assert len(server.asked) == 1


def test_a_longer_file_is_refused_before_its_body(server: FileServer, tmp_path: Path) -> None:
    assert "offers 100004 bytes, not the 100000" in refused(tmp_path, server.mirror("longer"), leaves=[])


def test_a_page_in_place_of_the_file_does_not_cost_the_part(server: FileServer, tmp_path: Path) -> None:
    part(tmp_path).write_bytes(TINY[:40_000])
    message = refused(tmp_path, server.mirror("shorter"), leaves=["tiny.bin.part"])
    assert "offers 13 bytes" in message
    assert part(tmp_path).read_bytes() == TINY[:40_000]


def test_an_endless_body_is_read_one_byte_too_far_at_most(server: FileServer, tmp_path: Path) -> None:
    seen: list[int] = []
    with pytest.raises(DatasetError, match="expected 100000 bytes, got more"):
        fetch(
            "tiny",
            tmp_path,
            mirror=server.mirror("endless"),
            progress=lambda name, done, total: seen.append(max(done, part(tmp_path).stat().st_size)),
        )
    assert max(seen) == len(TINY) + 1
    assert names(tmp_path) == []


@pytest.mark.parametrize(("status", "reason"), [(404, "Not Found"), (403, "Forbidden"), (500, "Internal Server Error")])
def test_a_refusal_names_status_and_url(server: FileServer, tmp_path: Path, status: int, reason: str) -> None:
    part(tmp_path).write_bytes(TINY[:40_000])
    mirror = server.mirror(str(status))
    message = refused(tmp_path, mirror, leaves=["tiny.bin.part"])
    assert message.startswith(f"{mirror}/tiny.bin answered {status} {reason}: ")
    assert len(server.asked) == 1


def test_416_without_a_range_is_a_refusal(server: FileServer, tmp_path: Path) -> None:
    assert "answered 416" in refused(tmp_path, server.mirror("416"), leaves=[])


def test_a_redirect_is_followed(server: FileServer, tmp_path: Path) -> None:
    fetch("tiny", tmp_path, mirror=server.mirror("redirect"))
    assert (tmp_path / "tiny.bin").read_bytes() == TINY


def test_a_redirect_loop_ends(server: FileServer, tmp_path: Path) -> None:
    assert "answered 302" in refused(tmp_path, server.mirror("loop"), leaves=[])
    assert len(server.asked) < 20


@pytest.mark.parametrize(
    ("manner", "words"),
    [
        ("to-ftp", "redirect to ftp://127.0.0.1/tiny.bin rejected"),
        ("to-disk", "not allowed"),
        ("to-nowhere", "cannot be reached"),
    ],
)
def test_a_redirect_off_the_web_is_refused(server: FileServer, tmp_path: Path, manner: str, words: str) -> None:
    assert words in refused(tmp_path, server.mirror(manner), leaves=[])


@pytest.mark.parametrize(
    ("old", "new", "allowed"),
    [
        ("https", "https", True),
        ("https", "http", False),
        ("http", "http", True),
        ("http", "https", True),
        ("http", "ftp", False),
    ],
)
def test_a_redirect_never_leaves_https(old: str, new: str, allowed: bool) -> None:
    def follow() -> Request | None:
        request = Request(f"{old}://a.example/f")
        return download._Redirects().redirect_request(request, None, 302, "", HTTPMessage(), f"{new}://b.example/f")

    if allowed:
        request = follow()
        assert request is not None
        assert request.full_url == f"{new}://b.example/f"
    else:
        with pytest.raises(HTTPError, match="rejected"):
            follow()


def test_the_public_homes_are_https(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert set(datasets.PUBLISHED) == {"usps", "satellite"}
    assert all(file.url.startswith("https://") for files in datasets.PUBLISHED.values() for file in files)
    with pytest.raises(TypeError):
        datasets.PUBLISHED["usps"] = ()  # type: ignore[index]


def test_without_a_mirror_the_public_home_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_names(host: str, *_: object, **__: object) -> list[object]:
        raise socket.gaierror(socket.EAI_NONAME, f"no name {host} here")

    monkeypatch.setattr(socket, "getaddrinfo", no_names)
    message = refused(tmp_path, None, leaves=[])
    assert message.startswith("https://example.org/tiny.bin cannot be reached (")
    assert "no name example.org here" in message


def test_nobody_listens(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    part(tmp_path).write_bytes(TINY[:40_000])
    message = refused(tmp_path, f"http://127.0.0.1:{port}", leaves=["tiny.bin.part"])
    assert "refused" in message


def test_a_server_that_never_answers(server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "TIMEOUT", 0.2)
    before = time.monotonic()
    assert "cannot be reached (timed out)" in refused(tmp_path, server.mirror("silent"), leaves=[])
    assert time.monotonic() - before < 4


def test_a_server_that_falls_silent(server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "TIMEOUT", 0.2)
    message = refused(tmp_path, server.mirror("stall"), leaves=["tiny.bin.part"])
    assert "broke off at 40000 of 100000 bytes (timed out)" in message


def test_a_server_that_speaks_no_http(server: FileServer, tmp_path: Path) -> None:
    assert "cannot be reached" in refused(tmp_path, server.mirror("garbage"), leaves=[])


def test_progress_counts_up_to_the_whole(server: FileServer, tmp_path: Path) -> None:
    calls: list[tuple[str, int, int]] = []
    fetch("tiny", tmp_path, mirror=server.mirror("cut-once"), progress=lambda *call: calls.append(call))
    assert {(name, total) for name, _, total in calls} == {("tiny.bin", len(TINY))}
    done = [done for _, done, _ in calls]
    assert done == sorted(done)
    assert 10_000 in done
    assert done[-1] == len(TINY)


def test_progress_tells_of_what_is_there_already(tmp_path: Path) -> None:
    (tmp_path / "tiny.bin").write_bytes(TINY)
    calls: list[tuple[str, int, int]] = []
    fetch("tiny", tmp_path, progress=lambda *call: calls.append(call))
    assert calls == [("tiny.bin", len(TINY), len(TINY))]


def test_trouble_in_progress_is_not_taken_for_trouble_in_the_network(server: FileServer, tmp_path: Path) -> None:
    def broken(*_: object) -> None:
        raise BrokenPipeError("the terminal went away")

    with pytest.raises(BrokenPipeError, match="the terminal went away"):
        fetch("tiny", tmp_path, mirror=server.mirror("plain"), progress=broken)


def test_a_folder_as_source(tmp_path: Path) -> None:
    (tmp_path / "usb").mkdir()
    (tmp_path / "usb" / "tiny.bin").write_bytes(TINY)
    part_before = part(tmp_path / "to")
    part_before.parent.mkdir()
    part_before.write_bytes(b"old")
    assert fetch("tiny", tmp_path / "to", source=tmp_path / "usb") == [tmp_path / "to" / "tiny.bin"]
    assert (tmp_path / "to" / "tiny.bin").read_bytes() == TINY
    assert names(tmp_path / "to") == ["tiny.bin"]


@pytest.mark.parametrize("held", [None, b"", TINY[:-1], TINY + b"?", TINY[:-1] + b"?"])
def test_a_bad_source_is_refused(tmp_path: Path, held: bytes | None) -> None:
    (tmp_path / "usb").mkdir()
    if held is not None:
        (tmp_path / "usb" / "tiny.bin").write_bytes(held)
    with pytest.raises(DatasetError, match=r"tiny\.bin is (missing in .*usb|not the published file)"):
        fetch("tiny", tmp_path / "to", source=tmp_path / "usb")
    assert names(tmp_path / "to") == []


def test_the_arguments_are_checked_before_anything_happens(tmp_path: Path) -> None:
    folder = tmp_path / "to"
    with pytest.raises(ValueError, match="name must be one of 'tiny', got 'nonsense'"):
        fetch("nonsense", folder)
    with pytest.raises(ValueError, match="mirror and source must not both be given"):
        fetch("tiny", folder, mirror="http://127.0.0.1:1", source=tmp_path)
    assert not folder.exists()


@pytest.mark.parametrize(
    "mirror", ["", "ftp://host", "file:///tmp", "/tmp", "host/path", "http://", "http://[", "http://h/ö", "http://h/ a"]
)
def test_a_mirror_is_on_the_web(tmp_path: Path, mirror: str) -> None:
    with pytest.raises(ValueError, match="mirror must be an http:// or https:// URL, got "):
        fetch("tiny", tmp_path / "to", mirror=mirror)
    assert not (tmp_path / "to").exists()


def test_a_mirror_with_an_impossible_port_is_one_sentence(tmp_path: Path) -> None:
    assert "cannot be reached" in refused(tmp_path, "http://127.0.0.1:port", leaves=[])


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(DatasetError, match=r"file\S* cannot be written: ") as caught:
            fetch("tiny", folder, mirror="http://127.0.0.1:1")
        assert "\n" not in str(caught.value)


def test_a_folder_that_may_not_be_written(server: FileServer, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        if os.access(tmp_path, os.W_OK):
            pytest.skip("this user may write everywhere")
        with pytest.raises(DatasetError, match="cannot be written: Permission denied"):
            fetch("tiny", tmp_path, mirror=server.mirror("plain"))
    finally:
        tmp_path.chmod(0o700)


def test_a_failing_replace_leaves_nothing_behind(
    server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def replace(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(DatasetError, match=r"tiny\.bin cannot be written: Permission denied"):
        fetch("tiny", tmp_path, mirror=server.mirror("plain"))
    assert names(tmp_path) == ["tiny.bin.part"]
    assert part(tmp_path).read_bytes() == TINY


def test_the_bytes_reach_the_disk_before_the_name(
    server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    fsync, replace = os.fsync, os.replace

    def noted_fsync(file: int) -> None:
        done.append("fsync")
        fsync(file)

    def noted_replace(old: Path, new: Path) -> None:
        done.append("replace")
        replace(old, new)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "replace", noted_replace)
    fetch("tiny", tmp_path, mirror=server.mirror("plain"))
    assert done == ["fsync", "replace"]


def test_many_who_fetch_the_same_at_once(server: FileServer, tmp_path: Path) -> None:
    manners = ["plain", "rangeless", "redirect", "wrong-range", "cut-once", "no-ranges-today", "plain", "rangeless"]
    with ThreadPoolExecutor(len(manners)) as pool:
        for round_ in range(20):
            folder = tmp_path / str(round_)
            done = list(pool.map(lambda manner, to=folder: fetch("tiny", to, mirror=server.mirror(manner)), manners))
            assert done == [[folder / "tiny.bin"]] * len(manners)
            assert (folder / "tiny.bin").read_bytes() == TINY


CHILD = """
import sys
from exchangeable.research import datasets, download
folder, mirror, size, sha256, limit = sys.argv[1:]
datasets.PUBLISHED = {"tiny": (download.PublishedFile("https://example.org/", "tiny.bin", int(size), 0, sha256),)}
if limit:
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
try:
    datasets.fetch("tiny", folder, mirror=mirror)
except datasets.DatasetError as error:
    sys.exit(str(error))
"""


def child(folder: Path, mirror: str, limit: str = "") -> subprocess.Popen[str]:
    """Fetch in another process, whose files may not grow beyond ``limit`` bytes."""
    arguments = [sys.executable, "-W", "error", "-c", CHILD, str(folder), mirror, str(len(TINY)), SHA256, limit]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.Popen(arguments, env=environment, stderr=subprocess.PIPE, text=True)


@pytest.mark.skipif(sys.platform == "win32", reason="needs resource limits")
def test_a_full_disk_is_one_sentence_and_the_part_is_good(server: FileServer, tmp_path: Path) -> None:
    with child(tmp_path, server.mirror("plain"), limit="50000") as process:
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert errors == f"{part(tmp_path)} cannot be written: File too large\n"
    assert names(tmp_path) == ["tiny.bin.part"]
    assert part(tmp_path).read_bytes() == TINY[:50_000]
    fetch("tiny", tmp_path, mirror=server.mirror("plain"))
    assert server.spans("plain") == [None, "bytes=50000-"]
    assert (tmp_path / "tiny.bin").read_bytes() == TINY


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
def test_killed_in_the_middle(server: FileServer, tmp_path: Path) -> None:
    with child(tmp_path, server.mirror("drip")) as process:
        until = time.monotonic() + 60
        while not (part(tmp_path).exists() and part(tmp_path).stat().st_size > 5_000):
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.01)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    assert names(tmp_path) == ["tiny.bin.part"]
    held = part(tmp_path).read_bytes()
    assert 5_000 < len(held) < len(TINY)
    assert TINY.startswith(held)
    fetch("tiny", tmp_path, mirror=server.mirror("plain"))
    assert server.spans("plain") == [f"bytes={len(held)}-"]
    assert (tmp_path / "tiny.bin").read_bytes() == TINY


@pytest.mark.skipif(not SHARED.is_dir(), reason="the published files are not in ../shared/data")
@pytest.mark.parametrize("manner", ["plain", "cut-once"])
def test_the_real_files_arrive_byte_for_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, manner: str) -> None:
    monkeypatch.undo()
    monkeypatch.setenv("no_proxy", "*")
    files = {
        file.name: (SHARED / file.name).read_bytes() for name in datasets.PUBLISHED for file in datasets.PUBLISHED[name]
    }
    with serving(files) as server:
        for name in datasets.PUBLISHED:
            fetch(name, tmp_path, mirror=server.mirror(manner))
    assert names(tmp_path) == sorted(files)
    for name, data in files.items():
        assert (tmp_path / name).read_bytes() == data
    assert datasets.satellite(tmp_path).X.shape == (6435, 36)
