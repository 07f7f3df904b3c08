"""When two URLs are the same page, and which URLs are on a site."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import SplitResult, urlsplit, urlunsplit

from w3lib.url import safe_url_string

_DEFAULT_PORTS = {"http": 80, "https": 443}
_SCHEMES = frozenset(_DEFAULT_PORTS)


def page_url(url: str) -> str | None:
    """`url` as the one spelling of its page: escaped as a browser would, without fragment and default port.

    `None` for what is no page on the web. The query stays as it is: its order may matter to the site.
    """
    try:
        # a browser would take a backslash for a slash and find some other page; whoever wrote it meant neither
        parts = urlsplit(safe_url_string(url.strip().replace("\\", "%5C")))
        if parts.scheme not in _SCHEMES or not parts.hostname:
            return None
        return urlunsplit((parts.scheme, _netloc(parts), parts.path or "/", parts.query, ""))
    except ValueError:
        return None


def site_of(url: str) -> str:
    """Host, and port where it is not the default one: http and https of a host are one site."""
    parts = urlsplit(url)
    return _host_and_port(parts)


def is_on_site(url: str, sites: Iterable[str], *, subdomains: bool = False) -> bool:
    site = site_of(url)
    return any(site == own or (subdomains and site.endswith(f".{own}")) for own in sites)


def _netloc(parts: SplitResult) -> str:
    user, at, _ = parts.netloc.rpartition("@")
    return f"{user}{at}{_host_and_port(parts)}"


def _host_and_port(parts: SplitResult) -> str:
    host = parts.hostname or ""
    if ":" in host:
        host = f"[{host}]"
    default = parts.port in {None, _DEFAULT_PORTS.get(parts.scheme)}
    return host if default else f"{host}:{parts.port}"
