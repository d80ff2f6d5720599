"""The operator's settings: limits, retention, trusted names, receivers of alerts; from a TOML file or the defaults."""

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

from exchangeable.service.alerts.apprise_target import AppriseTarget, Receiver
from exchangeable.service.alerts.webhook import SECRET, SECRET_RULE, Webhook
from exchangeable.validation import check_integer, printable

__all__ = ["Limits", "Retention", "Settings"]
MAX_FILE_BYTES = 1 << 20  # of a file of settings or of a token: a longer one is a mistake
HOST_NAME = re.compile(r"(?!.{254})[a-z0-9_]([a-z0-9_-]{0,62})(\.[a-z0-9_]([a-z0-9_-]{0,62}))*")
WEBHOOK_KEYS = ("name", "url", "allow_private", "token_file", "token_env", "timeout")
APPRISE_KEYS = ("name", "url_file", "url_env", "allow_private", "timeout")
Table = Mapping[str, Any]
T = TypeVar("T")


def _integer(default: int, low: int, high: int) -> Any:
    """Return a field for an integer in a range."""
    return field(default=default, metadata={"low": low, "high": high})


def _check_integers(part: Limits | Retention | Settings) -> None:
    """Check every integer against its range."""
    for item in dataclasses.fields(part):
        if item.metadata:
            check_integer(item.name, getattr(part, item.name), item.metadata["low"], item.metadata["high"])


@dataclass(frozen=True)
class Limits:
    """How much a client may send or request.

    >>> Limits().batch
    10000
    >>> Limits(batch=0)
    Traceback (most recent call last):
    ...
    ValueError: batch must be an integer from 1 to 1000000, got 0
    """

    body_bytes: int = _integer(16 << 20, 1 << 10, 1 << 30)  # of a request
    configuration_bytes: int = _integer(8 << 20, 1 << 10, 1 << 28)  # of a PUT, which may contain reference scores
    body_seconds: int = _integer(20, 1, 3_600)  # for a body, in addition to the time of a slow connection
    batch: int = _integer(10_000, 1, 1_000_000)  # observations in a request
    width: int = _integer(4_096, 1, 1_000_000)  # numbers in an observation
    string: int = _integer(256, 1, 65_536)  # characters of an id or a label
    json_depth: int = _integer(8, 2, 64)
    streams: int = _integer(100_000, 1, 1_000_000)
    waiting: int = _integer(100_000, 0, 10_000_000)  # observations of a stream that may wait for their labels
    reference: int = _integer(100_000, 1, 10_000_000)  # reference scores or rows of a stream
    reference_cells: int = _integer(5_000_000, 1, 1_000_000_000)  # rows times columns of the reference of a table
    nearest: int = _integer(50_000, 2, 10_000_000)  # examples in the pool of a nearest-neighbour stream
    queue_rows: int = _integer(200_000, 1, 100_000_000)  # accepted, not yet committed
    queue_requests: int = _integer(1_000, 1, 1_000_000)
    events_readers: int = _integer(500, 0, 100_000)  # open event streams
    database_bytes: int = _integer(0, 0, 1 << 50)  # of all that is stored; 0 is no limit
    reserve_bytes: int = _integer(16 << 20, 0, 1 << 40)  # kept free for deletions on a full disk
    connections: int = _integer(1_000, 1, 1_000_000)  # open at once
    head_seconds: int = _integer(10, 1, 3_600)  # for the head of a request
    bodies_bytes: int = _integer(128 << 20, 1 << 10, 1 << 40)  # of all bodies in progress
    client_bodies_bytes: int = _integer(64 << 20, 1 << 10, 1 << 40)  # of one token; at least one body is allowed
    wrong_tokens: int = _integer(30, 1, 1_000_000)  # requests a minute of one address
    requests_per_second: int = _integer(0, 0, 1_000_000)  # of one token; 0 is no limit
    observations_per_second: int = _integer(0, 0, 1_000_000_000)  # of one token; 0 is no limit

    def __post_init__(self) -> None:
        _check_integers(self)


@dataclass(frozen=True)
class Retention:
    """How much history of a stream is kept: new steps one by one, older ones as roll-ups. No result depends on it.

    >>> Retention(observations=0).observations
    0
    """

    observations: int = _integer(1_000_000, 0, 10**12)  # steps kept one by one
    rollups: int = _integer(100_000_000, 0, 10**12)  # newest steps with fine roll-ups; coarse ones are kept forever

    def __post_init__(self) -> None:
        _check_integers(self)


@dataclass(frozen=True)
class Settings:
    """All settings of an operator; `Settings()` holds the defaults.

    >>> Settings().limits.body_bytes, Settings(hosts=("Monitor.example.org",)).trusted
    (16777216, frozenset({'monitor.example.org'}))
    """

    limits: Limits = Limits()
    retention: Retention = Retention()
    snapshot_every: int = _integer(8_192, 1, 10_000_000)  # steps between two snapshots of a stream
    live_streams: int = _integer(100_000, 1, 1_000_000)  # streams in memory
    live_bytes: int = _integer(1 << 30, 1, 1 << 50)  # of the streams in memory
    metrics_streams: int = _integer(2_000, 0, 1_000_000)  # streams that have their own metrics
    fleet_size: int | None = None  # how many names there will ever be, with deleted ones; fixed when the first joins
    hosts: tuple[str, ...] = ()  # names of the server, besides localhost
    metrics_hosts: tuple[str, ...] = ()  # what the Host header may also hold for /metrics
    external_url: str | None = None  # of the page, for links in alerts
    webhooks: tuple[Webhook, ...] = ()
    apprise: tuple[AppriseTarget, ...] = ()  # e-mail, Slack and Teams
    access_log: bool = False  # one line for every request

    def __post_init__(self) -> None:
        _check_integers(self)
        if self.fleet_size is not None:
            check_integer("fleet_size", self.fleet_size, 1, 10**9)
        object.__setattr__(self, "hosts", tuple(_host(host) for host in self.hosts))
        object.__setattr__(self, "metrics_hosts", tuple(map(_host_or_network, self.metrics_hosts)))
        if not isinstance(self.access_log, bool):
            raise ValueError(f"access_log must be true or false, got {_toml_type(self.access_log)}")
        if self.external_url is not None:
            _check_url(self.external_url)
        names = [receiver.name for receiver in self.receivers]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"webhooks must have different names, got {name!r} twice")

    @property
    def receivers(self) -> tuple[Receiver, ...]:
        """All receivers of alerts."""
        return (*self.webhooks, *self.apprise)

    @property
    def trusted(self) -> frozenset[str]:
        """The names that a Host header may hold besides localhost: ``hosts``, and that of ``external_url``."""
        external = {_host(urlsplit(self.external_url).hostname)} if self.external_url else set()
        return frozenset(self.hosts) | external

    @classmethod
    def read(cls, path: str | os.PathLike[str], *, environment: Mapping[str, str] = os.environ) -> Settings:
        """Read settings from a TOML file; missing settings keep their defaults.

        The file holds no secrets: ``token_file`` or ``token_env`` of a webhook says where its token is, ``url_file`` or
        ``url_env`` where a URL for apprise is. Every error message names the file, the key and the rule.

        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "settings.toml")
        >>> _ = path.write_text("[limits]\\nbatch = 500")
        >>> Settings.read(path).limits.batch
        500
        """
        try:
            table = tomllib.loads(_read_text(Path(path)))
            return _settings(table, environment)
        except (OSError, RecursionError, ValueError) as error:
            raise ValueError(f"{printable(path)}: {_describe(error)}") from None  # the cause may hold a secret


def _settings(table: Table, environment: Mapping[str, str]) -> Settings:
    parts = dict(_check_keys("the file", table, _keys(Settings)))
    for name, make in (("limits", Limits), ("retention", Retention)):
        if name in parts:
            parts[name] = _build(name, make, **_check_keys(name, parts[name], _keys(make)))
    for name in ("hosts", "metrics_hosts"):
        if name in parts:
            parts[name] = tuple(_check_list(name, parts[name], "names"))
    for key, keys, build in (("webhooks", WEBHOOK_KEYS, _webhook), ("apprise", APPRISE_KEYS, _apprise_target)):
        if key in parts:
            rows = enumerate(_check_list(key, parts[key], f"tables: [[{key}]]"), 1)
            named = [(name := f"{key}[{number}]", _check_keys(name, row, keys)) for number, row in rows]
            parts[key] = tuple(_build(name, build, row, environment) for name, row in named)
    return Settings(**parts)


def _build(name: str, make: Callable[..., T], *arguments: Any, **parts: Any) -> T:
    """Build a part of the settings; errors name its table."""
    try:
        return make(*arguments, **parts)
    except ValueError as error:
        raise ValueError(f"{name}.{error}") from None


def _keys(make: type[Limits | Retention | Settings]) -> list[str]:
    return [item.name for item in dataclasses.fields(make)]


def _check_keys(name: str, table: object, keys: Sequence[str]) -> Table:
    """Return the table if it has no unknown keys."""
    if not isinstance(table, dict):
        raise ValueError(f"{name} must be a table, got {_toml_type(table)}")
    for key in table:
        if key not in keys:
            raise ValueError(f"{name} must have keys among {', '.join(keys)}, got {key!r}")
    return table


def _check_list(name: str, value: object, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{name} must be a list of {what}, got {_toml_type(value)}")
    return value


def _webhook(table: Table, environment: Mapping[str, str]) -> Webhook:
    for key in ("name", "url"):
        if key not in table:
            raise ValueError(f"{key} must be given")
    plain = {key: value for key, value in table.items() if not key.startswith("token_")}
    token = _secret("token", table, environment)
    if token is not None and not SECRET.fullmatch(token):
        key = "token_file" if "token_file" in table else "token_env"
        raise ValueError(f"{key} must contain one line of {SECRET_RULE}")
    return Webhook(token=token, **plain)


def _apprise_target(table: Table, environment: Mapping[str, str]) -> AppriseTarget:
    url = _secret("url", table, environment)
    if "name" not in table or url is None:
        raise ValueError(f"{'name' if 'name' not in table else 'url_file or url_env'} must be given")
    plain = {key: value for key, value in table.items() if not key.startswith("url_")}
    return AppriseTarget(url=url, **plain)


def _secret(what: str, table: Table, environment: Mapping[str, str]) -> str | None:
    """Read a secret of a receiver from a file or the environment; no message contains it."""
    file, variable = f"{what}_file", f"{what}_env"
    if file in table and variable in table:
        raise ValueError(f"{file} and {variable} must not both be given")
    for key in (file, variable):
        if key in table and (not isinstance(table[key], str) or not table[key]):
            raise ValueError(f"{key} must be a non-empty string, got {_toml_type(table[key])}")
    if file in table:
        return _read_secret(file, table[file])
    if variable in table:
        if table[variable] not in environment:
            raise ValueError(f"{variable} must name an environment variable that is set, got {table[variable]!r}")
        return environment[table[variable]]
    return None


def _read_secret(key: str, path: str) -> str:
    try:
        return _read_text(Path(path)).rstrip("\r\n")
    except (OSError, ValueError) as error:
        raise ValueError(f"{key} must be readable, got {printable(path)}: {_describe(error)}") from None


def _host(host: object) -> str:
    """Return a name or an address as it appears in a Host header, without a port."""
    if isinstance(host, str) and HOST_NAME.fullmatch(host.lower()):
        return host.lower()
    with suppress(ValueError):
        address = ipaddress.IPv6Address(str(host).removeprefix("[").removesuffix("]"))
        if address.scope_id is None:
            return address.compressed
    raise ValueError(f"hosts must hold names or addresses without scheme, port or path, got {host!r}")


def _host_or_network(host: object) -> str:
    """Return a network such as 10.0.0.0/8, or a name or an address as it appears in a Host header."""
    try:
        return str(ipaddress.ip_network(str(host))) if "/" in str(host) else _host(host)
    except ValueError:
        rule = "metrics_hosts must hold names, addresses or networks such as 10.0.0.0/8"
        raise ValueError(f"{rule}, got {host!r}") from None


def _check_url(url: object) -> None:
    rule = "external_url must be an http or https address without user, password, query and fragment"
    if not isinstance(url, str) or not url.isascii() or not url.isprintable() or set(url) & set(" @?#\\"):
        raise ValueError(rule)  # without the URL, which may contain a password
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and parts.port != 0 and bool(_host(parts.hostname))
    except ValueError:
        valid = False
    if not valid:
        raise ValueError(rule)


def _read_text(path: Path) -> str:
    with path.open("rb") as file:
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise ValueError(f"it must hold at most {MAX_FILE_BYTES} bytes")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError("it must be UTF-8 text") from None


def _toml_type(value: object) -> str:
    """Return the TOML type of a value; the value itself may be a secret."""
    names = {bool: "a boolean", int: "an integer", float: "a float", str: "a string", list: "an array", dict: "a table"}
    return names.get(type(value), "a date or time")


def _describe(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"it must be readable, but {(error.strerror or 'it is not').lower()}"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, tomllib.TOMLDecodeError):
        return f"it must be TOML: {str(error).lower()}"
    return str(error)
