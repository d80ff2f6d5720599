"""The lines of a table monitor: a native call gives the numbers of plain martingales, with any threads, or nothing."""

import copy
import itertools
from threading import Thread
from typing import Any

import numpy as np
import pytest

import exchangeable as ex
from exchangeable import native, snapshot
from exchangeable.protocols import Floats
from exchangeable.table_monitor import martingales
from exchangeable.table_monitor.cells import open_cells
from exchangeable.table_monitor.lines import LABELLED, LineState, Plan, Rows, label_argument
from exchangeable.table_monitor.martingales import Lines
from test_table_monitor import LIVE, ROWS, TRAIN, new, state

SETTINGS: dict[str, dict[str, Any]] = {
    "bins": {"bins": 16, "alpha": 0.2},
    "exact": {"alpha": 0.2},
    "bins and period": {"bins": 4, "period": 20.0},
    "exact and period": {"period": 20.0},
}


def rows_of(monitor: ex.TableMonitor) -> Rows:
    """All rows; every third one has no label."""
    rows, _ = monitor._rows(open_cells(LIVE), "error")
    return rows._replace(y=np.where(np.arange(len(rows.y)) % 3 == 1, np.nan, rows.y))


def plain(plan: Plan, state: LineState, rows: Rows) -> tuple[list[float], list[bool], LineState]:
    """What `Monitor` does, step by step: log capital and alarm after each row, and the state at the end."""
    log_values, on = [], []
    for i, at in enumerate(rows.at.tolist()):
        row = rows.take(slice(i, i + 1))
        if not (plan.kind in LABELLED and np.isnan(row.y[0])):
            p = state.pvalues.extend(plan.values(row), label_argument(plan.kind, state.pvalues.measure, row.y))
            log_value = state.martingale.update(float(p[0]))
            raised = state.alarm.update(log_value)
            if state.alarm_at is None and raised:
                state = state._replace(alarm_at=at, changepoint=state.lowest)
            elif state.alarm_at is None and log_value <= state.low:
                state = state._replace(low=log_value, lowest=at)
        log_values.append(state.martingale.log_value)
        on.append(state.alarm_at is not None)
    return log_values, on, state


def stored(state: LineState) -> list[Any]:
    parts = [snapshot.encode(part) for part in (state.pvalues, state.martingale, state.alarm)]
    return [*parts, state.low, state.lowest, state.alarm_at, state.changepoint]


@pytest.mark.parametrize(
    "bounds", [[0, 100], [*range(101)], [0, 1, 7, 40, 41, 100]], ids=["once", "one by one", "parts"]
)
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_each_line_is_a_plain_martingale(settings: Any, bounds: list[int]) -> None:
    monitor = new(**settings)
    rows, lines = rows_of(monitor), monitor._lines
    plans, states = lines.plans, copy.deepcopy(lines.states())
    weights: Floats = lines._reals[:, native.LINE_WEIGHT]
    found = [lines.extend(rows.take(slice(lo, hi))) for lo, hi in itertools.pairwise(bounds)]
    evidence, on = (np.concatenate([part[k] for part in found], axis=1).tolist() for k in (0, 1))
    assert any(map(any, on))
    for k, (plan, one) in enumerate(zip(plans, states, strict=True)):
        log_values, raised, last = plain(plan, one, rows)
        assert evidence[k] == (np.array(log_values) + weights[k]).tolist()
        assert on[k] == raised
        assert stored(lines.states()[k]) == stored(last)


@pytest.mark.parametrize("starts", [True, False])
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_threads_make_no_difference(settings: Any, starts: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    single, several = new(**settings), new(**settings)
    path = single.extend(LIVE)
    started = []

    def start(thread: Thread) -> None:
        started.append(thread)
        if not starts:
            raise RuntimeError("can't start new thread")
        original(thread)

    original = Thread.start
    monkeypatch.setattr(Thread, "start", start)
    monkeypatch.setattr(martingales, "MANY", 1)
    monkeypatch.setattr(martingales, "_cores", lambda: 3)
    parted = several.extend(LIVE)
    assert len(started) == 2
    assert [column.tolist() for column in path[:4]] == [column.tolist() for column in parted[:4]]
    assert state(single) == state(several)


@pytest.mark.parametrize("place", [0, -1])
def test_an_impossible_state_is_an_error_in_every_thread(place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(martingales, "MANY", 1)
    monkeypatch.setattr(martingales, "_cores", lambda: 2)
    monitor = new(bins=8)
    monitor._lines._bets[place] = np.nan
    with pytest.raises(ValueError, match="a capital is not a number"):
        monitor.extend(LIVE)
    with pytest.raises(ValueError, match="interrupted"):
        monitor.update(ROWS[0])


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_a_copy_learns_on_its_own(settings: Any) -> None:
    monitor = new(**settings)
    monitor.extend(ROWS[:10])
    before, twin = state(monitor), copy.deepcopy(monitor)
    twin.extend(ROWS[10:])
    twin.update(ROWS[0])
    assert state(monitor) == before != state(twin)


def test_lines_go_through_their_parts_unchanged() -> None:
    monitor = new(bins=8, wait="forever")
    monitor.extend(ROWS, ids=[*range(100)])
    lines = monitor._lines
    again = Lines(lines.plans, lines.states(), lines.max_rows)
    for name, value in vars(lines).items():
        if isinstance(value, np.ndarray):
            assert np.array_equal(getattr(again, name), value), name
    assert list(again) == list(lines)


def test_labels_may_be_late_where_no_line_needs_them() -> None:
    monitor = ex.TableMonitor(TRAIN, "price", columns="none", bins=8, wait="forever", seed=1)
    monitor.update(ROWS[0], id="a")
    monitor.update({**ROWS[1], "price": None}, id="b")
    assert monitor.label("b", 1.0) == ["b"]
    assert monitor.n == 2


def test_more_bins_than_rows_that_fix_them_are_refused() -> None:
    monitor = new(bins=8)
    fields = copy.deepcopy(monitor._get_state())
    many = ex.measures.Frozen(bins=6_000, reference=np.arange(6_000.0))
    fields["fresh"][0] = many
    with pytest.raises(ValueError, match="must be an empty one"):
        ex.TableMonitor._from_state(**fields)
    fields = copy.deepcopy(monitor._get_state())
    pvalues, *rest = fields["lines"][0]
    pvalues.measure.edges = pvalues.measure.edges + 1.0
    fields["lines"][0] = (pvalues, *rest)
    with pytest.raises(ValueError, match="must have the edges"):
        ex.TableMonitor._from_state(**fields)
