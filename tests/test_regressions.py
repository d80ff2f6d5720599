"""Defects that were once there, so that they do not come back."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import exchangeable as ex
import naive
from exchangeable import bets, measures, native

TINY = [[0.0], [1e-200], [2e-200]]
UNDERFLOW = np.zeros((4, 100))
UNDERFLOW[1, 0], UNDERFLOW[2, 0], UNDERFLOW[3] = 1e-151, 1e-161, 1.4e-162
RNG = np.random.default_rng(0)
TABLES = {
    "all the same": (np.zeros((4, 1)), [0, 0, 1, 1]),
    "constant prefix": (
        np.concatenate([np.zeros((300, 3)), RNG.normal(size=(60, 3))]),
        [i // 2 % 2 for i in range(360)],
    ),
    "differences of 1e-200": (np.array(TINY), [0, 0, 1]),
    "mixed magnitudes": (np.array([[0.0], [1e-100], [1e150], [1e150]]), [0, 0, 1, 1]),
    "underflow of the direct distance": (UNDERFLOW, [0, 1, 0, 0]),
    "a sentinel first": (
        np.concatenate([np.full((1, 5), -1e20), RNG.normal(size=(400, 5))]),
        [i % 3 for i in range(401)],
    ),
}


@pytest.mark.parametrize("name", TABLES)
def test_ranks_of_degenerate_beginnings(name: str) -> None:
    X, y = TABLES[name]
    expected = [tuple(rank) for rank in naive.ranks(X, y)]
    assert list(zip(*(column.tolist() for column in measures.NearestNeighbour().extend(X, y)), strict=True)) == expected
    measure = measures.NearestNeighbour()
    assert [tuple(measure.update(x, label)) for x, label in zip(X, y, strict=True)] == expected


def test_an_empty_first_batch() -> None:
    monitor = ex.Monitor()
    assert len(monitor.extend(np.empty((0, 5)), []).n) == 0
    assert monitor.update([1.0, 2.0], "a").n == 1  # the width was not fixed by nothing


U_SHAPED = {
    "beta(.03, .03)": RNG.beta(0.03, 0.03, 3000),
    "log-uniform at both ends": np.where(
        RNG.random(3000) < 0.5, 10.0 ** -RNG.uniform(3, 9, 3000), 1.0 - 10.0 ** -RNG.uniform(3, 9, 3000)
    ),
    "atoms": RNG.choice([0.001, 0.02, 0.97, 1.0], 3000, p=[0.3, 0.15, 0.2, 0.35]),
    "a quartile that jumps": np.tile([1e-9, 1.0, 1.0, 1.0], 750),
}


@pytest.mark.parametrize("name", U_SHAPED)
def test_quartiles_near_the_ends(name: str) -> None:
    p = np.where(U_SHAPED[name] > 0.0, U_SHAPED[name], 1e-300)
    assert abs(bets.Plugin().extend(p).sum() - sum(naive.plugin(p))) < 1e-6


@pytest.mark.parametrize("n", [1e8, 1e9, 1e10, 1e12, 1e14])
def test_the_plugin_far_out_and_far_away(n: float) -> None:
    """As after n equal p-values: the state scaled up, as if each had come many times."""
    bet, atom = bets.Plugin(), 0.3004
    bet.extend(np.full(20_000, atom))
    head, _, waves, cells, cursors, grid, blocks = bet._state
    factor = n / head[0]
    for counted in (head[:5], waves, cells, cursors[:, 1], grid[:, 0], grid[:, 2:], blocks):
        counted *= factor
    head[5] *= factor**-0.2
    native.plugin_more_waves(*bet._state)
    h = head[5]
    for p in (0.3, 0.31, 0.35, 0.5, 0.9, 1.0, 1e-9):
        exponents = [-0.5 * ((p - copy) / h) ** 2 for copy in (atom, -atom, 2.0 - atom)]
        top = max(exponents)
        expected = top + math.log(sum(math.exp(e - top) for e in exponents) / (h * math.sqrt(2.0 * math.pi)))
        assert bet.log_density(p) == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_cosine_sums_that_begin_late_hold_everything() -> None:
    """Sums that the bandwidth did not need at first are made from the moments of the cells."""
    bet, p = bets.Plugin(), RNG.beta(0.6, 1.4, 60_000)
    begun = []
    for part in np.array_split(p, 60):
        bet.extend(part)
        begun.append(int(bet._state[0][7]))
    assert begun[0] < begun[-1] < native.PLUGIN_WAVES
    waves = bet._state[2].sum(axis=0)[: begun[-1]]
    direct = [math.fsum(np.cos(k * np.pi * p)) for k in range(1, begun[-1] + 1)]
    np.testing.assert_allclose(waves, direct, rtol=0, atol=1e-8)
    head, _, both, *_ = bet._state
    head[[native.PLUGIN_ACTIVE, native.PLUGIN_WIDTH]] = 0.0, 1e-6  # as if none had begun, and all were needed
    native.plugin_more_waves(*bet._state)
    assert (head[native.PLUGIN_ACTIVE], both[1].any()) == (512.0, False)
    for k in (1, 100, 512):
        assert both[0, k - 1] == pytest.approx(math.fsum(np.cos(k * np.pi * p)), abs=1e-8)


def program(*words: str, folder: Path, **streams: int) -> subprocess.CompletedProcess[bytes]:
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | streams
    return subprocess.run([sys.executable, "-m", "exchangeable", *words], cwd=folder, check=False, **streams)  # type: ignore[call-overload, no-any-return]


def test_exit_code_1_means_rejected_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "m$\\frac$.csv").write_text("x,y\n" + "".join(f"{i},{'ab'[i % 2]}\n" for i in range(20)))
    formula = program("test", "m$\\frac$.csv", "--label", "y", "--columns", "none", "--plot", "o.png", folder=tmp_path)
    assert (formula.returncode, formula.stderr) == (0, b"")
    (tmp_path / "tiny.csv").write_text("x,y\n0,a\n1e-200,a\n2e-200,b\n")
    assert program("test", "tiny.csv", "--label", "y", folder=tmp_path).returncode == 0
    np.savez(tmp_path / "s.npz", X=np.arange(4.0)[:, None], y=np.array(["a\ud800", "b", "a\ud800", "b"]))
    text = program("test", "s.npz", folder=tmp_path)
    assert text.returncode == 3
    assert b"Traceback" not in text.stderr
    full = os.open("/dev/full", os.O_WRONLY)
    for words in (["test", "missing.csv", "--label", "y"], ["test", "--nonsense"]):
        assert program(*words, folder=tmp_path, stderr=full).returncode not in (0, 1)
    read, closed = os.pipe()
    os.close(read)
    assert program("--help", folder=tmp_path, stdout=closed).returncode != 1
    os.close(full)
    os.close(closed)


def test_json_is_json(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("x,y\n" + "".join(f"{i},{'ab'[i % 2]}\n" for i in range(20)))
    done = program("test", "d.csv", "--label", "y", "--alpha", "1e-299", "--format", "json", folder=tmp_path)
    json.loads(done.stdout, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert program("test", "d.csv", "--label", "y", "--alpha", "1e-310", folder=tmp_path).returncode == 2
    for words in (["--bet", "power", "--epsilon", "1e308"], ["--epsilon", "0.5"], ["--max-rows", "0"]):
        assert program("test", "d.csv", "--label", "y", *words, folder=tmp_path).returncode == 2


def test_numpy_ma_may_be_half_imported_by_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numpy.ma", ModuleType("numpy.ma"))
    assert ex.Monitor(seed=0).extend([[0.0], [1.0]], ["a", "b"]).p.shape == (2,)
