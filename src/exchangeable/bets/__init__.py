"""Bets: densities on (0, 1] that bet against uniform p-values."""

from exchangeable.bets.adaptive import Adaptive
from exchangeable.bets.beta import Beta
from exchangeable.bets.blend import Blend, Cautious, Switching
from exchangeable.bets.histogram import Histogram, Tree
from exchangeable.bets.idle import Idle
from exchangeable.bets.jumper import CompositeJumper, SimpleJumper, SleepyJumper
from exchangeable.bets.kernel import Kernel, Markov
from exchangeable.bets.plugin import Plugin
from exchangeable.bets.power import GammaMixture, Power, SimpleMixture
from exchangeable.bets.watchful import Watchful

__all__ = [
    "Adaptive",
    "Beta",
    "Blend",
    "Cautious",
    "CompositeJumper",
    "GammaMixture",
    "Histogram",
    "Idle",
    "Kernel",
    "Markov",
    "Plugin",
    "Power",
    "SimpleJumper",
    "SimpleMixture",
    "SleepyJumper",
    "Switching",
    "Tree",
    "Watchful",
]
