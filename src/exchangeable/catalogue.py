"""The names of measures, bets and alarms, for the command line and other text interfaces.

Each name maps to a function that returns a new object with default parameters. Measures that need something from the
user, such as a score, are not included.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from exchangeable import alarms, bets, measures, monitor
from exchangeable.protocols import Alarm, Bet, Measure


def _three_bets() -> list[Bet]:
    return [bets.SimpleMixture(), bets.CompositeJumper(), bets.Tree()]


MEASURES: Mapping[str, Callable[[], Measure]] = MappingProxyType(
    {
        "nearest-neighbour": measures.NearestNeighbour,
        "nearest-distance": measures.NearestDistance,
        "nearest-residual": measures.NearestResidual,
        "value": measures.Value,
        "conditional-nearest-neighbour": lambda: measures.Conditional(measures.NearestNeighbour()),
        "conditional-nearest-distance": lambda: measures.Conditional(measures.NearestDistance()),
    }
)
BETS: Mapping[str, Callable[[], Bet]] = MappingProxyType(
    {
        "adaptive": bets.Adaptive,
        "sentinel": bets.Sentinel,
        "plugin": bets.Plugin,
        "simple-mixture": bets.SimpleMixture,
        "gamma-mixture": bets.GammaMixture,
        "power": lambda: bets.Power(0.92),
        "simple-jumper": bets.SimpleJumper,
        "composite-jumper": bets.CompositeJumper,
        "sleepy-jumper": bets.SleepyJumper,
        "sleeper-stayer": bets.SleeperStayer,
        "sleeper-drifter": bets.SleeperDrifter,
        "histogram": bets.Histogram,
        "tree": bets.Tree,
        "kernel": bets.Kernel,
        "markov": bets.Markov,
        "beta": bets.Beta,
        "power-chain": bets.PowerChain,
        "fade": bets.Fade,
        "regression": bets.Regression,
        "volatility": bets.Volatility,
        "season": bets.Season,
        "copula": lambda: bets.Copula(bets.Kernel(), bets.Markov()),
        "two-sided": lambda: bets.TwoSided(bets.Regression()),
        "blend": lambda: bets.Blend(_three_bets()),
        "memory-share": lambda: bets.MemoryShare(_three_bets()),
        "switching": lambda: bets.Switching(_three_bets()),
        "cautious": lambda: bets.Cautious(bets.SimpleMixture(), factor=2.0),
        "idle": bets.Idle,
    }
)
ALARMS: Mapping[str, Callable[[], Alarm]] = MappingProxyType(
    {
        "ville": alarms.Ville,
        "cusum": alarms.Cusum,
        "shiryaev-roberts": alarms.ShiryaevRoberts,
    }
)


def default_bet(alarm: str) -> str:
    """Return the name of the default bet for this alarm.

    >>> default_bet("ville"), default_bet("cusum")
    ('adaptive', 'sentinel')
    """
    kind = type(monitor.default_bet(ALARMS[alarm]()))
    return next(name for name, make in BETS.items() if make is kind)
