"""Which addresses a crawl may reach. Asked when a crawl is submitted and again at every connection.

`ipaddress.is_global` alone is not enough: it lets multicast, the cloud metadata addresses of some providers and
IPv6 wrappers of private IPv4 addresses through.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import SplitResult, urlsplit

from gateway.domain.errors import ForbiddenAddressError, InvalidRequestError

Network = IPv4Network | IPv6Network
Address = IPv4Address | IPv6Address

_NAT64 = IPv6Network("64:ff9b::/96")
_SIX_TO_FOUR = IPv6Network("2002::/16")
_TEREDO = IPv6Network("2001::/32")
#: Not for us, whatever `is_global` says: IETF protocol assignments (192.0.0.192 is a metadata service), deprecated
#: site-local, the NAT64 local prefix, and the address at which one provider's hosts serve their guests.
_NEVER: tuple[Network, ...] = tuple(
    ip_network(text) for text in ("192.0.0.0/24", "fec0::/10", "64:ff9b:1::/48", "168.63.129.16/32")
)
_LOCAL_NAMES = ("localhost", "localdomain", "local", "internal", "home.arpa")


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
    try:
        return ip_address(text.partition("%")[0])
    except ValueError:
        pass
    try:
        return IPv4Address(socket.inet_aton(text))
    except (OSError, UnicodeError):
        return None


def check_url(field: str, url: str, allowed: Iterable[Network] = ()) -> None:
    """Refuse a URL that can be seen, without asking DNS, not to be fetchable.

    Raises `ForbiddenAddressError` where it leads inside, `InvalidRequestError` where it is no URL that could be
    fetched anywhere.
    """
    host = _host(field, url)
    address = literal_address(ascii_host(host))
    if address is None and _is_local_name(host):
        address = IPv4Address("127.0.0.1")
    if address is not None and not is_allowed(address, allowed):
        message = f"{url!r} may not be fetched: {address} is not a public address; allow it with CRAWL_ALLOW_NETWORKS"
        raise ForbiddenAddressError(field, message)


def _host(field: str, url: str) -> str:
    """Raises `InvalidRequestError`, which never quotes the URL: there might be a password in it."""
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
    return host


def _has_usable_port(parts: SplitResult) -> bool:
    try:
        return parts.port != 0
    except ValueError:
        return False


def ascii_host(host: str) -> str:
    """The name as DNS knows it, or `host` itself where that has none.

    IDNA maps full-width digits and dots to plain ones, so `１２７.0.0.1` is an address too.
    """
    try:
        return host.encode("idna").decode()
    except UnicodeError:
        return host


def _is_local_name(host: str) -> bool:
    name = host.rstrip(".").lower()
    return any(name == local or name.endswith(f".{local}") for local in _LOCAL_NAMES)


def is_loopback(host: str) -> bool:
    """Whether `host`, a name or an address, can only be this machine."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
