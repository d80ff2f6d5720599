"""Views of a table: a number for each row that shows what no single column shows.

- *components*: the first two and the last two principal components of the features that combine several columns. They
  show changes in how columns relate to each other.
- *residuals*: how far the label is from a ridge regression on the features (for classes: from that of its own class),
  and for real-valued labels also this residual times the prediction. They show changes in how the label depends on
  the features.
- *neighbours*: the measure of full rows with 15 neighbours instead of one, if there are labels. It shows labels that
  become less predictable.

Each is a function of the row and of the bag of all rows, whatever their order. So the ranks of exchangeable rows are
as valid as those of a column. Sums run over the rows in an order that only their values determine, coefficients are
rounded, and each number is computed from its own row by the same operations in the same order. So equal rows have equal
numbers, bit for bit, and the order of rows and columns does not matter.

A further view, the shares of categories, has no number for each row: see `shares`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exchangeable.analysis.columns import ALPHA_SHARES, ColumnTest, Progress, TestedColumn, label_column
from exchangeable.analysis.formats import format_name
from exchangeable.analysis.sample import MAX_CELLS, Rows, Sample, expand, extend_in_parts
from exchangeable.analysis.settings import Parts
from exchangeable.data.canonical import by_name, row_hashes
from exchangeable.data.design import design_matrix
from exchangeable.data.table import Table, TableColumn, constant
from exchangeable.martingale import Martingale
from exchangeable.protocols import Floats
from exchangeable.pvalues import PValues

ENDS = 2  # components at either end of the spectrum
MAX_FEATURES = 256  # after one-hot encoding; the time for components grows with the square, and more
MAX_CLASSES = 64
NEIGHBOURS = 15
NEIGHBOUR_STREAMS = 4, 5  # of tie-breaking numbers, forwards and backwards
NEGLIGIBLE = 1e-8  # the variance of a component that is constant but for rounding
ONE_COLUMN = 0.9  # the share of the squared loadings from which on a component is little else than one column
PENALTY = 1.0  # of the ridge regression, in rows
DIGITS = 2.0**20  # coefficients are multiples of 1 / DIGITS, so that rounding in linear algebra does not show
CHUNK = 2**14  # rows whose products are summed at a time
LISTED = 3  # features in the name of a component
MAX_PART = 20  # characters of a column or a label in the name of a view
LARGE_LOADING = 0.5  # of the largest


def view_columns(table: Table) -> list[TestedColumn]:
    """Return the views of a table as columns; none if it has too many features, or too many cells for memory."""
    columns = by_name([column for column in table.columns if not constant(column.values)])
    names = [feature for column in columns for feature in column.features]
    if not 0 < len(names) <= min(MAX_FEATURES, MAX_CELLS // table.n):
        return []
    label = None if table.y is None else label_column(table.label or "label", table.y)
    order = np.argsort(row_hashes(columns if label is None else [*columns, label]), kind="stable")
    Z = _standardise(design_matrix(table))
    gram = _products(Z, lambda rows: Z[rows], order)
    origin = np.repeat(np.arange(len(columns)), [len(column.features) for column in columns])
    return [*_components(Z, gram, names, origin), *_residuals(label, Z, gram, order)]


def _components(Z: Floats, gram: Floats, names: Sequence[str], origin: Rows) -> list[TestedColumn]:
    """Return the first and the last components that combine several columns; ``origin`` is the column of a feature."""
    variances, directions = np.linalg.eigh(gram / len(Z))
    chosen = [
        k
        for k in np.flatnonzero(variances > NEGLIGIBLE)[::-1].tolist()
        if np.bincount(origin, directions[:, k] ** 2).max() < ONE_COLUMN
    ]
    chosen = [*chosen[:ENDS], *chosen[max(ENDS, len(chosen) - ENDS) :]]
    return [_component(Z, names, origin, directions[:, k], len(names) - k) for k in chosen]


def _component(Z: Floats, names: Sequence[str], origin: Rows, direction: Floats, number: int) -> TestedColumn:
    name, loadings = component_name(names, origin, direction, number)
    return TestedColumn("component", TableColumn(name, _combine(Z, loadings)))


def component_name(names: Sequence[str], origin: Rows, direction: Floats, number: int) -> tuple[str, Floats]:
    """Return the name of a direction, with its largest features, and its loadings: rounded, the largest positive."""
    loadings = rounded(direction)
    ordered = np.argsort(-np.abs(loadings), kind="stable")
    first = np.sort(np.unique(origin[ordered], return_index=True)[1])[:LISTED]  # one feature of each column
    largest = ordered[first]
    loadings *= np.sign(loadings[largest[0]])
    listed = largest[np.abs(loadings[largest]) >= LARGE_LOADING * loadings[largest[0]]].tolist()
    parts = [("-" if loadings[k] < 0.0 else "") + format_name(names[k], MAX_PART) for k in listed]
    return f"component {number} ({', '.join(parts)})", loadings


def _residuals(label: TableColumn | None, Z: Floats, gram: Floats, order: Rows) -> list[TestedColumn]:
    """Return the residuals of the label, if there is one that varies."""
    if label is None or constant(label.values) or len(label.categories or ()) > MAX_CLASSES:
        return []
    penalised = gram + PENALTY * np.eye(len(gram))
    if label.categories is not None:
        return [_class_residual(label, Z, penalised, order)]
    y = _standardise(label.values[:, np.newaxis].copy())
    coefficients = rounded(np.linalg.solve(penalised, _products(Z, lambda rows: y[rows], order))[:, 0])
    fit = _combine(Z, coefficients)
    residual = y[:, 0] - fit
    name = format_name(label.name, MAX_PART)
    return [
        TestedColumn("residual", TableColumn(f"residual of {name}", residual)),
        TestedColumn("residual", TableColumn(f"residual x prediction of {name}", residual * fit)),
    ]


def _class_residual(label: TableColumn, Z: Floats, penalised: Floats, order: Rows) -> TestedColumn:
    """Return one minus the predicted share of the own class."""
    codes, classes = label.values.astype(np.intp), np.arange(len(label.categories or ()))
    shares = np.bincount(codes, minlength=len(classes)) / len(codes)
    products = _products(Z, lambda rows: (codes[rows][:, np.newaxis] == classes) - shares, order)
    coefficients = rounded(np.linalg.solve(penalised, products))
    residual = 1.0 - shares[codes]
    for j in range(Z.shape[1]):
        residual -= Z[:, j] * coefficients[j, codes]
    return TestedColumn("residual", TableColumn(f"residual of {format_name(label.name, MAX_PART)}", residual))


def run_neighbours_test(
    parts: Parts,
    sample: Sample,
    n: int,
    *,
    seed: int,
    start: int = 0,
    backwards: bool = False,
    progress: Progress | None = None,
) -> ColumnTest:
    """Test full rows with more neighbours; betting starts after ``start`` of the n rows."""
    p = neighbours_p_values(parts, sample, n, seed=seed, backwards=backwards, progress=progress)[start:]
    placed = np.flatnonzero(~np.isnan(p))
    log_value = expand(Martingale(copy.deepcopy(parts.bet)).extend(p[placed]), placed, len(p))
    return ColumnTest(f"{NEIGHBOURS} neighbours", "neighbours", ALPHA_SHARES["neighbours"], log_value)


def neighbours_p_values(
    parts: Parts, sample: Sample, n: int, *, seed: int, backwards: bool = False, progress: Progress | None = None
) -> Floats:
    """Return the p-values of full rows with more neighbours; NaN for rows that are not in the sample."""
    way, measure = -1 if backwards else 1, copy.deepcopy(parts.neighbours or parts.measure)
    pvalues = PValues(measure, seed=seed, stream=NEIGHBOUR_STREAMS[backwards])
    used = sample.backwards() if backwards else sample
    p = np.full(n, np.nan)
    found = np.concatenate(extend_in_parts(pvalues.extend, used, f"{NEIGHBOURS} neighbours", progress))
    p[slice(None) if sample.rows is None else sample.rows] = found[::way]
    return p[::way]


# ---------------------------------------------------------------------------------------------- order-blind arithmetic


def _standardise(X: Floats) -> Floats:
    """Return the columns with mean 0 and deviation 1, in place, by sums over sorted values."""
    for j in range(X.shape[1]):
        X[:, j] /= np.abs(X[:, j]).max() or 1.0  # squares would overflow
        ordered = np.sort(X[:, j])
        X[:, j] = (X[:, j] - ordered.mean()) / (ordered.std() or 1.0)
    return X


def _products(Z: Floats, values: Callable[[Rows], Floats], order: Rows) -> Floats:
    """Return Z'Y, summed over the rows in this order; ``values`` returns some rows of Y."""
    parts = (order[start : start + CHUNK] for start in range(0, len(order), CHUNK))
    return np.asarray(sum(Z[rows].T @ values(rows) for rows in parts))


def _combine(Z: Floats, coefficients: Floats) -> Floats:
    """Return Z c, each row by the same operations: a matrix product may round one row and many rows differently."""
    total = np.zeros(len(Z))
    for j, coefficient in enumerate(coefficients.tolist()):
        total += Z[:, j] * coefficient
    return total


def rounded(coefficients: NDArray[Any]) -> Floats:
    """Return coefficients rounded to multiples of 1 / DIGITS."""
    return np.asarray(np.rint(coefficients * DIGITS) / DIGITS)
