"""Many streams: the e-BH rule against its definition, its promise by simulation, its doors, and its command."""

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.stats import binomtest

import exchangeable as ex
import gamblers
import naive
from conftest import Run
from contracts import settled
from exchangeable import alarms
from exchangeable.fleet import adjusted, e_bh

Floats = NDArray[np.float64]
LEVELS = st.floats(min_value=1e-9, max_value=0.999)
LOGS = st.one_of(st.floats(-50.0, 50.0), st.integers(-3, 12).map(float), st.sampled_from([-math.inf, 1e6, -1e6]))


# ------------------------------------------------------------------ the rule


@settled(300)
@given(st.lists(LOGS, min_size=1, max_size=40), LEVELS)
def test_the_definition(values: list[float], alpha: float) -> None:
    found = e_bh(values, alpha)
    k = naive.e_bh(values, alpha)
    order = sorted(range(len(values)), key=lambda i: -values[i])  # stable, as ours
    assert found.names == order[:k]
    assert found.log_values.tolist() == [values[i] for i in order[:k]]
    assert np.flatnonzero(found.rejected).tolist() == sorted(order[:k])
    assert (found.streams, found.alpha) == (len(values), alpha)
    assert math.isclose(found.log_threshold, math.log(len(values) / max(k, 1)) - math.log(alpha), abs_tol=1e-12)
    assert all(value >= found.log_threshold for value in found.log_values)


@settled(100)
@given(st.lists(st.sampled_from([0.0, 2.5, 3.0, 3.2, 4.0, 1e6]), min_size=1, max_size=12), st.randoms())
def test_equals_are_treated_alike_in_any_order(values: list[float], random: Any) -> None:
    shuffled = random.sample(values, len(values))
    found, again = e_bh(values, 0.1), e_bh(shuffled, 0.1)
    assert {v for v, r in zip(values, found.rejected, strict=True) if r}.isdisjoint(
        v for v, r in zip(values, found.rejected, strict=True) if not r
    )
    assert sorted(found.log_values) == sorted(again.log_values)


@settled(200)
@given(st.one_of(LOGS, st.just(-math.log(0.05))), LEVELS)
def test_one_stream_is_ville_s_rule(value: float, alpha: float) -> None:
    for level in (alpha, 0.05):
        ville = alarms.Ville(level)
        assert bool(e_bh([value], level).names) is ville.update(value)
        assert e_bh([value], level).log_threshold == ville.log_threshold
        assert e_bh([ville.log_threshold], level).names == [0]
        assert e_bh([math.nextafter(ville.log_threshold, 0.0)], level).names == []


def test_more_evidence_never_finds_fewer() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        values = rng.normal(2.0, 3.0, 30)
        more = values + rng.exponential(size=30) * (rng.random(30) < 0.3)
        assert set(e_bh(values, 0.2).names) <= set(e_bh(more, 0.2).names)
        assert set(e_bh(values, 0.1).names) <= set(e_bh(values, 0.2).names)


def test_enormous_capital_keeps_its_order() -> None:
    values = {"a": 1e6, "b": 1e300, "c": -1e300, "d": 1e6 + 1, "e": -math.inf}
    assert e_bh(values, 1e-12).names == ["b", "d", "a"]


def test_base_ten() -> None:
    values = np.array([0.5, 1.0, 1.4, 3.0, -math.inf])
    for alpha in (0.001, 0.05, 0.2):
        ten, natural = e_bh(values, alpha, base=10), e_bh(values * math.log(10.0), alpha)
        assert ten.names == natural.names
        assert (ten.log_values == natural.log_values).all()
    assert e_bh([1.4], 0.05, base=10).names == [0]  # 10^1.4 = 25 > 20
    assert e_bh([1.4], 0.05).names == []


def test_the_same_again_and_plain_data() -> None:
    values = np.random.default_rng(1).normal(size=500) * 4.0
    before = values.copy()
    one, two = e_bh(values, 0.3), e_bh(values, 0.3)
    assert (values == before).all()
    assert one.names == two.names
    assert copy.deepcopy(one).names == one.names
    assert one.rejected.dtype == np.bool_
    assert all(type(name) is int for name in one.names)
    assert json.dumps([one.names, one.log_values.tolist(), one.rejected.tolist(), one.alpha, one.log_threshold])


def test_repr_is_short() -> None:
    assert repr(e_bh({"x": 1.0}, 0.05)) == "Discoveries(0 of 1 streams at alpha=0.05: none)"
    said = repr(e_bh(np.arange(10_000.0), 0.01))
    assert said.startswith("Discoveries(9,995 of 10,000 streams at alpha=0.01: 9999 (9999), ")
    assert said.endswith("9995 (9995), and 9,990 more)")


@settled(200)
@given(st.lists(LOGS, min_size=1, max_size=20), LEVELS, st.integers(0, 40))
def test_streams_that_are_not_given_count_as_zero(values: list[float], alpha: float, absent: int) -> None:
    K = len(values) + absent
    found, whole = e_bh(values, alpha, streams=K), e_bh([*values, *[-math.inf] * absent], alpha)
    assert (found.names, found.log_threshold) == (whole.names, whole.log_threshold)
    assert len(found.names) == naive.e_bh([*values, *[-math.inf] * absent], alpha)
    assert (found.streams, found.rule, whole.rule) == (K, "fixed", "given")


@settled(300)
@given(
    st.lists(st.tuples(LOGS, st.integers(1, 10**6)), min_size=1, max_size=30, unique_by=lambda pair: pair[1]), LEVELS
)
def test_the_definition_with_weights(pairs: list[tuple[float, int]], alpha: float) -> None:
    values, joined = [value for value, _ in pairs], [place for _, place in pairs]
    found = e_bh(values, alpha, joined=joined)
    assert set(found.names) == naive.weighted_e_bh(values, joined, alpha)
    weighted = [values[i] - math.log(joined[i]) - math.log1p(joined[i]) for i in found.names]
    assert weighted == sorted(weighted, reverse=True)
    assert all(value >= found.log_threshold for value in weighted)
    assert found.log_values.tolist() == [values[i] for i in found.names]
    assert math.isclose(found.log_threshold, -math.log(alpha * max(len(found.names), 1)), abs_tol=1e-12)
    assert (found.streams, found.rule) == (max(joined), "joined")


def test_the_weights_of_the_order_of_joining_sum_to_one() -> None:
    assert math.isclose(sum(1.0 / (j * (j + 1.0)) for j in range(1, 10**6)), 1.0, abs_tol=1e-5)


def test_positions_come_in_the_form_of_the_values() -> None:
    values, joined = {"a": 9.0, "b": 1.0, "c": 12.0}, {"deleted": 1, "c": 30, "b": 3, "a": 2}
    wanted = e_bh([9.0, 1.0, 12.0], 0.05, joined=[2, 3, 30])
    assert wanted.names == [0, 2]
    columns = {"stream": list(values), "log_value": list(values.values()), "place": [2, 3, 30]}
    found = [
        e_bh(values, 0.05, joined=joined),
        e_bh(pd.Series(values), 0.05, joined=pd.Series(joined)),
        e_bh(values, 0.05, joined=np.array([2, 3, 30])),
        *(e_bh(make(columns), 0.05, joined="place") for make in (pd.DataFrame, pl.DataFrame, pa.table)),
    ]
    assert all(one.names == ["a", "c"] for one in found)
    assert all(one.log_threshold == wanted.log_threshold for one in found)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"streams": 1}, "streams must be an integer from 2, the number of streams given, to 2**53, got 1"),
        ({"streams": 3.0}, "streams must be an integer from 2, the number of streams given, to 2**53, got 3.0"),
        ({"streams": True}, "streams must be an integer from 2"),
        ({"streams": 2, "joined": [1, 2]}, "streams and joined must not both be given"),
        ({"joined": [1]}, "joined must hold one position for each of the 2 streams, got 1"),
        ({"joined": [1, 0]}, "joined must hold integers from 1 to 2**53, got 0 for stream 'b'"),
        ({"joined": [1, 1.5]}, "joined must hold integers from 1 to 2**53, got 1.5 for stream 'b'"),
        ({"joined": {"a": 1}}, "joined must hold integers from 1 to 2**53, got nan for stream 'b'"),
        ({"joined": [4, 4]}, "joined must hold different positions, got the same one for streams 'a' and 'b'"),
        ({"joined": "place"}, "joined must be a one-dimensional array of numbers, got 'place'"),
        ({"joined": [1, None]}, "joined must be a one-dimensional array of numbers"),
    ],
)
def test_bad_sizes_and_positions(more: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(said)}"):
        e_bh({"a": 1.0, "b": 2.0}, 0.05, **more)


def test_bad_columns_of_positions() -> None:
    table = pl.DataFrame({"stream": ["a", "b"], "log_value": [1.0, 2.0], "place": [1, None]})
    with pytest.raises(ValueError, match=r"^joined must hold integers from 1 to 2\*\*53, got nan for stream 'b'$"):
        e_bh(table, 0.05, joined="place")
    with pytest.raises(ValueError, match=r"^joined must name one of the columns .*, got 'position'$"):
        e_bh(table, 0.05, joined="position")


# ------------------------------------------------------------------ the promise for a fleet that changes

ALPHA = 0.05


def above(count: int, runs: int) -> float:
    """The exact p-value of the hypothesis that the rate is at most alpha."""
    return float(binomtest(count, runs, ALPHA, alternative="greater").pvalue)


@pytest.mark.parametrize("rule", gamblers.RULES)
def test_streams_that_join_while_one_looks(rule: str) -> None:
    """Any false discovery ever: 22 % with K so far at a nominal 5 %, 5 % with K fixed or with weights."""
    runs = 2000
    count = sum(gamblers.found_while_growing(rule, ALPHA, np.random.default_rng([run, 13])) for run in range(runs))
    if rule == "so far":
        assert above(count, runs) < 1e-9
        assert 0.18 < count / runs < 0.26  # 1 - prod_j (1 - alpha / j) = 0.220
    else:
        assert above(count, runs) > 1e-3
        assert count > 0.03 * runs  # these gamblers use the whole of alpha


@pytest.mark.parametrize("rule", gamblers.RULES)
@pytest.mark.parametrize("peaks", [False, True])
def test_deleting_quiet_streams(peaks: bool, rule: str) -> None:
    """Of a thousand fair gamblers those without luck are deleted, and the rest is looked at."""
    runs = [np.random.default_rng([run, 14]) for run in range(1000)]
    count = sum(gamblers.found_after_deletion(rule, ALPHA, rng, peaks=peaks) for rng in runs)
    if rule == "so far":
        assert count / len(runs) > (0.3 if peaks else 0.99)
    else:
        assert above(count, len(runs)) > 1e-3


def test_weights_keep_the_rate_where_some_have_changed() -> None:
    """Streams join one after the other, every third has changed; one looks when a false discovery is near."""
    runs, shares, power = 300, [], 0
    for run in range(runs):
        rng = np.random.default_rng([run, 15])
        changed = np.arange(30) % 3 == 0
        x = rng.normal(size=(150, 30)) + 0.9 * changed
        x[np.arange(150)[:, None] < 4 * np.arange(30)] = 0.25  # a bet of log 1: not there yet
        paths = np.cumsum(0.5 * x - 0.125, axis=0)
        joined = [np.flatnonzero(4 * np.arange(30) <= t) for t in range(150)]
        false = [paths[t, joined[t]][~changed[joined[t]]].max(initial=-9.0) for t in range(150)]
        t = next((t for t in range(150) if false[t] > 4.0), 149)
        found = e_bh(paths[t, joined[t]], 0.2, joined=joined[t] + 1)
        shares.append(float(np.mean(~changed[found.names])) if found.names else 0.0)
        power += int(changed[found.names].sum())
    assert np.mean(shares) <= 0.2 + 4.0 * np.std(shares) / math.sqrt(runs)
    assert power > runs


# ------------------------------------------------------------------ the promise


def walks(rng: np.random.Generator, streams: int, changed: int, common: float) -> Floats:
    """Log martingales of Gaussian bets, steps x streams: a common factor makes them dependent, and the first drift."""
    steps, bet = 60, 0.5
    shared, own = rng.normal(size=(steps, 1)), rng.normal(size=(steps, streams))
    sign = np.where(np.arange(streams) % 2, 1.0, -1.0)
    x = math.sqrt(common) * sign * shared + math.sqrt(1.0 - common) * own
    x[:, :changed] += 0.9
    paths: Floats = np.cumsum(bet * x - bet**2 / 2.0, axis=0)
    return paths


def false_share(found: ex.fleet.Discoveries, changed: int) -> float:
    return float(np.mean([name >= changed for name in found.names])) if found.names else 0.0


@pytest.mark.parametrize("common", [0.0, 0.5, 0.99])
@pytest.mark.parametrize("changed", [0, 10])
def test_false_discovery_rate_at_stopping_times(common: float, changed: int) -> None:
    """Dependent streams, stopped when one of them stands high (they are martingales in the common history)."""
    alpha, runs, streams = 0.2, 400, 30
    shares, power = np.empty(runs), 0
    for run in range(runs):
        paths = walks(np.random.default_rng([run, 5]), streams, changed, common)
        high = (paths[:, changed:] >= math.log(20.0)).any(axis=1)
        found = e_bh(paths[int(high.argmax()) if high.any() else -1], alpha)
        shares[run] = false_share(found, changed)
        power += len(found.names) - round(shares[run] * len(found.names))
    assert shares.mean() <= alpha + 4.0 * shares.std() / math.sqrt(runs)
    if changed:
        assert power > 0.3 * runs * changed


def test_capital_of_our_own_martingales() -> None:
    """A fleet of monitors on exchangeable data, and some that changed, from p-values to discoveries."""
    rng = np.random.default_rng(3)
    values = {}
    for k in range(40):
        p = rng.random(300)
        values[f"stream {k}"] = ex.Martingale(ex.bets.SimpleMixture()).extend(p**3 if k < 5 else p)[-1]
    assert sorted(e_bh(values, 0.05).names) == [f"stream {k}" for k in range(5)]


# ------------------------------------------------------------------ adjusted peaks


@settled(200)
@given(st.floats(0.0, 600.0))
def test_adjusted_against_forty_digits(peak: float) -> None:
    with mpmath.workdps(60):
        x = mpmath.mpf(peak)
        exact = mpmath.log((mpmath.exp(x) - 1 - x) / x**2) if peak > 1e-20 else mpmath.log(mpmath.mpf(1) / 2)
    assert math.isclose(adjusted([peak])[0], float(exact), rel_tol=1e-13, abs_tol=1e-14)


def test_adjusted_is_an_e_value_at_any_time() -> None:
    """P(peak >= x) <= 1/x, so that the mean is at most ``int_1^inf A(x) / x^2 dx = int_0^inf A(e^t) e^-t dt = 1``."""
    mean = quad(lambda t: math.exp(adjusted([t])[0] - t), 0.0, 50.0)[0] + 1.0 / 50.0  # A(e^t) e^-t -> 1/t^2
    assert math.isclose(mean, 1.0, abs_tol=1e-9)


def test_adjusted_grows_and_costs_little() -> None:
    peaks = np.concatenate([np.linspace(0.0, 3.0, 3001), np.logspace(1, 300, 100)])
    values = adjusted(peaks)
    assert (np.diff(values) >= 0.0).all()
    assert (values <= peaks).all()
    assert values[0] == -math.log(2.0)


@pytest.mark.parametrize("bad", [[-0.1], [math.nan], [math.inf], ["1"], 3.0, [[1.0]]])
def test_adjusted_refuses(bad: Any) -> None:
    with pytest.raises(ValueError, match=r"^log_peaks must be "):
        adjusted(bad)


# ------------------------------------------------------------------ the forms


NAMES = ["d", "b", "e", "a", "c", "f"]
VALUES = [9.0, -math.inf, 5.0, 1e6, 0.0, 5.0]
CELLS = list(zip(NAMES, VALUES, strict=True))
FORMS: dict[str, Callable[[], Any]] = {
    "mapping": lambda: dict(zip(NAMES, VALUES, strict=True)),
    "mapping of NumPy numbers": lambda: {n: np.float32(v) for n, v in zip(NAMES, VALUES, strict=True)},
    "pandas": lambda: pd.DataFrame({"stream": NAMES, "log_value": VALUES}, index=[5, 3, 3, 1, 0, 9]),
    "pandas, categories": lambda: pd.DataFrame({"stream": pd.Categorical(NAMES), "log_value": VALUES}),
    "pandas, nullable": lambda: pd.DataFrame({"stream": NAMES, "log_value": pd.array(VALUES, dtype="Float64")}),
    "pandas Series": lambda: pd.Series(VALUES, index=NAMES),
    "Polars": lambda: pl.DataFrame({"log_value": VALUES, "stream": NAMES, "more": [[1]] * 6}),
    "Arrow": lambda: pa.table({"stream": NAMES, "log_value": VALUES}),
    "Arrow in chunks": lambda: pa.concat_tables([pa.table({"stream": [n], "log_value": [v]}) for n, v in CELLS]),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same(form: str) -> None:
    found = e_bh(FORMS[form](), 0.05)
    assert found.names == ["a", "d", "e", "f"]
    assert found.rejected.tolist() == [True, False, True, True, False, True]
    assert (found.log_values == [1e6, 9.0, 5.0, 5.0]).all()


@pytest.mark.parametrize("make", [list, tuple, np.array, pl.Series, pa.array])
def test_names_of_arrays_are_positions(make: Callable[[Any], Any]) -> None:
    assert e_bh(make(VALUES), 0.05).names == [3, 0, 2, 5]


def test_masks_select_rows() -> None:
    frame, lazy, table = FORMS["pandas"](), FORMS["Polars"](), FORMS["Arrow"]()
    assert frame[e_bh(frame, 0.05).rejected]["stream"].tolist() == ["d", "e", "a", "f"]
    assert lazy.filter(e_bh(lazy, 0.05).rejected)["stream"].to_list() == ["d", "e", "a", "f"]
    assert table.filter(pa.array(e_bh(table, 0.05).rejected))["stream"].to_pylist() == ["d", "e", "a", "f"]


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame, pa.table])
def test_other_columns(library: Callable[[Any], Any]) -> None:
    frame = library({"key": [30, 10, 20], "log10_martingale": [5, 0, 3]})
    found = e_bh(frame, 0.05, stream="key", log_value="log10_martingale", base=10)
    assert found.names == [30, 20]
    assert found.log_values.tolist() == [5 * math.log(10.0), 3 * math.log(10.0)]


def frame(**columns: Any) -> dict[str, Any]:
    return {"stream": ["a", "b"], "log_value": [1.0, 2.0]} | columns


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame, pa.table])
@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"stream": ["a", "a"]}, "stream must name each stream once, by its current value, got 'a' in several rows"),
        ({"stream": ["a", None]}, "stream must name every stream, got a missing name in row 1 of column 'stream'"),
        ({"stream": [[1], [2]]}, "stream must name a column of names, got "),
        ({"log_value": [1.0, None]}, "log_values must be numbers below inf .*, got nan for stream 'b'"),
        ({"log_value": [1, None]}, "log_values must be numbers below inf .*, got nan for stream 'b'"),
        ({"log_value": [math.inf, 1.0]}, "log_values must be numbers below inf .*, got inf for stream 'a'"),
        ({"log_value": ["1", "2"]}, "log_value must name a column of numbers, got 'log_value' of type "),
        ({"log_value": [True, False]}, "log_value must name a column of numbers, got 'log_value' of type Bool"),
        ({"stream": [], "log_value": []}, "log_value"),
    ],
)
def test_bad_frames(library: Callable[[Any], Any], columns: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=f"^{said}"):
        e_bh(library(frame(**columns)), 0.05)


def test_unknown_columns() -> None:
    with pytest.raises(ValueError, match=r"^stream must name one of the columns \['stream', 'log_value'\], got 'key'$"):
        e_bh(pl.DataFrame(frame()), 0.05, stream="key")
    with pytest.raises(ValueError, match=r"^log_value must name one of the columns .*, got 'value'$"):
        e_bh(pl.DataFrame(frame()), 0.05, log_value="value")


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({}, "log_values must hold at least one stream, got none"),
        ([], "log_values must hold at least one stream, got none"),
        (np.empty(0), "log_values must hold at least one stream, got none"),
        ({"a": math.nan}, "log_values must be numbers below inf .*, got nan for stream 'a'"),
        ({"a": None, "b": 1.0}, "log_values must be numbers below inf .*, got None for stream 'a'"),
        ({"a": "1"}, "log_values must be numbers below inf .*, got '1' for stream 'a'"),
        ({"a": True}, "log_values must be numbers below inf .*, got True for stream 'a'"),
        ({"a": math.inf}, "log_values must be numbers below inf .*, got inf for stream 'a'"),
        ({"a": 10**400}, "log_values must be numbers below inf .*, got an integer beyond float64"),
        ([0.0, math.nan], "log_values must be numbers below inf .*, got nan for stream 1"),
        ([math.inf], "log_values must be numbers below inf .*, got inf for stream 0"),
        ([[1.0]], "log_values must be a one-dimensional array of numbers, a mapping or a frame in memory, got "),
        ([[1.0], [1.0, 2.0]], "log_values must be a one-dimensional"),
        (["1"], "log_values must be a one-dimensional"),
        ([1j], "log_values must be a one-dimensional"),
        ([None], "log_values must be a one-dimensional"),
        (np.array([True]), "log_values must be a one-dimensional"),
        (np.ma.masked_array([1.0, 2.0], [True, False]), "log_values must be a one-dimensional"),
        ("abc", "log_values must be a one-dimensional"),
        (3.0, "log_values must be a one-dimensional"),
        (None, "log_values must be a one-dimensional"),
        (pl.LazyFrame(frame()), "log_values must be a one-dimensional"),
        (pd.Series([1.0, 2.0], index=["a", "a"]), "the index of log_values must name each stream once, got "),
        (pd.Series([1.0, 2.0], index=["a", None]), "the index of log_values must name each stream once, got "),
        (pd.Series([1.0, None], index=["a", "b"]), "log_values must be numbers below inf .*, got nan for stream 'b'"),
    ],
)
def test_bad_fleets(bad: Any, said: str) -> None:
    with pytest.raises(ValueError, match=f"^{said}"):
        e_bh(bad, 0.05)


@pytest.mark.parametrize("alpha", [0.0, 1.0, -0.1, 2, math.nan, math.inf, "0.05", None, True])
def test_bad_alpha(alpha: Any) -> None:
    with pytest.raises(ValueError, match=r"^alpha must (lie|be a number) in \(0, 1\), got "):
        e_bh([1.0], alpha)


@pytest.mark.parametrize("base", [1.0, 0.5, 0, -10, math.nan, math.inf, "10"])
def test_bad_base(base: Any) -> None:
    with pytest.raises(ValueError, match=r"^base must (lie|be a number) in \(1, 1e300\], got "):
        e_bh([1.0], 0.05, base=base)


def test_overflow_by_the_base_is_refused() -> None:
    with pytest.raises(ValueError, match=r"got 1e\+308 for stream 0$"):
        e_bh([1e308], 0.05, base=10)


# ------------------------------------------------------------------ the command


@pytest.fixture(name="run")
def run_fleet(run: Run) -> Run:
    """Call `exchangeable fleet`."""
    return lambda *words: run("fleet", *words)


def put(text: str, name: str = "fleet.csv") -> str:
    Path(name).write_text(text, encoding="utf-8")
    return name


FLEET = "stream,log_value\npump,7.5\nfan,-inf\nvalve,12\n"


def test_command_names_the_streams(run: Run) -> None:
    done = run(put(FLEET), "--alpha", 0.05)
    assert done.code == 1
    assert done.out.startswith("fleet.csv: 2 of 3 streams CHANGED, at a false discovery rate of 5 %")
    assert done.out.index("'valve'") < done.out.index("'pump'")
    assert "'fan'" not in done.out
    assert done.err == ""
    none = run("fleet.csv", "--alpha", 1e-7)
    assert none.code == 0
    assert none.out.startswith("fleet.csv: NONE of 3 streams")


def test_command_json(run: Run) -> None:
    done = run(put(FLEET), "--alpha", 0.05, "--format", "json")
    said = json.loads(done.out)
    assert list(said) == ["n_streams", "rule", "n_rejected", "alpha", "log10_threshold", "rejected"]
    assert (said["n_streams"], said["rule"], said["n_rejected"], said["alpha"]) == (3, "given", 2, 0.05)
    assert math.isclose(said["log10_threshold"], math.log10(3 / (0.05 * 2)))
    assert [row["stream"] for row in said["rejected"]] == ["valve", "pump"]
    assert math.isclose(said["rejected"][0]["log10_martingale"], 12 / math.log(10.0))
    assert run("fleet.csv", "--format", "json").out == done.out  # 5 % is the default


def test_command_takes_the_number_of_streams_fixed_in_advance(run: Run) -> None:
    done = run(put(FLEET), "--streams", 1000, "--format", "json")
    said = json.loads(done.out)
    assert (said["n_streams"], said["rule"], [row["stream"] for row in said["rejected"]]) == (1000, "fixed", ["valve"])
    assert math.isclose(said["log10_threshold"], math.log10(1000 / 0.05))
    words = run("fleet.csv", "--streams", 1000).out
    assert words.startswith("fleet.csv: 1 of 1,000 streams CHANGED")
    assert "a number of streams, 1,000, that was fixed before the first analysis" in words
    assert "(otherwise use --streams)" in run("fleet.csv").out


def test_command_does_not_list_thousands(run: Run) -> None:
    done = run(put("stream,log_value\n" + "".join(f"s{i},{100 + i}\n" for i in range(1000))))
    assert done.out.count("\n") == 23
    assert "and 980 more" in done.out
    assert len(json.loads(run("fleet.csv", "--format", "json").out)["rejected"]) == 1000


def test_command_takes_logs_to_base_ten(run: Run) -> None:
    text = "key,log10_martingale,x\npump,1.2\n".replace("1.2", "1.4,0") + "fan,0.1,0\n"
    for words in ([], ["--log10-value", "log10_martingale"]):
        done = run(put(text), "--stream", "key", "--alpha", 0.1, "--format", "json", *words)
        assert (done.code, [row["stream"] for row in json.loads(done.out)["rejected"]]) == (1, ["pump"])
        assert math.isclose(json.loads(done.out)["rejected"][0]["log10_martingale"], 1.4)
    assert run("fleet.csv", "--stream", "key", "--alpha", 0.1, "--log-value", "log10_martingale").code == 0


def test_command_reads_every_type_of_file(run: Run, tmp_path: Path) -> None:
    put(FLEET)
    put(FLEET.replace(",", "\t"), "fleet.tsv")
    columns = {"stream": ["pump", "fan", "valve"], "log_value": [7.5, -math.inf, 12.0], "date": [[1]] * 3}
    pyarrow.parquet.write_table(pa.table(columns), tmp_path / "fleet.parquet")
    outputs = {run(f"fleet.{end}", "--format", "json").out for end in ("csv", "tsv", "parquet")}
    assert len(outputs) == 1


def test_command_reads_types_of_columns(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    for values in (pa.array([2**60, -(2**60)]), pa.array([9.5, -math.inf]), pa.array([8, 0], pa.decimal128(5, 2))):
        pyarrow.parquet.write_table(pa.table({"stream": [7, 8], "log_value": values}), path)
        rejected = json.loads(run("f.parquet", "--format", "json").out)["rejected"]
        assert rejected == [{"stream": 7, "log10_martingale": float(values[0].as_py()) / math.log(10.0)}]
    for wrong in (["1", "x"], [True, False], [None, 1.0], [math.nan, 1.0], [math.inf, 0.0], [[1], [2]]):
        pyarrow.parquet.write_table(pa.table({"stream": [7, 8], "log_value": wrong}), path)
        done = run("f.parquet")
        assert (done.code, done.out) == (3, "")
        assert done.err.startswith("exchangeable: f.parquet: ")
        assert "column 'log_value'" in done.err
    pyarrow.parquet.write_table(pa.table({"stream": [[7], [8]], "log_value": [1.0, 2.0]}), path)
    assert "column 'stream' must hold names" in run("f.parquet").err


@pytest.mark.parametrize(
    ("text", "words", "code", "clue"),
    [
        (FLEET, ["--alpha", "2"], 2, "alpha must lie in (0, 1), got 2"),
        (FLEET, ["--alpha", "nan"], 2, "alpha"),
        (
            FLEET,
            ["--streams", "2"],
            2,
            "streams must be an integer from 3, the number of streams given, to 2**53, got 2",
        ),
        (FLEET, ["--stream", "steam"], 2, "did you mean 'stream'?"),
        (FLEET, ["--log-value", "value"], 2, "--log-value must name a column of the data, got 'value'"),
        (FLEET, ["--log-value", "log_value", "--log10-value", "log_value"], 2, "got both"),
        (FLEET, ["--stream", "log_value"], 2, "name two columns"),
        (FLEET.replace("log_value", "value"), [], 2, "got neither"),
        ("stream,log_value,log10_martingale\na,1,1\n", [], 2, "got both"),
        ("stream,log_value\n", [], 3, "must have at least one row, got none"),
        ("", [], 3, "empty"),
        ("stream,log_value,log_value\na,1,1\n", [], 3, "two columns"),
        (FLEET + "pump,8\n", [], 3, "row 4: stream 'pump' occurs twice"),
        (FLEET + "gate,\n", [], 3, "row 4: column 'log_value' must hold finite numbers or -inf"),
        (FLEET + "gate,nan\n", [], 3, "row 4: column 'log_value' must hold finite numbers or -inf"),
        (FLEET + "gate,inf\n", [], 3, "row 4: column 'log_value' must hold finite numbers or -inf"),
        (FLEET + "gate,high\n", [], 3, "row 4: column 'log_value' must hold finite numbers or -inf, got 'high'"),
        (FLEET + "gate,0x10\n", [], 3, "row 4: column 'log_value' must hold finite numbers or -inf"),
        (FLEET + " ,1\n", [], 3, "row 4: the name of the stream is missing in column 'stream'"),
        (FLEET + "gate,1,2\n", [], 3, "line 5: expected 2 fields"),
        ("stream,log10_martingale\na,1e308\n", [], 3, "row 1"),
    ],
)
def test_command_refuses(run: Run, text: str, words: list[str], code: int, clue: str) -> None:
    done = run(put(text), *words)
    assert (done.code, done.out) == (code, "")
    assert clue in done.err
    assert done.err.count("\n") == 1


def test_command_refuses_other_files(run: Run, tmp_path: Path) -> None:
    np.savez(tmp_path / "f.npz", X=np.zeros((2, 2)))
    assert (run("f.npz").code, run("missing.csv").code, run("f.docx").code) == (2, 3, 3)


def test_command_quotes_names(run: Run) -> None:
    done = run(put('stream,log_value\n"\x1b[31mred",50\n'))
    assert done.code == 1
    assert "\x1b" not in done.out


def test_a_series_with_names_of_several_levels() -> None:
    # regression: NotImplementedError
    index = pd.MultiIndex.from_tuples([("a", 1), ("a", 2)])
    assert e_bh(pd.Series([9.0, 1.0], index=index), 0.05).names == [("a", 1)]
