"""Draw the pictures of the documentation, with the package itself.

``python scripts/docs_pictures.py`` writes docs/pictures/*.png (``make pictures``). The pages show the same
code and seeds, so their numbers match the pictures.
"""

from __future__ import annotations

import io
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from PIL import Image
from playwright.sync_api import sync_playwright

import exchangeable as ex
from exchangeable import bets, measures, plots
from exchangeable.protocols import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PICTURES = Path(__file__).resolve().parent.parent / "docs" / "pictures"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
BLUE, RED, GREEN = plots.COLOURS[:3]


def save(ax: Axes, name: str) -> None:
    """Draw and save one picture."""
    drawn = io.BytesIO()
    ax.figure.savefig(drawn, dpi=110, metadata={"Software": None})
    save_png(drawn.getvalue(), name)


def save_png(png: bytes, name: str, colours: int = 48) -> None:
    """Save an image with a reduced number of colours, so that the file is small."""
    Image.open(io.BytesIO(png)).convert("RGB").quantize(colours).save(PICTURES / f"{name}.png", optimize=True)


def stream() -> Floats:
    """Return a thousand numbers whose mean rises by one standard deviation in the middle."""
    rng = np.random.default_rng(0)
    return np.concatenate([rng.normal(0, 1, 500), rng.normal(1, 1, 500)])


def autocorrelated(n: int = 2000) -> Floats:
    """Return an autocorrelated series: nothing changes, but the order matters."""
    noise = np.random.default_rng(1).normal(size=n)
    series = np.zeros(n)
    for i in range(1, n):
        series[i] = 0.8 * series[i - 1] + noise[i]
    return series


def straight_line() -> None:
    """Draw the idea in three rows: numbers, p-values, capital."""
    x = stream()
    path = ex.Monitor(measures.Value(), seed=0).extend(x)
    top, middle, bottom = Figure(figsize=(7.0, 6.4), layout="constrained").subplots(3, 1, sharex=True)
    top.plot(path.n, x, ".", markersize=2.5, color=BLUE)
    top.set(ylabel="the number itself", title="A stream whose mean rises after 500 examples")
    middle.plot(path.n, path.p, ".", markersize=2.5, color=GREEN)
    middle.set(ylabel="p-value", ylim=(0.0, 1.0))
    plots.growth({"capital": path.log_value}, thresholds=(100.0,), ax=bottom)
    bottom.get_legend().remove()
    for ax in (top, middle, bottom):
        ax.spines[["top", "right"]].set_visible(False)
        ax.axvline(500, color="#888888", linewidth=0.8, linestyle=":", zorder=0)
    save(top, "straight-line")


def histograms() -> None:
    """Draw the p-values before and after the change."""
    p = ex.PValues(measures.Value(), seed=0).extend(stream())
    figure = Figure(figsize=(7.0, 2.6), layout="constrained")
    for ax, part, title in zip(
        figure.subplots(1, 2, sharey=True), (p[:500], p[500:]), ("before the change", "after it"), strict=True
    ):
        ax.hist(part, bins=20, range=(0.0, 1.0), density=True, color="#bbbbbb")
        ax.axhline(1.0, color="#888888", linewidth=0.9, linestyle=(0, (4, 3)))
        ax.spines[["top", "right"]].set_visible(False)
        ax.set(title=title, xlabel="p-value", xlim=(0.0, 1.0))
    save(figure.axes[0], "p-values")


def betting() -> None:
    """Draw what two bets have learnt from these p-values."""
    p = ex.PValues(measures.Value(), seed=0).extend(stream())
    learnt = {"Plugin: remembers all": bets.Plugin(), "Kernel: forgets": bets.Kernel(8, 0.99)}
    for bet in learnt.values():
        bet.extend(p)
    ax = plots.betting(learnt, p=p[500:], title="Betting functions, over the p-values of the second half")
    ax.set_ylim(0.0, 3.0)
    save(ax, "betting-functions")


def digits() -> None:
    """Draw the evidence for the digits in their original and in random order."""
    X, y = ex.research.datasets.digits()
    order = np.random.default_rng(0).permutation(len(y))
    paths = {
        "original order": ex.Monitor(seed=0).extend(X, y).log_value,
        "shuffled": ex.Monitor(seed=0).extend(X[order], y[order]).log_value,
    }
    save(plots.growth(paths, thresholds=(100.0,), title="1,797 handwritten digits"), "digits")


def order_matters() -> None:
    """Draw the evidence for an autocorrelated series, and for the same numbers shuffled."""
    x = autocorrelated()
    shuffled = np.random.default_rng(1).permutation(x)
    paths = {
        name: ex.Monitor(measures.Value(), seed=0).extend(values).log_value
        for name, values in {"as it came": x, "shuffled": shuffled}.items()
    }
    save(plots.growth(paths, thresholds=(100.0,), title="An autocorrelated series"), "autocorrelated")


def quiet() -> None:
    """Draw the evidence of two hundred streams without a change."""
    rng = np.random.default_rng(2)
    ax = plots.axes()
    reached = 0
    for seed in range(200):
        path = ex.Monitor(measures.Value(), seed=seed).extend(rng.normal(size=1000))
        reached += bool(path.alarm[-1])
        ax.plot(path.n, path.log_value / np.log(10.0), color=BLUE, linewidth=0.4, alpha=0.5)
    ax.axhline(2.0, color=RED, linewidth=1.0, linestyle=(0, (4, 3)))
    ax.annotate("100, the alarm at 1 %", (1.0, 2.0), (-4, 4), ("axes fraction", "data"), "offset points", ha="right")
    ax.set(xlabel="examples seen", ylabel="log10 of the capital", xlim=(0, 1000), ylim=(-1.2, 2.6))
    ax.set_title(f"200 streams of independent numbers: {reached} of them reached 100")
    save(ax, "quiet")


def report() -> None:
    """Take a screenshot of the upper part of a report."""
    rng = np.random.default_rng(0)
    start, distance = pd.date_range("2024-03-01", periods=900, freq="3h"), rng.gamma(4.0, 1.2, 900)
    bike = rng.choice(["city", "cargo", "electric"], 900, p=[0.6, 0.3, 0.1])
    rides = pd.DataFrame({"start": start, "distance": distance, "bike": bike})
    rides["minutes"] = 4.0 * distance + rng.normal(0.0, 2.0, 900)
    rides.loc[600:, "minutes"] += 8.0
    rides.loc[600:, "bike"] = rng.choice(["city", "cargo", "electric"], 300, p=[0.3, 0.3, 0.4])
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page = Path(folder, "report.html")
        ex.test(rides).save_html(page, title="Rides in spring", author="A. Rider")
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=FLAGS)
        tab = browser.new_page(viewport={"width": 1000, "height": 885})
        tab.goto(page.as_uri())
        save_png(tab.screenshot(), "report", 160)
        browser.close()


def main() -> None:
    """Draw all pictures."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    for draw in (straight_line, histograms, betting, digits, order_matters, quiet, report):
        draw()


if __name__ == "__main__":
    main()
