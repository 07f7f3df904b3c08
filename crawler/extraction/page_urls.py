"""URLs: when two are the same page, which are on a site, and which a crawl wants."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated
from urllib.parse import SplitResult, urlsplit, urlunsplit

from pydantic import AfterValidator, Field
from w3lib.url import safe_url_string

from gateway.contract.param_formats import FORMATS, MAX_LENGTH, compile_pattern

_DEFAULT_PORTS = {"http": 80, "https": 443}
_SCHEMES = frozenset(_DEFAULT_PORTS)


def page_url(url: str) -> str | None:
    """The normal form of `url`, which is the same for all spellings of a page: escaped as by a browser, without
    fragment and default port.

    `None` if `url` is not a page on the web. The query stays as it is, because its order may matter to the site.
    """
    try:
        # backslashes are escaped: a browser would take them for slashes, and get another page
        parts = urlsplit(safe_url_string(url.strip().replace("\\", "%5C")))
        if parts.scheme not in _SCHEMES or not parts.hostname:
            return None
        return urlunsplit((parts.scheme, _netloc(parts), parts.path or "/", parts.query, ""))
    except ValueError:
        return None


def site_of(url: str) -> str:
    """The site of a URL: its host, and its port if that is not the default. http and https are one site."""
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


# --- which URLs a crawl wants, by patterns of its parameters

#: Maximum number of patterns in one list.
MAX_PATTERNS = 50


def formatted(name: str) -> tuple[AfterValidator, object]:
    """Metadata for `Annotated`: the model checks that a text has the format `name` of `FORMATS`, and its JSON Schema
    names that format.
    """

    def check(text: str) -> str:
        FORMATS[name](text)
        return text

    return AfterValidator(check), Field(max_length=MAX_LENGTH, json_schema_extra={"format": name})


_check_pattern, _pattern_field = formatted("re2")
Pattern = Annotated[str, _check_pattern, _pattern_field]
Patterns = Annotated[list[Pattern], Field(max_length=MAX_PATTERNS)]


class UrlFilter:
    """Accepts URLs that match any of `include` (all URLs if it is empty) and none of `exclude`."""

    def __init__(self, include: Iterable[str] = (), exclude: Iterable[str] = ()) -> None:
        self._include = [compile_pattern(pattern) for pattern in include]
        self._exclude = [compile_pattern(pattern) for pattern in exclude]

    def takes(self, url: str) -> bool:
        wanted = not self._include or any(pattern.search(url) for pattern in self._include)
        return wanted and not any(pattern.search(url) for pattern in self._exclude)
