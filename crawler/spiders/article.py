"""The `article` spider."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal
from urllib.parse import urljoin

from pydantic import Field
from scrapy.http import HtmlResponse, Response
from scrapy.utils.response import get_base_url

from crawler.extraction.page_facts import PageFacts
from crawler.spiders.site_spider import SiteSpider, WalkParams

Format = Literal["text", "markdown", "html"]
#: Limits of a page in which an article is searched for: trafilatura takes up to 0.1 ms an element, and cannot be
#: interrupted.
MAX_ELEMENTS = 20_000
MAX_BYTES = 2_000_000
_EXCERPT_LENGTH = 300
#: Parts of the types by which a page declares itself an article, in Open Graph or JSON-LD.
_ARTICLE_TYPES = ("article", "posting", "reportage")


class TooLargeError(Exception):
    """A page on which the search for its article would take too long."""


def article_of(
    response: HtmlResponse, output_format: Format, min_words: int, *, chosen: bool
) -> dict[str, Any] | None:
    """The item of an article; `None` where the page has none. `chosen` pages need not look like one.

    Raises `TooLargeError`.
    """
    from trafilatura import bare_extraction, extract  # noqa: PLC0415 - it takes a fifth of a second, which other spiders need not pay

    if len(response.body) > MAX_BYTES or _count_elements(response.selector.root) > MAX_ELEMENTS:
        raise TooLargeError
    page = response.text
    document: Any = bare_extraction(page, url=response.url, with_metadata=True, include_comments=False)
    words = len((document.text or "").split()) if document else 0
    if words < max(min_words, 1) or not (chosen or _is_article(document, response)):
        return None
    item = _item(document, response, words)
    if output_format != "text":
        options: dict[str, Any] = {"include_comments": False, "include_formatting": True, "include_links": True}
        item[output_format] = extract(_with_whole_links(response), output_format=output_format, **options)
    return item


def _with_whole_links(response: HtmlResponse) -> Any:
    """The page with absolute links: trafilatura resolves links against the host, not the page or its `<base>`."""
    from trafilatura import load_html  # noqa: PLC0415 - see above

    tree: Any = load_html(response.text)
    tree.make_links_absolute(get_base_url(response), handle_failures="ignore")
    return tree


def _count_elements(root: Any) -> int:
    return sum(1 for _ in root.iter())


def _is_article(document: Any, response: HtmlResponse) -> bool:
    """Whether the page declares itself an article, or has paragraphs as articles have."""
    from trafilatura.readability_lxml import is_probably_readerable  # noqa: PLC0415 - see above

    declared = (document.pagetype or "").lower()
    return any(name in declared for name in _ARTICLE_TYPES) or is_probably_readerable(response.text)


def _item(document: Any, response: HtmlResponse, words: int) -> dict[str, Any]:
    text = document.text
    excerpt = document.description or text
    return {
        "url": response.url,
        "title": document.title,
        "author": document.author,
        "date": document.date,
        "language": document.language or PageFacts(response).language(),
        "site_name": document.sitename,
        "image": urljoin(response.url, document.image) if document.image else None,
        "tags": _tags(document),
        "excerpt": excerpt if len(excerpt) <= _EXCERPT_LENGTH else f"{excerpt[:_EXCERPT_LENGTH].rsplit(None, 1)[0]}…",
        "word_count": words,
        "text": text,
    }


def _tags(document: Any) -> list[str]:
    """The tags, one by one: trafilatura gives lists of keywords as they are written in the page."""
    written = [*(document.tags or []), *(document.categories or [])]
    tags = (tag.strip() for text in written for tag in text.split(","))
    return list(dict.fromkeys(tag for tag in tags if tag))


# --- the spider

PRELOAD = ("re2", "trafilatura", "trafilatura.readability_lxml")


class ArticleParams(WalkParams):
    """Parameters of `article`."""

    format: Format = Field(
        default="text", description="Also give the article as `markdown` or `html`, in a field of that name."
    )
    min_words: int = Field(default=100, ge=1, le=100_000, description="A page with fewer words is not an article.")


class ArticleSpider(SiteSpider):
    """Reads the articles of a site: text, title, author, date, without what stands around them.

    Items: one for each page that is an article.
    """

    name = "article"
    Params: ClassVar[type[ArticleParams]] = ArticleParams
    params: ArticleParams

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._wanted = self.params.url_filter()
        # with depth 0, the user has chosen the start URLs as articles
        self._chosen = str(kwargs.get("depth")) == "0"

    def parse(self, response: Response) -> Iterator[Any]:
        if not self.is_readable(response):
            return
        # links first: if trafilatura fails on this page, the rest of the site is still visited
        yield from self.walk(response, self._wanted)
        yield from self._article(response)

    def _article(self, response: HtmlResponse) -> Iterator[dict[str, Any]]:
        params = self.params
        try:
            item = article_of(response, params.format, params.min_words, chosen=self._chosen)
        except TooLargeError:
            self.logger.warning("%s is too large to look for an article in it", response.url)
            self.count("article/too_large")
            return
        if item is None:
            self.count("article/no_article")
        else:
            yield item
