"""The martingales of other libraries for conformal prediction, on our exact p-values, as detectors.

Where a library names no threshold, a capital of 100 is taken as its default. The kernel plug-ins of MAPIE and online-cp
are left out, as hundreds of runs would take hours; so are libraries that are not installed.
"""

# mypy: disable-error-code="import-not-found"
from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

import peers
from detectors import Detector, Floats, Path
from exchangeable import bets
from own_detectors import on_ranks


def sleeper_drifter(p: Floats) -> Floats:
    """The log capital of crepes' SleeperDrifter, all accounts of a step at once: four times as quick on long streams.

    An account begins every ``M`` steps with a share ``R`` of what is left in the box. It bets with density b/a' on
    [0, a'] and (1 - b)/(1 - a') above, where a' moves from a to b as the changed examples fill the pool.
    """
    from crepes.martingales import SleeperDrifter

    theirs = SleeperDrifter()
    rate, every = theirs.R, theirs.M
    a, b = (grid.ravel() for grid in np.meshgrid(theirs.bf.A, theirs.bf.Gs))
    capital, accounts = np.empty(len(p)), np.empty((len(p) // every + 1, len(a)))
    for i, value in enumerate(p.tolist()):
        awake = i // every + 1
        if i % every == 0:
            accounts[awake - 1] = rate * (1.0 - rate) ** (awake - 1) / len(a)
        weight = np.arange(1, awake + 1)[:, np.newaxis] * (every / (i + every))
        moved = b + (a - b) * weight
        low = value <= moved
        accounts[:awake] *= np.where(low, b, 1.0 - b) / np.where(low, moved, 1.0 - moved)
        capital[i] = (1.0 - rate) ** awake + accounts[:awake].sum()
    return np.log(capital)


def check(p: Floats) -> None:
    """Raise an error unless our SleeperDrifter has the capital of crepes' own."""
    theirs = next(peer for peer in peers.PATHS if peer.name == "crepes SleeperDrifter")
    if not np.allclose(sleeper_drifter(p), theirs.path(p), rtol=1e-9, atol=1e-9):
        raise AssertionError("the capital of crepes' SleeperDrifter is another")
    if peers.version("nonconform"):
        check_statistics(p)


def check_statistics(p: Floats) -> None:
    """Raise an error unless the statistics of nonconform's SimpleJumper are ours."""
    from nonconform.martingales import SimpleJumperMartingale

    states = SimpleJumperMartingale().update_many(p)
    for tool, name in zip(STATISTICS, ("log_shiryaev_roberts", "log_cusum"), strict=True):
        theirs = np.array([getattr(state, name) for state in states])
        if not np.allclose(tool.statistic(p, 0), theirs, rtol=1e-9, atol=1e-9):
            raise AssertionError(f"{name} of nonconform's SimpleJumper is another")


def detector(peer: peers.OnPValues) -> Path:
    """A martingale whose capital is compared with a threshold; it is given p-values."""
    path: Callable[[Floats], Floats] = sleeper_drifter if peer.name == "crepes SleeperDrifter" else peer.path
    capital = 20.0 if peer.library == "MAPIE" else 100.0
    return Path(peer.name, math.log(capital), f"capital {capital:g}", lambda p, seed: peers.quietly(path, p))


def named(*names: str) -> Sequence[Detector]:
    """Those of these names that are installed."""
    return [detector(peer) for peer in peers.installed(peers.PATHS) if peer.name in names]


QUICK = named(
    "MAPIE jumper",
    "crepes SimpleJumper",
    "crepes SleeperStayer",
    "crepes SleeperDrifter",
    "online-cp SimpleMixture",
)
STATISTICS = [  # nonconform computes them but names no threshold; online-cp has the same two for any martingale
    on_ranks(bets.SimpleJumper, alarm, f"nonconform SimpleJumper, {alarm}") for alarm in ("ShiryaevRoberts", "Cusum")
]
WITH_ALARMS: Sequence[Detector] = STATISTICS if peers.version("nonconform") else []
SLOW = named("nonconform SimpleJumper, restarted")  # 0.15 ms a step
