"""Which hosts and origins a request may name, and which addresses the server may listen on."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable, Mapping

from exchangeable.service.problems import Problem

LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
AUTHORITY = re.compile(r"(?:\[(?P<address>[0-9a-f:.]+)\]|(?P<name>[a-z0-9._-]+))(?::(?P<port>[0-9]{1,5}))?")
URL = re.compile(r"https?://([^/]*)(?:/.*)?")
Headers = Mapping[bytes, list[bytes]]
Authority = tuple[str, int | None]  # host and port


class HostList:
    """Names, addresses and networks that a Host header may hold.

    A network is safe against DNS rebinding, since it only matches a Host header that is an address.

    >>> hosts = HostList(["prometheus.example.org", "10.0.0.0/8"])
    >>> "10.1.2.3" in hosts, "11.1.2.3" in hosts, "prometheus.example.org" in hosts
    (True, False, True)
    """

    def __init__(self, entries: Iterable[str]) -> None:
        self._networks = [ipaddress.ip_network(entry) for entry in entries if "/" in entry]
        self._names = frozenset(entry for entry in entries if "/" not in entry)

    def __contains__(self, host: str) -> bool:
        """Return whether a host is listed."""
        if host in self._names:
            return True
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return False
        return any(address in network for network in self._networks if network.version == address.version)


def check_host(headers: Headers, hosts: frozenset[str], more: HostList | None = None) -> Authority:
    """Return the host and port of the Host header, which must be a name of this server.

    A hostile page may let its host name resolve to 127.0.0.1 (DNS rebinding) and so become "same origin" with this
    server; but the browser still sends that name in the Host header.
    """
    values = headers.get(b"host", [])
    authority = _parse_authority(values[0].decode("latin-1")) if len(values) == 1 else None
    if authority is None:
        raise Problem(400, "bad-request", "a request must have one Host header, with a name and optionally a port")
    if authority[0] not in hosts and not (more is not None and authority[0] in more):
        setting = "hosts" if more is None else "hosts or metrics_hosts"
        message = f"the Host header must hold a name of this server: {setting} in its settings lists them"
        raise Problem(421, "untrusted-host", message)
    return authority


def reject_cross_site(method: str, headers: Headers, allowed: set[Authority | None]) -> None:
    """Reject requests that another web site starts, except navigation to a page."""
    sites = {value.strip().lower() for value in headers.get(b"sec-fetch-site", [])}
    cross_site = not sites <= {b"same-origin", b"none"}
    if method in SAFE_METHODS:
        cross_site = cross_site and headers.get(b"sec-fetch-mode") != [b"navigate"]
    elif b"origin" in headers:
        origins = headers[b"origin"]
        cross_site = cross_site or len(origins) > 1 or not _is_allowed_origin(origins[0].decode("latin-1"), allowed)
    if cross_site:
        raise Problem(403, "forbidden", "requests that another web site starts are rejected")


def _is_allowed_origin(origin: str, allowed: set[Authority | None]) -> bool:
    """Return whether an origin is allowed; it may include the default port or omit it."""
    authority = parse_origin(origin)
    if authority is None:
        return False
    default = 443 if origin.lower().startswith("https:") else 80
    return (authority[0], authority[1] or default) in {(host, port or default) for host, port in filter(None, allowed)}


def parse_origin(url: str) -> Authority | None:
    """Return the host and port of a URL; None for anything else.

    >>> parse_origin("https://monitor.example.org/page"), parse_origin("null")
    (('monitor.example.org', None), None)
    """
    match = URL.fullmatch(url.lower())
    return _parse_authority(match[1]) if match else None


def _parse_authority(text: str) -> Authority | None:
    """Parse host or host:port; return None for anything else.

    >>> _parse_authority("[::1]:8000"), _parse_authority("LocalHost"), _parse_authority("localhost:80@example.org")
    (('::1', 8000), ('localhost', None), None)
    """
    match = AUTHORITY.fullmatch(text.lower())
    if match is None or int(match["port"] or 1) not in range(1, 65_536):
        return None
    try:
        name = match["name"] or ipaddress.IPv6Address(match["address"]).compressed
    except ValueError:
        return None
    return name, int(match["port"]) if match["port"] else None


def is_exposed(host: str, names: Iterable[str] = ()) -> bool:
    """Return whether other machines can reach a server that listens on this host and is known under these names.

    >>> is_exposed("127.0.0.1"), is_exposed("0.0.0.0"), is_exposed("127.0.0.1", ["monitor.example.org"])
    (False, True, True)
    """
    return not all(map(_is_loopback, _resolve(host))) or not LOCAL_NAMES.issuperset(names)


def check_bindable(host: str, tokens_exist: bool, names: Iterable[str] = ()) -> None:
    """Raise an error if other machines could connect although there is no token.

    >>> check_bindable("0.0.0.0", tokens_exist=False)
    Traceback (most recent call last):
    ...
    ValueError: host must be a loopback address such as 127.0.0.1 while there is no token, got '0.0.0.0'
    """
    if tokens_exist:
        _resolve(host)
    elif is_exposed(host):
        raise ValueError(f"host must be a loopback address such as 127.0.0.1 while there is no token, got {host!r}")
    elif is_exposed(host, names):
        public = ", ".join(sorted(set(names) - LOCAL_NAMES))
        raise ValueError(f"hosts and external_url must not be set while there is no token, got {public}")


def _resolve(host: str) -> list[str]:
    """Return all addresses of a host: it is loopback only if each of them is."""
    if host == "":
        return ["0.0.0.0", "::"]  # noqa: S104 - what an empty name means to a socket
    try:
        addresses = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise ValueError(f"host must be an address or a name that resolves to one, got {host!r}") from None
    return [str(address[0]) for *_, address in addresses]


def _is_loopback(text: str) -> bool:
    """Return whether an address is loopback. An IPv4 address mapped to IPv6 is not: versions of Python disagree."""
    address = ipaddress.ip_address(text)
    return address.is_loopback and (address.version == 4 or address.ipv4_mapped is None)
