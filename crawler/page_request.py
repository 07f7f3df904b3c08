"""Which of the requests that pass through Scrapy are page requests of the crawl."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.http.request import NO_CALLBACK

if TYPE_CHECKING:
    from scrapy import Request


def is_page(request: Request) -> bool:
    """Not robots.txt and not an image of a media pipeline: those are fetched by components, for themselves."""
    return request.callback is not NO_CALLBACK


def is_new_page(request: Request) -> bool:
    """Neither the next hop of a redirect nor a retry of what was counted before."""
    meta = request.meta
    return is_page(request) and not meta.get("redirect_times") and not meta.get("retry_times")
