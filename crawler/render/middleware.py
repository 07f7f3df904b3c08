"""Between Scrapy's own downloading and the spider: pages that are to be rendered are, once they have been fetched."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Self

from scrapy.downloadermiddlewares.redirect import BaseRedirectMiddleware
from scrapy.exceptions import NotConfigured
from scrapy.http import HtmlResponse

from crawler.render.instructions import RENDER, Instructions
from crawler.render.page_view import RenderError
from crawler.render.renderer import Renderer

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response

logger = logging.getLogger(__name__)

_OK = range(200, 300)


class RenderPages(BaseRedirectMiddleware):
    """Nearer to the spider than redirects, retries and decompression: what it renders is a whole, good page.

    The document itself is fetched by Scrapy, so robots.txt, the HTTP cache, limits and retries are what they are for
    any page. Where a script moves on to another document, that is a redirect like any other.
    """

    _renderer: Renderer

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        renderer = crawler.get_extension(Renderer)
        if renderer is None:
            raise NotConfigured
        self = super().from_crawler(crawler)
        self._renderer = renderer
        return self

    async def process_response(self, request: Request, response: Response) -> Request | Response:
        wanted = request.meta.get(RENDER)
        if not wanted or not isinstance(response, HtmlResponse) or not _is_whole(response):
            return response
        try:
            rendered, moved_to = await self._renderer.render(request, response, Instructions(*wanted))
        except RenderError as error:
            logger.error("%s was not rendered: %s", response.url, error)  # noqa: TRY400 - it is not ours
            raise
        if moved_to:
            redirected = self._build_redirect_request(request, response, url=moved_to, method="GET", body=b"")
            return self._redirect(redirected, request, "script")
        return rendered


def _is_whole(response: Response) -> bool:
    """One of another type has had no body fetched; an error's page is not worth the browser's time."""
    return response.status in _OK and "download_stopped" not in response.flags
