"""Which departures of a table are found, by `ex.test` and by what people use instead; writes TABLES.md.

``make table-power`` takes about half an hour. The tables are those of departures.py; those of kinds.py show whether
`ex.test` names the kind of the departure. Every method has the level 5 %:

- *without views*: full rows with one half of alpha, and the columns of `ex.test` with the other half;
- *KS of halves*: Kolmogorov-Smirnov of the first half against the second, each column, with Bonferroni's correction;
- *lag-1 Spearman*: rank correlation of each value with the one before, each column, with Bonferroni's correction;
- *cleanlab*: the issue ``non_iid`` of ``Datalab``, by the p-value that it reports;
- *MAPIE*: ``FixedDatasetExchangeabilityTest``, its p-value permutation test, if there is a label;
- *domain classifier*: a random forest learns to tell the halves apart; Mann-Whitney test of its five-fold
  cross-validated predictions.
"""

# mypy: disable-error-code="import-not-found"
from __future__ import annotations

import argparse
import contextlib
import io
import os
import warnings
from collections.abc import Callable, Mapping
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

import exchangeable as ex
from departures import DEPARTURES, Drawn, Floats
from kinds import KINDS, N
from workloads import heading, table

DOCUMENT = Path(__file__).with_name("TABLES.md")
RUNS, LEVEL = 25, 0.05
KINDS_HEADING, TABLES_HEADING = "## The kind of a departure\n", "## The tables\n"
MOST_LEVEL = 0.1  # share of the runs by which another method may be ahead, and ours still counts as level
Method = Callable[[Drawn, int], bool | None]


def numbers(drawn: Drawn) -> Floats:
    """The table with its label as numbers: categories by their codes, missing values by the median and an indicator."""
    columns = []
    for values in [*drawn.columns.values(), *([] if drawn.label is None else [drawn.label])]:
        if values.dtype.kind == "U":
            columns.append(np.unique(values, return_inverse=True)[1].astype(float))
            continue
        absent = np.isnan(values)
        columns.append(np.where(absent, np.nanmedian(values), values))
        if absent.any():
            columns.append(absent.astype(float))
    return np.column_stack(columns)


def tested(drawn: Drawn) -> ex.analysis.Result:
    label = None if drawn.label is None else drawn.label.tolist()
    return ex.test(pd.DataFrame(drawn.columns), label, alpha=LEVEL)


def ours(drawn: Drawn, seed: int) -> bool:
    return tested(drawn).rejected


def without_views(drawn: Drawn, seed: int) -> bool:
    result = tested(drawn)
    if not result.column_tests:
        return result.rejected
    weights = [0.5, *[0.5 / len(result.column_tests)] * len(result.column_tests)]
    capital = [float(test.log_value.max()) for test in (result.tests[0], *result.column_tests)]
    return bool(np.max(np.add(capital, np.log(weights))) >= -np.log(LEVEL))


def ks_of_halves(drawn: Drawn, seed: int) -> bool:
    X = numbers(drawn)
    half = len(X) // 2
    return bool(min(stats.ks_2samp(column[:half], column[half:]).pvalue for column in X.T) <= LEVEL / X.shape[1])


def lag_one(drawn: Drawn, seed: int) -> bool:
    X = numbers(drawn)
    return bool(min(stats.spearmanr(column[1:], column[:-1]).pvalue for column in X.T) <= LEVEL / X.shape[1])


def cleanlab(drawn: Drawn, seed: int) -> bool:
    from cleanlab import Datalab

    np.random.seed(seed)  # noqa: NPY002 (cleanlab permutes with the global generator)
    X = numbers(drawn)
    with contextlib.redirect_stdout(io.StringIO()):
        lab = Datalab(data={"row": np.arange(len(X))})
        lab.find_issues(features=X, issue_types={"non_iid": {"seed": seed}})
    return bool(lab.get_info("non_iid")["p-value"] <= LEVEL)


def mapie(drawn: Drawn, seed: int) -> bool | None:
    from mapie.exchangeability_testing import PValuePermutationTest

    if drawn.label is None:
        return None
    X = numbers(drawn)[:, :-1]
    classes = drawn.label.dtype.kind == "U"
    y = np.unique(drawn.label, return_inverse=True)[1] if classes else drawn.label
    test = PValuePermutationTest(
        LEVEL, task="classification" if classes else "regression", random_state=seed, warn=False
    )
    test.run(X, y)
    return not test.is_exchangeable


def domain_classifier(drawn: Drawn, seed: int) -> bool:
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    X = numbers(drawn)
    late = np.arange(len(X)) >= len(X) // 2
    folds = StratifiedKFold(5, shuffle=True, random_state=seed)
    forest = RandomForestClassifier(50, min_samples_leaf=5, random_state=seed)
    score = cross_val_predict(forest, X, late, cv=folds, method="predict_proba")[:, 1]
    return bool(stats.mannwhitneyu(score[late], score[~late], alternative="greater").pvalue <= LEVEL)


METHODS: Mapping[str, Method] = {
    "`ex.test`": ours,
    "without views": without_views,
    "KS of halves": ks_of_halves,
    "lag-1 Spearman": lag_one,
    "cleanlab": cleanlab,
    "MAPIE": mapie,
    "domain classifier": domain_classifier,
}


def one(job: tuple[str, int]) -> list[bool | None]:
    """Draw one table and let all methods test it."""
    name, seed = job
    warnings.simplefilter("ignore")
    departure = DEPARTURES[name]
    drawn = departure.draw(np.random.default_rng([seed, departure.n]), departure.n)
    return [method(drawn, seed) for method in METHODS.values()]


def measure(runs: int) -> dict[str, Floats]:
    """Return the share of rejections of each method, for each departure; NaN where it cannot be used."""
    jobs = [(name, seed) for name in DEPARTURES for seed in range(runs)]
    with get_context("spawn").Pool(os.cpu_count()) as pool:
        found = pool.map(one, jobs, chunksize=5)
    shares: dict[str, Floats] = {}
    for i, name in enumerate(DEPARTURES):
        part = np.array(found[i * runs : (i + 1) * runs], dtype=float)
        shares[name] = part.mean(axis=0)
        print(name, shares[name].round(2), flush=True)
    return shares


def name_kind(job: tuple[str, str, int]) -> str | None:
    """Draw a table of a known kind; return the kind that `ex.test` names, None if it does not reject."""
    kind, name, seed = job
    departure = tested(KINDS[kind][name](np.random.default_rng([seed, N]), N)).departure
    return None if departure is None else departure.kind


def confusion(runs: int) -> list[str]:
    """Return the part of the document on the kinds that are named."""
    tables = [(kind, name) for kind in KINDS for name in KINDS[kind]]
    with get_context("spawn").Pool(os.cpu_count()) as pool:
        found = pool.map(name_kind, [(*one, seed) for one in tables for seed in range(runs)], chunksize=5)
    named = {one: [kind for kind in found[i * runs : (i + 1) * runs] if kind] for i, one in enumerate(tables)}
    words = [*KINDS, "unclear"]
    matrix, right, total = [], 0, 0
    for kind in KINDS:
        all_named = [one for (true, _), kinds in named.items() if true == kind for one in kinds]
        right, total = right + all_named.count(kind), total + len(all_named)
        cells = [f"{100 * all_named.count(word) / len(all_named):.0f}" for word in words]
        matrix.append([kind, f"{len(all_named):,}", *cells])
    rows = [[kind, name, f"{len(kinds)}", f"{100 * kinds.count(kind) / max(1, len(kinds)):.0f}",
             (KINDS[kind][name].__doc__ or "").strip()] for (kind, name), kinds in named.items()]  # fmt: skip
    return [
        KINDS_HEADING,
        f"What `ex.test` calls the departure, in percent of the rejected tables: {runs} tables of {N:,} rows for each "
        f"entry of `benchmarks/kinds.py`. The name is right for {100 * right / total:.1f} % of {total:,} tables.\n",
        table(["truth", "rejected", *words], matrix),
        table(["truth", "table", "rejected", "right, %", "definition"], rows),
    ]


def summary(shares: Mapping[str, Floats]) -> str:
    """Count where `ex.test` is first or level."""
    rows = [name for name, departure in DEPARTURES.items() if not departure.quiet]
    level = [name for name in rows if shares[name][0] >= np.nanmax(shares[name][2:]) - MOST_LEVEL]
    behind = ", ".join(name for name in rows if name not in level) or "none"
    return (
        f"`ex.test` is first or level on {len(level)} of {len(rows)} departures: no other method finds it in more than "
        f"{100 * MOST_LEVEL:.0f} % of the runs beyond ours. Behind on: {behind}.\n"
    )


def shown(shares: Mapping[str, Floats], quiet: bool) -> str:
    rows = []
    for name, departure in DEPARTURES.items():
        if departure.quiet == quiet:
            cells = ["" if np.isnan(share) else f"{100 * share:.0f}" for share in shares[name]]
            rows.append([name, f"{departure.n:,}", *cells])
    return table(["table", "rows", *METHODS], rows)


def main(runs: int) -> str:
    shares = measure(runs)
    definitions = [f"- {name}: {(one.draw.__doc__ or '').strip()}" for name, one in DEPARTURES.items()]
    parts = [
        heading("Departures of a table", "make table-power", ("numpy", "scipy", "scikit-learn", "cleanlab", "MAPIE")),
        f"Share of {runs} tables that are rejected at a level of 5 %, in percent. `ex.test` has its defaults; the "
        "other methods are described in `benchmarks/bench_tables.py`. MAPIE needs a label.\n",
        summary(shares),
        shown(shares, quiet=False),
        "## False alarms\n",
        shown(shares, quiet=True),
        *confusion(runs),
        TABLES_HEADING,
        "\n".join(definitions) + "\n",
    ]
    return "\n".join(parts)


def main_kinds(runs: int) -> str:
    """Measure the part on kinds only; the rest of the document stays."""
    before, _, rest = DOCUMENT.read_text(encoding="utf-8").partition(KINDS_HEADING)
    _, heading_after, after = rest.partition(TABLES_HEADING)
    return before + "\n".join([*confusion(runs), heading_after]) + after


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Which departures of a table are found.")
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--only", choices=["kinds"], help="measure this part only")
    options = parser.parse_args()
    text = main_kinds(options.runs) if options.only else main(options.runs)
    DOCUMENT.write_text(text, encoding="utf-8")
    print(text)
