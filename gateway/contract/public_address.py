"""Which addresses a crawl may reach. They are checked when a crawl is submitted and again at every connection.

`ipaddress.is_global` is not enough: it allows multicast, the cloud metadata addresses of some providers, and private
IPv4 addresses inside IPv6 addresses.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import SplitResult, urlsplit

from gateway.errors import ForbiddenAddressError, InvalidRequestError

Network = IPv4Network | IPv6Network
Address = IPv4Address | IPv6Address

_NAT64 = IPv6Network("64:ff9b::/96")
_SIX_TO_FOUR = IPv6Network("2002::/16")
_TEREDO = IPv6Network("2001::/32")
#: Upper half of an ISATAP interface identifier, whose lower half is an IPv4 address.
_ISATAP = frozenset({0x00005EFE, 0x02005EFE})
#: Never allowed, although `is_global` may be true: IETF protocol assignments (192.0.0.192 is a metadata service),
#: 6to4 relays, deprecated site-local, translated IPv4 (SIIT), the NAT64 local prefix, segment routing, and the
#: metadata address of one cloud provider.
_NEVER: tuple[Network, ...] = tuple(
    ip_network(text)
    for text in (
        *("192.0.0.0/24", "192.88.99.0/24", "168.63.129.16/32"),
        *("fec0::/10", "::ffff:0:0:0/96", "64:ff9b:1::/48", "5f00::/16"),
    )
)
#: Names of this machine.
_LOCAL_NAMES = ("localhost", "localdomain")
#: Names of machines in the same network. The last is a metadata service under a public domain.
_INTRANET_NAMES = (
    *("local", "internal", "home.arpa", "home", "lan", "corp", "private", "intranet", "svc"),
    "metadata.goog",
)
_HOST = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?")


def parse_networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Networks in CIDR notation. Raises `ValueError` that quotes the malformed one."""
    return tuple(ip_network(text.strip()) for text in texts if text.strip())


def _embedded_ipv4(address: IPv6Address) -> Iterator[IPv4Address]:
    number = int(address)
    if address.ipv4_mapped:
        yield address.ipv4_mapped
    if address in _NAT64 or number >> 32 == 0:
        yield IPv4Address(number & 0xFFFFFFFF)
    if address in _SIX_TO_FOUR:
        yield IPv4Address(number >> 80 & 0xFFFFFFFF)
    if address in _TEREDO:
        yield IPv4Address(~number & 0xFFFFFFFF)
    if number >> 32 & 0xFFFFFFFF in _ISATAP:
        yield IPv4Address(number & 0xFFFFFFFF)


def is_allowed(address: Address | str, allowed: Iterable[Network] = ()) -> bool:
    """Whether a crawl may connect to `address`: it is public, or lies in one of the `allowed` networks."""
    if isinstance(address, str):
        address = ip_address(address.partition("%")[0])
    if isinstance(address, IPv6Address) and address.ipv4_mapped:
        return is_allowed(address.ipv4_mapped, allowed)
    if any(address.version == network.version and address in network for network in allowed):
        return True
    if not address.is_global or address.is_multicast:
        return False
    if any(address.version == network.version and address in network for network in _NEVER):
        return False
    if isinstance(address, IPv6Address):
        return all(is_allowed(inner) for inner in _embedded_ipv4(address))
    return True


def literal_address(host: str) -> Address | None:
    """The address that `host` spells, in any spelling a resolver would take (`2130706433`, `0x7f.1`, `[::1]`)."""
    text = host.strip("[]").rstrip(".")
    with suppress(ValueError):
        return ip_address(text.partition("%")[0])
    with suppress(OSError, UnicodeError):
        return IPv4Address(socket.inet_aton(text))
    return None


@lru_cache(maxsize=1024)  # a crawl asks once for each page, but has few hosts
def address_without_dns(host: str) -> Address | None:
    """The address of `host` if no DNS query is needed: a literal address, or 127.0.0.1 for a name of this machine."""
    name = ascii_host(host)
    return literal_address(name) or (IPv4Address("127.0.0.1") if _is_below(name, _LOCAL_NAMES) else None)


def check_url(field: str, url: str, allowed: Iterable[Network] = (), setting: str = "CRAWL_ALLOW_NETWORKS") -> None:
    """Refuse a URL that must not, or cannot, be fetched, as far as this is known without DNS.

    `setting`: the setting that allows further networks, for the message. Raises `ForbiddenAddressError` if the URL's
    host is not public, `InvalidRequestError` if no crawler could fetch the URL.
    """
    _check_url(field, url, tuple(allowed), setting)


@lru_cache(maxsize=1024)  # most requests repeat an earlier one; what is raised is not kept
def _check_url(field: str, url: str, networks: tuple[Network, ...], setting: str) -> None:
    host = _host(field, url)
    address = address_without_dns(host)
    if is_allowed(address, networks) if address is not None else networks or not is_nearby(host):
        # the name may be in an allowed network; the node decides after its DNS query
        return
    why = f"{address} is not a public address" if address is not None else f"{host} is not a public name"
    raise ForbiddenAddressError(field, f"{url!r} may not be fetched: {why}; allow it with {setting}")


def _host(field: str, url: str) -> str:
    """The URL's host in ASCII. Raises `InvalidRequestError`, which never quotes the URL, because it may contain a
    password.
    """
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError as error:
        raise InvalidRequestError(field, "is not a URL: its host cannot be read") from error
    if parts.scheme not in {"http", "https"}:
        raise InvalidRequestError(field, "must begin with http:// or https://")
    if "@" in parts.netloc:
        raise InvalidRequestError(field, "credentials in a URL are not supported")
    if not host:
        raise InvalidRequestError(field, "is not a URL: it names no host")
    if any(char.isspace() or ord(char) < 32 for char in url):  # noqa: PLR2004 - ASCII controls
        raise InvalidRequestError(field, "is not a URL: it holds spaces or control characters")
    if not _has_usable_port(parts):
        raise InvalidRequestError(field, "is not a URL: its port is not a number from 1 to 65535")
    host = ascii_host(host)
    if not (isinstance(literal_address(host), IPv6Address) if "[" in parts.netloc else _HOST.fullmatch(host)):
        raise InvalidRequestError(field, "is not a URL: its host is neither a name nor an address")
    return host


def _has_usable_port(parts: SplitResult) -> bool:
    with suppress(ValueError):
        return parts.port != 0
    return False


def ascii_host(host: str) -> str:
    """The name in the ASCII form of DNS (IDNA), or `host` itself if it has no such form.

    IDNA maps full-width digits and dots to plain ones, so `１２７.0.0.1` is an address too.
    """
    try:
        return host.encode("idna").decode()
    except UnicodeError:
        return host


def _is_below(host: str, names: Iterable[str]) -> bool:
    name = host.rstrip(".").lower()
    return any(name == local or name.endswith(f".{local}") for local in names)


def is_nearby(host: str) -> bool:
    """Whether only the DNS of an internal network can resolve the name: it is an intranet name, or has no dot."""
    return "." not in host.rstrip(".") or _is_below(host, _INTRANET_NAMES)


def is_loopback(host: str) -> bool:
    """Whether `host`, a name or an address, can only be this machine."""
    with suppress(ValueError):
        return ip_address(host.strip("[]")).is_loopback
    return host == "localhost"
