"""Snapshots continue bit for bit, and invalid files are rejected with one sentence."""

from __future__ import annotations

import copy
import errno
import hashlib
import io
import json
import math
import os
import pickle
import subprocess
import sys
import tracemalloc
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import contracts
import exchangeable
import fuzz_snapshot
from contracts import settled
from exchangeable import (
    LateLabels,
    Martingale,
    Monitor,
    Precomputed,
    PValues,
    RateMonitor,
    Risk,
    alarms,
    bets,
    measures,
    native,
    snapshot,
)
from exchangeable.measures.pools import Pool
from exchangeable.protocols import Path as Steps
from exchangeable.protocols import Step
from exchangeable.rate import RatePath
from exchangeable.risk import RiskPath
from exchangeable.snapshot import archive, objects
from exchangeable.snapshot.reading import Reader
from exchangeable.snapshot.writing import Writer

RNG = np.random.default_rng(1)
NUMBERS = np.concatenate([RNG.normal(size=300), RNG.normal(1.0, 1.0, size=300)])
X, Y = RNG.normal(size=(120, 3)), RNG.integers(0, 3, 120).tolist()


def first_feature(rows: Any, y: Any) -> Any:
    return np.asarray(rows)[:, 0]


def second_feature(rows: Any, y: Any) -> Any:
    return np.asarray(rows)[:, 1]


def columns(path: Steps | RatePath | RiskPath) -> list[Any]:
    return [part.tobytes() if isinstance(part, np.ndarray) else part for part in path]


def forged(data: bytes, change: Callable[[Any, list[Any]], Any]) -> bytes:
    """Return a snapshot with another state or other arrays, and correct checksums."""
    state, arrays = archive.unpack(data)
    state = change(state, arrays) or state
    return archive.pack(state, arrays)


def refusal(data: bytes, **options: Any) -> str:
    with pytest.raises(ValueError, match=r"\A[^\n]+\Z") as caught:
        snapshot.decode(data, **options)
    return str(caught.value)


# ------------------------------------------------------------------ it continues

MONITORS: dict[str, Callable[[], Monitor]] = {
    "value": lambda: Monitor(measures.Value(), seed=3),
    "binned": lambda: Monitor(
        measures.Frozen(bins=16, reference=NUMBERS), bets.CompositeJumper(), alarms.Cusum(20), on_alarm="restart"
    ),
    "kernel": lambda: Monitor(measures.Value(), bets.Kernel(4), alarms.Cusum(5), on_alarm="restart"),
    "latched": lambda: Monitor(measures.Value(), bets.Plugin(), alarms.ShiryaevRoberts(9), start=1000),
    "restarts": lambda: Monitor(measures.Value(), bets.Sentinel(), alarms.Ville(0.2), on_alarm="restart", start=5),
}


@pytest.mark.quick
@pytest.mark.parametrize("name", MONITORS)
@settled(8)
@given(at=st.integers(0, 500), singly=st.booleans())
def test_a_monitor_that_was_saved_continues(name: str, at: int, singly: bool) -> None:
    monitor = MONITORS[name]()
    if singly:
        for x in NUMBERS[:at]:
            monitor.update(x)
    elif at:
        monitor.extend(NUMBERS[:at])

    def go_on(monitor: Monitor) -> Any:
        steps = [monitor.update(x) for x in NUMBERS[at : at + 50]]
        rest = columns(monitor.extend(NUMBERS[at + 50 :]))
        return steps, rest, monitor.last, monitor.log_max, monitor.alarm_at, monitor.changepoint, monitor.guarantee

    contracts.check_saved_and_loaded_it_continues(monitor, go_on)


@pytest.mark.quick
@pytest.mark.parametrize(
    "make", [lambda: RateMonitor(50), lambda: RateMonitor(alpha=0.1, values=(0, 1, 2), on_alarm="restart")]
)
@settled(8)
@given(at=st.integers(0, 300))
def test_a_rate_monitor_that_was_saved_continues(make: Callable[[], RateMonitor], at: int) -> None:
    monitor, x = make(), [0, 0, 1, 0, 1] * 40 + [1] * 100
    monitor.extend(x[:at])

    def go_on(monitor: RateMonitor) -> Any:
        steps = [monitor.update(value) for value in x[at : at + 50]]
        return steps, columns(monitor.extend(x[at + 50 :])), monitor.last, monitor.alarm_at, monitor.change

    contracts.check_saved_and_loaded_it_continues(monitor, go_on)


@pytest.mark.quick
@pytest.mark.parametrize(
    "make", [lambda: Risk(0.2), lambda: Risk(0.0, period=20, bounds=(-1, 1), on_alarm="restart", reference_alpha=0.01)]
)
@settled(8)
@given(at=st.integers(0, 300))
def test_a_risk_that_was_saved_continues(make: Callable[[], Risk], at: int) -> None:
    risk, x = make(), [0.0, 0.0, 1.0, 0.0, 0.5] * 40 + [1.0] * 100
    risk.extend(x[:at])

    def go_on(risk: Risk) -> Any:
        steps = [risk.update(value) for value in x[at : at + 50]]
        return steps, columns(risk.extend(x[at + 50 :])), risk.last, risk.alarm_at, risk.interval, risk.limit

    contracts.check_saved_and_loaded_it_continues(risk, go_on)


@pytest.mark.parametrize("on_alarm", ["latch", "restart"])
@pytest.mark.parametrize("make", [measures.NearestNeighbour, lambda: measures.Conditional(measures.NearestNeighbour())])
def test_a_monitor_of_labelled_examples_continues(make: Callable[[], Any], on_alarm: str) -> None:
    monitor = Monitor(make(), bets.SimpleJumper(), alarms.Cusum(1.5), on_alarm=on_alarm)
    monitor.extend(X[:60], Y[:60])
    contracts.check_saved_and_loaded_it_continues(monitor, lambda monitor: columns(monitor.extend(X[60:], Y[60:])))


def test_p_values_and_a_martingale_continue() -> None:
    p = 1.0 - RNG.random(200)
    given, martingale, pvalues = (
        Monitor(Precomputed(), start=7),
        Martingale(bets.Tree(4)),
        PValues(measures.Value(), stream=3),
    )
    for thing, column in ((given, p), (martingale, p), (pvalues, NUMBERS)):
        thing.extend(column[:100])
        thing.update(column[100])
    contracts.check_saved_and_loaded_it_continues(given, lambda given: columns(given.extend(p)))
    contracts.check_saved_and_loaded_it_continues(martingale, lambda martingale: martingale.extend(p).tobytes())
    contracts.check_saved_and_loaded_it_continues(pvalues, lambda pvalues: pvalues.extend(NUMBERS).tobytes())


def test_bankruptcy_is_saved() -> None:
    martingale = Martingale(bets.Power(1e6))
    martingale.extend([0.5, 5e-324] * 200_000)
    martingale._sum[:] = -math.inf, 0.0
    assert snapshot.decode(snapshot.encode(martingale)).log_value == -math.inf


def test_a_broken_monitor_stays_broken() -> None:
    monitor = Monitor(measures.Value())
    monitor._interrupted = True
    with pytest.raises(ValueError, match="interrupted"):
        snapshot.decode(snapshot.encode(monitor)).update(1.0)


def test_an_inconsistent_measure_is_recomputed_before_saving() -> None:
    measure, untroubled = measures.NearestResidual(2), measures.NearestResidual(2)
    for one in (measure, untroubled):
        one.extend(X[:50], [float(y) for y in Y[:50]])
    measure._store.inconsistent = True
    measure._store.near[:, 7:30] = -1.0
    measure._store.alpha[3] = math.nan
    twin = snapshot.decode(snapshot.encode(measure))
    assert twin.update(X[50], 1.0) == untroubled.update(X[50], 1.0)


def test_equal_states_are_equal_bytes_however_they_came_about() -> None:
    case = contracts.MEASURES["Conditional(Value)"]
    measured = [case.make() for _ in range(3)]
    for measure, cuts in zip(measured, ([120], [0], [3, 0, 17]), strict=True):
        case.ranks(measure, X, Y, cuts)
    monitors = [Monitor(measures.Value(), alarm=alarms.Cusum()) for _ in range(2)]
    monitors[0].extend(NUMBERS)
    for x in NUMBERS:
        monitors[1].update(x)
    for things in (measured, [*monitors, copy.deepcopy(monitors[0])]):
        assert len({snapshot.encode(thing) for thing in things}) == 1


def test_no_memory_that_was_never_written_is_saved() -> None:
    measure = measures.NearestResidual(4)
    measure.extend(X[:3], [1.0, 2.0, 3.0])
    before = snapshot.encode(measure)
    rows, n = measure._store, measure.n
    larger = rows.with_room(1000, 3)
    for name in ("X", "alpha", "near", "tags"):
        array = getattr(larger, name)
        (array if name in ("X", "alpha") else array.swapaxes(0, 1))[n:] = 1234.5
    larger.tags[larger.near == math.inf] = math.nan
    measure._store = larger
    assert snapshot.encode(measure) == before


def test_a_whole_file_continues_in_another_process(tmp_path: Path) -> None:
    monitor = Monitor(measures.Value(), bets.Adaptive(), seed=5)
    monitor.extend(NUMBERS[:300])
    snapshot.save(monitor, tmp_path / "monitor.zip")
    code = "import sys, exchangeable as ex; print(repr(ex.load(sys.argv[1]).update(0.25)))"
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "monitor.zip"], capture_output=True, text=True)
    assert done.stdout.strip() == repr(monitor.update(0.25)), done.stderr


# ------------------------------------------------------------------ what is in it


def test_other_tools_open_it() -> None:
    monitor = Monitor(measures.Value(), bets.Adaptive())
    monitor.extend(NUMBERS)
    data = snapshot.encode(monitor)
    with zipfile.ZipFile(io.BytesIO(data)) as opened:
        assert opened.testzip() is None
        assert opened.namelist() == ["state.json", "float64.npy", "float32.npy", "int64.npy", "bool.npy"]
        assert {info.compress_type for info in opened.infolist()} == {zipfile.ZIP_STORED}
        head = json.loads(opened.read("state.json"))
    assert (head["format"], head["version"], head["package"]) == (archive.FORMAT, 6, exchangeable.__version__)
    assert head["state"]["class"] == "Monitor"
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        sizes = Counter[str]()
        for name, shape in head["arrays"]:
            sizes[name] += math.prod(shape)
        assert {name: len(arrays[name]) for name in sizes} == sizes


def test_archives_have_the_same_bytes_with_every_python() -> None:
    data = archive.write_members({"state.json": b"x" * 100, "float64.npy": b"x" * 100})
    assert hashlib.md5(data).hexdigest() == "25219330cd0447a88b227d90eb8c8252"


def test_it_is_small() -> None:
    monitor = Monitor(measures.Value(), bets.Idle())
    empty = len(snapshot.encode(monitor))
    assert empty < 5_300  # the history takes 3.8 kB of it
    monitor.extend(NUMBERS)
    assert len(snapshot.encode(monitor)) < empty + 100 + 16 * len(NUMBERS)
    nearest = measures.NearestNeighbour()
    nearest.extend(X, Y)
    assert len(snapshot.encode(nearest)) < 1_400 + len(X) * (8 * 3 + 4 + 8 + 2 * 8)


def test_an_array_that_two_share_is_stored_once() -> None:
    monitor = MONITORS["binned"]()
    monitor.extend(NUMBERS)
    twin = snapshot.decode(snapshot.encode(monitor))
    live, fresh = twin.measure, twin._fresh[0].measure
    assert live.edges is fresh.edges
    assert live._pool is not fresh._pool
    shared, writer = np.arange(3.0), Writer()
    tree = writer.node([shared] * 5, "state")
    assert [node["array"] for node in tree] == [0, 0, 1, 1, 2]


def test_everything_under_contract_is_in_the_table() -> None:
    things = [
        case.make() for cases in (contracts.BETS, contracts.MEASURES, contracts.ALARMS) for case in cases.values()
    ]
    public = [kind for name, kind in objects.classes().items() if not name.startswith("_")]
    assert {type(thing) for thing in things} | {
        Precomputed,
        LateLabels,
        Martingale,
        Monitor,
        PValues,
        RateMonitor,
        Risk,
    } == set(public)


PLAIN: list[Any] = [
    *(None, True, False, 0, -1, 2**53 + 1, 2**64 - 1, -(2**64), 10**5000, 0.1, -0.0, 5e-324, 1e22, math.inf, -math.inf),
    *(
        "",
        "å\u0000\ud800\U0001f600",
        b"",
        b"\x00\xff",
        (),
        (1, (2.0, "a")),
        [],
        [[], [None]],
        {},
        {1: "a", ("b",): [2]},
    ),
    *(np.int8(-128), np.uint64(2**64 - 1), np.float32(0.1), np.float16(math.inf), np.float64(-0.0), np.bool_(True)),
    *(np.str_("ü"), np.bytes_(b"\xfe"), Step(1, 0.5, -math.inf, True)),
]


@pytest.mark.parametrize("value", PLAIN, ids=range(len(PLAIN)))
def test_plain_data_comes_back_exactly(value: Any) -> None:
    writer = Writer()
    tree = json.loads(json.dumps(writer.node(value, "state"), allow_nan=False))
    back = Reader(writer.arrays, None).node(tree, "state")
    assert type(back) is type(value)
    assert contracts.state(back) == contracts.state(value)
    assert repr(back) == repr(value) if not isinstance(value, int) else back == value


def test_nan_and_arrays_come_back_exactly() -> None:
    values = [
        math.nan,
        np.float64(math.nan),
        np.array(3.0),
        np.zeros((2, 0, 3), np.int32),
        np.ones(4, np.float32),
    ]
    writer = Writer()
    tree = writer.node(values, "state")
    state, arrays = archive.unpack(archive.pack(tree, writer.arrays))
    back = Reader(arrays, None).node(state, "state")
    assert contracts.state(back) == contracts.state(values)
    assert all(array.flags.writeable and array.flags.aligned and array.flags.c_contiguous for array in arrays)


LABELS: list[Any] = ["a", 3, 2.5, True, ("a", 1), b"x", np.int64(7), np.str_("b"), 10**400, np.float32(1.5), ""]


def test_labels_keep_their_kind() -> None:
    measure = measures.NearestNeighbour()
    measure.extend(X[: len(LABELS)], LABELS)
    twin = snapshot.decode(snapshot.encode(measure))
    assert list(twin._store.codes.items()) == list(measure._store.codes.items())
    assert [type(label) for label in twin._store.codes] == [type(label) for label in LABELS]


# ------------------------------------------------------------------ what is not saved


class OwnBet(bets.Idle):
    """A bet of a user."""


@pytest.mark.parametrize(
    ("make", "where"),
    [
        (lambda: OwnBet(), "obj must be"),
        (lambda: Monitor(measures.Value(), OwnBet()), "state.martingale.bet must be"),
        (lambda: Monitor(bet=bets.Blend([bets.Idle(), OwnBet()])), r"state.martingale.bet.bets\[1\] must be"),
        (lambda: [bets.Idle()], "obj must be"),
        (lambda: {"a": 1}, "obj must be"),
        (lambda: None, "obj must be"),
        (lambda: bets.Power, "obj must be"),
        (lambda: Step(1, 1.0, 0.0, False), "obj must be"),
        (lambda: 10**5000, "obj must be"),
    ],
)
def test_what_is_not_ours_is_refused(make: Callable[[], Any], where: str) -> None:
    with pytest.raises(ValueError, match=rf"^{where} .*, got "):
        snapshot.encode(make())


def test_labels_that_are_not_plain_are_refused() -> None:
    for label in (frozenset([1]), 1j, np.datetime64("2012-06-26"), np.complex128(1.0), Ellipsis, range(3)):
        measure = measures.NearestNeighbour()
        measure.update([1.0], label)
        with pytest.raises(ValueError, match=r"^state.labels\[0\] must be .* to be saved, got "):
            snapshot.encode(measure)


def test_nesting_has_a_limit() -> None:
    bet: Any = bets.Idle()
    for _ in range(30):
        bet = bets.Cautious(bet, window=1)
    assert contracts.same_bits(snapshot.decode(snapshot.encode(bet)).extend([0.5]), [0.0])
    for _ in range(80):
        bet = bets.Cautious(bet, window=1)
    with pytest.raises(ValueError, match="must be nested at most 100 levels deep"):
        snapshot.encode(bet)


# ------------------------------------------------------------------ the score is passed when decoding


def test_the_score_must_be_passed() -> None:
    monitor = Monitor(measures.Frozen(first_feature), on_alarm="restart")
    monitor.extend(X[:60])
    data = snapshot.encode(monitor)
    assert b"first_feature" not in data
    assert refusal(data).startswith("score must be given, since state._fresh[0].measure was saved without its score")
    twin = snapshot.decode(data, score=first_feature)
    assert twin.measure.score is twin._fresh[0].measure.score is first_feature
    assert columns(twin.extend(X[60:])) == columns(monitor.extend(X[60:]))


def test_a_score_must_be_of_the_kind_that_was_saved() -> None:
    class Detector:
        def score_samples(self, rows: Any) -> Any:
            return -np.asarray(rows)[:, 0]

    measure = measures.Frozen(Detector(), bins=4, reference=X)
    measure.extend(X)
    data = snapshot.encode(measure)
    assert refusal(data, score=first_feature) == (
        "score must be of kind 'detector', as for state, got one of kind 'function'"
    )
    assert refusal(data, score="x").startswith("state: score must be None, a function")
    assert snapshot.decode(data, score=Detector()).update(X[0]) == measure.update(X[0])
    assert snapshot.decode(data, score=Detector()).edges.tobytes() == measure.edges.tobytes()  # type: ignore[union-attr]


def test_a_score_that_nobody_needs_is_refused() -> None:
    for thing in (measures.Value(), measures.Frozen(), Monitor()):
        assert refusal(snapshot.encode(thing), score=first_feature).startswith("score must be None")


def test_a_score_of_numbers_needs_nothing() -> None:
    measure = measures.Frozen(bins=3, reference=[1.0, 2.0, 3.0])
    measure.extend(NUMBERS)
    assert snapshot.decode(snapshot.encode(measure)).update(0.5) == measure.update(0.5)


# ------------------------------------------------------------------ files


def test_save_and_load(tmp_path: Path) -> None:
    path = tmp_path / "a bet.zip"
    exchangeable.save(bets.Power(0.25), str(path))
    exchangeable.save(bets.Power(0.5), path)
    assert exchangeable.load(path).epsilon == 0.5
    assert [file.name for file in tmp_path.iterdir()] == ["a bet.zip"]


def test_a_file_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    fsync, replace = os.fsync, os.replace

    def synced(number: int) -> None:
        done.append("folder" if os.path.isdir(f"/proc/self/fd/{number}") else "file")
        fsync(number)

    def replaced(old: Any, new: Any) -> None:
        assert Path(old).parent == Path(new).parent
        done.append("name")
        replace(old, new)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    snapshot.save(bets.Idle(), tmp_path / "bet")
    assert done == ["file", "name", "folder"]


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_failure_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    def full(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    snapshot.save(bets.Power(0.25), tmp_path / "bet")
    monkeypatch.setattr(os, failing, full)
    with pytest.raises(OSError, match="No space"):
        snapshot.save(bets.Power(0.5), tmp_path / "bet")
    with pytest.raises(ValueError, match=r"^obj must"):
        snapshot.save("nothing", tmp_path / "bet")
    assert [file.name for file in tmp_path.iterdir()] == ["bet"]
    assert snapshot.load(tmp_path / "bet").epsilon == 0.25


def test_trouble_with_files_stays_an_oserror(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        snapshot.load(tmp_path / "nothing")
    with pytest.raises(IsADirectoryError):
        snapshot.load(tmp_path)
    with pytest.raises(FileNotFoundError):
        snapshot.save(bets.Idle(), tmp_path / "nowhere" / "bet")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        snapshot.save(bets.Idle(), tmp_path / "folder")
    assert [file.name for file in tmp_path.iterdir()] == ["folder"]


def test_a_bad_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "bad"
    path.write_bytes(b"")
    with pytest.raises(ValueError, match=r"/bad: data must be a complete, unchanged snapshot .*, got 0 bytes"):
        snapshot.load(path)


# ------------------------------------------------------------------ damage


def test_every_flipped_bit_is_noticed() -> None:
    data = snapshot.encode(bets.SimpleJumper())
    for at in range(len(data)):
        for bit in range(8):
            other = bytearray(data)
            other[at] ^= 1 << bit
            assert "got" in refusal(bytes(other))


def test_every_cut_is_noticed() -> None:
    data = snapshot.encode(measures.Value())
    for length in range(len(data)):
        assert "complete, unchanged" in refusal(data[:length])
    for more in (b"\0", data, b"PK\3\4"):
        assert "complete, unchanged" in refusal(data + more)
        assert "complete, unchanged" in refusal(more[:1] + data)


def _zip(compression: int = zipfile.ZIP_STORED, **members: bytes) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", compression) as opened:
        for name, body in members.items():
            opened.writestr(name.replace("_", "."), body)
    return written.getvalue()


def _npz() -> bytes:
    written = io.BytesIO()
    np.savez(written, a=np.arange(3))
    return written.getvalue()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"P",
        b"PK\3\4",
        b"PK\5\6" + bytes(18),
        bytes(1000),
        b'{"format": "exchangeable snapshot"}',
        pickle.dumps(bets.Idle()),
        _npz(),
        _zip(state_json=b"{}"),
        _zip(zipfile.ZIP_DEFLATED, state_json=b" " * 10**7),
        b"PK\3\4" + b"\xff" * 100,
    ],
    ids=range(11),
)
def test_other_files_are_refused(data: bytes) -> None:
    assert refusal(data).startswith("data must be a complete, unchanged snapshot of exchangeable")


def _declaring(size: int) -> bytes:
    """An archive whose headers say that its member has this size."""
    data = _zip(state_json=b"x" * 77)
    return data.replace((77).to_bytes(4, "little"), size.to_bytes(4, "little"))


@pytest.mark.parametrize("data", [_declaring(2**31), _zip(zipfile.ZIP_DEFLATED, state_json=b" " * 10**8)], ids=range(2))
def test_a_small_archive_never_allocates_much(data: bytes) -> None:
    tracemalloc.start()
    assert "complete, unchanged" in refusal(data)
    assert tracemalloc.get_traced_memory()[1] < 2_000_000
    tracemalloc.stop()


def test_an_archive_has_few_members() -> None:
    members = {f"{i}": b"" for i in range(archive.MAX_MEMBERS)}
    assert archive.read_members(archive.write_members(members)) == members
    with pytest.raises(ValueError, match="complete, unchanged"):
        archive.read_members(archive.write_members({**members, "more": b""}))


@pytest.mark.parametrize("data", ["text", None, 3, [1], Path("x")])
def test_what_is_not_bytes_is_refused(data: Any) -> None:
    assert refusal(data).startswith("data must be bytes, got")


def test_other_buffers_will_do() -> None:
    data = snapshot.encode(bets.Power(0.5))
    for buffer in (bytearray(data), memoryview(data)):
        assert snapshot.decode(buffer).epsilon == 0.5  # type: ignore[arg-type]


# ------------------------------------------------------------------ forgery


def _members(data: bytes) -> dict[str, bytes]:
    return archive.read_members(data)


def _head(**changes: Any) -> dict[str, bytes]:
    members = _members(snapshot.encode(bets.SimpleJumper()))
    head = {**json.loads(members["state.json"]), **changes}
    return {**members, "state.json": json.dumps({k: v for k, v in head.items() if v is not ...}).encode()}


JUMPER = _members(snapshot.encode(bets.SimpleJumper()))
FLOATS = JUMPER["float64.npy"]


@pytest.mark.parametrize(
    ("members", "message"),
    [
        (_head(format="other"), "state.json must be of the format"),
        (
            _head(version=7, package="9.9"),
            "version must be 6 .*, got 7, written by exchangeable '9.9': use that release",
        ),
        (_head(version=5, package="0.2.0"), "version must be 6 .*, got 5, written by exchangeable '0.2.0': start with"),
        (_head(version=1), "version must be 6 .*, got 1, .*: start with a new state, or use that release"),
        (_head(version=0), "version must be"),
        (_head(version=True), "version must be"),
        (_head(version="1"), "version must be"),
        (_head(another=1), "state.json must have arrays, format, package, state, version, got"),
        (_head(state=...), "state.json must have"),
        (_head(arrays={}), "arrays must be a list"),
        (_head(arrays=[]), "arrays must list everything in the archive"),
        (_head(arrays=[["float64", [4]]]), r"arrays\[0\] must lie in the archive"),
        (_head(arrays=[["float64", [3]]] * 2), r"arrays\[1\] must lie in the archive"),
        (_head(arrays=[["float64", [3]], ["float64", [0]]]), "arrays must all be used by the state, got array 1"),
        (_head(arrays=[["float64", [3]], ["float64", [2**70, 0]]]), r"arrays\[1\] must have a shape of integers"),
        (
            _head(arrays=[["float64", [3]], ["float64", [2**62, 2**62, 0]]]),
            r"arrays\[1\] must have a shape of integers",
        ),
        (_head(arrays=[["float64", [-1, -3]]]), r"arrays\[0\] must have a shape of integers"),
        (_head(arrays=[["float64", [3.0]]]), r"arrays\[0\] must have a shape of integers"),
        (_head(arrays=[["float64", [1] * 9 + [3]]]), r"arrays\[0\] must have a shape"),
        (_head(arrays=[["object", [3]]]), r"arrays\[0\] must lie in the archive"),
        (_head(arrays=[[["float64"], [3]]]), r"arrays\[0\] must lie in the archive"),
        (_head(arrays=[["float64"]]), r"arrays\[0\] must be a list of 2"),
        (_head(state=None), "state must be that of a monitor"),
        (_head(state=[{"array": 0}]), "state must be that of a monitor"),
        (_head(state={"class": "_Step", "with": {}}), "state: it must have alarm, log_value, n, p, got none"),
        (
            _head(state={"class": "os.system", "with": {"command": "true"}}),
            "state must be of a class that can be saved",
        ),
        (_head(state={"class": "exchangeable.bets.Power", "with": {}}), "state must be of a class that can be saved"),
        (_head(state={"class": ["Power"], "with": {}}), "state must be of a class that can be saved"),
        (_head(state={"class": "bets.Power", "with": []}), "state must have one of the forms"),
        (_head(state={"class": "bets.Power"}), "state must have one of the forms"),
        (_head(state={"pickle": "gASVBQAAAAAAAABLAS4="}), "state must have one of the forms"),
        ({"state.json": JUMPER["state.json"]}, r"arrays\[0\] must lie in the archive"),
        ({"float64.npy": FLOATS}, "data must hold state.json and arrays"),
        ({**JUMPER, "../float32.npy": b""}, "data must hold state.json and arrays"),
        ({**JUMPER, "/etc/passwd": b""}, "data must hold state.json and arrays"),
        ({**JUMPER, "object.npy": b""}, "data must hold state.json and arrays"),
        ({**JUMPER, "float64": b""}, "data must hold state.json and arrays"),
        ({**JUMPER, "int64.npy": b""}, "int64.npy must be a one-dimensional array"),
        ({**JUMPER, "float64.npy": FLOATS[:-1]}, "float64.npy must be a one-dimensional array"),
        ({**JUMPER, "float64.npy": FLOATS.replace(b"<f8", b"|O8")}, "float64.npy must be a one-dimensional array"),
        ({**JUMPER, "float64.npy": FLOATS.replace(b"(3,)", b"(9,)")}, "float64.npy must be a one-dimensional array"),
        ({**JUMPER, "float64.npy": FLOATS[:-8]}, "float64.npy must be a one-dimensional array"),
        ({**JUMPER, "float64.npy": FLOATS.replace(b"NUMPY\1", b"NUMPY\2")}, "float64.npy must be a one-dimensional"),
        ({**JUMPER, "float64.npy": FLOATS.replace(b"(3,)", b"(((")}, "float64.npy must be a one-dimensional array"),
        ({**JUMPER, "float64.npy": FLOATS.replace(b"(3,), }    ", b"(2**99,), }")}, "float64.npy must be a one-dim"),
        ({**JUMPER, "float64.npy": FLOATS.replace(b"(3,)", b"(3L)")}, "float64.npy must be a one-dimensional array"),
        (
            {**JUMPER, "bool.npy": archive.write_array(np.array([True]))[:-1] + b"\2"},
            "bool.npy must hold zeros and ones",
        ),
        ({**JUMPER, "state.json": b""}, "state.json must be valid JSON"),
        ({**JUMPER, "state.json": b"\xff"}, "state.json must be valid JSON"),
        ({**JUMPER, "state.json": b"[" * 100_000}, "state.json must be valid JSON"),
        ({**JUMPER, "state.json": b'{"format": NaN}'}, "state.json must be valid JSON.* got NaN"),
        (
            {**JUMPER, "state.json": b'{"format": 1, "format": 2}'},
            "state.json must be valid JSON.* names must not repeat",
        ),
        ({**JUMPER, "state.json": b'{"format": ' + b"1" * 10_000 + b"}"}, "state.json must be valid JSON"),
        ({**JUMPER, "state.json": b"[]"}, "state.json must be of the format"),
    ],
)
def test_a_forged_archive_is_refused(members: dict[str, bytes], message: str) -> None:
    with pytest.raises(ValueError, match=rf"\A{message}[^\n]*\Z"):
        snapshot.decode(archive.write_members(members))


def test_a_member_comes_once() -> None:
    twice = archive.write_members({"state.json": JUMPER["state.json"], "float64.npy": FLOATS, "float64.npx": FLOATS})
    assert "complete, unchanged" in refusal(twice.replace(b"float64.npx", b"float64.npy"))


def _put(*path: Any) -> Callable[[Any], Callable[[Any, list[Any]], Any]]:
    """Replace a part of the state."""

    def with_value(value: Any) -> Callable[[Any, list[Any]], Any]:
        def change(state: Any, arrays: list[Any]) -> None:
            for key in path[:-1]:
                state = state[key]
            state[path[-1]] = value

        return change

    return with_value


def _in_array(number: int, *at: Any) -> Callable[[Any], Callable[[Any, list[Any]], Any]]:
    """Replace numbers of an array."""

    def with_value(value: Any) -> Callable[[Any, list[Any]], Any]:
        def change(state: Any, arrays: list[Any]) -> None:
            arrays[number][at] = value

        return change

    return with_value


def _numbers() -> Any:
    measure = measures.Value()
    measure.extend(NUMBERS[:5])
    return measure


def _binned() -> Any:
    measure = measures.Frozen(bins=4, reference=[0.0, 1.0, 2.0, 3.0])
    measure.extend([0.5, 1.5, 2.5])
    return measure


def _neighbours() -> Any:
    measure = measures.NearestNeighbour(2)
    measure.extend(X[:5], Y[:5])
    return measure


def _cautious() -> Any:
    bet = bets.Cautious(bets.Power(0.5), window=4)
    bet.extend([0.5, 0.25, 0.75])
    return bet


def _plugin() -> Any:
    bet = bets.Plugin()
    bet.extend([0.5, 0.25, 0.75])
    return bet


def _monitor() -> Any:
    return Monitor(measures.Value(), bets.Idle())


def _alarmed() -> Any:
    monitor = Monitor(Precomputed(), bets.Power(0.5))
    monitor.extend([0.5, 1e-9, 0.5])
    return monitor


def _rate() -> RateMonitor:
    monitor = RateMonitor(50)
    monitor.extend([0, 1, 0, 0] * 10)
    return monitor


def _risk() -> Risk:
    risk = Risk(0.2)
    risk.extend([0, 1, 0, 0] * 10)
    return risk


def _drifter() -> bets.SleeperDrifter:
    bet = bets.SleeperDrifter(every=3, grid=3)
    bet.extend([0.5, 0.01, 0.3, 0.2, 0.7, 0.1, 0.9])
    return bet


FORGERIES: list[tuple[Callable[[], Any], Callable[[Any, list[Any]], Any], str]] = [
    (lambda: bets.Power(0.5), _put("with", "epsilon")(-1.0), "state: epsilon must lie in"),
    (lambda: bets.Power(0.5), _put("with", "epsilon")("0.5"), "state: epsilon must be a number"),
    (lambda: bets.Power(0.5), _put("with", "epsilon")({"float": "nan"}), "state: epsilon must lie in"),
    (
        lambda: bets.Power(0.5),
        _put("with", "epsilon")({"float": "0.5"}),
        "state.with|state.epsilon must be inf, -inf or nan",
    ),
    (lambda: bets.Power(0.5), _put("with", "epsilon")({"int": "0.5"}), "state.epsilon must be an integer"),
    (lambda: bets.Power(0.5), _put("with", "epsilon")({"bytes": "0"}), "state.epsilon must be bytes"),
    (
        lambda: bets.Power(0.5),
        _put("with", "epsilon")({"numpy": ["int8", 300]}),
        "state.epsilon must be a NumPy scalar",
    ),
    (lambda: bets.Power(0.5), _put("with", "epsilon")({"numpy": ["V8", 300]}), "state.epsilon must be a NumPy scalar"),
    (
        lambda: bets.Power(0.5),
        _put("with", "epsilon")({"numpy": ["float32", 0.1]}),
        "state.epsilon must be a NumPy scalar",
    ),
    (
        lambda: bets.Power(0.5),
        _put("with", "epsilon")({"numpy": [["str"], "a"]}),
        "state.epsilon must be a NumPy scalar",
    ),
    (lambda: bets.Power(0.5), _put("with", "epsilon")({"tuple": 3}), "state.epsilon must be a list"),
    (
        lambda: bets.Power(0.5),
        _put("with", "epsilon")({"dict": [[1, 2], [1, 3]]}),
        "state.epsilon must have distinct keys",
    ),
    (lambda: bets.Power(0.5), _put("with", "epsilon")({"dict": [[[], 2]]}), "state.epsilon must have hashable keys"),
    (lambda: bets.Power(0.5), _put("with", "epsilon")({"dict": [[1]]}), "state.epsilon must be a list of 2"),
    (
        lambda: bets.Power(0.5),
        _put("with", "epsilon")({"array": 0}),
        "state.epsilon must be the number of one of 0 arrays",
    ),
    (lambda: bets.Power(0.5), _put("with", "update")(1), "state: it must have epsilon, got epsilon, update"),
    (lambda: bets.Power(0.5), lambda state, arrays: state["with"].clear(), "state must be the state of bets.Power"),
    (lambda: bets.Tree(4), _put("with", "depth")(24), r"state: _state\[0\] must be an array of float64 and shape"),
    (lambda: bets.Tree(4), _put("with", "depth")(10**9), "state: depth must be an integer"),
    (lambda: bets.Tree(4), _put("with", "depth")({"tuple": []}), "state: depth must be an integer"),
    (lambda: bets.Tree(4), _put("with", "_state")([]), "state: _state must be like"),
    (
        lambda: bets.Histogram(8),
        _put("with", "bins")(10**8),
        r"state: _state\[0\] must be an array of float64 and shape",
    ),
    (lambda: bets.Histogram(8), _in_array(0, 3)(math.nan), r"state: _state\[0\] must hold numbers, got nan"),
    (lambda: bets.Volatility(), _in_array(0, 0)(-1.0), "state: its numbers must give a finite density at p = 0.5"),
    (lambda: bets.Idle(), _put("with", "n")(0), "state: it must have no attributes, got n"),
    (lambda: alarms.Cusum(9), _put("with", "n")(-1), "state: n must be an integer from 0"),
    (lambda: alarms.Cusum(9), _put("with", "n")(2**60), "state: n must be an integer from 0"),
    (lambda: alarms.Cusum(9), _put("with", "period")(1.0), "state: period must lie in"),
    (_cautious, _in_array(1, 3)(1e18), "state: cautious: state must hold a part of the ring"),
    (_cautious, _in_array(1, 2)(-1.0), "state: cautious: state must hold a part of the ring"),
    (_cautious, _in_array(1, 3)(math.inf), "state: cautious: state must hold a part of the ring"),
    (_plugin, _in_array(0, 7)(17.0), "state: plugin_log_density: head must hold the number of cosine sums"),
    (_plugin, _in_array(0, 7)(1024.0), "state: plugin_log_density: head must hold the number of cosine sums"),
    (_plugin, _in_array(0, 0)(-1.0), "state: plugin_log_density: head must hold the number of p-values"),
    (_plugin, _in_array(4, 0, 0)(1e6), "state: plugin_log_density: cursors must lie in the grid"),
    (_numbers, _in_array(1, 0)(9.0), "state: scores must be finite numbers in increasing order"),
    (_numbers, _in_array(1, 4)(math.inf), "state: scores must be finite numbers in increasing order"),
    (_numbers, _in_array(0, 0)(0), "state: counts must be positive integers"),
    (_numbers, _in_array(0, 0)(2**62), "state: counts must be positive integers"),
    (_numbers, _put("with", "counts")({"array": 1}), "state: counts must be an array of int64"),
    (_binned, _in_array(2, 0)(0.5), "state: scores must be numbers of bins, 0 to 3"),
    (_binned, _in_array(2, -1)(4.0), "state: scores must be numbers of bins, 0 to 3"),
    (_binned, _put("with", "bins")(2**21), "state: bins must be an integer from 2"),
    (_binned, _put("with", "bins")(None), "state: edges must be None without bins"),
    (_binned, _in_array(1, 0)(9.0), "state: edges must be 1 to 3 increasing numbers"),
    (
        _neighbours,
        _put("with", "k")(3),
        r"state: near must be an array of float64 and shape \(2, 5, 3\), got float64 and",
    ),
    (_neighbours, _put("with", "labels")(["a", "a"]), "state: labels must be a list of labels, each once"),
    (_neighbours, _put("with", "labels")([]), "state: label must hold indices of the list of labels"),
    (_neighbours, _put("with", "labels")([None]), "state: y must hold a label"),
    (_neighbours, _put("with", "scale")(3.0), "state: scale must be a power of two"),
    (_neighbours, _put("with", "scale")({"float": "inf"}), "state: scale must be a power of two"),
    (_neighbours, _put("with", "centred_at")(6), "state: centred_at must be an integer from 0 to 5"),
    (_neighbours, _in_array(0, 0, 0)(1e200), "state: X must hold finite numbers"),
    (_neighbours, _in_array(2, 0)(math.inf), "state: centre must hold finite numbers"),
    (_neighbours, _in_array(4, 0, 0, 0)(-1.0), "state: near must hold squared distances in increasing order"),
    (
        _monitor,
        _put("with", "on_alarm")("restart"),
        "state: on_alarm must be that of a monitor with 'latch', got 'restart'",
    ),
    (
        _monitor,
        _put("with", "_fresh")({"tuple": [1, 2, 3]}),
        "state: on_alarm must be that of a monitor with 'restart'",
    ),
    (_monitor, _put("with", "alarm")({"class": "bets.Idle", "with": {}}), "state: alarm must be that of a monitor"),
    (_monitor, _put("with", "pvalues")({"class": "bets.Idle", "with": {}}), "state: pvalues must be that of a monitor"),
    (_monitor, _put("with", "martingale", "with", "bet")(3), "state.martingale: bet must have log_density"),
    (_monitor, _put("with", "pvalues", "with", "seed")(-1), "state.pvalues: seed must be an integer"),
    (_monitor, _put("with", "last")("x"), "state: last must be like None"),
    (_monitor, _in_array(2, 0)(2**60), "state: n of every stream must be valid"),
    (_monitor, _in_array(2, 0)(5), "state: n must be 0 as in pvalues, got 5"),
    (_monitor, _in_array(2, 2)(7), "state: lowest of every stream must be valid"),
    (_monitor, _in_array(2, 3)(0), "state: alarm_at of every stream must be valid"),
    (_monitor, _in_array(2, 4)(-2), "state: changepoint of every stream must be valid"),
    (_monitor, _in_array(2, 5)(0), "state: test of every stream must be valid"),
    (_monitor, _in_array(3, 1)(-1.0), "state: log_max of every stream must be valid"),
    (_monitor, _put("with", "_reals")({"array": 6}), r"state: _reals must be an array of float64 and shape \(2\)"),
    (_monitor, _put("with", "_history")(None), "state: _history must be like .*History.*, got None"),
    (_monitor, _put("with", "_history", "with", "start")(1), "state: start of the history must be .* at most 0, got 1"),
    (_monitor, _put("with", "_history", "with", "start")(-1), "state: _history.start must be an integer from 0"),
    (
        _monitor,
        _put("with", "_history", "with", "marks")({"array": 1}),
        "state._history: marks must be an array of bool",
    ),
    (_monitor, _in_array(0, 0)(True), "state: marks of the history must end with the alarm at None, got others"),
    (_monitor, _in_array(1, 0, 0)(1.0), "state: points of the history must be those of 0 examples, got others"),
    (_monitor, _in_array(1, 0, 2)(math.nan), "state._history: points must hold numbers, got nan"),
    (_alarmed, _in_array(0, 1)(False), "state: marks of the history must end with the alarm at 2, got others"),
    (_alarmed, _in_array(0, 2)(True), "state: marks of the history must end with the alarm at 2, got others"),
    (_alarmed, _in_array(1, 3, 1)(-1.0), "state: points of the history must be those of 3 examples, got others"),
    (_alarmed, _in_array(1, 2, 2)(-1.0), "state: points of the history must be those of 3 examples, got others"),
    (_alarmed, _put("with", "_history", "with", "start")(2), "state: start of the history must be before the alarm"),
    (_monitor, _put("with", "_interrupted")(0), "state: _interrupted must be like False, got 0"),
    (_risk, _put("with", "limit")(1.5), "state: limit must lie between the bounds of the loss"),
    (_risk, _put("with", "alpha")(0.0), r"state: alpha must lie in \(0, 1\)"),
    (_risk, _put("with", "bounds")({"tuple": [1, 0]}), "state: bounds must be the smallest and the largest"),
    (_risk, _put("with", "reference_alpha")(0.5), "state: reference_alpha must be at least 0"),
    (_rate, _put("with", "period")(0.5), r"state: period must lie in \(1, 1e300\]"),
    (_rate, _put("with", "alpha")(0.5), "state: alpha must be None if period is given"),
    (_rate, _put("with", "values")({"tuple": [1, 1]}), "state: values must be 2 to 64 different numbers"),
    (
        _rate,
        _put("with", "values")({"tuple": [0, 1, 2]}),
        r"state: _states must be an array of float64 and shape \(2, ",
    ),
    (_rate, _put("with", "direction")("left"), "state: direction must be"),
    (_rate, _put("with", "last")(True), "state: last must be like None, got True"),
    (
        _rate,
        _in_array(5, 0, 0)(7.0),
        "state: states must be consistent with the 40 values of the test, got other counts",
    ),
    (
        _rate,
        _in_array(5, 0, 1)(41.0),
        "state: states must be consistent with the 40 values of the test, got other counts",
    ),
    (
        _rate,
        _in_array(5, 0, 1)(0.5),
        "state: states must be consistent with the 40 values of the test, got other counts",
    ),
    (_rate, _in_array(5, 0, 9)(-1.0), "state: states must contain only finite, nonnegative numbers, got others"),
    (_rate, _in_array(5, 0, 9)(math.inf), "state: states must contain only finite, nonnegative numbers, got others"),
    (_rate, _in_array(0, 0)(1.0), "state: found must name one of 1 cuts, got 1.0"),
    (_rate, _in_array(3, 0)(5), "state: lowest of every stream must be valid"),
    (_drifter, _put("with", "every")(2), r"state: blocks must be an array of float64 and shape \(3, 2, 4\)"),
    (_drifter, _put("with", "grid")(4), r"state: blocks must be an array of float64 and shape \(2, 2, 9\)"),
    (_drifter, _put("with", "waking")(2.0), r"state: waking must lie in \[1e-100, 1\)"),
    (_drifter, _in_array(1, 0)(1.5), "state: head must begin with an integer from 0 to"),
    (_drifter, _in_array(1, 0)(-1.0), "state: head must begin with an integer from 0 to"),
    (_drifter, _in_array(1, 0)(math.inf), "state: head must begin with an integer from 0 to"),
    (_drifter, _in_array(1, 0)(2.0**53), "state: blocks must be an array of float64 and shape"),
    (_drifter, _in_array(0, 1, 0, 3)(math.inf), "state: its numbers must give a finite density"),
]


@pytest.mark.parametrize(("make", "change", "message"), FORGERIES)
def test_a_forged_state_is_refused(make: Callable[[], Any], change: Any, message: str) -> None:
    with pytest.raises(ValueError, match=rf"\A({message})[^\n]*\Z"):
        snapshot.decode(forged(snapshot.encode(make()), change))


def test_a_restart_needs_fresh_parts() -> None:
    monitor = Monitor(measures.Value(), bets.Idle(), on_alarm="restart")
    monitor.extend(NUMBERS[:50])

    def seen(state: Any, arrays: list[Any]) -> None:
        fresh = state["with"]["_fresh"]["tuple"][0]["with"]
        live = state["with"]["pvalues"]["with"]
        fresh["measure"], live["measure"] = live["measure"], fresh["measure"]

    assert refusal(forged(snapshot.encode(monitor), seen)).startswith("state: _fresh must be that of a monitor")


def test_a_small_file_does_not_become_large() -> None:
    tree = bets.Tree(12)
    bet = snapshot.encode(bets.Blend([tree, tree, tree]))

    def shared(state: Any, arrays: list[Any]) -> None:
        for one in state["with"]["bets"]:
            one["with"]["_state"] = {"tuple": [{"array": 1}]}

    assert "must not share its array with more than 1 other" in refusal(forged(bet, shared))


def test_nesting_in_a_file_has_a_limit() -> None:
    def nested(state: Any, arrays: list[Any]) -> Any:
        for _ in range(300):
            state = [state]
        return state

    assert "must be nested at most 100 levels deep" in refusal(forged(snapshot.encode(bets.Idle()), nested))


def test_forged_snapshots_never_end_the_interpreter() -> None:
    script = Path(fuzz_snapshot.__file__)
    done = subprocess.run(
        [sys.executable, script, "0.01"], capture_output=True, text=True, cwd=script.parent, timeout=600
    )
    last = done.stderr.splitlines()[-5:]
    assert done.returncode == 0, f"{done.stdout}\n{last}"
    assert len(done.stdout.splitlines()) == len(fuzz_snapshot.cases())


def test_the_trial_of_forged_snapshots_can_fail(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ends = iter(["continued", "refused"])

    def outcome(*arguments: Any) -> str:
        for end in ends:
            return end
        raise IndexError("index is out of bounds")

    monkeypatch.setattr(fuzz_snapshot, "outcome", outcome)
    monkeypatch.setattr(sys, "argv", ["fuzz_snapshot.py", "1", "bet Idle"])
    with pytest.raises(SystemExit, match="1"), warnings.catch_warnings():
        fuzz_snapshot.main()
    assert "FAILED bet Idle: " in capsys.readouterr().out


# ------------------------------------------------------------------ pools that were restored


@pytest.mark.parametrize("distinct", [0, 1, 63, 64, 65, 96, 97, 145, 3071, 3072, 3073, 4096, 4097, 20_000])
def test_a_restored_pool_ranks_like_the_original(distinct: int) -> None:
    rng = np.random.default_rng(distinct)
    scores = rng.permutation(np.repeat(rng.normal(size=distinct), rng.integers(1, 4, distinct)))
    pool = Pool()
    pool.add(scores)
    values, counts = pool.contents()
    assert dict(zip(values.tolist(), counts.tolist(), strict=True)) == Counter(scores.tolist())
    assert (np.diff(values) > 0).all()
    restored = Pool.from_contents(values, counts)
    assert (restored.n, restored.distinct) == (pool.n, pool.distinct)
    _check_tree(restored)
    more = np.concatenate([rng.normal(size=3 * distinct + 200), scores])
    for got, expected in zip(restored.add(more), pool.add(more), strict=True):
        assert (got == expected).all()
    assert restored.add_one(0.5) == pool.add_one(0.5)
    _check_tree(restored)


def _check_tree(pool: Pool) -> None:
    """Nodes but the root are half full, every count and bound is right, and there is room as promised."""
    head, size, score, count, child = pool._state
    root, nodes, height, distinct, total = head.tolist()

    def below(node: int, level: int) -> tuple[int, float, float]:
        used = int(size[node])
        assert node == root or used >= 32
        if level == 0:
            assert (np.diff(score[node, :used]) > 0).all()
            return int(count[node, :used].sum()), *(score[node, [0, used - 1]].tolist() if used else (0.0, 0.0))
        parts = [below(int(one), level - 1) for one in child[node, :used]]
        assert [part[0] for part in parts] == count[node, :used].tolist()
        for i in range(used - 1):
            assert parts[i][2] <= score[node, i] < parts[i + 1][1]
        return sum(part[0] for part in parts), parts[0][1], parts[-1][2]

    assert below(root, height)[0] == total
    assert nodes <= len(size)
    assert nodes <= native.pool_nodes(distinct)


@settled(60)
@given(
    st.lists(
        st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.sampled_from([0.0, -0.0, 1.0])), max_size=40
    )
)
def test_contents_are_what_was_added(scores: list[float]) -> None:
    pool = Pool()
    for score in scores:
        pool.add_one(score)
    values, counts = pool.contents()
    assert dict(zip(values.tolist(), counts.tolist(), strict=True)) == Counter(scores)
    assert Pool.from_contents(values, counts).contents()[0].tobytes() == values.tobytes()
