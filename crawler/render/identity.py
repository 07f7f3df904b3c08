"""What a browser is told of how whoever asked for the crawl wants it to appear.

Its own jar keeps the cookies where they belong, also when it is redirected. There is no such place for headers: it
would take them along to any host, so those go with the documents that Scrapy fetches and with nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from crawler.net.fetch_scope import FetchScope
from crawler.setting_names import FETCH_OPTIONS, FETCH_START_URLS
from gateway.contract.public_address import literal_address

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy.settings import BaseSettings

    from gateway.contract.crawl import FetchOptions


def context_options(settings: BaseSettings) -> dict[str, Any]:
    """Options of a browser context that nobody else may choose."""
    options: FetchOptions | None = settings.get(FETCH_OPTIONS)
    return {"user_agent": options.user_agent} if options and options.user_agent else {}


def context_cookies(settings: BaseSettings) -> list[Any]:
    """As Playwright's `add_cookies` takes them."""
    options: FetchOptions | None = settings.get(FETCH_OPTIONS)
    if options is None:
        return []
    scope = FetchScope(settings.getlist(FETCH_START_URLS))
    return [
        {"name": name, "value": value, **place}
        for name, value in options.cookies.items()
        for place in _places(scope, name)
    ]


def _places(scope: FetchScope, name: str) -> Iterator[dict[str, Any]]:
    """Browsers take none whose name says more than its place: one refusal, and the page would not be opened."""
    for host, told_in_clear in scope.hosts.items():
        in_clear = told_in_clear and not name.lower().startswith(("__host-", "__secure-"))
        # an address has no subdomains
        if literal_address(host) or "." not in host or name.lower().startswith("__host-"):
            written = f"[{host}]" if ":" in host else host
            yield {"url": f"http{'' if in_clear else 's'}://{written}/"}
        else:
            yield {"domain": f".{host}", "path": "/", "secure": not in_clear}
