"""Bets: densities on (0, 1] that gamble against uniform p-values."""

from exchangeable.bets.jumper import SleepyJumper
from exchangeable.bets.plugin import Plugin
from exchangeable.bets.power import Power, SimpleMixture

__all__ = ["Plugin", "Power", "SimpleMixture", "SleepyJumper"]
