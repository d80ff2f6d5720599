"""The schema step: how the columns and rows of real tables are treated, whatever the order of the rows."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from exchangeable.data.errors import ColumnError, DataError
from exchangeable.data.pair import prepare_pair
from exchangeable.data.roles import MAX_CATEGORIES, MIN_SORTED
from exchangeable.data.schema import Preparation, prepare
from exchangeable.data.sparse import PROJECTIONS, project
from exchangeable.data.table import Table
from exchangeable.data.times import numeric_times, parse_times
from exchangeable.data.values import read_text

N = 40
RNG = np.random.default_rng(0)


def table(data: Any, **how: Any) -> Table:
    return prepare(data, Preparation(**how)).table


def treatments(data: Any, **how: Any) -> dict[str, str]:
    return dict(table(data, **how).treatments)


def values(data: Any, **how: Any) -> dict[str, list[Any]]:
    """Return the columns of the table by name; categories as text."""
    return {
        column.name: [column.categories[int(i)] for i in column.values] if column.categories else column.values.tolist()
        for column in table(data, **how).columns
    }


def frame(seed: int = 0) -> pd.DataFrame:
    """Return a frame with a column of each kind that real tables have."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "number": rng.normal(size=N),
            "count": rng.integers(0, 5, N),
            "hole": np.where(rng.random(N) < 0.3, np.nan, rng.normal(size=N)),
            "group": pd.Series(rng.choice(["b", "a", "c"], N)).where(rng.random(N) < 0.8),
            "flag": rng.random(N) < 0.5,
            "answer": rng.choice(["yes", "no"], N),
            "key": rng.permutation(N) + 1000,
            "name": [f"person {i}" for i in rng.permutation(N)],
            "day": pd.to_datetime("2024-03-01") + pd.to_timedelta(rng.permutation(N), "D"),
            "text day": [f"2024-03-{i % 28 + 1:02}" for i in rng.permutation(N)],
            "nothing": [None] * N,
            "fixed": 1.0,
        }
    )


# ---------------------------------------------------------------------------------------------------- kinds of columns


def test_each_kind_of_column_is_treated_by_its_rule() -> None:
    assert treatments(frame()) == {
        "number": "numbers",
        "count": "numbers",
        "hole": "numbers",
        "group": "categories",
        "flag": "numbers",
        "answer": "numbers",
        "key": "set aside: identifiers",
        "name": "set aside: text",
        "day": "time",
        "text day": "time",
        "nothing": "set aside: no values",
        "fixed": "numbers",
        "hole is missing": "added: whether a value is missing",
    }


def as_table_of(library: str, data: pd.DataFrame) -> Any:
    if library == "polars":
        return pl.from_pandas(data)
    if library == "pyarrow":
        return pa.Table.from_pandas(data, preserve_index=False)
    if library == "nullable":
        return data.convert_dtypes()
    if library == "rows":
        return data.astype(object).where(data.notna(), None).to_dict("records")
    return {name: data[name].tolist() for name in data} if library == "mapping" else data.to_records(index=False)


@pytest.mark.parametrize("library", ["polars", "pyarrow", "nullable", "rows", "mapping", "records"])
def test_libraries_agree(library: str) -> None:
    data = frame()
    first, second = table(data), table(as_table_of(library, data))
    assert dict(second.treatments) == dict(first.treatments)
    for one, other in zip(first.columns, second.columns, strict=True):
        assert (one.name, one.categories) == (other.name, other.categories)
        np.testing.assert_array_equal(one.values, other.values)
    assert second.notes == first.notes


@given(seed=st.integers(0, 10**6), columns=st.permutations(range(12)))
def test_the_order_of_rows_and_columns_does_not_matter(seed: int, columns: list[int]) -> None:
    """A permuted table has the same values, permuted: no rule looks at the order (no column here is sorted)."""
    data = frame(seed)
    rows = np.random.default_rng(seed).permutation(N)
    first, second = table(data), table(data.iloc[rows, columns].reset_index(drop=True))
    assert dict(second.treatments) == dict(first.treatments)
    permuted = {column.name: column for column in second.columns}
    for column in first.columns:
        np.testing.assert_array_equal(column.values[rows], permuted[column.name].values)
        assert column.categories == permuted[column.name].categories


@pytest.mark.parametrize(
    ("cells", "expected"),
    {
        "decimals": ([Decimal("1.5"), Decimal("2.5")] * 9, [1.5, 2.5] * 9),
        "durations": ([dt.timedelta(hours=1), dt.timedelta(days=1)] * 9, [3600.0, 86400.0] * 9),
        "times of the day": ([dt.time(1, 30), dt.time(0, 0, 1)] * 9, [5400.0, 1.0] * 9),
        "text numbers": (["1", " 2.5 "] * 9, [1.0, 2.5] * 9),
        "codes stay text": (["007", "123"] * 9, ["007", "123"] * 9),
        "large integers are codes": ([2**60, 2**61] * 9, [str(2**60), str(2**61)] * 9),
        "booleans": ([True, False] * 9, [1.0, 0.0] * 9),
        "words": (["Yes", "no"] * 9, [1.0, 0.0] * 9),
        "missing booleans": ([True, None] * 9, ["True", "(missing)"] * 9),
        "missing text": (["u", None] * 9, ["u", "(missing)"] * 9),
        "numbers and text": ([1, "u", 2.0] * 6, ["1", "u", "2"] * 6),
    }.values(),
    ids=lambda value: "",
)
def test_python_objects_are_read(cells: list[Any], expected: list[Any]) -> None:
    assert values({"a": cells})["a"] == expected
    assert values(pd.DataFrame({"a": pd.Series(cells, dtype=object)}))["a"] == expected


def test_categories_that_look_like_numbers_stay_categories() -> None:
    codes = pd.Categorical([3, 1, 1, None] * 5)
    assert values(pd.DataFrame({"c": codes}))["c"] == ["3", "1", "1", "(missing)"] * 5
    enum = pl.Series(["3", "1"] * 5, dtype=pl.Enum(["1", "3"]))
    assert values(pl.DataFrame({"c": enum}))["c"] == ["3", "1"] * 5


@pytest.mark.parametrize("gap", [0, 3])
def test_periods_are_times_wherever_one_is_missing(gap: int) -> None:
    weeks = pd.Series(pd.period_range("2020-01-06", periods=6, freq="W"))
    weeks[gap] = pd.NaT
    assert treatments(pd.DataFrame({"week": weeks, "x": [1, 2, 1, 1, 2, 1]})) == {"week": "time", "x": "numbers"}


def test_integers_beyond_floats_may_stand_among_text() -> None:
    assert set(values({"a": ["u", 10**400, 2**53 + 1] * 5})["a"]) == {"u", str(10**400), str(2**53 + 1)}


def test_arrays_of_objects_and_structured_arrays() -> None:
    assert values(np.array([["a", 1], ["b", 2]], object)) == {"x0": ["a", "b"], "x1": [1.0, 2.0]}
    structured = np.array([("a", 1.0), ("b", 2.0)], [("name", "U1"), ("size", float)])
    assert values(structured) == {"name": ["a", "b"], "size": [1.0, 2.0]}
    assert values(np.array(["2024-01-01", "2024-01-02"], "M8[D]"), keep="x0")["x0"] == [1704067200.0, 1704153600.0]
    masked = np.ma.masked_array([1.0, 2.0, 4.0], [False, True, False])
    assert values(masked) == {"x0": [1.0, 2.5, 4.0], "x0 is missing": ["no", "yes", "no"]}


def test_lists_and_dictionaries_in_cells_are_set_aside() -> None:
    for nested in ([1, 2], {"u": 1}, b"u"):
        data = {"a": [1.0, 2.0, 1.5], "b": [nested] * 3}
        assert treatments(data)["b"] == "set aside: nested values"
        assert treatments(pl.DataFrame(data))["b"] == "set aside: nested values"


# ------------------------------------------------------------------------------------------------------ missing values


def test_thousands_of_digits_are_text() -> None:
    """Python does not parse integers of so many digits."""
    items: list[str | None] = ["1", "2", "9" * 5000]
    assert read_text("a", items).kind == "text"


def test_missing_numbers_become_the_median_and_a_column() -> None:
    read = values({"a": [5.0, math.nan, 1.0, 2.0], "b": [1.0, 2.0, 3.0, 4.0]})
    assert read == {"a": [5.0, 2.0, 1.0, 2.0], "b": [1.0, 2.0, 3.0, 4.0], "a is missing": ["no", "yes", "no", "no"]}


def test_columns_that_are_missing_together_share_an_indicator() -> None:
    holes = [1.0, None, 3.0, None]
    assert list(values({"a": holes, "b": holes, "c": holes[::-1]})) == [
        *("a", "b", "c"),
        *("a (and 1 more) is missing", "c is missing"),
    ]


def test_the_name_of_an_indicator_does_not_depend_on_the_order_of_columns() -> None:
    holes = {"b": [1.0, None, 3.0], "a": [4.0, None, 5.0]}
    assert list(values(holes))[-1] == list(values(dict(reversed(holes.items()))))[-1] == "a (and 1 more) is missing"


def test_a_column_may_already_have_the_name_of_an_indicator() -> None:
    assert list(values({"a": [1.0, None], "a is missing": [3.0, 4.0]})) == ["a", "a is missing", "a is missing'"]
    label = table({"a": [1.0, None] * 4, "a is missing": [*"uvvu"] * 2}, label="a is missing")
    assert [column.name for column in label.columns] == ["a", "a is missing'"]


def test_labels_have_a_name_of_their_own() -> None:
    read = table({"label": [1.0, 2.0, 1.0, 1.0]}, label=[*"uvvu"])
    assert read.treatments == {"label": "numbers", "label'": "label"}


def test_rows_with_missing_values_are_dropped_on_request() -> None:
    data = {"a": [1.0, None, 3.0, 4.0, 5.0], "b": ["u", "v", None, "u", "v"], "c": [None, "x", "x", "x", "y"]}
    read = table(data, missing="drop")
    assert read.rows is not None
    assert read.rows.tolist() == [4, 5]
    assert "3 rows with missing values were left out" in read.notes


def test_missing_values_are_an_error_on_request() -> None:
    message = "values are missing in 'a' \\(1, first in row 2\\); 'b' \\(1, first in row 3\\)"
    with pytest.raises(DataError, match=message):
        table({"a": [1.0, None, 3.0], "b": ["u", "v", None], "c": [1.0, 2.0, 3.0]}, missing="error")


def test_rows_of_missing_values_are_those_of_the_data() -> None:
    with pytest.raises(DataError, match="'a' \\(1, first in row 3\\)"):
        table({"a": [1.0, 2.0, None, 4.0], "y": [None, "u", "v", "u"]}, label="y", missing="error")


def test_two_sets_leave_out_rows_by_the_same_columns() -> None:
    """The column is too varied for categories in the second set alone, but not in both together."""
    coat = [f"coat {i % 12}" for i in range(200)]
    first, second = {"coat": [None, *coat], "x": [*range(201)]}, {"coat": [None, *coat[:12]], "x": [*range(13)]}
    pair = prepare_pair(first, second, Preparation(missing="drop"))
    assert (pair.start, pair.prepared.table.n) == (200, 212)
    assert {column.name: column.categorical for column in pair.prepared.table.columns} == {"coat": True, "x": False}


def test_what_text_holds_is_decided_by_both_sets() -> None:
    """The word occurs once in the second set, in which it would be a number that cannot be read."""
    first, second = [*"1234" * 10, "5+", "5+"], [*"1234" * 5, "5+"]
    pair = prepare_pair({"c": first, "x": [*range(42)]}, {"c": second, "x": [*range(21)]}, Preparation())
    assert (pair.differences, pair.prepared.table.columns[0].categories) == ([], ("1", "2", "3", "4", "5+"))
    with pytest.raises(DataError, match=r"current: .* 'c' \(1: '\?' in row 2\)"):
        prepare_pair({"c": [*"1234" * 10]}, {"c": ["1", "?", *"1234" * 5]}, Preparation())
    codes = prepare_pair({"c": [*"1234" * 10]}, {"c": ["07", *"1234" * 5]}, Preparation())
    assert codes.prepared.table.columns[0].categories == ("07", "1", "2", "3", "4")
    one, two = (pd.DataFrame({"c": pd.Categorical(cells)}) for cells in (first, second))
    assert prepare_pair(one, two, Preparation()).prepared.table.columns[0].categorical


def test_rows_without_a_label_are_left_out_and_counted() -> None:
    data = {"a": [1.0, 2.0, 3.0, 4.0, 5.0], "y": ["u", None, "v", "u", None]}
    read = table(data, label="y")
    assert read.y == ["u", "v", "u"]
    assert read.columns[0].values.tolist() == [1.0, 3.0, 4.0]
    assert read.rows is not None
    assert read.rows.tolist() == [1, 3, 4]
    assert read.notes == ("2 rows without a label were left out",)
    assert table({"a": data["a"]}, label=data["y"]).y == ["u", "v", "u"]


def test_all_cells_that_cannot_be_used_are_listed() -> None:
    data = {"a": [*map(str, range(19)), "?"], "b": [math.inf, *[1.0] * 18, 1e200], "c": [1.0, 2.0] * 10}
    with pytest.raises(DataError) as caught:
        table(data)
    assert "'a' (1: '?' in row 20); 'b' (2: 'inf' in row 1, '1e+200' in row 20)" in str(caught.value)
    assert values(data, invalid="missing")["b is missing"] == ["yes", *["no"] * 18, "yes"]
    assert values(data, drop=["a", "b"]) == {"c": [1.0, 2.0] * 10}


def test_few_numbers_and_words_are_categories() -> None:
    read = table({"cylinders": ["4", "6", "8"] * 9 + ["rotary"] * 2})
    assert read.columns[0].categories == ("4", "6", "8", "rotary")
    assert read.notes == (
        "column 'cylinders': the values were read as categories, since some are not numbers, such as 'rotary'",
    )
    with pytest.raises(DataError, match="'rotary' in row 28"):
        table({"cylinders": ["4", "6", "8"] * 9 + ["rotary"]})


def test_text_with_some_numbers_stays_text() -> None:
    """The tickets of the Titanic are mostly numbers, and still text."""
    assert treatments({"ticket": ["113803", "A/5 21171", "113803", "17463"] * 9})["ticket"] == "categories"


# ------------------------------------------------------------------------------------------------------ times and order


@pytest.mark.parametrize(
    ("texts", "first"),
    [
        (["2024-01-31", "2024-02-01"], "2024-01-31"),
        (["2024-01-31 10:00", "2024-02-01 11:30"], "2024-01-31T10:00"),
        (["2024-01-31T10:00:00Z", "2024-02-01T00:00:00+02:00"], "2024-01-31T10:00"),
        (["31.01.2024", "01.02.2024"], "2024-01-31"),
        (["1/31/2024", "2/1/2024"], "2024-01-31"),
        (["31/1/2024", "1/2/2024"], "2024-01-31"),
        (["Jan 31 2024", "Feb 1 2024"], "2024-01-31"),
        (["31-Jan-24", "01-Feb-24"], "2024-01-31"),
        (["2024-01", "2024-02"], "2024-01-01"),
        (["1024-01-31", "2024-02-01"], "1024-01-31"),
        (["2024 Jan", "2024 Feb"], "2024-01-01"),
        (["Jan-31-2024", "Feb-1-2024"], "2024-01-31"),
        (["2024Q2", "2024 Q3", "2024-Q4"], "2024-04-01"),
        (["2024-01-31", "2024-2-1"], "2024-01-31"),
        (["1/31/2024 10:00:00 PM", "2/1/2024 9:00:00 AM"], "2024-01-31T22:00"),
    ],
)
def test_dates_in_common_formats_are_parsed(texts: list[str], first: str) -> None:
    parsed = parse_times([*texts, None])
    assert parsed is not None
    assert parsed.values[0] == np.datetime64(first)
    assert np.isnat(parsed.values[-1])
    assert parsed.note == ("the times were converted to UTC" if "+02:00" in texts[-1] else "")


@pytest.mark.parametrize("text", ["u", "1234-12", "12", "1.5", "12 monkeys", "2024-13-01", "10:30", "", "2024-1"])
def test_other_text_is_not_a_date(text: str) -> None:
    assert parse_times(["2024-01-31", text]) is None
    assert parse_times([text]) is None
    assert parse_times([text, "2024-01-31"]) is None


def test_an_ambiguous_date_is_noted() -> None:
    parsed = parse_times(["3/4/2024", "5/6/2024"])
    assert parsed is not None
    assert "month before the day" in parsed.note
    assert "month before the day" in " ".join(table({"a": [1.0, 2.0], "d": ["3/4/2024", "5/6/2024"]}).notes)


def test_epochs_are_times_if_they_are_named_so() -> None:
    seconds = 1_700_000_000
    for factor in (1, 10**3, 10**6, 10**9):
        data = {"timestamp": [seconds * factor, (seconds + 1) * factor], "a": [1.0, 2.0]}
        read = table(data)
        assert read.times is not None
        assert read.times[0] == np.datetime64("2023-11-14T22:13:20")
        assert treatments(data | {"t": data["timestamp"]})["t"] != "time"
    assert numeric_times("timestamp", np.array([1.0, 2.0])) is None


@pytest.mark.parametrize("kind", ["int32", "uint32", "int64", "uint64", "float64"])
def test_epochs_of_every_type_are_the_same_times(kind: str) -> None:
    """A product of 32-bit integers would wrap around, without a warning."""
    times = numeric_times("timestamp", np.array([1_700_000_000, 1_500_000_000], kind))
    assert times is not None
    assert times.tolist() == [dt.datetime(2023, 11, 14, 22, 13, 20), dt.datetime(2017, 7, 14, 2, 40)]
    data = {"timestamp": np.array([1_700_000_000, 1_500_000_000, 1_600_000_000], kind), "a": [1.0, 2.0, 3.0]}
    assert table(data, order="timestamp").columns[0].values.tolist() == [2.0, 3.0, 1.0]


def test_dates_may_be_written_as_numbers() -> None:
    read = table({"date": [20240131, 20240229], "a": [1.0, 2.0]})
    assert read.times is not None
    assert read.times.tolist() == [dt.datetime(2024, 1, 31), dt.datetime(2024, 2, 29)]
    for cells in ([20240131, 20240230], [20240131, 20241301], [2000.083, 2000.167], [1, 2]):
        assert treatments({"date": cells, "a": [1.0, 2.0]})["date"] == "numbers"


def test_time_zones_are_converted_to_utc() -> None:
    times = pd.date_range("2024-03-30 23:30", periods=3, freq="h", tz="Europe/Paris")
    for cells in (times, times.to_list(), [time.isoformat() for time in times]):
        data = pd.DataFrame({"t": cells, "a": [1.0, 3.0, 2.0]})
        read = table(data)
        assert read.times is not None
        assert read.times[0] == np.datetime64("2024-03-30T22:30")
        assert read.notes == ("column 't': the times were converted to UTC",)


def test_the_index_of_pandas_is_the_time_axis() -> None:
    for index in (pd.date_range("2024-01-01", periods=3), pd.period_range("2024-01", periods=3, freq="M")):
        read = table(pd.DataFrame({"a": [1.0, 2.0, 3.0]}, index=index))
        assert read.times is not None
        assert (read.times[0], read.time_name) == (np.datetime64("2024-01-01"), "the index")


def test_order_sorts_by_a_column() -> None:
    data = {"a": [1.0, 2.0, 3.0, 4.0], "day": ["2024-01-03", "2024-01-01", None, "2024-01-02"]}
    read = table(data, order="day")
    assert read.columns[0].values.tolist() == [2.0, 4.0, 1.0]
    assert read.rows is not None
    assert read.rows.tolist() == [2, 4, 1]
    assert read.time_name == "day"
    assert read.notes == ("1 row without a value to sort by was left out",)


def test_a_column_without_values_cannot_sort() -> None:
    with pytest.raises(DataError, match="order must name a column of times, numbers or text, got 'when'"):
        table({"when": [None] * 4, "x": [1.0, 2.0, 3.0, 4.0]}, order="when")


def test_rows_with_equal_times_are_put_into_random_order_by_the_seed() -> None:
    data = {"a": np.arange(200.0) % 7, "t": [1] * 200}
    orders: Any = [prepare(data, Preparation(order="t"), seed=seed).table.rows for seed in (1, 1, 2)]
    np.testing.assert_array_equal(orders[0], orders[1])
    assert not np.array_equal(orders[0], orders[2])
    assert not np.array_equal(orders[0], np.arange(1, 201))


def test_times_that_are_not_sorted_are_noted() -> None:
    data: dict[str, list[Any]] = {"a": [1.0, 2.0, 3.0], "day": ["2024-01-03", "2024-01-01", "2024-01-02"]}
    assert "the times in 'day' are not sorted" in table(data).notes[-1]
    assert "descending" in table(data | {"day": sorted(data["day"], reverse=True)}).notes[-1]
    assert table(data | {"day": sorted(data["day"])}).notes == ()


# ------------------------------------------------------------------------------------ identifiers, sorted columns, text


def test_sorted_columns_are_set_aside_with_ten_different_values() -> None:
    noise = RNG.normal(size=MIN_SORTED)
    for ascending in (np.arange(MIN_SORTED), -(np.arange(MIN_SORTED) ** 2.0)):
        read = table({"a": noise, "year": ascending})
        assert (read.treatments["year"], read.sorted_aside) == ("set aside: sorted", 1)
    few = {"a": noise[:-1], "year": np.arange(MIN_SORTED - 1)}
    assert treatments(few)["year"] == "numbers"
    letters = {"a": np.tile(noise, 2), "letter": list("aabbccddeeffgghhiijj")}
    assert treatments(letters)["letter"] == "set aside: sorted"


def test_years_that_are_sorted_are_the_time_axis() -> None:
    read = table({"a": RNG.normal(size=N), "year": [*range(1990, 1989 + N), None]})
    assert read.treatments["year"] == "set aside: sorted"
    assert read.times is not None
    assert (read.time_name, read.times[0]) == ("year", np.datetime64("1990-01-01"))
    assert np.isnat(read.times[-1])
    few = {"a": RNG.normal(size=N), "year": np.repeat([2023, 2024], N // 2)}
    assert treatments(few)["year"] == "set aside: sorted"  # by chance with probability 2 / binomial(40, 20)
    assert treatments(few | {"year": RNG.permutation(few["year"])})["year"] == "numbers"
    assert treatments({"a": [1.0, 3.0, 2.0], "year": [2023, 2023, 2024]})["year"] == "numbers"  # may well be chance
    assert treatments(few | {"years": few["year"] - 2000})["years"] == "numbers"


def test_parts_of_dates_are_set_aside_beside_a_date() -> None:
    data = {"a": RNG.normal(size=N), "month": RNG.integers(1, 13, N), "dep_hour": RNG.integers(0, 24, N)}
    assert treatments(data)["month"] == "numbers"
    for date in ({"year": RNG.choice([2023, 2024], N)}, {"date": ["2024-01-31"] * N}):
        found = treatments(data | date | {"day": RNG.choice(["Sun", "Mon"], N)})
        assert (found["month"], found["dep_hour"]) == ("set aside: part of a date",) * 2
        assert found["day"] == "categories"
        assert treatments(data | date | {"month": data["month"] * 2})["month"] == "numbers"
        assert treatments(data | date, keep="month")["month"] == "numbers"


def test_columns_in_keep_are_tested() -> None:
    data = {"a": RNG.normal(size=N), "year": np.arange(N), "day": [f"2024-01-{i % 28 + 1:02}" for i in range(N)]}
    read = table(data, keep=["year", "day"])
    assert dict(read.treatments) == {"a": "numbers", "year": "numbers", "day": "numbers"}
    assert read.sorted_aside == 0
    assert treatments(data, keep="year")["year"] == "numbers"


def test_a_sorted_column_is_tested_beside_a_constant() -> None:
    """There is nothing to test in a constant column."""
    data = {"a": [*range(20)], "b": [1.0] * 20}
    assert treatments(data) == {"a": "numbers", "b": "numbers"}
    assert treatments({**data, "b": [1.0, None] * 10})["a"] == "set aside: sorted"


def test_a_sorted_column_is_tested_if_nothing_else_is_left() -> None:
    assert treatments(np.arange(50.0)) == {"x0": "numbers"}
    assert treatments({"day": ["2024-01-01"] * 50, "a": np.arange(50)})["a"] == "numbers"
    assert treatments({"id": RNG.permutation(50)})["id"] == "numbers"


@pytest.mark.parametrize(
    ("name", "cells", "aside"),
    [
        ("rank", RNG.permutation(N), False),  # a lottery: the order of the numbers is what matters
        ("row", RNG.permutation(N), True),
        ("row", RNG.permutation(N) + 0.5, False),
        ("ID", RNG.permutation(N), True),
        ("district_id", RNG.permutation(N), True),
        ("population", RNG.permutation(N) ** 3, False),  # distinct integers may well be measurements
        ("customer_id", RNG.permutation(N) ** 3, True),
        ("customerId", RNG.permutation(N) ** 3, True),
        ("humid", RNG.permutation(N) ** 3, False),
        ("id", np.minimum(RNG.permutation(N), N - 10), False),
        ("id", RNG.permutation(10), False),  # too few to tell
        ("Unnamed: 0", [f"row {i}" for i in RNG.permutation(8)], True),
        ("Unnamed: 0", [1, 1, 2, 2, 3, 3, 4, 4], False),
    ],
)
def test_identifiers(name: str, cells: Any, aside: bool) -> None:
    noise = RNG.normal(size=len(cells))
    assert treatments({name: cells, "a": noise})[name].startswith("set aside") == aside


def test_text_with_many_values_is_set_aside() -> None:
    def many(different: int, n: int) -> Any:
        return {"a": RNG.normal(size=n), "text": [f"{i % different} words" for i in RNG.permutation(n)]}

    assert treatments(many(9, 10))["text"] == "categories"
    assert treatments(many(8, 8))["text"] == "set aside: text"  # no value twice
    assert treatments(many(4, 4))["text"] == "categories"
    assert treatments(many(20, 40))["text"] == "categories"
    assert treatments(many(21, 40))["text"] == "set aside: text"
    assert treatments(many(MAX_CATEGORIES, 3 * MAX_CATEGORIES))["text"] == "categories"
    assert treatments(many(MAX_CATEGORIES + 1, 3 * MAX_CATEGORIES))["text"] == "set aside: many categories"
    with pytest.raises(DataError, match="at most 1,000 categories, got 1,001"):
        table(many(MAX_CATEGORIES + 1, 3 * MAX_CATEGORIES), keep="text")


def test_rows_that_are_all_equal_are_an_error() -> None:
    with pytest.raises(DataError, match="must have rows that differ, got 3 rows that are all equal"):
        table({"a": [1.0] * 3, "b": ["u"] * 3})
    assert table({"a": [1.0] * 3}, label=["u", "v", "u"]).y == ["u", "v", "u"]


def test_nothing_that_can_be_tested_is_an_error() -> None:
    with pytest.raises(DataError, match=r"must have a column that can be tested, got none: 'a' \(no values\), 'd' \(t"):
        table({"a": [None, None], "d": ["2024-01-01", "2024-01-02"]})


# ------------------------------------------------------------------------------------------------------- which columns


def test_names_are_checked_with_a_suggestion() -> None:
    data = {"year": [1.0, 2.0], "value": [3.0, 4.0]}
    for option in ("label", "order", "drop", "keep", "categorical", "features"):
        with pytest.raises(
            ColumnError, match=f"{option} must name a column of the data, got 'yaer'; did you mean 'year'"
        ):
            table(data, **{option: "yaer"})


def test_a_column_has_one_use() -> None:
    data = {"a": [1.0, 2.0], "b": [3.0, 4.0]}
    for first, second in (("drop", "keep"), ("drop", "label"), ("drop", "order"), ("order", "label")):
        with pytest.raises(ColumnError, match="column 'a' is named by"):
            table(data, **{first: "a", second: "a"})


def test_features_chooses_columns() -> None:
    data = {"a": [1.0, 2.0, 3.0], "b": [3.0, 4.0, 3.5], "c": [0.0, 1.0, 0.0]}
    assert list(values(data, features="b")) == ["b"]
    assert list(values(data, features=["b", "a"], label="c")) == ["b", "a"]
    with pytest.raises(DataError, match="must have a column to test besides the label"):
        table(data, features="c", label="c")


@pytest.mark.parametrize(("option", "value"), [("missing", "fill"), ("invalid", None), ("order", 1.5), ("drop", 3)])
def test_options_are_checked(option: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{option} must "):
        table({"a": [1.0, 2.0]}, **{option: value})


# -------------------------------------------------------------------------------------------------------------- sparse


def test_a_large_sparse_matrix_is_projected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exchangeable.data.sparse.MAX_CELLS", 10**5)
    matrix = sparse.random(300, 20_000, 1e-3, "csr", rng=np.random.default_rng(1))
    read = table(matrix)
    assert len(read.columns) == PROJECTIONS
    assert "projected at random" in read.notes[0]
    one_by_one = np.concatenate([project(matrix[[i]]) for i in range(20)])
    np.testing.assert_array_equal(one_by_one, project(matrix)[:20])  # a function of the row alone, bit for bit
    X = project(matrix[:20]) / math.sqrt(PROJECTIONS)
    exact = np.linalg.norm((matrix[0] - matrix[1]).toarray())
    assert np.linalg.norm(X[0] - X[1]) == pytest.approx(exact, rel=0.25)


# ---------------------------------------------------------------------------------------------------------- two tables


def test_differences_of_two_tables_are_reported() -> None:
    reference = {"a": [1.0, 2.0, 3.0], "c": ["u", "v", "u"], "k": [1.0, 2.0, 3.0], "old": [1, 2, 3]}
    current = {"a": [1.0, 2.0], "c": ["u", "w"], "k": ["x", "y"], "new": [1, 2]}
    pair = prepare_pair(reference, current, Preparation())
    assert pair.differences == [
        "current lacks 'old', which reference has",
        "reference lacks 'new', which current has",
        "column 'k' holds numbers in one set and text in the other",
        "column 'c': 'w' occurs in current only",
        "column 'c': 'v' occurs in reference only",
    ]
    assert not pair.same_columns
    assert [column.name for column in pair.prepared.table.columns] == ["a", "c"]
    accepted = prepare_pair(reference, current, Preparation(drop=["old", "new", "k"]))
    assert accepted.same_columns
    assert accepted.start == 3


def test_what_a_column_holds_is_decided_by_both_tables() -> None:
    empty = {"a": [1.0, 2.0], "b": [None, None], "flag": [1, 0]}
    full = {"a": [1.0, 2.0], "b": ["u", "v"], "flag": [True, False]}
    for first, second in ((empty, full), (full, empty)):
        pair = prepare_pair(first, second, Preparation())
        assert pair.same_columns
        assert [column.categorical for column in pair.prepared.table.columns] == [False, True, False]
    rows = {"row": np.arange(30), "a": RNG.normal(size=30)}
    later = {"row": np.arange(30, 40), "a": RNG.normal(size=10)}
    pair = prepare_pair(rows, later, Preparation())
    assert pair.prepared.table.treatments["row"] == "set aside: identifiers"


def test_labels_of_two_tables() -> None:
    data = {"a": [1.0, 2.0, 3.0], "y": ["u", "v", None]}
    pair = prepare_pair(data, data, Preparation(label="y"))
    assert (pair.prepared.table.y, pair.start) == (["u", "v", "u", "v"], 2)
    both = prepare_pair({"a": [1.0, 2.0]}, {"a": [3.0]}, Preparation(label=(["u", "v"], ["v"])))
    assert both.prepared.table.y == ["u", "v", "v"]
    with pytest.raises(ColumnError, match="label must name a column of the data, got 'y'"):
        prepare_pair(data, {"a": [1.0]}, Preparation(label="y"))


def test_order_of_text() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=60)
    days = pd.date_range("2023-12-01", periods=60).strftime("%d/%m/%Y").to_list()
    assert prepare({"x": x, "day": days}, Preparation(order="day")).table.rows is None
    for cell in ("n.d.", "2024-01-01T00:00"):
        with pytest.raises(DataError, match="column 'day', by which the rows are sorted, must hold times only"):
            prepare({"x": x, "day": [*days[:30], cell, *days[31:]]}, Preparation(order="day"))
    large = [str(10**k) for k in range(17, 77)]
    assert prepare({"x": x, "k": large}, Preparation(order="k")).table.rows is None
    table = prepare({"x": x, "k": rng.choice(["b", "a"], 60)}, Preparation(order="k")).table
    assert "column 'k' holds text, so the rows were sorted in alphabetical order" in table.notes


def test_a_column_that_is_named_twice_is_one_column() -> None:
    table = prepare({"x": [1.0, 2.0, 5.0], "y": [3.0, 1.0, 4.0]}, Preparation(features=["x", "x"])).table
    assert [column.name for column in table.columns] == ["x"]


def test_a_file_without_columns_is_named(tmp_path: Path) -> None:
    pl.DataFrame().write_parquet(tmp_path / "none.parquet")
    with pytest.raises(DataError, match=r"^none\.parquet( must have at least one column|: the file cannot be read)"):
        prepare(tmp_path / "none.parquet", Preparation())
