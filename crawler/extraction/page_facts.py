"""What a search engine sees of a page."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

from lxml import etree
from parsel import Selector

if TYPE_CHECKING:
    from lxml.html import HtmlElement
    from scrapy.http import HtmlResponse

#: Maximum number of characters of one text, and of headings of one page.
MAX_TEXT = 500
MAX_HEADINGS = 200
_SPACE = re.compile(r"\s+")
_WORD = re.compile(r"\w+")
_LOWER = "translate({}, 'ABCDEFGHIJKLMNOPQRSTUVWXYZ', 'abcdefghijklmnopqrstuvwxyz')"


def _xpath(path: str) -> Callable[[Any], Any]:
    return etree.XPath(path)


_titles = _xpath("//title[not(ancestor::svg)]")
_hrefs = _xpath("//a/@href")
_followed_hrefs = _xpath(
    f"//a[not(contains(concat(' ', normalize-space({_LOWER.format('@rel')}), ' '), ' nofollow '))]/@href"
)
_base = _xpath("string(//base/@href)")
_headings = _xpath("//h1|//h2|//h3|//h4|//h5|//h6")
_visible_text = _xpath("//body//text()[not(parent::script or parent::style or parent::template or parent::noscript)]")
_metas = _xpath("//meta[@content]")
_canonical = _xpath(f"string(//link[{_LOWER.format('@rel')}='canonical']/@href)")
_json_ld = _xpath(f"//script[{_LOWER.format('@type')}='application/ld+json']/text()")
#: Directives of a page that ask robots to follow none of its links.
_NO_LINKS = frozenset({"nofollow", "none"})


class PageFacts:
    """Reads one HTML page. Where possible, libxml2 walks the tree, because Python is slower."""

    def __init__(self, response: HtmlResponse) -> None:
        self._response = response
        self.root: HtmlElement = _tree(response)
        self.base = _base_url(response.url, str(_base(self.root)).strip())
        self._metas = {
            str(meta.get("name") or meta.get("http-equiv") or "").lower(): str(meta.get("content"))
            for meta in reversed(_metas(self.root))
        }

    def links(self, *, obey_nofollow: bool = False) -> Iterator[str]:
        """The page's `<a href>` links as absolute URLs, in document order and not normalised. With `obey_nofollow`,
        links that the page asks robots not to follow are left out.
        """
        if obey_nofollow and not _NO_LINKS.isdisjoint(self._robots()):
            return
        for href in (_followed_hrefs if obey_nofollow else _hrefs)(self.root):
            with suppress(ValueError):
                yield urljoin(self.base, str(href).strip())

    def language(self) -> str | None:
        header = self._response.headers.get(b"Content-Language") or b""
        declared = self.root.get("lang") or self._meta("content-language") or header.decode("latin-1")
        return declared.strip() or None

    def as_item(self) -> dict[str, Any]:
        headings = self._headings()
        titles = _titles(self.root)
        return {
            "title": _text(titles[0]) if titles else None,
            "description": self._meta("description"),
            "canonical": self._canonical(),
            "language": self.language(),
            "robots": self._robots(),
            "h1": [heading["text"] for heading in headings if heading["level"] == 1],
            "headings": headings,
            "word_count": len(_WORD.findall(" ".join(_visible_text(self.root)))),
            "structured_data": sorted(set(self._structured_data())),
        }

    def _meta(self, name: str) -> str | None:
        return _squeeze(self._metas[name]) if name in self._metas else None

    def _canonical(self) -> str | None:
        href = str(_canonical(self.root)).strip()
        with suppress(ValueError):
            return urljoin(self.base, href) if href else None
        return href

    def _robots(self) -> list[str]:
        """Directives for all robots, from the page and from the `X-Robots-Tag` header."""
        headers = (value.decode("latin-1") for value in self._response.headers.getlist(b"X-Robots-Tag"))
        texts = (self._metas.get("robots", ""), *headers)
        directives = (part.strip().lower() for text in texts for part in text.split(","))
        return list(dict.fromkeys(directive for directive in directives if directive))

    def _headings(self) -> list[dict[str, Any]]:
        elements = _headings(self.root)[:MAX_HEADINGS]
        return [{"level": int(element.tag[1]), "text": _text(element)} for element in elements]

    def _structured_data(self) -> Iterator[str]:
        for text in _json_ld(self.root):
            with suppress(ValueError, RecursionError):
                yield from _types(json.loads(text))


def _tree(response: HtmlResponse) -> HtmlElement:
    try:
        return response.selector.root
    except ValueError:
        # Scrapy raises this if the `<base>` is not a URL
        return Selector(response.text, type="html", base_url=response.url).root


def _base_url(url: str, written: str) -> str:
    """The URL to which links are relative. A `<base>` that is no URL is ignored, as browsers do."""
    try:
        return urljoin(url, written)
    except ValueError:
        return url


def _text(element: HtmlElement) -> str:
    return _squeeze("".join(element.itertext()))


def _squeeze(text: str) -> str:
    return _SPACE.sub(" ", text).strip()[:MAX_TEXT]


def _types(data: Any) -> Iterator[str]:
    """Every `@type` in a JSON-LD document, however deep."""
    if isinstance(data, list):
        for part in data:
            yield from _types(part)
    if isinstance(data, dict):
        yield from _strings(data.get("@type"))
        for value in data.values():
            yield from _types(value)


def _strings(value: Any) -> Iterable[str]:
    values = value if isinstance(value, list) else [value]
    return [each for each in values if isinstance(each, str)]
