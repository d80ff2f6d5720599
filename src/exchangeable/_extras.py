"""Optional packages: if one is missing, too old or too new, the error message names the extra that installs it.

The version bounds are stated in ``pyproject.toml`` only. They are read from the metadata of the installed package, once
an import has failed or ``check`` is called.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import zip_longest
from typing import NamedTuple

_REQUIREMENT = re.compile(
    r"([\w.-]+)(?:\[[^]]*])?\s*([^;]*?)\s*;\s*(?:\(?python_version\s*<\s*['\"]([\d.]+)['\"]\)?\s+and\s+)?"
    r"extra\s*==\s*['\"]([\w-]+)['\"]"
)
_BOUND = re.compile(r"(>=|<)\s*([0-9.]+)")


class Requirement(NamedTuple):
    """A package that an extra installs: the lowest version that works, and the first one that is too new."""

    name: str
    least: str | None = None
    below: str | None = None

    def __str__(self) -> str:
        bounds = [f">={self.least}"] * bool(self.least) + [f"<{self.below}"] * bool(self.below)
        return self.name + ",".join(bounds)

    def installed(self) -> str | None:
        """Return the installed version; None if the package is not installed."""
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version(self.name)
        except PackageNotFoundError:
            return None

    def fault(self, version: str) -> str | None:
        """Describe what is wrong with this version; None if nothing is.

        >>> Requirement("typer", "0.16").fault("0.12.5")
        'typer is too old: needs typer>=0.16, found 0.12.5'
        >>> Requirement("typer", "0.16").fault("0.16")
        """
        if self.least is not None and _before(version, self.least):
            return f"{self.name} is too old: needs {self}, found {version}"
        if self.below is not None and not _before(version, self.below):
            return f"{self.name} is too new: needs {self}, found {version}"
        return None


@contextmanager
def needed(extra: str, purpose: str) -> Iterator[None]:
    """Guard imports of optional packages: if one fails in this block, the error message says what to install."""
    try:
        yield
    except Exception as error:
        module = (error.name or "").partition(".")[0] if isinstance(error, ImportError) else ""
        faults = [] if module == "exchangeable" else _missing(extra) + _wrong_versions(extra)
        if not faults and module not in ("", "exchangeable"):
            faults = [f"{module} cannot be used ({' '.join(str(error).split())})"]  # it is installed, but broken
        if not faults:
            raise
        raise ImportError(_message(faults, extra, purpose)) from error


def check(extra: str, purpose: str) -> None:
    """Reject packages of an extra that are too old or too new, even if they can be imported."""
    if faults := _wrong_versions(extra):
        raise ImportError(_message(faults, extra, purpose))


def requirements(extra: str) -> list[Requirement]:
    """Return what an extra installs, according to the metadata of this package; nothing if it has no metadata.

    >>> [requirement.name for requirement in requirements("plots")]
    ['matplotlib']
    """
    from importlib.metadata import PackageNotFoundError, requires

    try:
        lines = requires("exchangeable") or []
    except PackageNotFoundError:  # not installed: the source folder is on the path
        return []
    matches = [match.groups() for line in lines if (match := _REQUIREMENT.fullmatch(line))]
    return [
        _parse(name, bounds)
        for name, bounds, python, owner in matches
        if owner == extra and (python is None or _before(platform.python_version(), python))
    ]


def _parse(name: str, text: str) -> Requirement:
    bounds = dict(_BOUND.findall(text))
    return Requirement(name, bounds.get(">="), bounds.get("<"))


def _missing(extra: str) -> list[str]:
    names = [requirement.name for requirement in requirements(extra) if requirement.installed() is None]
    listed = " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))
    return [f"{listed} {'are' if len(names) > 1 else 'is'} not installed"] if names else []


def _wrong_versions(extra: str) -> list[str]:
    """Describe what is wrong with the installed versions of the packages of an extra."""
    faults = [
        requirement.fault(found)
        for requirement in requirements(extra)
        if (found := requirement.installed()) is not None
    ]
    return [fault for fault in faults if fault is not None]


def _message(faults: list[str], extra: str, purpose: str) -> str:
    return f"{', and '.join(faults)}; for {purpose}: pip install 'exchangeable[{extra}]'"


def _before(version: str, bound: str) -> bool:
    """Return whether a version comes before another, by their numbers alone: 2.0rc1 counts as 2.0.

    >>> _before("0.9.5", "0.16"), _before("1.0.0", "1.0"), _before("2.0rc1", "2.0")
    (True, False, False)
    """
    pairs = zip_longest(_numbers(version), _numbers(bound), fillvalue=0)
    return next((ours < theirs for ours, theirs in pairs if ours != theirs), False)


def _numbers(version: str) -> list[int]:
    release = re.match(r"(?:[0-9]+!)?([0-9]+(?:\.[0-9]+)*)", version)
    return [int(number) for number in release[1].split(".")] if release else []
