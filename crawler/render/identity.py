"""What a browser is told of how whoever asked for the crawl wants it to appear.

Its own jar keeps the cookies where they belong, also when it is redirected. There is no such place for headers: it
would take them along to any host, so those go with the documents that Scrapy fetches and with nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from crawler.fetch_scope import FetchScope
from crawler.setting_names import FETCH_OPTIONS, FETCH_START_URLS
from gateway.domain.public_address import literal_address

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy.settings import BaseSettings

    from gateway.domain.fetch_options import FetchOptions


def context_options(settings: BaseSettings) -> dict[str, Any]:
    """Options of a browser context that nobody else may choose."""
    options: FetchOptions | None = settings.get(FETCH_OPTIONS)
    return {"user_agent": options.user_agent} if options and options.user_agent else {}


def context_cookies(settings: BaseSettings) -> list[Any]:
    """As Playwright's `add_cookies` takes them."""
    options: FetchOptions | None = settings.get(FETCH_OPTIONS)
    if options is None:
        return []
    places = list(_places(FetchScope(settings.getlist(FETCH_START_URLS))))
    return [{"name": name, "value": value, **place} for name, value in options.cookies.items() for place in places]


def _places(scope: FetchScope) -> Iterator[dict[str, Any]]:
    for host, in_clear in scope.hosts.items():
        if literal_address(host) or "." not in host:
            # has no subdomains
            yield {"url": f"http{'' if in_clear else 's'}://{host}/"}
        else:
            yield {"domain": f".{host}", "path": "/", "secure": not in_clear}
