"""The experiments of Fedorova, Gammerman, Nouretdinov, Vovk (ICML 2012): tables and figures.

Theta is random, so a published value is one draw: every experiment is run with many seeds, and the published value is
compared with our median and range.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from exchangeable import plots
from exchangeable.bets import Plugin, Power, SimpleMixture
from exchangeable.martingale import LN10, Martingale
from exchangeable.measures import NearestNeighbour
from exchangeable.protocols import Bet, Floats, Ranks
from exchangeable.pvalues import from_ranks
from exchangeable.research import datasets
from exchangeable.research.datasets import Dataset, Folder

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Progress = Callable[[str, int, int], object]  # task, done, total

MARTINGALES: Mapping[str, Callable[[], Bet]] = {"simple mixture": SimpleMixture, "plug-in": Plugin}
READERS: Mapping[str, Callable[[Folder | None], Dataset]] = {
    "usps": lambda folder: datasets.usps(folder),
    "usps-raw": lambda folder: datasets.usps(folder, flavour="raw"),
    "satellite": lambda folder: datasets.satellite(folder),
}
CHECKPOINTS: Mapping[str, tuple[int, ...]] = {"satellite": (1000,)}  # besides the end
PUBLISHED: Mapping[tuple[str, str, int], Mapping[str, float]] = {
    ("usps", "original", 9298): {"simple mixture": 2.0e10, "plug-in": 3.9e8},
    ("satellite", "original", 6435): {"simple mixture": 5.6e2, "plug-in": 1.8e17},
    ("satellite", "original", 1000): {"simple mixture": 0.013, "plug-in": 3.74e15},
    ("usps", "shuffled", 9298): {"simple mixture": 0.01, "plug-in": 0.01},
    ("satellite", "shuffled", 6435): {"simple mixture": 0.01, "plug-in": 0.01},
}


class Row(NamedTuple):
    """A row of the table: log10 of the capital after n examples, published and over our seeds."""

    dataset: str
    order: str
    n: int
    martingale: str
    published_log10: float | None
    median_log10: float
    min_log10: float
    max_log10: float
    seeds: int

    @property
    def inside(self) -> bool | None:
        """Whether the published value lies in the range of our seeds; None for a single seed."""
        if self.published_log10 is None or self.seeds < 2:
            return None
        return self.min_log10 <= self.published_log10 <= self.max_log10


class Run(NamedTuple):
    """One dataset in one order: the p-values of the first seed, and log S_n of every seed."""

    dataset: str
    order: str
    p: Floats
    log_value: Mapping[str, Floats]  # martingale -> seeds x n


def run(name: str, data: Dataset, order: str, seeds: int, progress: Progress = lambda *_: None) -> Run:
    """Test a dataset with both martingales, on the same p-values, with the seeds 0, 1, ...

    The original order needs one pass over the examples for all seeds; "shuffled" draws a new order for each seed.
    """
    if order not in ("original", "shuffled"):
        raise ValueError(f"order must be 'original' or 'shuffled', got {order!r}")
    if seeds < 1:
        raise ValueError(f"seeds must be at least 1, got {seeds}")
    task = f"{name}, {order} order"
    progress(task, 0, seeds)
    ranks = None if order == "shuffled" else NearestNeighbour().extend(data.X, data.y)
    values = {martingale: np.empty((seeds, len(data.y))) for martingale in MARTINGALES}
    first: Floats = np.empty(0)
    for seed in range(seeds):
        p = from_ranks(ranks or _shuffled_ranks(data, seed), seed=seed)
        for martingale, bet in MARTINGALES.items():
            values[martingale][seed] = Martingale(bet()).extend(p)
        first = p if seed == 0 else first
        progress(task, seed + 1, seeds)
    return Run(name, order, first, values)


def _shuffled_ranks(data: Dataset, seed: int) -> Ranks:
    order = np.random.default_rng(seed).permutation(len(data.y))
    return NearestNeighbour().extend(data.X[order], data.y[order])


def rows(result: Run) -> list[Row]:
    """Return the rows of the table for a run: at the checkpoints of the paper and at the end."""
    end = len(result.p)
    points = [n for n in CHECKPOINTS.get(result.dataset, ()) if n < end and result.order == "original"] + [end]
    return [_row(result, martingale, n) for n in points for martingale in MARTINGALES]


def _row(result: Run, martingale: str, n: int) -> Row:
    published = PUBLISHED.get((result.dataset, result.order, n), {}).get(martingale)
    log10 = result.log_value[martingale][:, n - 1] / LN10
    return Row(
        result.dataset,
        result.order,
        n,
        martingale,
        None if published is None else round(math.log10(published), 4),
        float(np.median(log10)),
        float(log10.min()),
        float(log10.max()),
        len(log10),
    )


def reproduce(
    name: str = "all", *, data: Folder | None = None, out: Folder | None = None, seeds: int = 20,
    progress: Progress = lambda *_: None,
) -> list[Row]:  # fmt: skip
    """Run the experiments on "usps" (smoothed as in the paper, and raw), "satellite" or "all"; figures into ``out``."""
    chosen = {"usps": ("usps", "usps-raw"), "satellite": ("satellite",), "all": tuple(READERS)}
    if name not in chosen:
        raise ValueError(f"name must be one of {', '.join(chosen)}, got {name!r}")
    folder = None if out is None else Path(out)
    table: list[Row] = []
    for dataset in chosen[name]:
        examples = READERS[dataset](data)
        for order in ("original", "shuffled"):
            result = run(dataset, examples, order, seeds, progress)
            table += rows(result)
            if folder is not None:
                save(growth_figure(result), folder, f"{dataset}-{order}")
            if folder is not None and order == "original":
                save(betting_figure(result), folder, f"{dataset}-betting-functions")
    if folder is not None:
        simulations(folder, progress)
        (folder / "table.md").write_text(markdown(table), encoding="utf-8")
    return table


def markdown(table: Iterable[Row]) -> str:
    """Format the table as Markdown.

    >>> print(markdown([Row("usps", "original", 9298, "plug-in", 8.59, 8.3, 8.1, 8.6, 20)]).splitlines()[2])
    | usps | original | 9,298 | plug-in | 8.59 | 8.30 | 8.10 to 8.60 | yes |
    """
    lines = [
        "| data | order | n | martingale | published | our median | our range | published inside our range |",
        "|---|---|---|---|---|---|---|---|",
    ]
    words = {True: "yes", False: "no", None: ""}
    for row in table:
        published = "" if row.published_log10 is None else f"{row.published_log10:.2f}"
        lines.append(
            f"| {row.dataset} | {row.order} | {row.n:,} | {row.martingale} | {published} | {row.median_log10:.2f} "
            f"| {row.min_log10:.2f} to {row.max_log10:.2f} | {words[row.inside]} |"
        )
    return "\n".join(lines) + "\n"


def save(ax: Axes, folder: Path, name: str) -> None:
    """Write the figure as PNG and SVG."""
    folder.mkdir(parents=True, exist_ok=True)
    for suffix in ("png", "svg"):
        ax.figure.savefig(folder / f"{name}.{suffix}", metadata={"Date": None} if suffix == "svg" else None)  # type: ignore[union-attr]


def growth_figure(result: Run) -> Axes:
    """Draw the capital of both martingales (first seed), with the published final values as circles."""
    curves = {name: values[0] for name, values in result.log_value.items()}
    n = len(result.p)
    ax = plots.growth(curves, title=f"{_title(result.dataset)}, {result.order} order: {n:,} examples")
    for name, line in zip(curves, ax.get_lines(), strict=False):
        points = [(at, math.log10(values[name])) for (*what, at), values in PUBLISHED.items() if what == [*result[:2]]]
        if points:
            x, y = zip(*points, strict=True)
            label = f"{name}, published"
            ax.plot(x, y, "o", mfc="white", color=line.get_color(), markersize=7, clip_on=False, zorder=5, label=label)
    ax.legend(edgecolor="none", framealpha=0.9)
    return ax


def betting_figure(result: Run) -> Axes:
    """Draw the final density estimate and the best power betting function, over the p-values."""
    plugin = Plugin()
    plugin.extend(result.p)
    best = Power.best(result.p)
    bets: dict[str, Bet] = {"plug-in, at the end": plugin, f"best power, $\\varepsilon^* = {best:.3f}$": Power(best)}
    ax = plots.betting(bets, p=result.p, title=f"{_title(result.dataset)}: betting functions")
    ax.set_ylim(0.0, 1.25 * max(plots.density(plugin, np.linspace(0.0025, 1.0, 400)).max(), 1.2))
    return ax


def _title(dataset: str) -> str:
    return {"usps": "USPS (smoothed)", "usps-raw": "USPS (raw)", "satellite": "Satellite"}[dataset]


def simulations(folder: Path, progress: Progress = lambda *_: None) -> None:
    """Draw the figures that need no data: power betting functions, closing remark, Theorems 1 and 2."""
    figures = {
        "power-betting-functions": power_figure,
        "decreasing-noise": decreasing_noise_figure,
        "theorem-1": theorem_1_figure,
        "theorem-2": theorem_2_figure,
    }
    for done, (name, figure) in enumerate(figures.items()):
        progress("simulations", done, len(figures))
        save(figure(), folder, name)
    progress("simulations", len(figures), len(figures))


def power_figure() -> Axes:
    """Draw the power betting functions for several epsilon."""
    bets = {f"$\\varepsilon = {epsilon}$": Power(epsilon) for epsilon in (0.1, 0.3, 0.5, 0.7, 0.9)}
    ax = plots.betting(bets, title="Power betting functions $\\varepsilon p^{\\varepsilon - 1}$")
    ax.set_ylim(0.0, 3.0)
    return ax


def decreasing_noise(n: int = 3000, *, seed: int = 0) -> tuple[Floats, dict[str, Floats], float]:
    """Run the closing remark: when noise decreases with time, p-values gather near 1, where no power bet can win.

    Returns the p-values, log S of the plug-in, the simple mixture and the best power bet, and that best epsilon.
    """
    X, y = datasets.decreasing_noise(n, seed=seed)
    p = from_ranks(NearestNeighbour().extend(X, y), seed=seed)
    best = Power.best(p)
    bets: dict[str, Bet] = {"plug-in": Plugin(), "simple mixture": SimpleMixture(), "best power": Power(best)}
    return p, {name: Martingale(bet).extend(p) for name, bet in bets.items()}, best


def decreasing_noise_figure() -> Axes:
    """Draw the growth on the data of the closing remark, with the histogram of the p-values as an inset."""
    p, paths, best = decreasing_noise()
    curves = {
        f"{name}, $\\varepsilon^* = {best:g}$" if name == "best power" else name: path for name, path in paths.items()
    }
    ax = plots.growth(curves, title="Noise that decreases with time")
    inset = ax.inset_axes((0.09, 0.38, 0.3, 0.28))
    inset.hist(p, bins=30, range=(0.0, 1.0), density=True, color="#bbbbbb")
    inset.set_title("p-values", fontsize=8)
    inset.tick_params(labelsize=7)
    return ax


def theorem_1(runs: int = 4000, n: int = 20, *, seed: int = 0) -> Floats:
    """Return p-values of short exchangeable sequences with ties: ``runs x n``, independent uniform by Theorem 1."""
    rng = np.random.default_rng(seed)
    table = np.empty((runs, n))
    for i in range(runs):
        X, y = rng.integers(0, 3, (n, 2)).astype(np.float64), rng.integers(0, 2, n)
        table[i] = from_ranks(NearestNeighbour().extend(X, y), seed=int(rng.integers(2**63)))
    return table


def theorem_1_figure() -> Axes:
    """Draw the distribution function of the p-value at several n, and the correlations between positions."""
    p = theorem_1()
    ax = plots.axes()
    for n, colour in zip((1, 2, 3, 5, 20), plots.COLOURS, strict=False):
        ax.plot(
            np.sort(p[:, n - 1]), np.arange(1, len(p) + 1) / len(p), color=colour, linewidth=1.2, label=f"$p_{{{n}}}$"
        )
    ax.plot([0, 1], [0, 1], color="#888888", linestyle=(0, (4, 3)), linewidth=0.9)
    correlation = np.asarray(np.corrcoef(p, rowvar=False))[np.triu_indices(p.shape[1], 1)]
    ax.annotate(
        f"largest correlation between two\nof the 20 positions: {np.abs(correlation).max():.3f}\n"
        f"(noise of {len(p):,} runs: {4 / math.sqrt(len(p)):.3f} is 4 sd)",
        (0.97, 0.05), xycoords="axes fraction", ha="right", fontsize=9,
    )  # fmt: skip
    ax.set(xlabel="p-value", ylabel="distribution function", xlim=(0, 1), ylim=(0, 1))
    ax.set_title("Theorem 1: uniform at each n, and independent (data with ties)")
    ax.legend(frameon=False)
    return ax


def theorem_2(n: int = 50_000, *, seed: int = 0) -> tuple[dict[str, Floats], float]:
    """Return the growth rates ``log S_n / n`` on p-values with a bimodal density, and the best rate of any bet.

    The p-values are independent draws from an equal mixture of Beta(2, 8) and Beta(8, 2). The best rate is
    ``int rho ln rho``.
    """
    rng = np.random.default_rng(seed)
    p = np.where(rng.random(n) < 0.5, rng.beta(2.0, 8.0, n), rng.beta(8.0, 2.0, n))
    grid = (np.arange(20_000) + 0.5) / 20_000
    rho = 36.0 * (grid * (1.0 - grid) ** 7 + grid**7 * (1.0 - grid))  # 1 / B(2, 8) is 72
    best = Power.best(p)
    bets: dict[str, Bet] = {
        "plug-in": Plugin(),
        f"power, $\\varepsilon^* = {best:.2f}$": Power(best),
        "power, 0.7": Power(0.7),
    }
    rates = {name: Martingale(bet).extend(p) / np.arange(1, n + 1) for name, bet in bets.items()}
    rates["linear, $1/2 + p$"] = np.cumsum(np.log(0.5 + p)) / np.arange(1, n + 1)
    return rates, float((rho * np.log(rho)).mean())


def theorem_2_figure() -> Axes:
    """Draw how the growth rate of the plug-in overtakes that of fixed betting functions and tends to the best rate."""
    rates, bound = theorem_2()
    ax = plots.axes()
    for (name, rate), colour in zip(rates.items(), plots.COLOURS, strict=False):
        ax.plot(np.arange(10, len(rate) + 1), rate[9:], label=name, color=colour, linewidth=1.5)
    ax.axhline(bound, color="#888888", linewidth=1.0, linestyle=(0, (4, 3)), label="best possible")
    ax.set(xscale="log", xlabel="p-values seen", ylabel="growth rate $\\frac{1}{n} \\log S_n$")
    ax.set_ylim(-0.25, 0.3)
    ax.set_title("Theorem 2: the plug-in against fixed betting functions")
    ax.legend(frameon=False)
    return ax
