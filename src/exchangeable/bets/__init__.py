"""Bets: densities on (0, 1] that bet against uniform p-values."""

from exchangeable.bets.adaptive import Adaptive
from exchangeable.bets.beta import Beta, PowerChain
from exchangeable.bets.blend import Blend, Cautious, MemoryShare, Switching
from exchangeable.bets.fade import Fade
from exchangeable.bets.histogram import Histogram, Tree
from exchangeable.bets.idle import Idle
from exchangeable.bets.jumper import CompositeJumper, SimpleJumper, SleepyJumper
from exchangeable.bets.kernel import Kernel, Markov
from exchangeable.bets.plugin import Plugin
from exchangeable.bets.power import GammaMixture, Power, SimpleMixture
from exchangeable.bets.regression import Regression, Season, Volatility
from exchangeable.bets.sentinel import Sentinel
from exchangeable.bets.sleeper import SleeperDrifter, SleeperStayer
from exchangeable.bets.transform import Copula, TwoSided

__all__ = [
    "Adaptive",
    "Beta",
    "Blend",
    "Cautious",
    "CompositeJumper",
    "Copula",
    "Fade",
    "GammaMixture",
    "Histogram",
    "Idle",
    "Kernel",
    "Markov",
    "MemoryShare",
    "Plugin",
    "Power",
    "PowerChain",
    "Regression",
    "Season",
    "Sentinel",
    "SimpleJumper",
    "SimpleMixture",
    "SleeperDrifter",
    "SleeperStayer",
    "SleepyJumper",
    "Switching",
    "Tree",
    "TwoSided",
    "Volatility",
]
