"""What the operator decides: limits, retention, trusted names, webhooks; from a TOML file, or the defaults."""

from __future__ import annotations

import dataclasses
import ipaddress
import os
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from exchangeable.service.alerts import Webhook
from exchangeable.validation import check_integer

__all__ = ["Limits", "Retention", "Settings"]
LONGEST = 1 << 20  # bytes of a file of settings or of a token: a longer one is surely another
NAME = re.compile(r"(?!.{254})[a-z0-9_]([a-z0-9_-]{0,62})(\.[a-z0-9_]([a-z0-9_-]{0,62}))*")  # of a host
WEBHOOK = ("name", "url", "allow_private", "token_file", "token_env", "timeout")
SECRET = re.compile(r"[!-~]{1,4096}")  # what a header can carry
Table = Mapping[str, Any]
Made = TypeVar("Made")


def _from(default: int, low: int, high: int) -> Any:
    """An integer with its law."""
    return field(default=default, metadata={"low": low, "high": high})


def _obey(part: Limits | Retention | Settings) -> None:
    """Hold every integer to its law."""
    for item in dataclasses.fields(part):
        if item.metadata:
            check_integer(item.name, getattr(part, item.name), item.metadata["low"], item.metadata["high"])


@dataclass(frozen=True)
class Limits:
    """How much of everything a client may ask for.

    >>> Limits().batch
    10000
    >>> Limits(batch=0)
    Traceback (most recent call last):
    ...
    ValueError: batch must be an integer from 1 to 1000000, got 0
    """

    body_bytes: int = _from(16 << 20, 1 << 10, 1 << 30)  # of a request
    configuration_bytes: int = _from(8 << 20, 1 << 10, 1 << 28)  # of a PUT, which may carry a reference table
    body_seconds: int = _from(20, 1, 3_600)  # of patience with a body beyond what a slow line takes
    batch: int = _from(10_000, 1, 1_000_000)  # observations a request
    width: int = _from(4_096, 1, 1_000_000)  # numbers an observation
    string: int = _from(256, 1, 65_536)  # characters of an id or a label
    json_depth: int = _from(8, 2, 64)
    streams: int = _from(10_000, 1, 1_000_000)
    waiting: int = _from(100_000, 0, 10_000_000)  # observations a stream may let wait for their labels
    reference: int = _from(100_000, 1, 10_000_000)  # numbers in an uploaded table
    nearest: int = _from(50_000, 2, 10_000_000)  # examples that a nearest-neighbour stream may keep
    queue_rows: int = _from(200_000, 1, 100_000_000)  # taken in, not yet committed
    queue_requests: int = _from(1_000, 1, 1_000_000)
    events_readers: int = _from(500, 0, 100_000)  # open event streams

    def __post_init__(self) -> None:
        _obey(self)


@dataclass(frozen=True)
class Retention:
    """How much history is kept a stream: the newest steps one by one, older ones as roll-ups. No state depends on it.

    >>> Retention(observations=0).observations
    0
    """

    observations: int = _from(1_000_000, 0, 10**12)  # steps kept one by one
    rollups: int = _from(100_000_000, 0, 10**12)  # newest steps with the finest roll-ups; coarser ones stay

    def __post_init__(self) -> None:
        _obey(self)


@dataclass(frozen=True)
class Settings:
    """All that an operator may set; `Settings()` is the server without a file.

    >>> Settings().limits.body_bytes, Settings(hosts=("Monitor.example.org",)).trusted
    (16777216, frozenset({'monitor.example.org'}))
    """

    limits: Limits = Limits()
    retention: Retention = Retention()
    snapshot_every: int = _from(8_192, 1, 10_000_000)  # steps between two snapshots of a stream
    live_streams: int = _from(4_096, 1, 1_000_000)  # monitors held in memory
    fleet_size: int | None = None  # how many names there will ever be, deleted ones too; fixed when the first joins
    hosts: tuple[str, ...] = ()  # names under which the server is reached, beside localhost
    external_url: str | None = None  # where people find the page, for links in alerts
    webhooks: tuple[Webhook, ...] = ()

    def __post_init__(self) -> None:
        _obey(self)
        if self.fleet_size is not None:
            check_integer("fleet_size", self.fleet_size, 1, 10**9)
        object.__setattr__(self, "hosts", tuple(_host(host) for host in self.hosts))
        if self.external_url is not None:
            _check_address(self.external_url)
        names = [webhook.name for webhook in self.webhooks]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"webhooks must have different names, got {name!r} twice")

    @property
    def trusted(self) -> frozenset[str]:
        """The names that a Host header may carry beside localhost: ``hosts``, and that of ``external_url``."""
        own = {_host(urlsplit(self.external_url).hostname)} if self.external_url else set()
        return frozenset(self.hosts) | own

    @classmethod
    def read(cls, path: str | os.PathLike[str], *, environment: Mapping[str, str] = os.environ) -> Settings:
        """The settings in a TOML file; what is not there keeps its default.

        Secrets are not in it: ``token_file`` or ``token_env`` of a webhook says where one lies. Every refusal is one
        sentence that names the file, the key and the law.

        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "settings.toml")
        >>> _ = path.write_text("[limits]\\nbatch = 500")
        >>> Settings.read(path).limits.batch
        500
        """
        try:
            table = tomllib.loads(_text(Path(path)))
            return _settings(table, environment)
        except (OSError, RecursionError, ValueError) as error:
            raise ValueError(f"{_shown(path)}: {_sentence(error)}") from None  # the cause may hold a secret


def _settings(table: Table, environment: Mapping[str, str]) -> Settings:
    parts = dict(_only("the file", table, _keys(Settings)))
    for name, make in (("limits", Limits), ("retention", Retention)):
        if name in parts:
            parts[name] = _inside(name, make, **_only(name, parts[name], _keys(make)))
    if "hosts" in parts:
        parts["hosts"] = tuple(_list("hosts", parts["hosts"], "names"))
    if "webhooks" in parts:
        rows = enumerate(_list("webhooks", parts["webhooks"], "tables: [[webhooks]]"), 1)
        named = [(name := f"webhooks[{number}]", _only(name, row, WEBHOOK)) for number, row in rows]
        parts["webhooks"] = tuple(_inside(name, _webhook, row, environment) for name, row in named)
    return Settings(**parts)


def _inside(name: str, make: Callable[..., Made], *arguments: Any, **parts: Any) -> Made:
    """Refusals name the table in which they arose."""
    try:
        return make(*arguments, **parts)
    except ValueError as error:
        raise ValueError(f"{name}.{error}") from None


def _keys(make: type[Limits | Retention | Settings]) -> list[str]:
    return [item.name for item in dataclasses.fields(make)]


def _only(name: str, table: object, keys: Sequence[str]) -> Table:
    """A table with no keys but ours."""
    if not isinstance(table, dict):
        raise ValueError(f"{name} must be a table, got {_kind(table)}")
    for key in table:
        if key not in keys:
            raise ValueError(f"{name} must have keys among {', '.join(keys)}, got {key!r}")
    return table


def _list(name: str, given: object, what: str) -> list[Any]:
    if not isinstance(given, list):
        raise ValueError(f"{name} must be a list of {what}, got {_kind(given)}")
    return given


def _webhook(table: Table, environment: Mapping[str, str]) -> Webhook:
    for key in ("name", "url"):
        if key not in table:
            raise ValueError(f"{key} must be given")
    plain = {key: value for key, value in table.items() if not key.startswith("token_")}
    return Webhook(token=_token(table, environment), **plain)


def _token(table: Table, environment: Mapping[str, str]) -> str | None:
    """The secret of a webhook, from where the table says; no message ever holds it."""
    if "token_file" in table and "token_env" in table:
        raise ValueError("token_file and token_env must not be given both")
    for key in ("token_file", "token_env"):
        if key in table and (not isinstance(table[key], str) or not table[key]):
            raise ValueError(f"{key} must be a string that is not empty, got {_kind(table[key])}")
    if "token_file" in table:
        return _secret("token_file", _read_secret(table["token_file"]))
    if "token_env" in table:
        if table["token_env"] not in environment:
            raise ValueError(f"token_env must name a variable of the environment, got {table['token_env']!r}")
        return _secret("token_env", environment[table["token_env"]])
    return None


def _read_secret(path: str) -> str:
    try:
        return _text(Path(path)).rstrip("\r\n")
    except (OSError, ValueError) as error:
        raise ValueError(f"token_file must be readable, got {_shown(path)}: {_sentence(error)}") from None


def _secret(key: str, secret: str) -> str:
    if not SECRET.fullmatch(secret):
        raise ValueError(f"{key} must lead to one line of printable ASCII without spaces, of at most 4096 characters")
    return secret


def _host(host: object) -> str:
    """A name or an address as a Host header shows it, without a port."""
    if isinstance(host, str) and NAME.fullmatch(host.lower()):
        return host.lower()
    with suppress(ValueError):
        address = ipaddress.IPv6Address(str(host).removeprefix("[").removesuffix("]"))
        if address.scope_id is None:
            return address.compressed
    raise ValueError(f"hosts must hold names or addresses without scheme, port or path, got {host!r}")


def _check_address(url: object) -> None:
    law = "external_url must be an http or https address without user, password, query and fragment"
    if not isinstance(url, str) or not url.isascii() or not url.isprintable() or set(url) & set(" @?#\\"):
        raise ValueError(law)  # without its text: a password may be in it
    try:
        parts = urlsplit(url)
        lawful = parts.scheme in ("http", "https") and parts.port != 0 and bool(_host(parts.hostname))
    except ValueError:
        lawful = False
    if not lawful:
        raise ValueError(law)


def _text(path: Path) -> str:
    with path.open("rb") as file:
        data = file.read(LONGEST + 1)
    if len(data) > LONGEST:
        raise ValueError(f"it must hold at most {LONGEST} bytes")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError("it must be UTF-8 text") from None


def _kind(value: object) -> str:
    """What was given, in TOML's words: short, and without its content, which may be a secret."""
    names = {bool: "a boolean", int: "an integer", float: "a float", str: "a string", list: "an array", dict: "a table"}
    return names.get(type(value), "a date or time")


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"it must be readable, but {(error.strerror or 'it is not').lower()}"
    if isinstance(error, RecursionError):
        return "it must not be nested that deeply"
    if isinstance(error, tomllib.TOMLDecodeError):
        return f"it must be TOML: {str(error).lower()}"
    return str(error)


def _shown(path: str | os.PathLike[str]) -> str:
    """A path without control characters."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in os.fspath(path))
