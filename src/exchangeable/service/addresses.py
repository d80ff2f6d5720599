"""Which addresses a webhook may reach, checked at the moment of connecting.

A name is resolved once, all its addresses are checked, and the connection is made to one of these addresses. Nothing is
resolved again between check and use, so DNS rebinding has no effect. The spelling of an address (decimal, octal,
hexadecimal, mapped) does not matter either, because the resolved address is checked.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any

import httpcore2

__all__ = ["CheckedBackend", "ForbiddenAddressError", "Resolve", "is_public", "resolve"]
Resolve = Callable[[str, int], Awaitable[list[str]]]  # host and port to addresses

# IANA's registries of special-purpose addresses, copied: those in `ipaddress` differ between versions of Python.
_SPECIAL = tuple(
    ip_network(network)
    for network in (
        "0.0.0.0/8",  # this network; 0.0.0.0 reaches this machine
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # carriers' shared addresses
        "127.0.0.0/8",  # loopback
        "169.254.0.0/16",  # link-local, with the metadata services of clouds
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # 6to4 relays, retired
        "192.168.0.0/16",  # private
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
        "2001::/23",  # protocol assignments, with Teredo
        "2001:db8::/32",  # documentation
        "3fff::/20",  # documentation
    )
)
_UNICAST = ip_network("2000::/3")  # the public part of IPv6
_NAT64 = ip_network("64:ff9b::/96")


class ForbiddenAddressError(httpcore2.ConnectError):
    """The connection would reach an address that the operator did not allow."""


def is_public(address: str) -> bool:
    """Return whether an address belongs to the public internet.

    It does not if it is private, loopback, link-local, multicast, reserved, unspecified, shared by a carrier or for
    documentation. For an IPv6 address that contains an IPv4 one (mapped, 6to4, NAT64), the latter decides.

    >>> is_public("192.0.43.8"), is_public("127.0.0.1"), is_public("::ffff:127.0.0.1"), is_public("100.64.0.1")
    (True, False, False, False)

    Reference: RFC 6890 and the IANA special-purpose address registries.
    """
    inner = _embedded(ip_address(address))
    if any(inner in network for network in _SPECIAL if network.version == inner.version):
        return False
    return inner.version == 4 or inner in _UNICAST


def _embedded(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """Return the IPv4 address inside an IPv6 one, if there is one."""
    if isinstance(address, IPv4Address):
        return address
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address


async def resolve(host: str, port: int) -> list[str]:
    """Return every address of a name, as the system resolves it."""
    infos = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in infos))


class CheckedBackend(httpcore2.AnyIOBackend):
    """A network backend that connects to public addresses only, or to any with ``allow_private``.

    If *one* of the addresses of a name is not public, no connection is made: such a name is misconfigured or
    hostile. The name itself is still used in the Host header and the TLS handshake.
    """

    def __init__(self, allow_private: bool, resolve: Resolve = resolve) -> None:
        self._allow_private = allow_private
        self._resolve = resolve

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Resolve the name, check its addresses, and connect to the first of them that answers."""
        failure = httpcore2.ConnectError("the host has no address")
        for address in await self._checked_addresses(host, port):
            try:
                return await super().connect_tcp(address, port, timeout, local_address, socket_options)
            except httpcore2.ConnectError as error:
                failure = error
        raise failure

    async def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[Any] | None = None
    ) -> httpcore2.AsyncNetworkStream:
        """Raise an error, since a webhook must not reach the sockets of this machine."""
        raise ForbiddenAddressError("sockets of this machine must not be connected to")

    async def _checked_addresses(self, host: str, port: int) -> list[str]:
        try:
            addresses = await self._resolve(host, port)
        except (OSError, UnicodeError):  # unknown or invalid
            raise httpcore2.ConnectError("the host's name cannot be resolved") from None
        for address in addresses:
            if not (self._allow_private or is_public(address)):
                raise ForbiddenAddressError(
                    f"the host must have public addresses only unless allow_private is set, got {address}"
                )
        return addresses
