"""The pictures of the data: what is drawn is what the data hold."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.dates import date2num
from matplotlib.lines import Line2D

import exchangeable as ex
from exchangeable.analysis import column_plots, figures, report
from exchangeable.analysis.change import Change
from exchangeable.analysis.departure import Departure
from exchangeable.analysis.result import Result


def rng() -> np.random.Generator:
    return np.random.default_rng(3)


def line(ax: Axes, label: str) -> Line2D:
    return next(one for one in ax.lines if one.get_label() == label)


def xs(one: Line2D) -> list[float]:
    return [float(x) for x in np.asarray(one.get_xdata())]


def ys(one: Line2D) -> list[float]:
    return [float(y) for y in np.asarray(one.get_ydata())]


def series(values: Any, *, times: Any = None, missing: Any = None, **marks: Any) -> Axes:
    return column_plots.series(values, column_plots.Marks(**marks), times=times, missing=missing)


def shares(codes: Any, categories: list[str], **marks: Any) -> Axes:
    return column_plots.shares(codes, categories, column_plots.Marks(**marks))


def steps(ax: Axes, label: str) -> tuple[Any, Any, Any]:
    """Return the heights, the base and the edges of a shape that was drawn by `stairs`."""
    return of_steps(next(one for one in ax.patches if one.get_label() == label))


def of_steps(patch: Any) -> tuple[Any, Any, Any]:
    top, edges, base = patch.get_data()
    return top, base, edges


# ------------------------------------------------------------------------------------------------------------- numbers


def test_a_change_is_a_line_between_two_rows_and_its_interval_a_band() -> None:
    ax = series(rng().normal(size=50), changes=[20], interval=(15, 30))
    assert xs(line(ax, "estimated change")) == [20.5, 20.5]
    band = next(patch for patch in ax.patches if patch.get_label() == "where the change may be")
    assert (band.get_x(), band.get_x() + band.get_width()) == (15.5, 30.5)  # type: ignore[attr-defined]


def test_times_place_the_change_between_two_times() -> None:
    times = np.datetime64("2024-03-01") + np.array([0, 1, 2, 10, 11])
    ax = series([1.0, 2.0, 3.0, 9.0, 9.5], times=times, changes=[3])
    day = float(date2num(np.datetime64("2024-03-07")))  # type: ignore[no-untyped-call]
    assert xs(line(ax, "estimated change")) == [day, day]
    assert xs(line(ax, "value of a row")) == np.asarray(date2num(times)).tolist()  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("changes", [[40], [10, 40, 41], []])
def test_the_means_of_the_parts_are_those_of_the_data(changes: list[int]) -> None:
    y = rng().normal(size=60) + 5.0 * (np.arange(60) > 40)
    missing = rng().random(60) < 0.3
    ax = series(y, changes=changes, missing=missing)
    parts = [(a, b) for a, b in pairwise([0, *changes, 60]) if not missing[a:b].all()]
    drawn = [one for one in ax.lines if len(ys(one)) == 2 and ys(one)[0] == ys(one)[1]]
    expected = [float(y[a:b][~missing[a:b]].mean()) for a, b in parts] if changes else []
    assert [ys(one)[0] for one in drawn] == pytest.approx(expected)
    texts = [text.get_text() for text in ax.texts if "missing" not in text.get_text()]
    assert texts == [f"{mean:.4g}" for mean in expected]


def test_few_values_are_points_without_those_that_are_missing() -> None:
    y, missing = rng().normal(size=1000), np.arange(1000) % 7 == 0
    points = line(series(y, missing=missing), "value of a row")
    assert ys(points) == y[~missing].tolist()
    assert xs(points) == (np.flatnonzero(~missing) + 1.0).tolist()


def test_many_values_are_thinned_without_losing_the_lowest_and_the_highest() -> None:
    y = rng().normal(size=100_000)
    ax = series(y)
    top, base, edges = steps(ax, "all values")
    assert len(top) <= column_plots.BINS
    x = np.arange(1.0, 100_001.0)
    for i, (low, high) in enumerate(pairwise(edges.tolist())):
        inside = y[(x >= low) & ((x < high) | (i == len(top) - 1))]
        assert (base[i], top[i]) == (inside.min(), inside.max())
    middle, tenth, _ = steps(ax, "middle 80 %")
    inside = y[x < edges[1]]
    assert (tenth[0], middle[0]) == pytest.approx(tuple(np.quantile(inside, [0.1, 0.9])))
    assert ys(line(ax, "median"))[0] == pytest.approx(float(np.median(inside)))


def test_gaps_in_time_stay_empty() -> None:
    days = np.concatenate([np.arange(1000), 5000 + np.arange(1000)])
    ax = series(1.0 + rng().random(2000), times=np.datetime64("2000-01-01") + days)
    top, base, _ = steps(ax, "all values")
    empty = np.isnan(ys(line(ax, "median")))
    assert 0.5 < empty.mean() < 0.75
    assert (top[empty] == base[empty]).all()
    assert (top[~empty] > base[~empty]).all()


@pytest.mark.parametrize("n", [500, 50_000])
def test_a_value_far_away_is_marked_at_the_edge_and_named(n: int) -> None:
    y = rng().normal(size=n)
    y[n // 3] = 1e6
    ax = series(y)
    triangle = next(one for one in ax.lines if one.get_marker() == "^")
    assert len(xs(triangle)) == 1
    assert xs(triangle)[0] == pytest.approx(n / 3, rel=0.02)
    assert ax.get_ylim()[1] < 20.0
    assert any("1 beyond the axis" in text.get_text() and "to 1,000,000" in text.get_text() for text in ax.texts)
    shown = series(y, rows=[n // 3 + 1])
    assert shown.get_ylim()[1] > 1e6
    ring = line(shown, "row to look at")
    assert (xs(ring), ys(ring)) == ([n // 3 + 1.0], [1e6])


def test_nothing_is_far_away_in_a_column_that_hardly_varies() -> None:
    y = np.zeros(500)
    y[7] = 3.0
    ax = series(y)
    assert ys(line(ax, "value of a row")) == y.tolist()
    assert not ax.texts


def test_a_running_mean_is_the_mean_of_neighbours() -> None:
    y = rng().normal(size=200)
    half = 200 // column_plots.SMOOTH // 2
    naive = [y[max(0, i - half) : i + half + 1].mean() for i in range(200)]
    np.testing.assert_allclose(column_plots.running_mean(y), naive)
    assert ys(line(series(y, smooth=True), "running mean")) == pytest.approx(naive)


def test_the_share_of_missing_values_is_a_strip() -> None:
    missing = np.arange(1000) >= 800
    ax = series(rng().normal(size=1000), missing=missing)
    share, _, edges = steps(ax, "share of missing values")
    late = edges[:-1] >= 801
    assert (share[late] == share.max()).all()
    assert (share[edges[1:] < 801] == 0.0).all()
    assert any(text.get_text() == "missing: 20 %, up to 100 %" for text in ax.texts)


# ---------------------------------------------------------------------------------------------------------- categories


def stacked(ax: Axes) -> Any:
    """Return the height of each category in each bin."""
    parts = [of_steps(patch) for patch in ax.patches if hasattr(patch, "get_data")]
    return np.array([top - base for top, base, _ in parts])


def test_stacked_shares_sum_to_one_and_are_those_of_the_bins() -> None:
    codes = rng().integers(0, 3, 1000)
    ax = shares(codes, ["a", "b", "c"], changes=[600], interval=(550, 700))
    heights = stacked(ax)
    np.testing.assert_allclose(heights.sum(axis=0), 1.0)
    edges = of_steps(ax.patches[0])[2]
    rows = np.arange(1, 1001)
    inside = codes[(rows >= edges[3]) & (rows < edges[4])]
    np.testing.assert_allclose(heights[:, 3], np.bincount(inside, minlength=3) / len(inside))
    assert xs(line(ax, "estimated change")) == [600.5, 600.5]
    assert [text.get_text() for text in ax.texts] == ["a", "b", "c"]


def test_the_seventh_category_and_the_others_are_one() -> None:
    codes = np.concatenate([rng().integers(0, 4, 500), np.full(100, 11), rng().integers(0, 12, 400)])
    names = [f"c{i}" for i in range(12)]
    ax = shares(codes, names)
    heights = stacked(ax)
    assert len(heights) == column_plots.MAX_CATEGORIES + 1
    np.testing.assert_allclose(heights.sum(axis=0), 1.0)
    shown = [text.get_text() for text in ax.texts]
    assert {"c0", "c1", "c2", "c3", "c11"} < set(shown)  # c11 is rare, except for one stretch
    assert shown[-1] == "other (6)"
    places = [text.get_position()[1] for text in ax.texts]
    assert np.diff(places).min() > 0.08
    assert 0.0 < min(places) < max(places) <= 1.0


def test_two_sets_are_compared_by_histograms_and_bars() -> None:
    a, b = rng().normal(size=900), rng().normal(1.0, 1.0, 300)
    ax = column_plots.histograms({"reference": a, "current": b})
    for patch, values in zip(ax.patches, (a, b), strict=True):
        density, _, edges = of_steps(patch)
        np.testing.assert_allclose(density * np.diff(edges) * len(values), np.histogram(values, edges)[0])
    codes = rng().integers(0, 2, 50)
    bars = column_plots.share_bars({"reference": codes, "current": codes[:20]}, ["$a$", "b"])
    widths = [bar.get_width() for bar in bars.patches]  # type: ignore[attr-defined]
    assert widths == pytest.approx([1.0 - codes.mean(), codes.mean(), 1.0 - codes[:20].mean(), codes[:20].mean()])
    assert [label.get_text() for label in bars.get_yticklabels()] == ["$a$", "b"]
    bars.figure.canvas.draw()  # dollar signs are no formulas


# ------------------------------------------------------------------------------------------------- figures of a result


def moved() -> pd.DataFrame:
    draw = rng()
    frame = pd.DataFrame({"a": draw.normal(size=400), "b": draw.normal(size=400), "paid": draw.random(400) < 0.5})
    frame.loc[240:, "b"] += 2.0
    frame.loc[draw.random(400) < 0.1, "b"] = np.nan
    frame["coat"] = np.where(draw.random(400) < 0.5, "red", "grey")
    return frame


@pytest.fixture(scope="module")
def result() -> Result:
    return ex.test(moved())


def test_the_data_of_the_strongest_column_are_drawn(result: Result) -> None:
    ax = result.plot(kind="data")
    assert ax.get_title() == "b"
    before = xs(line(ax, "estimated change"))[0]
    assert before == (result.changepoint or 0) + 0.5
    assert abs(before - 240.5) < 10.0
    there = moved()["b"].dropna()
    assert ys(line(ax, "value of a row")) == there.tolist()
    first = next(one for one in ax.lines if one.get_label() == "mean of each part")
    assert ys(first)[0] == pytest.approx(there[there.index < before - 0.5].mean())


def test_other_columns_are_drawn_by_name(result: Result) -> None:
    assert [text.get_text() for text in result.plot(kind="data", column="coat").texts] == ["grey", "red"]
    few = result.plot(kind="data", column="paid")  # 0 and 1 are drawn as shares
    assert [text.get_text() for text in few.texts] == ["0", "1"]
    np.testing.assert_allclose(stacked(few).sum(axis=0), 1.0)
    ax = few.figure.add_subplot()
    assert result.plot(ax, kind="data", column="a") is ax


def test_few_numbers_with_missing_values_are_shares_with_a_category_for_them() -> None:
    x = rng().integers(1, 4, 300).astype(float)
    x[rng().random(300) < 0.2] = np.nan
    found = ex.test({"x": x, "b": rng().normal(size=300)})
    ax = found.plot(kind="data", column="x")
    assert [text.get_text() for text in ax.texts] == ["1", "2", "3", "(missing)"]
    np.testing.assert_allclose(stacked(ax).sum(axis=0), 1.0)


def test_columns_with_the_same_missing_rows_share_their_indicator() -> None:
    frame = moved()
    frame["z"] = np.where(frame["b"].isna(), np.nan, frame["a"] + 1.0)
    found = ex.test(frame)
    absent = frame["b"].isna().to_numpy()
    for name in ("b", "z"):
        np.testing.assert_array_equal(found.table.missing(name), absent)
    assert found.table.missing("a") is None


def test_the_figure_of_p_values(result: Result) -> None:
    test, p = figures.strongest_p_values(result)
    assert test.name == "b"
    ax = result.plot(kind="p-values")
    parts = figures.periods(result, p)
    assert [patch.get_label() for patch in ax.patches] == list(parts)
    assert sum(map(len, parts.values())) == 400
    density, _, edges = of_steps(ax.patches[1])
    assert (density * np.diff(edges)).sum() == pytest.approx(1.0)
    assert result.plot().get_title() == result.plot(kind="evidence").get_title()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "pie"}, "kind must be 'evidence', 'data' or 'p-values', got 'pie'"),
        ({"kind": None}, "kind must be 'evidence', 'data' or 'p-values', got None"),
        ({"kind": "data", "column": "none"}, "column must be a column or a view that was tested, got 'none'"),
        ({"kind": "data", "column": 7}, "column must be a column or a view that was tested, got 7"),
        ({"column": "a"}, "column must be left out unless kind is 'data', got 'a'"),
    ],
)
def test_invalid_figures_get_one_sentence(result: Result, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        result.plot(**options)


def test_two_sets_are_drawn_side_by_side_without_missing_values() -> None:
    frame = moved()
    for sets in ((frame[:240], frame[240:]), (frame[240:], frame[:240])):
        found = ex.compare(*sets)
        ax = found.plot(kind="data", column="b")
        assert [patch.get_label() for patch in ax.patches] == ["reference", "current"]
        for patch, values in zip(ax.patches, sets, strict=True):
            density, _, edges = of_steps(patch)
            there = values["b"].dropna()
            np.testing.assert_allclose(density * np.diff(edges) * len(there), np.histogram(there, edges)[0], atol=1e-9)
        shares = found.plot(kind="data", column="coat")
        assert shares.patches[0].get_width() == pytest.approx((sets[0]["coat"] == "grey").mean())  # type: ignore[attr-defined]


KINDS = {
    "one change": column_plots.Marks([100], (90, 120)),
    "last part": column_plots.Marks([100], (90, 120)),
    "several changes": column_plots.Marks([100, 300]),
    "drift": column_plots.Marks(smooth=True),
    "seasonal pattern": column_plots.Marks(smooth=True),
    "unclear": column_plots.Marks(smooth=True),
    "outliers": column_plots.Marks(rows=[5, 400]),
    "repeated rows": column_plots.Marks(rows=[5, 400]),
}


def departed(kind: str, change: Change | None) -> Result:
    """Return a result with this departure."""
    found = ex.test(moved())
    found.__dict__["departure"] = Departure(kind, "b", [100, 300], rows=[5, 400, 4000])
    found.locate_change = lambda *_: change  # type: ignore[method-assign]
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_marked_depends_on_the_kind_of_the_departure(kind: str) -> None:
    found = departed(kind, Change(95, 90, 120, 0.95))
    assert figures.mark(found) == KINDS[kind]
    ax = figures.draw_column(found, found.table.columns[0], KINDS[kind])
    labels = {one.get_label() for one in ax.lines}
    assert ("estimated change" in labels) == bool(KINDS[kind].changes)
    assert ("running mean" in labels) == KINDS[kind].smooth
    assert ("row to look at" in labels) == bool(KINDS[kind].rows)


def test_there_may_be_no_interval_and_nothing_is_marked_without_a_departure() -> None:
    found = departed("one change", Change(95, None, None, 0.95))
    assert figures.mark(found) == column_plots.Marks([100])
    quiet = ex.test(rng().normal(size=(100, 2)))
    assert figures.mark(quiet) == column_plots.Marks()
    labels = [one.get_label() for one in quiet.plot(kind="data").lines]
    assert "value of a row" in labels
    assert "estimated change" not in labels


def test_the_means_of_the_picture_are_those_of_the_explanation(result: Result) -> None:
    """Both leave missing values out."""
    feature = result.explain().features[0]
    assert feature.name == "b"
    assert feature.effect is not None
    there, before = moved()["b"], result.changepoint
    assert feature.effect.before == pytest.approx(there[:before].mean())
    drawn = [one for one in result.plot(kind="data").lines if len(ys(one)) == 2 and ys(one)[0] == ys(one)[1]]
    assert [ys(one)[0] for one in drawn] == pytest.approx([feature.effect.before, feature.effect.after])


def test_shares_are_about_their_column() -> None:
    """They have no p-values: those of the column are shown."""
    found = ex.test(moved())
    for tests in (found.tests, found.view_tests):
        i = next(i for i, test in enumerate(tests) if test.name == "shares of coat")
        tests[i] = tests[i]._replace(log_value=np.concatenate([np.zeros(399), [1000.0]]))
    assert found.strongest.name == "shares of coat"
    assert figures.strongest_p_values(found)[0].name == "coat"
    explanation = found.explain()
    drawn = figures.pictured(found, [*explanation.features, *explanation.views])
    assert [(feature.name, column.name) for feature, column in drawn] == [("shares of coat", "coat"), ("b", "b")]
    assert "<h3><bdi>coat</bdi></h3>" in report.document(found, explanation)
    assert found._repr_html_()
    assert figures.find_column(figures.known_columns(found), "15 neighbours", "neighbours") is None


def test_at_most_six_columns_are_drawn_the_strongest_first() -> None:
    X = rng().normal(size=(300, 9))
    X[150:] += np.linspace(1.5, 3.5, 9)
    explanation = (found := ex.test(X)).explain()
    drawn = [feature.name for feature, _ in figures.pictured(found, explanation.features)]
    assert len(explanation.changed) == 9
    assert drawn == explanation.changed[:6]
    text = report.document(found, explanation)
    assert "3 more columns are flagged." in text
    assert text.count("<svg") == 6 + 2
