"""Does the capital of a martingale survive a long stream? Ours and that of other libraries; writes LONG_STREAMS.md.

``python benchmarks/long_streams.py`` takes a few minutes. A capital stored as a plain float overflows at about 10^308
and underflows at about 10^-308; after either, the martingale no longer reports the evidence.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import exchangeable as ex
import peers
from exchangeable import bets
from exchangeable.martingale import LN10

Floats = NDArray[np.float64]
QUIET, CHANGED = 20_000, 5_000
SLOW = ("MAPIE plug-in", "online-cp PluginMartingale", "online-cp CompositeJumper", "online-cp ParticleFilter")
OURS = ("Adaptive", "Sentinel", "Plugin", "SimpleMixture", "SimpleJumper", "CompositeJumper", "SleepyJumper")
DOCUMENT = Path(__file__).parent / "LONG_STREAMS.md"
HEAD = f"""# Long streams

Written by `python benchmarks/long_streams.py`, never by hand.

log10 of the final capital on the same p-values. *Small*: {CHANGED:,} p-values from Beta(0.3, 1), as after a large
change. *Large*: {CHANGED:,} from Beta(3, 1), as when examples become more typical. *Quiet, then small*: {QUIET:,}
uniform p-values, then {CHANGED:,} from Beta(0.5, 1). *Fails at* is the first step from which the capital is infinite, 0
or not a number, and stays so. Left out because they are slow: {", ".join(SLOW)}.

{{versions}}

| martingale | small | fails at | large | fails at | quiet, then small | fails at |
|---|---:|---:|---:|---:|---:|---:|
"""


class Outcome(NamedTuple):
    """The capital at the end, and the step at which it failed for good."""

    log10: float
    fails_at: int | None

    def cells(self) -> str:
        """Return two cells of a Markdown table."""
        failed = {"inf": "infinite", "-inf": "0", "nan": "not a number"}
        value = failed.get(str(self.log10), f"{self.log10:,.1f}")
        return f"{value} | {'' if self.fails_at is None else f'{self.fails_at:,}'}"


def outcome(path: Floats) -> Outcome:
    """Read the end of a log-capital path.

    >>> outcome(np.array([0.0, np.inf, 1.0, np.inf]))
    Outcome(log10=inf, fails_at=4)
    """
    finite = np.flatnonzero(np.isfinite(path))
    last = int(finite[-1]) + 1 if len(finite) else 0
    return Outcome(float(path[-1]) / LN10, None if last == len(path) else last + 1)


def streams(seed: int = 0) -> list[Floats]:
    """Return the p-values: small, large, and quiet then small."""
    rng = np.random.default_rng(seed)
    quiet = np.concatenate([1.0 - rng.random(QUIET), rng.beta(0.5, 1.0, CHANGED)])
    return [rng.beta(0.3, 1.0, CHANGED), rng.beta(3.0, 1.0, CHANGED), quiet]


def martingales() -> dict[str, Callable[[Floats], Floats]]:
    """Return the martingales by name: p-values -> log capital after each."""
    ours = {f"ours: {name}": (lambda p, name=name: ex.Martingale(getattr(bets, name)()).extend(p)) for name in OURS}
    others = {peer.name: peer.path for peer in peers.installed(peers.PATHS) if peer.name not in SLOW}
    return ours | others


def main() -> None:
    """Run all martingales on all streams and write the document."""
    versions = ", ".join(f"{name} {peers.version(name)}" for name in peers.LIBRARIES if peers.version(name))
    text = HEAD.format(versions=f"exchangeable {ex.__version__}, {versions}, Python {platform.python_version()}.")
    for name, path in martingales().items():
        text += f"| {name} | {' | '.join(outcome(peers.quietly(path, p)).cells() for p in streams())} |\n"
        print(text.splitlines()[-1], flush=True)
    DOCUMENT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
