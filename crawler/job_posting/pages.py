"""Reads postings from result pages and from their own pages, and merges both."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from lxml import etree

from crawler.extraction.page_urls import page_url
from crawler.extraction.reader import Select, selector
from crawler.extraction.rules import Page, SlowRulesError
from crawler.extraction.values import squeeze, text_of
from crawler.job_posting.fields import day_in, element_text, is_remote_text, lines_of
from crawler.job_posting.json_ld import Graph, JobNode, json_ld, posting_of
from crawler.job_posting.posting import Posting, leads_nowhere, location_of_text, web_url
from crawler.job_posting.salary import salary_of_text

logger = logging.getLogger(__name__)

#: If more rows with different titles than this have the same URL, it is a general link, not the URL of one posting.
#: Two may have it, because a page can also advertise a posting with another title.
MAX_ROWS = 2


def results_of(page: Page, selected: SelectedPostings) -> list[Posting]:
    """The postings of a result page, read from JSON-LD, or by selectors if these find more: some pages have JSON-LD
    of only one advertised posting.
    """
    graph = Graph(list(json_ld(page.root)))
    postings = _postings(graph, page)
    found = selected.results(page.root)
    if postings and len(postings) >= len(found):
        return postings
    if found:
        by_url = {posting.url: posting for posting in postings if posting.url}
        listed = _without_shared_urls(list(_listed(page, found, selected)), most=MAX_ROWS)
        return [_told_better(posting, by_url) for posting in listed]
    links = [Posting("json-ld", url=web_url(page.base, link)) for link in graph.links()]
    return [posting for posting in links if posting.url]


def posting_on(page: Page, listed: Posting, selected: SelectedPostings) -> Posting:
    """The posting as its own page describes it, completed with what the result page says."""
    every = _postings(Graph(list(json_ld(page.root))), page)
    posting = _own(every, page, listed)
    if posting is None and _leads_elsewhere(page, listed) and (every or selected.results(page.root)):
        # the posting is gone, and the page shows others instead
        return listed
    if posting is None:
        posting = listed
        own = selected.read(page.root, page.base, page.language)
        posting.fill_from(own)
        if not listed.raw:
            # it came from a list of links, so only its link was known
            posting.source = own.source
        posting.raw = {**own.raw, **posting.raw}
    else:
        # the URL in JSON-LD is sometimes the company's, but this page certainly is the posting's
        posting.url = page.url
        posting.fill_from(listed)
    return posting


def _listed(page: Page, found: Iterable[Any], selected: SelectedPostings) -> Iterator[Posting]:
    def read(result: Any) -> Posting:
        return selected.read_result(result, page.base, page.language)

    return _read_each(page, found, read)


def _read_each(page: Page, found: Iterable[Any], read: Callable[[Any], Posting]) -> Iterator[Posting]:
    """Read one posting after the other. An error in one does not affect others, but reading ends if it takes too
    long.
    """
    for one in found:
        try:
            page.check_time()
            yield read(one)
        except SlowRulesError:
            logger.warning("It takes too long to read %s; the rest of it is left out", page.url)
            return
        except Exception:
            logger.warning("A posting on %s cannot be read", page.url, exc_info=True)


def _postings(graph: Graph, page: Page) -> list[Posting]:
    def read(job: JobNode) -> Posting:
        return posting_of(job, page.base, page.language)

    return _without_shared_urls(list(_read_each(page, graph.postings(), read)), most=1)


def _without_shared_urls(postings: list[Posting], *, most: int) -> list[Posting]:
    """Remove URLs that more than `most` different postings have, because they cannot be the postings' own."""
    titles: dict[str | None, set[str]] = defaultdict(set)
    for posting in postings:
        if posting.title:
            titles[posting.url].add(posting.title)
    for posting in postings:
        if len(titles[posting.url]) > most:
            posting.url = None
    return postings


def _told_better(listed: Posting, by_url: Mapping[str, Posting]) -> Posting:
    detailed = by_url.get(listed.url or "")
    if detailed is None:
        return listed
    detailed.fill_from(listed)
    return detailed


def _own(every: list[Posting], page: Page, listed: Posting) -> Posting | None:
    """The posting that the page is about, among several: some pages also show similar ones."""
    first_is_own = len(every) == 1 or not _leads_elsewhere(page, listed)
    for is_own in (
        lambda one: one.url in {page.url, listed.url},
        lambda one: one.title and one.title == listed.title,
        lambda _: first_is_own,
    ):
        own = next((one for one in every if is_own(one)), None)
        if own is not None:
            return own
    return None


def _leads_elsewhere(page: Page, listed: Posting) -> bool:
    """Whether the posting's link was redirected to another page."""
    return page_url(listed.url or "") != page_url(page.url)


# --- postings that a site's selectors find, for sites without JSON-LD

#: Fields that are read as plain text.
_TEXTS = ("title", "company", "location", "salary")
_HEADINGS = selector("h1, h2, h3, h4, h5")
_LINKS = selector("a[href]")


class SelectedPostings:
    """Reads postings by `selectors` (by field, as in `SiteSelectors`). Raises `ValueError` if one is not valid."""

    def __init__(self, selectors: Mapping[str, str | None]) -> None:
        self._select: dict[str, Select] = {
            name: select for name, text in selectors.items() if (select := selector(text)) is not None
        }

    @property
    def known(self) -> bool:
        return "result" in self._select

    def results(self, root: Any) -> list[Any]:
        """Elements of the page that are postings."""
        select = self._select.get("result")
        return [found for found in select(root) if hasattr(found, "tag")] if select else []

    def next_url(self, root: Any) -> str | None:
        return next((url for found in self._found("next", root) if (url := _href(found))), None)

    def read(self, scope: Any, base: str, language: str | None = None) -> Posting:
        """The posting as read from `scope`: a result, or the posting's own page."""
        texts = {name: self._text(name, scope) for name in _TEXTS}
        posted = next((text for found in self._found("posted", scope) if (text := _time(found))), None)
        described = next(iter(self._found("description", scope)), None)
        raw = {**texts, "posted": posted, "url": self._url(scope)}
        description = _described(described)
        return Posting(
            source="selectors",
            title=texts["title"],
            company=texts["company"],
            location=location_of_text(texts["location"]),
            remote=is_remote_text(texts["title"], texts["location"], description=description),
            salary=salary_of_text(texts["salary"]) if texts["salary"] else None,
            posted=day_in(posted, language=language) if posted else None,
            url=web_url(base, raw["url"]) if raw["url"] else None,
            description=description,
            description_html=_markup(described),
            raw={name: text for name, text in raw.items() if text},
        )

    def read_result(self, result: Any, base: str, language: str | None = None) -> Posting:
        """The posting as read from a result. Without a selector for the title, its heading or link is the title."""
        posting = self.read(result, base, language)
        if not posting.title and "title" not in self._select:
            posting.title = _title(result)
        return posting

    def _found(self, name: str, scope: Any) -> list[Any]:
        select = self._select.get(name)
        return select(scope) if select else []

    def _text(self, name: str, scope: Any) -> str | None:
        return next((text for found in self._found(name, scope) if (text := _value_of(found))), None)

    def _url(self, scope: Any) -> str | None:
        """The posting's URL by its selector. Without a selector it is the link of the title, or else the first link
        in the result or around it.
        """
        if "url" in self._select:
            return next((url for found in self._found("url", scope) if (url := _href(found))), None)
        if "result" in self._select and scope.tag == "html":
            return None
        titles = [found for found in self._found("title", scope) if hasattr(found, "tag")]
        return next((url for found in (*titles, scope) if (url := _href(found))), None)


def _value_of(found: Any) -> str | None:
    text = found if isinstance(found, str) else found.get("content") or text_of(found)
    return squeeze(text) or None


def _time(found: Any) -> str | None:
    return _value_of(found) if isinstance(found, str) else found.get("datetime") or _value_of(found)


def _title(result: Any) -> str | None:
    candidates = [*(_HEADINGS(result) if _HEADINGS else ()), *(_LINKS(result) if _LINKS else ())]
    return next((text for found in candidates if (text := _value_of(found))), None)


def _described(found: Any) -> str | None:
    return None if found is None else lines_of(found) if isinstance(found, str) else element_text(found)


def _markup(found: Any) -> str | None:
    if found is None or isinstance(found, str):
        return None
    return str(etree.tostring(found, encoding="unicode", method="html", with_tail=False))


def _href(found: Any) -> str | None:
    """The URL of what was found: a text, a link, or an element in which or around which there is a link. Links that
    lead nowhere are passed over.
    """
    if isinstance(found, str):
        return found.strip() or None
    links = [found, *(_LINKS(found) if _LINKS else ()), *found.iterancestors("a")]
    hrefs = (str(href).strip() for link in links if (href := link.get("href")))
    return next((href for href in hrefs if not leads_nowhere(href)), None)
