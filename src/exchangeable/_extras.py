"""Optional packages: if one is missing, too old or too new, the error message names the extra that installs it.

The version bounds are written in ``pyproject.toml`` only, and read here from the metadata of the installed package, but
not before an import has failed or ``check`` is called.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import zip_longest
from typing import NamedTuple

_REQUIREMENT = re.compile(r"([\w.-]+)(?:\[[^]]*])?\s*([^;]*?)\s*;\s*extra\s*==\s*['\"]([\w-]+)['\"]")
_BOUND = re.compile(r"(>=|<)\s*([0-9.]+)")


class Requirement(NamedTuple):
    """A package that an extra installs: the lowest version that works, and the first later one that does not."""

    name: str
    least: str | None = None
    below: str | None = None

    def __str__(self) -> str:
        bounds = [f">={self.least}"] * bool(self.least) + [f"<{self.below}"] * bool(self.below)
        return self.name + ",".join(bounds)

    def found(self) -> str | None:
        """The installed version; None if the package is not installed."""
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version(self.name)
        except PackageNotFoundError:
            return None

    def fault(self, found: str) -> str | None:
        """What is wrong with this version; None if nothing is.

        >>> Requirement("typer", "0.16").fault("0.12.5")
        'typer is too old: needs typer>=0.16, found 0.12.5'
        >>> Requirement("typer", "0.16").fault("0.16")
        """
        if self.least is not None and _before(found, self.least):
            return f"{self.name} is too old: needs {self}, found {found}"
        if self.below is not None and not _before(found, self.below):
            return f"{self.name} is too new: needs {self}, found {found}"
        return None


@contextmanager
def needed(extra: str, purpose: str) -> Iterator[None]:
    """Import optional packages inside this block: a failure then becomes one sentence that says what to install."""
    try:
        yield
    except Exception as error:
        module = (error.name or "").partition(".")[0] if isinstance(error, ImportError) else ""
        faults = [] if module == "exchangeable" else _absent(extra) + _unfit(extra)
        if not faults and module not in ("", "exchangeable"):
            faults = [f"{module} cannot be used ({' '.join(str(error).split())})"]  # it is installed, but broken
        if not faults:
            raise
        raise ImportError(_sentence(faults, extra, purpose)) from error


def check(extra: str, purpose: str) -> None:
    """Reject packages of an extra that are too old or too new, where importing them might not reveal it."""
    if faults := _unfit(extra):
        raise ImportError(_sentence(faults, extra, purpose))


def requirements(extra: str) -> list[Requirement]:
    """What an extra installs, according to the metadata of this package; nothing if it has no metadata.

    >>> [requirement.name for requirement in requirements("plots")]
    ['matplotlib']
    """
    from importlib.metadata import PackageNotFoundError, requires

    try:
        lines = requires("exchangeable") or []
    except PackageNotFoundError:  # not installed: the source folder is on the path
        return []
    found = [match.groups() for line in lines if (match := _REQUIREMENT.fullmatch(line))]
    return [_parsed(name, bounds) for name, bounds, owner in found if owner == extra]


def _parsed(name: str, text: str) -> Requirement:
    bounds = dict(_BOUND.findall(text))
    return Requirement(name, bounds.get(">="), bounds.get("<"))


def _absent(extra: str) -> list[str]:
    names = [requirement.name for requirement in requirements(extra) if requirement.found() is None]
    listed = " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))
    return [f"{listed} {'are' if len(names) > 1 else 'is'} not installed"] if names else []


def _unfit(extra: str) -> list[str]:
    """What is wrong with the installed versions of the packages of an extra."""
    faults = [
        requirement.fault(found) for requirement in requirements(extra) if (found := requirement.found()) is not None
    ]
    return [fault for fault in faults if fault is not None]


def _sentence(faults: list[str], extra: str, purpose: str) -> str:
    return f"{', and '.join(faults)}; for {purpose}: pip install 'exchangeable[{extra}]'"


def _before(version: str, bound: str) -> bool:
    """Whether a version comes before another, by their numbers alone: 2.0rc1 counts as 2.0.

    >>> _before("0.9.5", "0.16"), _before("1.0.0", "1.0"), _before("2.0rc1", "2.0")
    (True, False, False)
    """
    pairs = zip_longest(_numbers(version), _numbers(bound), fillvalue=0)
    return next((ours < theirs for ours, theirs in pairs if ours != theirs), False)


def _numbers(version: str) -> list[int]:
    release = re.match(r"(?:[0-9]+!)?([0-9]+(?:\.[0-9]+)*)", version)
    return [int(number) for number in release[1].split(".")] if release else []
