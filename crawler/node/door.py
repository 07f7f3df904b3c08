"""Who may talk to this node's Scrapyd, besides knowing the password.

A browser hands over a saved password for any page that asks it to, and a name can be made to resolve to 127.0.0.1
after the page was loaded (DNS rebinding). So a request must be addressed to a name that is the node's own, and if
a page sent it, that page must be the node's own.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

_DEFAULT_PORTS = {"http": 80, "https": 443}


class Door(NamedTuple):
    #: Host names and addresses, lower case, that the node answers to besides loopback.
    hosts: frozenset[str]
    #: Origin (`scheme://host:port`) of `NODE_URL`: a proxy may have changed the Host header.
    public_origin: str

    def refusal(self, host_header: str | None, origin_header: str | None) -> str | None:
        """Why the request is refused, or `None`."""
        host = _split(f"//{host_header}") if host_header else None
        if host is None or not self._is_ours(host.hostname or ""):
            return "the Host header names another host; set NODE_URL if this node has that name"
        if origin_header is None:
            return None
        origin = _split(origin_header)
        if origin is not None and (_same(origin, host) or _text(origin) == self.public_origin):
            return None
        return "the request comes from a page of another origin"

    def _is_ours(self, host: str) -> bool:
        return host in self.hosts or host == "localhost" or _is_loopback(host)


def open_door(bind_address: str, node_url: str) -> Door:
    """The door of a node that listens on `bind_address` and is known to others as `node_url`."""
    url = urlsplit(node_url)
    names = {bind_address.lower().strip("[]"), (url.hostname or "").lower()}
    return Door(frozenset(name for name in names if name and not _is_wildcard(name)), _text(url))


def _split(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        _ = parts.port, parts.hostname
    except ValueError:
        return None
    return parts


def _same(origin: SplitResult, host: SplitResult) -> bool:
    port = _DEFAULT_PORTS.get(origin.scheme)
    return port is not None and origin.hostname == host.hostname and (origin.port or port) == (host.port or port)


def _text(url: SplitResult) -> str:
    return f"{url.scheme}://{url.hostname}:{url.port or _DEFAULT_PORTS.get(url.scheme)}"


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _is_wildcard(host: str) -> bool:
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False
