"""Ranks found in tiles against `NearestNeighbour` itself: every rank, whatever the blocks, segments and data."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import naive
from contracts import settled
from exchangeable.measures import NearestNeighbour
from exchangeable.measures.neighbour_store import BLOCK
from exchangeable.measures.tiles import (
    MAX_SEGMENT,
    MEMORY,
    Block,
    Falls,
    Segment,
    Tiles,
    block_size,
    join,
    plan,
    rows_within,
    search,
)
from exchangeable.protocols import Floats, Ranks
from exchangeable.validation import encode_labels
from test_nearest import exact_ties


class Bench:
    """A table in blocks of bytes, whose segments are searched one by one."""

    def __init__(self, X: Any, y: Iterable[Any], size: int) -> None:
        rows = np.asarray(X, np.float64)
        codes = encode_labels(list(y), {})[0]
        self.width = rows.shape[1]
        self.blocks = [Block(rows[lo : lo + size], codes[lo : lo + size]).encode() for lo in range(0, len(rows), size)]
        self.tiles = Tiles(len(rows), size)
        self.reported: list[int] = []

    def round(self, segments: Iterable[Segment]) -> None:
        size, bounds = self.tiles.size, self.tiles.bounds()
        found = [
            search(
                segment,
                size,
                lambda b: Block.decode(self.blocks[b], self.width),
                lambda b: bounds[b * size : (b + 1) * size],
            ).encode()
            for segment in segments
        ]
        self.reported.append(sum(map(len, found)) // 16)
        self.tiles.end_round(map(Falls.decode, found))


def tiled(X: Any, y: Iterable[Any], size: int, cores: int = 1) -> Ranks:
    bench = Bench(X, y, size)
    for segments in plan(bench.tiles.n, size, cores):
        bench.round(segments)
    return bench.tiles.ranks()


def columns(ranks: Ranks) -> list[list[int]]:
    return [column.tolist() for column in ranks]


def check(X: Any, y: Iterable[Any], sizes: Sequence[int]) -> None:
    expected = NearestNeighbour().extend(X, y)
    for size in sizes:
        got = tiled(X, y, size)
        assert columns(got) == columns(expected)
        assert [column.dtype for column in got] == [column.dtype for column in expected]


def gaussian(seed: int, n: int, d: int, labels: int = 3) -> tuple[Floats, NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, labels, n)
    return rng.normal(size=(n, d)) + 0.5 * y[:, None], y


# ------------------------------------------------------------------ ranks


@settled(60)
@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 3), min_size=2, max_size=2), st.sampled_from("abc")), min_size=1, max_size=12
    ),
    st.integers(1, 13),
)
def test_the_paper_transcribed(examples: list[tuple[list[int], str]], size: int) -> None:
    X, y = [x for x, _ in examples], [label for _, label in examples]
    assert list(zip(*columns(tiled(X, y, size)), strict=True)) == naive.ranks(X, y)


def test_no_exact_tie_of_integer_features_is_missed() -> None:
    X, y = exact_ties(0, 600)
    for size in (70, 600):
        assert list(zip(*columns(tiled(X, y, size)), strict=True)) == naive.exact_ranks(X, y)


@pytest.mark.parametrize("d", [1, 5, 8, 130, 300])
def test_gaussian(d: int) -> None:
    check(*gaussian(d, 230, d), [20, 64, 100, 229, 230, 1000])
    check(*gaussian(d, 40, d), [1, 3, 7])


@pytest.mark.parametrize("n", [1, 2, 3, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 1])
def test_lengths(n: int) -> None:
    X, y = gaussian(n, n, 3)
    check(np.round(X, 1), y, [max(1, n // 3), BLOCK, n])


def test_nothing() -> None:
    assert plan(0, 5) == []
    assert columns(Tiles(0, 5).ranks()) == [[], [], []]


@pytest.mark.parametrize("labels", [1, 2, 600])
def test_labels(labels: int) -> None:
    X, y = gaussian(1, 400, 4, labels)
    check(X, y.tolist(), [90])
    check(X, [f"label {label}" for label in y], [128])


def test_a_label_that_comes_late() -> None:
    X, y = gaussian(2, 500, 4)
    check(X, ["new" if i >= 317 else label for i, label in enumerate(y.tolist())], [50, 100, 317])
    check(X, [0] * 499 + [1], [60])


def test_clusters() -> None:
    rng = np.random.default_rng(3)
    X = 1e3 * rng.normal(size=(9, 6))[rng.integers(0, 9, 600)] + 1e-3 * rng.normal(size=(600, 6))
    check(X, rng.integers(0, 4, 600), [64, 150])
    check(X[np.argsort(X[:, 0])], rng.integers(0, 4, 600), [64, 150])  # one cluster after another


@pytest.mark.parametrize("values", [1, 2, 3])
def test_duplicates(values: int) -> None:
    rng = np.random.default_rng(values)
    check(rng.integers(0, values, (700, 3)), rng.integers(0, 3, 700), [40, 100, 256])


def test_ties_but_for_rounding() -> None:
    rng = np.random.default_rng(4)
    base = rng.choice([0.1, 0.2, 0.3, 0.7, 1e-9], 40)
    check(np.array([rng.permutation(base) for _ in range(200)]), rng.integers(0, 2, 200), [16, 50])
    check(np.eye(9)[rng.integers(0, 9, 300)], rng.integers(0, 3, 300), [64])


@pytest.mark.parametrize("scale", [1e-310, 1e-162, 1e-160, 1e-150, 1e-30, 1e30, 1e100, 1e149])
def test_scales(scale: float) -> None:
    for d in (1, 60):
        X, y = gaussian(5, 120, d)
        check(X * scale, y, [17, 50])
        check(np.round(X) * scale, y, [17, 50])


@pytest.mark.parametrize("offset", [1e8, 1e16, 1e100])
def test_offsets(offset: float) -> None:
    X, y = gaussian(6, 150, 5)
    check(X + offset, y, [40])
    check(X + np.where(np.arange(150) < 75, 0.0, offset)[:, None], y, [25, 40])


def test_magnitudes_side_by_side() -> None:
    rng = np.random.default_rng(7)
    X = rng.normal(size=(300, 4)) * 10.0 ** rng.uniform(-200, 149, (300, 1))
    check(X, rng.integers(0, 2, 300), [32, 100])
    check(X[np.argsort(np.abs(X[:, 0]))], rng.integers(0, 2, 300), [32, 100])
    X[:100] = 0.0  # a block without any spread
    check(X, rng.integers(0, 2, 300), [50, 100])


def test_squares_that_underflow_near_the_first_example() -> None:
    rng = np.random.default_rng(8)
    X = rng.normal(size=(90, 6)) * 10.0 ** rng.uniform(-163, -160, (90, 1))
    X[0], X[1] = 0.0, 1e-140
    check(X, rng.integers(0, 2, 90), [10, 30])


def drifting() -> Iterator[tuple[str, Floats]]:
    noise, time = np.random.default_rng(9).normal(size=(800, 8)), np.linspace(0.0, 1.0, 800)[:, None]
    yield "stationary", noise
    yield "trend", noise + 100.0 * time
    yield "steps in line", np.arange(800.0)[:, None] * np.ones(8)
    yield "walk", np.cumsum(noise, axis=0)
    yield "jump", noise + 1e7 * (time > 0.4)
    yield "wider", noise * 100.0**time
    yield "narrower", noise * 0.01**time


@pytest.mark.parametrize(("kind", "X"), [pytest.param(*case, id=case[0]) for case in drifting()])
def test_drift(kind: str, X: Floats) -> None:
    check(X, np.random.default_rng(10).integers(0, 3, 800), [50, 130])


# ------------------------------------------------------------------ any plan


def blocks_of(segments: Iterable[Segment]) -> list[tuple[int, int]]:
    return [(segment.rows, b) for segment in segments for b in range(segment.first, segment.last)]


@pytest.mark.parametrize("blocks", [1, 2, 3, 4, 5, 8, 13, 31, 32, 33, 100])
@pytest.mark.parametrize("cores", [1, 2, 7, 1000])
def test_every_pair_of_blocks_once(blocks: int, cores: int) -> None:
    rounds = plan(10 * blocks - 3, 10, cores)
    assert len(rounds) == 1 + math.ceil(math.log2(blocks))
    pairs = [pair for segments in rounds for pair in blocks_of(segments)]
    assert sorted(pairs) == [(i, j) for i in range(blocks) for j in range(i + 1)]
    longest = max(segment.last - segment.first for segments in rounds for segment in segments)
    assert longest <= MAX_SEGMENT


def test_tasks_for_all_cores() -> None:
    for segments in plan(64_000, 1000, cores=4)[3:]:
        assert len(segments) >= 16
        lengths = [segment.last - segment.first for segment in segments]
        assert max(lengths) <= 2 * min(lengths)


def shuffled(segments: list[Segment], rng: np.random.Generator) -> list[Segment]:
    """The same tiles in other segments, in any order."""
    parts = []
    for rows, first, last in segments:
        inner = [b for b in range(first + 1, last) if rng.random() < 0.5]
        parts += [Segment(rows, lo, hi) for lo, hi in zip([first, *inner], [*inner, last], strict=True)]
    return [parts[at] for at in rng.permutation(len(parts))]


@pytest.mark.parametrize("seed", range(6))
def test_any_segments_in_any_order(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X, y = gaussian(seed, 330, 4)
    X = np.round(X, 1)
    bench = Bench(X, y, 23)
    for segments in plan(330, 23):
        bench.round(shuffled(segments, rng))
    assert columns(bench.tiles.ranks()) == columns(NearestNeighbour().extend(X, y))


def test_a_retry_finds_the_same() -> None:
    bench = Bench(*gaussian(0, 200, 4), 50)
    kept = [bytes(block) for block in bench.blocks]
    bounds = bench.tiles.bounds()
    once, again = (
        search(Segment(1, 1, 2), 50, lambda b: Block.decode(bench.blocks[b], 4), lambda b: bounds[50 * b : 50 * b + 50])
        for _ in range(2)
    )
    assert once.encode() == again.encode()
    assert (bounds == math.inf).all()
    assert [bytes(block) for block in bench.blocks] == kept


# ------------------------------------------------------------------ what it costs


@pytest.mark.parametrize(("kind", "X"), [pytest.param(*case, id=case[0]) for case in drifting()])
def test_few_distances_are_reported(kind: str, X: Floats) -> None:
    bench = Bench(X, np.random.default_rng(11).integers(0, 3, 800), 25)
    for segments in plan(800, 25, cores=4):
        bench.round(segments)
    many = kind == "narrower"  # where nearest distances truly keep falling
    assert bench.reported[0] < (6 if many else 4.1) * 800
    assert max(bench.reported[1:]) < (15 if many else 2.0) * 800


def test_a_segment_keeps_within_its_memory() -> None:
    memory, width = 8_000_000, 40
    size = rows_within(memory, width)
    bench = Bench(*gaussian(0, 4 * size, width), size)
    bench.round(Segment(b, b, b + 1) for b in range(4))
    bounds = bench.tiles.bounds()

    def block(b: int) -> Block:
        return Block.decode(bytearray(bench.blocks[b]), width)  # as if it came from elsewhere

    def use(segment: Segment) -> int:
        tracemalloc.start()
        search(segment, size, block, lambda b: bounds[b * size : (b + 1) * size].copy())
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    for segment in (Segment(3, 0, 3), Segment(1, 1, 2)):
        assert 0.4 * memory < use(segment) < memory


def test_sizes_of_blocks() -> None:
    assert rows_within(MEMORY, 256) * 256 * 24 < MEMORY
    assert rows_within(MEMORY, 10**6) == 1
    for n in (0, 1, 500, 10**5, 10**7, 10**9):
        for cores in (1, 2, 16, 1600):
            size = block_size(n, 256, cores)
            assert 1 <= size <= min(max(n, 1), rows_within(MEMORY, 256))
    assert math.ceil(10**7 / block_size(10**7, 256, 1600)) == 1600


def test_refusals() -> None:
    with pytest.raises(ValueError, match=r"^n must be an integer from 0 to 2147483647, got 2147483648$"):
        Tiles(2**31, 10)
    with pytest.raises(ValueError, match=r"^size must be an integer"):
        Tiles(10, 0)


def test_bounds_of_another_block() -> None:
    bench = Bench(*gaussian(0, 100, 4), 60)
    with pytest.raises(ValueError, match=r"^bounds must have the shape \(40, 2\), got \(60, 2\)$"):
        search(Segment(1, 1, 2), 60, lambda b: Block.decode(bench.blocks[b], 4), lambda b: bench.tiles.bounds()[:60])


def test_joined_in_order() -> None:
    parts = [Falls(np.array([float(k)]), *np.array([[k], [k + 1]], np.uint32)) for k in range(3)]
    assert join(parts).time.tolist() == [1, 2, 3]
    assert join([]).encode() == b""
