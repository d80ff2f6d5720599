"""`TableMonitor`: the same numbers for every form and split of the rows, errors that change nothing, saved states."""

import copy
import itertools
import math
import pickle
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import exchangeable as ex
from exchangeable import snapshot
from exchangeable.pvalues import thetas
from exchangeable.table_monitor import Explanation
from exchangeable.table_monitor.cells import open_cells
from exchangeable.table_monitor.constants import LOWEST
from exchangeable.table_monitor.monitor import DIVISION_STREAM
from table_parts import parts

SETTINGS: dict[str, dict[str, Any]] = {
    "exact": {},
    "bins": {"bins": 16},
    "period": {"period": 500.0, "bins": 8},
    "restart": {"on_alarm": "restart", "alpha": 0.2},
    "restart with bins": {"on_alarm": "restart", "alpha": 0.2, "bins": 8},
    "rows only": {"columns": "none"},
    "few rows": {"max_rows": 260},
}


def table(n: int, seed: int = 0, shift: float = 0.0) -> dict[str, list[Any]]:
    """Numbers, integers, categories (one of them rare), missing values, a constant column, and a label."""
    rng = np.random.default_rng(seed)
    size, count = rng.normal(shift, 1.0, n), rng.integers(0, 5, n)
    colour = rng.choice(["red", "green", "blue", f"rare{seed}"], n, p=[0.5, 0.3, 0.15, 0.05])
    holes = rng.random(n) < 0.1
    return {
        "size": [None if hole else float(x) for x, hole in zip(size, holes, strict=True)],
        "weight": (size + 0.1 * rng.normal(size=n)).tolist(),
        "count": count.tolist(),
        "colour": [None if hole else str(c) for c, hole in zip(colour, holes[::-1], strict=True)],
        "unit": ["kg"] * n,
        "price": (2.0 * size + count + rng.normal(size=n)).tolist(),
    }


def as_rows(columns: dict[str, list[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]


TRAIN, LIVE = table(300), {name: cells + table(40, 2, 1.5)[name] for name, cells in table(60, 1).items()}
ROWS = as_rows(LIVE)


def new(**settings: Any) -> ex.TableMonitor:
    return ex.TableMonitor(TRAIN, "price", seed=5, **settings)


def state(monitor: ex.TableMonitor) -> bytes:
    return snapshot.encode(monitor)


def joined(paths: list[Any]) -> list[Any]:
    return [np.concatenate([path[k] for path in paths]).tolist() for k in range(4)]


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_extend_is_a_loop_of_update_and_continues_after_saving_and_copying(settings: Any) -> None:
    whole, single, parts = new(**settings), new(**settings), new(**settings)
    path = whole.extend(ROWS)
    steps = [single.update(row) for row in ROWS]
    assert [list(column) for column in zip(*steps, strict=True)] == [column.tolist() for column in path[:3]]
    assert whole.last == single.last == steps[-1]
    found = []
    for first, stop in itertools.pairwise((0, 1, 8, 9, 50, 73, 100)):
        found.append(parts.extend(ROWS[first:stop]))
        parts = snapshot.decode(state(parts)) if first % 2 else copy.deepcopy(parts)
    assert joined(found) == [column.tolist() for column in path[:4]]
    assert state(whole) == state(single) == state(parts)
    assert whole.explain() == parts.explain()
    assert whole.alarm_at is None or (whole.changepoint or 0) < whole.alarm_at


@pytest.mark.parametrize("categorical", [(), ("price",)])
def test_the_width_of_floats_makes_no_difference(categorical: tuple[str, ...]) -> None:
    rng = np.random.default_rng(0)
    wide = pd.DataFrame({"price": rng.choice([0.1, 0.2, 0.7], 400), "size": rng.normal(size=400)})
    narrow = wide.astype({"price": np.float32})
    paths = []
    for reference, rows in itertools.product((wide, narrow), repeat=2):
        monitor = ex.TableMonitor(reference[:300], seed=0, categorical=categorical)
        paths.append(monitor.extend(rows[300:]).log_value)
    monitor = ex.TableMonitor(narrow[:300], seed=0, categorical=categorical)
    paths.append(np.array([monitor.update(row).log_value for row in narrow[300:].to_dict("records")]))
    assert all(np.array_equal(path, paths[0]) for path in paths)


@pytest.mark.parametrize("bins", [None, 8])
def test_a_column_may_have_the_name_of_a_view(bins: Any) -> None:
    rng = np.random.default_rng(3)
    size = rng.normal(size=300)
    names = ["full rows", "label y", "residual of y", "full rows and label", "full rows (view)"]
    reference = {name: size + rng.normal(size=300) for name in names} | {"y": size > 0.0}
    component = next(one.name for one in ex.TableMonitor(reference, "y", seed=1)._lines if one.kind == "component")
    reference[component] = rng.normal(size=300)
    monitor = ex.TableMonitor(reference, "y", seed=1, bins=bins)
    assert len(monitor.curves) == len({line.name for line in monitor._lines}) == len(monitor._lines)
    monitor.extend(reference | {"full rows": size + 9.0})
    found = {finding.name: finding for finding in monitor.explain()}
    assert monitor.rejected_by[0] == "full rows"
    assert found["full rows"].description.startswith("median 9")
    assert found["full rows (view) (view)"].description.startswith("distance to the reference:")
    assert snapshot.decode(state(monitor)).explain() == monitor.explain()


def test_lines_that_have_stopped_are_named() -> None:
    monitor = new(max_rows=60, columns="none", wait="forever")
    monitor.extend(ROWS[:30], range(30))  # the other 30 are of the reference
    assert monitor.stopped == ["full rows", "full rows and label"]
    assert snapshot.decode(state(monitor)).stopped == monitor.stopped
    found = monitor.explain()
    assert ", stopped at max_rows" in str(found[0])
    assert "Stopped, since they hold max_rows rows: 'full rows and label', 'full rows'." in str(found)
    assert ("stopped at max_rows", "full rows, full rows and label") in monitor.parts()
    before = monitor.log_value
    monitor.extend(ROWS[30:], range(30, 100))
    assert monitor.log_value == before
    quiet = new(max_rows=61, wait="forever")
    quiet.extend(ROWS[:30], range(30))
    assert (quiet.stopped, "stopped" in str(quiet.explain())) == ([], False)


def test_restarts_happen_in_the_tests_above() -> None:
    for name in ("restart", "restart with bins"):
        monitor = new(**SETTINGS[name])
        path = monitor.extend(ROWS)
        assert path.alarm.sum() == monitor.test - 1 > 0
        assert monitor.rejected_by  # of the latest alarm
        assert path.test.tolist() == (1 + np.append(0, np.cumsum(path.alarm)[:-1])).tolist()


def test_every_form_of_the_data_gives_the_same_numbers(tmp_path: Any) -> None:
    frames: dict[str, Any] = {
        "pandas": pd.DataFrame(LIVE),
        "polars": pl.DataFrame(LIVE, strict=False),
        "columns": LIVE,
        "rows": ROWS,
    }
    frames["nullable"] = frames["pandas"].convert_dtypes()
    frames["categorical"] = frames["pandas"].astype({"colour": "category"})
    frames["arrow"] = frames["polars"].to_arrow()
    frames["shuffled"] = frames["polars"].select(*reversed(list(LIVE)))
    frames["csv"], frames["parquet"], reference = (tmp_path / name for name in ("a.csv", "a.parquet", "train.csv"))
    frames["polars"].write_csv(frames["csv"])
    frames["polars"].write_parquet(frames["parquet"])
    pl.DataFrame(TRAIN, strict=False).write_csv(reference)
    expected = new().extend(ROWS).log_value.tolist()
    for name, frame in frames.items():
        assert new().extend(frame).log_value.tolist() == expected, name
    for train in (reference, str(reference), pd.DataFrame(TRAIN), ex.read(reference)):
        assert ex.TableMonitor(train, "price", seed=5).extend(ROWS).log_value.tolist() == expected


def test_arrays_have_columns_by_position() -> None:
    X = np.random.default_rng(0).normal(size=(200, 3))
    monitors = [ex.TableMonitor(X[:150], seed=1) for _ in range(4)]
    rows = [dict(zip(("x0", "x1", "x2"), row, strict=True)) for row in X[150:].tolist()]
    forms = X[150:], rows, X[150:].tolist(), np.asfortranarray(X[150:])
    paths = [monitor.extend(form).log_value.tolist() for monitor, form in zip(monitors, forms, strict=True)]
    assert paths[0] == paths[1] == paths[2] == paths[3]
    assert monitors[0].extend([]).n.size == 0


def test_a_score_depends_on_its_own_row_alone() -> None:
    for bins in (None, 16):
        monitor = new(bins=bins)
        cells = {name: values * 9 for name, values in LIVE.items()}
        many, _ = monitor._rows(open_cells(cells), "error")
        for i in (0, 17, 99, 100, 417, 899):
            one, _ = monitor._rows(open_cells([ROWS[i % 100]]), "error")
            for plan in monitor._plans:
                assert np.array_equal(plan.values(many)[i], plan.values(one)[0]), (plan.name, i)


HUGE = 10**400
BAD: dict[str, tuple[Callable[[Any], Any], str]] = {
    "absent": (lambda row: row.pop("size"), "row 2 must have the column 'size', got none"),
    "unknown": (lambda row: row.update(extra=1), "row 2 must have only columns of the reference, got 'extra'"),
    "renamed": (lambda row: row.update(Size=row.pop("size")), "it has the unknown column 'Size'"),
    "text": (lambda row: row.update(size="big"), "column 'size' must be a finite number .*got 'big' in row 2"),
    "inf": (lambda row: row.update(size=math.inf), "column 'size' must be a finite number .*got inf in row 2"),
    "huge": (lambda row: row.update(size=HUGE), "column 'size' must be a finite number .*in row 2"),
    "list": (lambda row: row.update(colour=[1]), r"column 'colour' must be text, a number or a boolean, got \[1\]"),
    "label": (lambda row: row.update(price="dear"), "label 'price' must be a finite number .*got 'dear' in row 2"),
}


@pytest.mark.parametrize("wait", [None, "forever"])
@pytest.mark.parametrize(("change", "message"), BAD.values(), ids=BAD)
def test_a_bad_row_changes_nothing_unless_it_is_to_be_counted(change: Any, message: Any, wait: Any) -> None:
    bad = [dict(row) for row in ROWS[:3]]
    change(bad[1])
    ids = None if wait is None else [1, 2, 3]
    monitor = new(wait=wait)
    before = state(monitor)
    with pytest.raises(ValueError, match=message):
        monitor.extend(bad, ids=ids)
    assert state(monitor) == before
    with pytest.raises(ValueError, match=message.replace("row 2", "row 1")):
        monitor.update(bad[1], id=None if wait is None else 1)
    assert state(monitor) == before
    counting, single = new(wait=wait, invalid="missing"), new(wait=wait, invalid="missing")
    counting.extend(bad, ids=ids)
    for i, row in enumerate(bad):
        single.update(row, id=None if wait is None else i + 1)
    assert counting.invalid_cells == single.invalid_cells == (2 if "Size" in bad[1] else 1)
    assert state(counting) == state(single)


SCHEMA = new().schema


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "needs a reference or a schema, got neither"),
        ({"reference": TRAIN, "schema": {"a": "number"}}, "got both"),
        ({"reference": table(29)}, "at least 30 rows, got 29"),
        ({"reference": {"a": [1.0] * 50}}, "must have a column that varies"),
        ({"reference": TRAIN, "label": "Price"}, "label must be a column of the reference, got 'Price'"),
        ({"reference": TRAIN, "label": "unit"}, "at least two classes"),
        ({"reference": TRAIN, "keep": "siz"}, "must name columns of the reference, got 'siz'"),
        ({"reference": TRAIN, "wait": 5}, "wait requires a label"),
        ({"reference": TRAIN, "categorical": 5}, "categorical must be the name of a column or a list of names, got 5"),
        ({"reference": TRAIN, "keep": ["size", None]}, r"keep must be .* a list of names, got \['size', None\]"),
        ({"reference": pl.DataFrame(TRAIN).lazy()}, r"data must be in memory, got a lazy frame; collect\(\) it first"),
        ({"reference": {"1": [0.5] * 50, 1: [1.5] * 50}}, "distinct column names, got '1' twice"),
        ({"reference": [{"1": 0.5, 1: 1.5}] * 50}, "distinct column names, got '1' twice"),
        ({"schema": {"a": ["x", object()]}}, "a category of column 'a' in the schema must be text, a number or a bool"),
        ({"reference": TRAIN, "columns": "some"}, "columns must be one of 'each', 'none', got 'some'"),
        ({"reference": TRAIN, "bins": 1}, "bins must be an integer from 2"),
        ({"schema": {"a": "number"}, "bins": 8}, "bins requires a reference"),
        ({"schema": {"a": "numbers"}}, "must be 'number' or a list of categories"),
        ({"schema": {"a": "number"}, "columns": "none"}, "columns must be 'each'"),
        ({"schema": {"a": []}}, "schema of column 'a' must list at least one category, got none"),
        ({"schema": {"a": "number"}, "categorical": "a"}, "categorical requires a reference, got 'a' with a schema"),
        ({"schema": {"a": "number"}, "keep": ["a"]}, r"keep requires a reference, got \['a'\] with a schema"),
        ({"schema": SCHEMA, "label": "size"}, "label must be that of the schema, which has the label 'price'"),
        ({"reference": pd.DataFrame(np.ones((40, 2)), columns=["a", "a"])}, "distinct column names, got 'a' twice"),
        ({"reference": TRAIN, "alpha": 2}, "alpha must lie in"),
        ({"reference": 7}, "data must be a frame"),
        ({"reference": [{"a": 1.0}, 3]}, "a list of mappings if one row is a mapping, got 3 too"),
        ({"reference": [[1.0, 2.0], [3.0]]}, "data must have rows of one length"),
    ],
)
def test_invalid_arguments_get_one_sentence(arguments: Any, message: Any) -> None:
    with pytest.raises(ValueError, match=message) as raised:
        ex.TableMonitor(**arguments)
    assert "\n" not in str(raised.value)


TYPED: dict[str, list[Any]] = {
    "size": np.random.default_rng(0).normal(size=60).tolist(),
    "text": ["7", "b"] * 30,
    "code": [1, 2, 3] * 20,
    "flag": [True, False] * 30,
    "y": [0, 1] * 30,
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"size": "2.3"}, "column 'size' must be a finite number of magnitude at most 1e\\+150, got '2.3' in row 1"),
        ({"size": True}, "column 'size' must be a finite number of magnitude at most 1e\\+150, got True in row 1"),
        ({"text": 7}, "column 'text' must be text, got 7 in row 1"),
        ({"text": True}, "column 'text' must be text, got True in row 1"),
        ({"code": "1"}, "column 'code' must be an integer, got '1' in row 1"),
        ({"code": 1.5}, "column 'code' must be an integer, got 1.5 in row 1"),
        ({"flag": 2}, "column 'flag' must be true or false, got 2 in row 1"),
        ({"flag": "true"}, "column 'flag' must be true or false, got 'true' in row 1"),
        ({"y": "good"}, "label 'y' must be an integer, got 'good' in row 1"),
        ({"y": 1.5}, "label 'y' must be an integer, got 1.5 in row 1"),
    ],
    ids=str,
)
def test_changed_types_are_errors_or_counted(change: Any, message: str) -> None:
    row: dict[str, Any] = {name: cells[0] for name, cells in TYPED.items()}
    strict, counting = (
        ex.TableMonitor(TYPED, "y", seed=1, categorical="code", invalid=invalid) for invalid in ("error", "missing")
    )
    before = state(strict)
    for data in ([row | change], pd.DataFrame([row | change])):
        with pytest.raises(ValueError, match=message):
            strict.extend(data)
        assert state(strict) == before
        counting.extend(data)
    assert counting.invalid_cells == 2
    strict.update(row | {"flag": 1, "y": np.int64(1), "size": 3, "text": np.str_("new"), "code": 9.0})


def test_types_inferred_from_text_follow_the_reference(tmp_path: Any) -> None:
    """A file in which a column of text holds nothing but numbers, and booleans are written as 0 and 1."""
    rows = [
        {"size": 1, "text": "7", "code": 2, "flag": True, "y": 0},
        {"size": 2, "text": "7", "code": 9, "flag": False, "y": 1},
    ]
    (tmp_path / "a.csv").write_text("size,text,code,flag,y\n1,7,2,1,0\n2.0,7,9,0,1\n")
    pd.DataFrame(TYPED).to_csv(tmp_path / "train.csv", index=False)
    for reference in (TYPED, tmp_path / "train.csv"):
        monitors = [ex.TableMonitor(reference, "y", seed=1, categorical="code") for _ in range(3)]
        paths = [
            m.extend(data).log_value.tolist()
            for m, data in zip(monitors, (rows, tmp_path / "a.csv", pd.DataFrame(rows)), strict=True)
        ]
        assert paths[0] == paths[1] == paths[2]
        assert state(monitors[0]) == state(monitors[1])


def test_ids_and_times_need_a_queue() -> None:
    for arguments in ({"id": 1}, {"time": 0.0}):
        with pytest.raises(ValueError, match="id and time require a monitor with wait"):
            new().update(ROWS[0], **arguments)
    for given in ({"ids": [1]}, {"times": [math.nan]}):
        with pytest.raises(ValueError, match="ids and times require a monitor with wait"):
            new().extend(ROWS[:1], **given)


FORMS: dict[str, Callable[[list[Any]], Any]] = {
    "array": np.array,
    "series": lambda values: pd.Series(values, index=range(len(values))[::-1]),
    "other index": lambda values: pd.Series(values, index=range(1000, 1000 + len(values))),
    "index": pd.Index,
    "polars": pl.Series,
    "tuple": tuple,
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_ids_and_times_of_every_form_belong_to_rows_by_position(form: Any) -> None:
    rows, ids, times = [row | {"price": None} for row in ROWS[:20]], list(range(20)), [10.0 * i for i in range(20)]
    expected, found = new(wait=25, bins=8), new(wait=25, bins=8)
    expected.extend(rows, ids, times)
    found.extend(rows, form(ids), form(times))
    assert expected.waiting == [17, 18, 19]
    assert state(found) == state(expected)
    found.extend(rows[:1], form([20]), form([200.0]))
    assert found.waiting == [18, 19, 20]
    wrong: list[Any] = ["ab", 5, form(ids[:1])]
    for given in wrong:
        with pytest.raises(ValueError, match="ids must hold one item for each of the 2 rows"):
            found.extend(rows[:2], given, [300.0, 300.0])
    with pytest.raises(ValueError, match="id must be a string or an integer, got None"):
        found.update(rows[0], time=300.0)


@pytest.mark.parametrize(
    ("ids", "times"),
    [
        ([5, 6, 6], [50, 51, 52]),
        ([5, 6, 0], [50, 51, 52]),
        ([5, 6, None], [50, 51, 52]),
        ([5, 6, 7], [50, 51, None]),
        ([5, 6, 7], [50, 51, math.nan]),
        ([5, 6, 7], [50, 51, 1.7e12]),
    ],
    ids=str,
)
@pytest.mark.parametrize("on_alarm", ["latch", "restart"])
def test_a_bad_id_or_time_changes_nothing(ids: Any, times: Any, on_alarm: str) -> None:
    monitor = new(wait=20, bins=8, on_alarm=on_alarm)
    rows = [row | {"price": None} for row in ROWS]
    monitor.extend(rows[:3], [0, 1, 2], [0, 1, 2])
    before = state(monitor)
    with pytest.raises(ValueError, match=r"id|time"):
        monitor.extend(rows[3:6], ids, times)
    assert state(monitor) == before


@pytest.mark.parametrize("settings", [{}, {"bins": 8}, {"bins": 8, "on_alarm": "restart", "alpha": 0.5}], ids=str)
@pytest.mark.parametrize("most", [3, 1000])
def test_late_labels_in_any_split(settings: Any, most: int) -> None:
    """Rows with and without labels, that expire, that fill the queue, and ids that are used again when forgotten."""
    rng = np.random.default_rng(2)
    rows = [row | ({"price": None} if rng.random() < 0.7 else {}) for row in ROWS]
    times = np.cumsum(rng.choice([0.0, 1.0, 40.0], len(rows), p=[0.6, 0.35, 0.05])).tolist()
    ids = [i % 90 if most == 3 and "on_alarm" not in settings else i for i in range(len(rows))]
    whole, single, parts = (new(wait=30, most=most, **settings) for _ in range(3))
    path = whole.extend(rows, ids, times)
    steps = [single.update(*row) for row in zip(rows, ids, times, strict=True)]
    assert [list(column) for column in zip(*steps, strict=True)] == [column.tolist() for column in path[:3]]
    for first in range(0, len(rows), 7):
        part = slice(first, first + 7)
        parts.extend(rows[part], ids[part], times[part])
    assert state(whole) == state(single) == state(parts)
    assert whole.left_out.expired > (0 if most == 3 else 10)
    assert (whole._labelled.lines.run > 1) == (most == 3)
    assert (whole.test > 1) == ("on_alarm" in settings)


def test_a_batch_of_late_rows_that_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    monitor = new(wait="forever", bins=8)

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(monitor, "_bet", interrupt)
    with pytest.raises(KeyboardInterrupt):
        monitor.extend(ROWS[:3], [1, 2, 3])
    monkeypatch.undo()
    with pytest.raises(ValueError, match="interrupted in the middle of a row"):
        monitor.extend(ROWS[:3], [4, 5, 6])
    with pytest.raises(ValueError, match="interrupted in the middle of a row"):
        snapshot.encode(monitor)


def test_without_a_reference_none_is_mentioned() -> None:
    monitor = ex.TableMonitor(schema={"a": "number", "b": ["u", "v"]}, seed=1)
    monitor.extend([{"a": 1.0, "b": "u"}, {"a": None, "b": "u"}, {"a": None, "b": None}])
    found = {finding.name: finding.description for finding in monitor.explain()}
    assert found == {"a": "median 1; missing 67%", "b": "u: 67%"}


def test_a_constant_column_that_begins_to_vary_is_named() -> None:
    for bins in (None, 32):
        monitor = ex.TableMonitor({**TRAIN, "zero": [0.0] * 300}, seed=1, bins=bins)
        monitor.extend({**table(150, 8), "zero": [1.0] * 150})
        assert monitor.rejected_by == ["zero", "full rows"]
        found = {finding.name: finding.description for finding in monitor.explain()}
        assert found["zero"] == "median 1 (reference 0)"


@pytest.mark.parametrize(
    ("bad", "note"),
    [
        (["unknown"], "1 cell of column 'weight' in the reference counts as missing: in row 6 it must be .*'unknown'"),
        ([math.inf, -math.inf], "2 cells of column 'weight' in the reference count as missing: in row 6 it .*got inf"),
        (["n/a", None], "1 cell of column 'weight'"),
        ([None, math.nan], None),
    ],
    ids=str,
)
def test_invalid_cells_of_the_reference_are_noted(bad: list[Any], note: str | None) -> None:
    cells: list[Any] = [*TRAIN["weight"]]
    cells[5 : 5 + len(bad)] = bad
    for label in ("price", "weight"):
        for bins in (None, 8):
            notes = ex.TableMonitor(TRAIN | {"weight": cells}, label, seed=1, bins=bins).schema.notes
            found = [one for one in notes if "weight" in one and "label" not in one]
            assert len(found) == (note is not None)
            assert note is None or re.match(note, found[0])


WIDE = {f"c{i}": [f"v{(i + j) % 16}" for j in range(320)] for i in range(17)} | {"unit": ["kg"] * 320}


def test_more_than_256_features() -> None:
    for reference in (WIDE, {f"x{i}": np.random.default_rng(i).normal(size=40) for i in range(257)}):
        monitor = ex.TableMonitor(reference, seed=1)
        assert {line.kind for line in monitor._lines} == {"column"}
        assert "features, more than 256: each is tested, full rows are not" in monitor.schema.notes[-1]
        with pytest.raises(ValueError, match="columns must be 'each' with more than 256 features, got 'none'"):
            ex.TableMonitor(reference, seed=1, columns="none")
    monitor = ex.TableMonitor(WIDE, seed=1)
    monitor.extend(WIDE | {"unit": ["g"] * 320})
    assert "unit" in monitor.rejected_by
    assert {finding.name: finding.description for finding in monitor.explain()}["unit"] == "kg: 0% (reference 100%)"


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("inputs only: P(y given x) as before", {"inputs", "labels", "rows with labels", "inputs given the label"}),
        ("an input that the label does not depend on", {"inputs"}),
        ("shares of the classes only: P(x given y) as before", {"inputs", "labels"}),
        ("concept only: P(x) and P(y) as before", {"rows with labels", "inputs given the label"}),
    ],
)
def test_the_parts_that_have_moved(kind: str, expected: set[str]) -> None:
    """No part is named that has not moved; moved inputs may change the labels, and the inputs given the label."""
    for seed in (0, 1):
        assert parts(kind, seed) == expected


@pytest.mark.parametrize("bins", [None, 16])
@pytest.mark.parametrize("wait", [None, "forever"])
def test_an_explanation_describes_every_line_and_names_strange_rows(bins: Any, wait: Any) -> None:
    rows = as_rows(table(80, 3))
    rows[40]["weight"] = 50.0
    rows[1]["colour"] = "violet"
    rows[42]["price"] = -300.0
    monitor = new(bins=bins, wait=wait)
    if wait is None:
        monitor.extend(rows)
    else:
        monitor.extend([row | {"price": None} for row in rows], ids=range(80))
        for i in np.random.default_rng(0).permutation(80).tolist():
            monitor.label(i, rows[i]["price"])
    found = {one.name: one for one in monitor.explain()}
    assert all(one.description for one in found.values())
    strangest = {"weight": 41, "label price": 43, "residual of price": 43, "full rows": 41}
    assert {name: found[name].rows[0] for name in strangest} == strangest
    assert {rows[n - 1]["colour"] for n in found["colour"].rows} <= {"rare3", "violet"}  # not in the reference
    assert "(reference -" in found["label price"].description
    assert found["full rows"].description.startswith("distance to the reference: ")
    assert found["residual of price"].part == "rows with labels"
    assert monitor.explain() == snapshot.decode(state(monitor)).explain()
    assert monitor.explain().moved == "There is no evidence of a change."
    assert (monitor.explain().keep_from, monitor.explain().given_label, monitor.alarm_explanation) == (None, None, None)


def test_what_follows_from_an_alarm() -> None:
    monitor, risk = new(), ex.Risk(0.3)
    monitor.extend(ROWS)
    found = monitor.explain(risk)
    assert found.moved.startswith("The inputs have changed.")
    assert found.keep_from is not None
    assert 55 <= found.keep_from <= 75
    assert f"from about row {found.keep_from} on" in str(found)
    assert found.harm.startswith("Harm is neither shown nor ruled out")
    risk.extend([0.0] * 500)
    assert found.harm.startswith("No harm so far: the mean risk is below the limit of 0.3.")
    risk.extend([1.0] * 500)
    assert found.harm.startswith(
        "Harm is shown, unless this is a false alarm: the risk has exceeded the limit of 0.3, "
    )
    assert monitor.explain().harm.startswith("Drift is not harm")


@pytest.mark.parametrize("bins", [None, 8])
def test_the_explanation_of_an_alarm_remains_after_a_restart(bins: Any) -> None:
    train = TRAIN | {"price": [str(x > 1) for x in TRAIN["price"]]}
    rows = [row | {"price": str(row["price"] > 1)} for row in ROWS]
    single, batch = (
        ex.TableMonitor(train, "price", seed=5, bins=bins, alpha=0.2, on_alarm="restart") for _ in range(2)
    )
    latch = ex.TableMonitor(train, "price", seed=5, bins=bins, alpha=0.2)
    assert not single.alarm_explanation
    batch.extend(rows)
    for row in rows:
        single.update(row)
        if single.test == 1 or latch.alarm_at is None:
            latch.update(row)
            then = latch.explain()
        if single.test == 2 and single.n == latch.n:  # the row of the first alarm
            assert single.alarm_explanation == then
            assert single.rejected_by == latch.rejected_by
    assert single.test > 1
    twin = snapshot.decode(state(batch))
    found = [monitor.alarm_explanation or Explanation() for monitor in (single, batch, twin)]
    assert found[0] == found[1] == found[2]
    assert found[0].given_label == found[1].given_label == found[2].given_label
    assert found[0].given_label is not None
    assert {one.name for one in found[0] if one.rejected} == {*single.rejected_by} == {*twin.rejected_by}


@pytest.mark.parametrize("on_alarm", ["latch", "restart"])
def test_no_random_number_is_used_twice_given_the_label(on_alarm: str) -> None:
    """Neither by the runs of one test, nor by the tests after a restart."""
    rng = np.random.default_rng(7)
    data = {"a": rng.normal(size=300), "b": rng.normal(size=300), "y": rng.choice(["p", "q"], 300)}
    monitor = ex.TableMonitor(data, "y", seed=1, on_alarm=on_alarm)
    sources, used = set(), []
    for i in range(120):
        row = {"a": rng.normal() + 4.0 * (i >= 40), "b": rng.normal(), "y": None if i in (20, 80) else "p"}
        monitor.update(row)
        given = monitor._labelled.given
        assert given is not None
        sources.add(given.monitor.pvalues.seed)
        if row["y"] is not None:
            used.append(given.monitor.pvalues.n)  # the position of its theta
    assert (monitor.test > 1) == (on_alarm == "restart")
    assert len(sources) == 1
    assert len(set(used)) == len(used)


def test_a_new_category_and_missing_values_are_values() -> None:
    monitor = ex.TableMonitor({"c": list("aab") * 100, "x": [1.0, 2.0, None] * 100}, seed=1)
    scores = monitor._rows(open_cells([{"c": "z", "x": None}, {"c": None, "x": 1}]), "error")
    assert scores[0].scores.tolist() == [[2.0, LOWEST], [3.0, 1.0]]
    monitor.extend([{"c": "z", "x": None}] * 60)
    found = {finding.name: finding.description for finding in monitor.explain()}
    assert found["c"].startswith("(new): 100% (reference 0%)")
    assert found["x"].startswith("all values are missing (reference 3")
    assert monitor.changepoint is not None
    assert monitor.changepoint <= 3


@pytest.mark.parametrize("kind", ["numbers", "classes"])
@pytest.mark.parametrize("settings", [{}, {"bins": 8}, {"on_alarm": "restart", "alpha": 0.3}], ids=str)
def test_late_labels_give_the_same_evidence_in_every_order(kind: Any, settings: Any) -> None:
    def converted(cells: list[float]) -> list[Any]:
        return cells if kind == "numbers" else [str(cell > 1.0) for cell in cells]

    train = TRAIN | {"price": converted(TRAIN["price"])}
    labels = converted(LIVE["price"][:40])
    rows = [{name: cell for name, cell in row.items() if name != "price"} for row in ROWS[:40]]
    immediate = ex.TableMonitor(train, "price", seed=5, **settings)
    found = []
    for seed in (None, 1, 2):
        monitor = ex.TableMonitor(train, "price", seed=5, wait="forever", **settings)
        order = list(range(40)) if seed is None else np.random.default_rng(seed).permutation(40).tolist()
        monitor.extend(rows[:25], ids=range(25))
        for i in [i for i in order if i < 25]:
            monitor.label(i, labels[i])
        monitor = snapshot.decode(state(monitor))
        for i in range(25, 40):
            monitor.update(rows[i] | {"price": labels[i]}, id=i)
        found.append([(line.name, line.log_evidence, line.alarm_at, line.changepoint) for line in monitor._lines])
        assert monitor.waiting == []
    if "on_alarm" in settings:
        return
    immediate.extend([row | {"price": label} for row, label in zip(rows, labels, strict=True)])
    expected = [(line.name, line.log_evidence, line.alarm_at, line.changepoint) for line in immediate._lines]
    assert found == [expected] * 3


@pytest.mark.parametrize("on_alarm", ["latch", "restart"])
def test_an_alarm_that_a_label_raises_is_recorded_at_once(on_alarm: Any) -> None:
    monitor = ex.TableMonitor(TRAIN, "price", seed=5, wait="forever", on_alarm=on_alarm, bins=16)
    rows = as_rows(table(60, 4))
    monitor.extend([{**row, "price": None} for row in rows], ids=range(60))
    quiet = monitor.alarm_at is None
    raised = next(i for i in range(60) if monitor.label(i, 500.0 + i) and monitor.alarm_at is not None)
    assert quiet
    assert (monitor.alarm_at, (monitor.changepoint or 0) <= 5) == (60, True)
    assert (monitor.test, monitor.last) == (2 if on_alarm == "restart" else 1, (60, monitor.log_max, True))
    assert monitor.waiting == ([] if on_alarm == "restart" else list(range(raised + 1, 60)))
    twin = snapshot.decode(state(monitor))
    for one in (monitor, twin):
        one.label(59, 1.0)  # of the test that has ended, or waiting
        one.update(rows[0], id="next")
    assert state(monitor) == state(twin)


def test_late_labels_are_checked() -> None:
    monitor = new(wait=60)
    monitor.update(ROWS[0] | {"price": None}, id="a", time=0)
    before = state(monitor)
    for arguments, message in [
        (("a", "dear", 1), "label 'price' must be a finite number"),
        (("a", None, 1), "y must be the label of row 'a', got None"),
        (("b", 1.0, 1), "id must be that of a waiting example"),
    ]:
        with pytest.raises(ValueError, match=message):
            monitor.label(*arguments[:2], time=arguments[2])
    for ids in (None, ["c"], ["c", "c"]):
        with pytest.raises(ValueError, match="id"):
            monitor.extend(ROWS[:2], ids=ids, times=[2, 3])
    assert state(monitor) == before
    monitor.update(ROWS[1] | {"price": None}, id="b", time=100)
    assert monitor.waiting == ["b"]
    assert "delay of a label" in monitor.guarantee
    with pytest.raises(ValueError, match="label requires a monitor with wait"):
        new().label("a", 1.0)


def test_a_label_that_comes_again_changes_nothing_but_a_count() -> None:
    monitor = new(wait=60, bins=8, most=2)
    for i in range(2):
        monitor.update(ROWS[i] | {"price": None}, id=i, time=i)
    monitor.label(1, 1.0, time=2)  # waits behind row 0
    assert (monitor.label(1, 1.0, time=2), monitor.ignored_labels, monitor.waiting) == ([], 1, [0, 1])
    assert monitor.label(0, 1.0, time=3) == [0, 1]
    with pytest.raises(ValueError, match="id must be that of a waiting example, got 9"):
        monitor.label(9, 1.0, time=3)  # no row has had this id
    monitor.update(ROWS[2] | {"price": None}, id=2, time=3)
    monitor.never(2)
    monitor.extend([row | {"price": None} for row in ROWS[3:5]], [3, 4], [4, 100])  # row 3 has expired
    monitor = snapshot.decode(state(monitor))
    assert monitor.label(3, 1.0, time=100) == []
    assert monitor.left_out.expired == sum(monitor.left_out.classes.values()) == 1
    for i in range(4):  # tested, never, counted as expired
        assert monitor.label(i, 1.0, time=100) == []
    assert monitor.label(0, 2.0) == []
    assert monitor.ignored_labels == 6
    before = state(monitor)
    with pytest.raises(ValueError, match="label 'price' must be a finite number"):
        monitor.label(0, "dear", time=100)
    assert state(monitor) == before


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_a_pickled_monitor_continues(settings: Any) -> None:
    monitor = new(wait="forever", **settings)
    monitor.extend(ROWS[:50], range(50))
    twin = pickle.loads(pickle.dumps(monitor))
    for one in (monitor, twin):
        one.extend(ROWS[50:], range(50, 100))
    assert state(twin) == state(monitor)


def test_types_are_fixed_by_the_rows_that_fix_the_constants() -> None:
    """A type that only the pool has is not valid, in the pool as in new rows."""
    cells: list[Any] = [0.5 * i for i in range(300)]
    plain = ex.TableMonitor({"a": cells, "b": TRAIN["weight"]}, seed=1)
    order = np.argsort(thetas(1, 0, 300, DIVISION_STREAM), kind="stable")
    cells[order[150]] = True
    monitor = ex.TableMonitor({"a": cells, "b": TRAIN["weight"]}, seed=1)
    assert monitor.schema.columns == plain.schema.columns
    assert "1 cell of column 'a' in the reference counts as missing" in monitor.schema.notes[0]
    with pytest.raises(ValueError, match=r"column 'a' must be .* got True"):
        monitor.update({"a": True, "b": 1.0})


def test_messages_about_cells_and_risks() -> None:
    monitor = new(invalid="missing")
    nan = {"size": Decimal("sNaN"), "colour": Decimal("sNaN"), "count": Decimal("NaN")}
    monitor.update(ROWS[0] | nan)
    assert monitor.invalid_cells == 0
    grades = ex.TableMonitor(TRAIN, seed=1, categorical="count")
    with pytest.raises(ValueError, match="column 'count' must be an integer, got 'A' in row 1"):
        grades.update(ROWS[0] | {"count": "A"})
    with pytest.raises(ValueError, match="risk must be a Risk, got 5"):
        monitor.explain(5)  # type: ignore[arg-type]


def test_rows_may_come_without_the_label() -> None:
    monitor = new()
    monitor.extend({name: cells for name, cells in LIVE.items() if name != "price"})
    lines = zip(monitor._lines, monitor._lines.states(), strict=True)
    steps = [state.martingale.n for line, state in lines if line.kind in ("label", "residual", "labelled rows")]
    assert steps == [0, 0, 0]


@pytest.mark.parametrize("bins", [None, 8])
def test_rows_of_the_reference_may_lack_the_label(bins: Any) -> None:
    labels = [None if i % 3 else str(i % 2) for i in range(300)]
    monitor = ex.TableMonitor(TRAIN | {"price": labels}, "price", seed=1, bins=bins)
    assert "label 'price' is missing in the reference" in monitor.schema.notes[-1]
    monitor.extend([row | {"price": str(i % 2) if i < 60 else "new"} for i, row in enumerate(ROWS + ROWS)])
    assert "label price" in monitor.rejected_by  # compared with the rows before


def labels_used(monitor: ex.TableMonitor) -> int:
    pairs = zip(monitor._lines, monitor._lines.states(), strict=True)
    return next(one.martingale.n for line, one in pairs if line.kind == "label")


def selected(seed: int, **settings: Any) -> tuple[ex.TableMonitor, pd.DataFrame, Any]:
    """A monitor, 500 rows that are exchangeable with its reference, and which of those with y = 1 are delayed."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"a": rng.normal(size=1100), "y": (rng.random(1100) < 0.3).astype(float)})
    slow = (frame["y"] == 1.0) & (rng.random(1100) < 0.6)
    frame = frame.assign(delay=np.where(slow, 500.0, 1.5))
    reference = frame[:600] if "delay" in settings else frame[:600].drop(columns="delay")
    return ex.TableMonitor(reference, "y", seed=seed, bins=16, **settings), frame[600:], slow[600:]


@pytest.mark.parametrize(
    "settings", [{}, {"wait": 100.0}, {"wait": 100.0, "delay": "delay"}, {"wait": "forever"}], ids=str
)
def test_labels_may_be_missing_or_late_depending_on_the_label(settings: Any) -> None:
    """The rows whose labels come in time differ from the reference, and no alarm follows from that."""
    for seed in range(6):
        monitor, rows, slow = selected(seed, **settings)
        if not settings:
            monitor.extend(rows.drop(columns="delay").assign(y=rows["y"].where(~slow)))
        else:
            labels = [(i + late, 1, i) for i, late in enumerate(rows["delay"])]
            for time, kind, i in sorted([(float(i), 0, i) for i in range(500)] + labels):
                if kind == 0:
                    monitor.update({"a": rows["a"].iloc[i]}, id=i, time=time)
                elif monitor.wait != "forever":
                    monitor.label(i, rows["y"].iloc[i], time=time)
                else:
                    monitor.never(i) if slow.iloc[i] else monitor.label(i, rows["y"].iloc[i], time=time)
        assert monitor.alarm_at is None, monitor.rejected_by
        left_out = monitor.left_out
        assert left_out.expired + left_out.never > 50
        assert "depends on its own example only" in monitor.guarantee
        assert monitor._lines.run == (0 if "delay" in settings else 1)
        assert monitor.compares_labels == ("delay" in settings)
        assert ("labels compared with", "the reference" if "delay" in settings else "earlier rows") in monitor.parts()
        assert labels_used(monitor) > 200


def test_a_run_begins_with_the_first_row_that_is_left_out() -> None:
    """The same evidence whether the label is missing in the row, or never comes; alarms before it stay."""
    rows = [row | {"price": None if i in (23, 31) else row["price"]} for i, row in enumerate(ROWS)]
    single, batch, late = new(), new(), new(wait="forever")
    assert single.compares_labels
    for row in rows:
        single.update(row)
    batch.extend(rows)
    late.extend([row | {"price": None} for row in rows], ids=range(100))
    for i in np.random.default_rng(0).permutation(100).tolist():
        late.label(i, rows[i]["price"]) if rows[i]["price"] is not None else late.never(i)
        late = snapshot.decode(state(late))
    found = [list(monitor._lines) for monitor in (single, batch, late)]
    assert found[0] == found[1] == found[2]
    assert {(m._lines.run, labels_used(m)) for m in (single, batch, late)} == {(1, 98)}
    assert state(snapshot.decode(state(batch))) == state(batch)
    begun = ex.TableMonitor(schema=new().schema, seed=5)  # a run has half of the weight, and the next a sixth
    begun.extend([rows[23]])
    levels = [vars(m._lines.states()[-2].alarm)["alpha"] for m in (new(), begun, batch)]
    assert levels == pytest.approx([levels[0], levels[0], levels[0] / 3])
    kept = new()
    kept.extend([row | {"price": 1e6} for row in ROWS[:20]])
    before = {line.name: line.alarm_at for line in kept._lines if line.kind == "label"}
    kept.extend([row | {"price": None} for row in ROWS[:5]])
    assert before == {line.name: line.alarm_at for line in kept._lines if line.kind == "label"} != {"label price": None}


def test_a_full_queue_begins_a_run_and_columns_are_tested() -> None:
    monitor, free = new(wait="forever", most=8), new(wait="forever")
    rows = [row | {"price": None} for row in ROWS]
    free.extend(rows, ids=range(100))
    for i, row in enumerate(rows[:50]):
        monitor.update(row, id=i)
    monitor = snapshot.decode(state(monitor))
    monitor.extend(rows[50:], ids=range(50, 100))
    assert monitor.waiting == [96, 97, 98, 99]
    columns = [[x.log_evidence for x in m._lines if x.kind in ("column", "component", "rows")] for m in (monitor, free)]
    assert columns[0] == columns[1]
    assert monitor._lines.run == 12
    assert monitor.label(95, 1.0) == monitor.label(95, 1.0) == monitor.never(95) == []  # no longer waits
    assert monitor.label(96, 1.0) == [96]
    assert monitor.never(97) == []
    with pytest.raises(ValueError, match="id must be that of a waiting example, got 'x'"):
        monitor.never("x")
    with pytest.raises(ValueError, match="never requires a monitor with wait"):
        new().never(1)
    with pytest.raises(ValueError, match="most must be an integer"):
        new(wait="forever", most=0)


@pytest.mark.parametrize(
    ("delays", "message"),
    [
        ([-1.0] * 300, "delay 'delay' must not be negative, got -1 in row 1 of the reference"),
        (["soon"] * 300, "delay 'delay' must be a finite number .*got 'soon' in row 1 of the reference"),
        (None, "delay must be a column of the reference besides the label, got 'delay'"),
    ],
    ids=str,
)
def test_a_column_of_delays_is_checked(delays: Any, message: str) -> None:
    train = TRAIN if delays is None else TRAIN | {"delay": delays}
    with pytest.raises(ValueError, match=message):
        ex.TableMonitor(train, "price", wait=60, delay="delay")
    with pytest.raises(ValueError, match="delay requires a reference and wait, got 'delay' without them"):
        ex.TableMonitor(train, "price", delay="delay")


def test_a_schema_takes_the_place_of_a_reference() -> None:
    other = ex.TableMonitor(schema=new().schema, seed=1)
    assert [line.name for line in other._lines] == [line.name for line in new()._lines]
    path = other.extend(ROWS)
    given = ex.TableMonitor(schema={"size": "number", "colour": ["red", "green"]}, seed=1)
    given.extend({name: LIVE[name] for name in ("size", "colour")})
    assert [line.name for line in given._lines] == ["size", "colour"]
    assert "reference" not in given.guarantee
    assert path.n[-1] == given.n == 100
    assert state(snapshot.decode(state(given))) == state(given)


def forge(tree: Any, path: Any, value: Any) -> None:
    *parents, last = path
    for key in parents:
        tree = tree[key]
    tree[last] = value


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("settings", "bins"), None),
        (("settings", "on_alarm"), "never"),
        (("settings", "invalid_cells"), -1),
        (("settings", "ignored_labels"), None),
        (("settings", "seed"), 6),
        (("schema", "columns"), []),
        (("schema", "offsets"), np.zeros(1)),
        (("schema", "sample"), np.zeros((0, 9))),
        (("schema", "scales"), np.full(9, np.inf)),
        (("fresh",), []),
        (("lines",), []),
        (("lines", 0), (1, 2, 3, 0.0, 0, None, None, None)),
        (("record",), (np.zeros(6, np.int64), np.zeros(2), np.zeros((2, 2)))),
        (("last",), (99, 0.0, True)),
        (("dropped",), [None]),
    ],
    ids=lambda value: ".".join(map(str, value)) if isinstance(value, tuple) and value else None,
)
def test_hostile_states_are_refused(path: Any, value: Any) -> None:
    monitor = new(bins=8)
    monitor.extend(ROWS[:5])
    fields = copy.deepcopy(monitor._get_state())
    forge(fields, path, value)
    with pytest.raises((ValueError, TypeError, LookupError, AttributeError)):  # snapshot words all of them
        ex.TableMonitor._from_state(**fields)


def test_hostile_places_of_categories_are_refused() -> None:
    monitor = new()
    fields = monitor._get_state()
    fields["record"][2][0, 3] = 1e18
    with pytest.raises(ValueError, match="places of categories"):
        ex.TableMonitor._from_state(**fields)


def test_extreme_numbers_are_no_error() -> None:
    rng = np.random.default_rng(0)
    for scale in (1e-300, 1e-140, 1.0, 1e140):
        train = {
            "a": (rng.normal(size=90) * scale).tolist(),
            "b": rng.normal(size=90).tolist(),
            "y": [1e150, -1e150, 0.0] * 30,
        }
        for bins in (None, 8):
            monitor = ex.TableMonitor(train, "y", seed=1, bins=bins)
            path = monitor.extend({"a": [1e150, -1e150, 0.0], "b": [-1e150, 1e150, 5e-324], "y": [1e150, -1e150, None]})
            assert np.isfinite(path.log_value).all()


@pytest.mark.parametrize("bins", [None, 32])
@pytest.mark.parametrize(("name", "column", "label"), [("iris", "sepal width (cm)", None), ("wine", "hue", "target")])
def test_a_shift_in_a_real_table_is_found_where_it_is(name: str, column: str, label: Any, bins: Any) -> None:
    datasets = pytest.importorskip("sklearn.datasets", reason="the extra 'sklearn' is not installed")
    frame = getattr(datasets, f"load_{name}")(as_frame=True).frame.sample(frac=1, random_state=2)
    frame = frame if label else frame.drop(columns="target")
    train, rows = frame[: len(frame) // 2], frame[len(frame) // 2 :].copy()
    assert ex.TableMonitor(train, label, bins=bins, seed=1).extend(rows).alarm.any() == np.False_
    rows.iloc[25:, frame.columns.get_loc(column)] += 2.5 * frame[column].std()
    monitor = ex.TableMonitor(train, label, bins=bins, seed=1)
    monitor.extend(rows)
    first = monitor.explain()[0]
    assert (monitor.rejected_by[0], first.name, first.part) == (column, column, "inputs")
    assert first.changepoint is not None
    assert abs(first.changepoint - 25) <= 10
    card = monitor._repr_html_()
    assert "ALARM at example" in card
    assert f"{column}: ALARM" in card
