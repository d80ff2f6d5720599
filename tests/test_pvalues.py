"""Tie-breaking numbers and the formula of Algorithm 1."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest

import contracts
import naive
from contracts import settled
from exchangeable import PValues, Rank, Ranks, native, thetas
from exchangeable.measures import NearestNeighbour
from exchangeable.pvalues import from_ranks, smoothed

SEEDS = st.integers(0, 2**64 - 1)


# ------------------------------------------------------------------ thetas


@settled(100)
@given(seed=SEEDS, start=st.integers(0, 2**40), length=st.integers(0, 30), cut=st.integers(0, 30))
def test_a_theta_is_a_function_of_seed_and_position(seed: int, start: int, length: int, cut: int) -> None:
    whole = thetas(seed, start, start + length)
    cut = min(cut, length)
    assert whole.shape == (length,)
    pieces = np.concatenate([thetas(seed, start, start + cut), thetas(seed, start + cut, start + length)])
    assert contracts.same_bits(pieces, whole)
    assert contracts.same_bits([thetas(seed, start + i, start + i + 1)[0] for i in range(length)], whole)


def test_thetas_are_pinned() -> None:
    # altering them alters every result ever published with a seed: see the changelog before touching this
    assert thetas(0, 0, 4).tolist() == PINNED_0
    assert thetas(2**64 - 1, 0, 2).tolist() == PINNED_LAST
    assert thetas(12345, 10**12, 10**12 + 2).tolist() == PINNED_FAR


PINNED_0 = [0.9884532457136684, 0.7584508034372819, 0.8885741444850618, 0.43558537839286626]
PINNED_LAST = [0.7650584118547444, 0.2826892515458219]
PINNED_FAR = [0.9511370486146323, 0.878082202989707]


@pytest.mark.parametrize("seed", [0, 1, 2**32, 2**64 - 1])
def test_thetas_are_one_minus_numpys_uniforms(seed: int) -> None:
    expected = 1.0 - np.random.Generator(np.random.Philox(key=seed)).random(5000)
    assert contracts.same_bits(thetas(seed, 0, 5000), expected)


@pytest.mark.parametrize("start", [0, 1, 2, 3, 4, 1021, 10**12 + 3, 2**62 + 1, 2**63 - 12])
@pytest.mark.parametrize(("seed", "stream"), [(0, 0), (5, 1), (2**63, 7), (2**64 - 1, 2**32 - 1)])
def test_thetas_are_made_of_numpys_words_at_every_position(seed: int, stream: int, start: int) -> None:
    words = np.random.Philox(key=seed + stream * 2**64)
    words.advance(start // 4)  # a counter yields four words
    raw = words.random_raw(start % 4 + 11)[start % 4 :]
    expected = 1.0 - (raw >> np.uint64(11)).astype(np.float64) * 2.0**-53
    assert contracts.same_bits(thetas(seed, start, start + 11, stream), expected)
    assert contracts.same_bits([native.theta(seed, stream, start + i) for i in range(11)], expected)


def test_thetas_are_uniform_in_the_half_open_interval() -> None:
    for seed in (0, 1, 99):
        theta = thetas(seed, 0, 200_000)
        assert theta.min() > 0.0
        assert theta.max() <= 1.0
        assert kstest(theta, "uniform").pvalue > 1e-3
        assert abs(np.corrcoef(theta[:-1], theta[1:])[0, 1]) < 0.01
    first = np.concatenate([thetas(seed, 0, 1) for seed in range(3000)])  # and across seeds
    assert kstest(first, "uniform").pvalue > 1e-3
    assert abs(np.corrcoef(first[:-1], first[1:])[0, 1]) < 0.06


def test_seeds_differ() -> None:
    assert len({tuple(thetas(seed, 0, 2)) for seed in range(500)}) == 500


@pytest.mark.parametrize("seed", [-1, 1.5, 2**64, True, None, "a"])
def test_a_seed_is_an_integer(seed: int) -> None:
    with pytest.raises(ValueError, match=r"^seed must"):
        thetas(seed, 0, 1)


@pytest.mark.parametrize(("start", "stop"), [(-1, 3), (5, 4), (-2, -1), (0, 2**63)])
def test_positions_go_forward_from_zero(start: int, stop: int) -> None:
    with pytest.raises(ValueError, match=r"^start"):
        thetas(0, start, stop)


# ------------------------------------------------------------------ the formula


def test_smoothed() -> None:
    assert smoothed(0.0, 1.0, 1.0, 1.0) == 1.0
    assert smoothed(3.0, 0.5, 2.0, 8.0) == 0.5
    columns = (np.array([0.0, 3.0]), np.array([1.0, 0.5]), np.array([1.0, 2.0]), np.array([1.0, 8.0]))
    assert smoothed(*columns).tolist() == [1.0, 0.5]


def test_from_ranks_is_the_formula_at_a_position() -> None:
    ranks = Ranks(np.array([0, 1, 0]), np.array([1, 1, 3]), np.array([1, 2, 3]))
    counts = list(zip(*(column.tolist() for column in ranks), strict=True))
    for start in (0, 1, 1023, 10**9):
        expected = naive.p_values(counts, thetas(5, start, start + 3))
        assert contracts.same_bits(from_ranks(ranks, seed=5, start=start), expected)
    assert contracts.same_bits(from_ranks(ranks, seed=5), from_ranks(ranks, seed=5, start=0))


@pytest.mark.parametrize("ties", [False, True])
def test_p_values_against_the_paper(ties: bool) -> None:
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(150, 2)), rng.integers(0, 3, 150)
    X = np.round(X) if ties else X
    expected = naive.p_values(naive.ranks(X, y), thetas(8, 0, 150))
    assert contracts.same_bits(PValues(NearestNeighbour(), seed=8).extend(X, y), expected)


class Constant:
    """All scores equal: p is theta."""

    def __init__(self) -> None:
        self.n = 0

    def update(self, x: object, y: object = None) -> Rank:
        self.n += 1
        return Rank(0, self.n, self.n)

    def extend(self, X: list[object], y: object = None) -> Ranks:
        ranks = [self.update(x) for x in X]
        return Ranks(*(np.array(column, np.int64) for column in zip(*ranks, strict=True)))


def test_single_updates_draw_the_same_thetas() -> None:
    n = 205
    pvalues = PValues(Constant(), seed=4)
    got = [pvalues.update(None) for _ in range(n)]
    assert np.allclose(got, thetas(4, 0, n), rtol=1e-15)
    mixed = PValues(Constant(), seed=4)
    again = [mixed.update(None) for _ in range(3)]
    again += mixed.extend([None] * 101).tolist()
    again += [mixed.update(None) for _ in range(n - len(again))]
    assert contracts.same_bits(again, got)
    assert mixed.n == pvalues.n == n


def test_p_is_in_the_half_open_interval() -> None:
    p = PValues(Constant(), seed=0).extend([None] * 100_000)
    assert p.min() > 0.0
    assert p.max() <= 1.0


def test_a_copy_draws_the_same_thetas() -> None:
    pvalues = PValues(NearestNeighbour(), seed=2)
    pvalues.extend([[0.0], [1.0], [3.0]], "aab")
    twin = copy.deepcopy(pvalues)
    assert [twin.update([x], "a") for x in (2.0, 5.0)] == [pvalues.update([x], "a") for x in (2.0, 5.0)]


def test_positions_count_examples_not_calls() -> None:
    pvalues = PValues(NearestNeighbour(), seed=6)
    pvalues.extend([[0.0], [1.0]], "ab")
    pvalues.extend(np.empty((0, 1)), [])
    with pytest.raises(ValueError, match=r"^x must"):
        pvalues.update([float("nan")], "a")
    assert pvalues.n == 2
    assert pvalues.update([0.5], "c") == PValues(NearestNeighbour(), seed=6).extend([[0.0], [1.0], [0.5]], "abc")[2]
