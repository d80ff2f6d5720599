"""The settings in force, which can be read again from their file while the server runs."""

from __future__ import annotations

import dataclasses
import logging
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from exchangeable.service.server_config import Limits, Retention, Settings
from exchangeable.service.store import StoreError

__all__ = ["LiveSettings"]
LOG: logging.Logger = logging.getLogger("exchangeable.service")
RESTART = ("fleet_size", "limits.connections", "limits.head_seconds", "limits.reserve_bytes")  # used once, at the start
Use = Callable[[Settings], None]


class LiveSettings:
    """The settings in force. Each part of the server subscribes with a function that takes them over.

    >>> live = LiveSettings(Settings())
    >>> live.subscribe(lambda settings: print(settings.limits.batch))
    10000
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._uses: list[Use] = []

    def subscribe(self, use: Use) -> None:
        """Call a function with the settings, now and after each change."""
        use(self.settings)
        self._uses.append(use)

    def reload(self, path: Path | None, check: Use = lambda settings: None) -> None:
        """Read the settings again. If they are invalid, or ``check`` raises ``ValueError``, those in force stay.

        One line of the log says what has changed, and what needs a restart.
        """
        if path is None:
            LOG.info("SIGHUP is ignored: the server was started without a file of settings")
            return
        try:
            wanted = Settings.read(path)
            check(wanted)
        except (ValueError, sqlite3.Error, StoreError) as error:
            LOG.error("the settings were not reloaded, and the previous ones stay in force: %s", error)
            return
        before = self.settings
        self.settings = _without_restart(before, wanted)
        for use in self._uses:
            use(self.settings)
        LOG.info("the settings were reloaded; %s", _describe(before, self.settings, wanted))


def _without_restart(before: Settings, wanted: Settings) -> Settings:
    """Return the wanted settings, except for those that need a restart, which stay as they are."""
    kept = {name.partition(".")[2]: _get(before, name) for name in RESTART if "." in name}
    return dataclasses.replace(wanted, fleet_size=before.fleet_size, limits=dataclasses.replace(wanted.limits, **kept))


def _describe(before: Settings, now: Settings, wanted: Settings) -> str:
    changed, later = _differing(before, now), _differing(now, wanted)
    text = f"changed: {', '.join(changed) or 'nothing'}"
    return text + (f"; a restart is needed for {', '.join(later)}" if later else "")


def _differing(one: Settings, other: Settings) -> list[str]:
    """Return the names of the settings that differ; their values may be secrets."""
    return [name for name in _names() if _get(one, name) != _get(other, name)]


def _names() -> list[str]:
    names = []
    for item in dataclasses.fields(Settings):
        part = getattr(Settings(), item.name)
        keys = [f".{key.name}" for key in dataclasses.fields(part)] if isinstance(part, (Limits, Retention)) else [""]
        names += [f"{item.name}{key}" for key in keys]
    return names


def _get(settings: Settings, name: str) -> Any:
    value: Any = settings
    for part in name.split("."):
        value = getattr(value, part)
    return value
