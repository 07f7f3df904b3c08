"""What result pages and the postings' own pages say, put together."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from crawler.extraction.page_urls import page_url
from crawler.extraction.rules import Page, SlowRulesError
from crawler.job_posting.from_selectors import SelectedPostings
from crawler.job_posting.json_ld import Graph, JobNode, json_ld, posting_of
from crawler.job_posting.posting import Posting, web_url

logger = logging.getLogger(__name__)

#: Rows of a page that may be one posting, advertised by another title.
MAX_ROWS = 2


class Results(NamedTuple):
    """The postings of a result page."""

    postings: list[Posting]
    #: Whether its JSON-LD says anything of postings.
    has_json_ld: bool


def results_of(page: Page, selected: SelectedPostings) -> Results:
    """By JSON-LD; by selectors where they find more, as some pages carry that of one advertised posting alone."""
    graph = Graph(list(json_ld(page.root)))
    told = _postings(graph, page)
    found = selected.results(page.root)
    if told and len(told) >= len(found):
        return Results(told, has_json_ld=True)
    if found:
        by_url = {posting.url: posting for posting in told if posting.url}
        listed = _without_shared_urls(list(_listed(page, found, selected)), most=MAX_ROWS)
        return Results([_told_better(posting, by_url) for posting in listed], has_json_ld=bool(told))
    links = [Posting("json-ld", url=web_url(page.base, link)) for link in graph.links()]
    return Results([posting for posting in links if posting.url], has_json_ld=bool(links))


def posting_on(page: Page, listed: Posting, selected: SelectedPostings) -> Posting:
    """What its own page says of a posting, and for the rest what the result page did."""
    every = _postings(Graph(list(json_ld(page.root))), page)
    told = _own(every, page, listed)
    if told is None and _leads_elsewhere(page, listed) and (every or selected.results(page.root)):
        # it is gone, and others are shown instead
        return listed
    if told is None:
        told = listed
        own = selected.read(page.root, page.base, page.language)
        told.fill_from(own)
        if not listed.raw:
            # of a list of links nothing but the link was known
            told.source = own.source
        told.raw = {**own.raw, **told.raw}
    else:
        # what JSON-LD calls its URL is the company's at times; this page is the posting's for sure
        told.url = page.url
        told.fill_from(listed)
    return told


def _listed(page: Page, found: Iterable[Any], selected: SelectedPostings) -> Iterator[Posting]:
    def read(result: Any) -> Posting:
        return selected.read_result(result, page.base, page.language)

    return _read_each(page, found, read)


def _read_each(page: Page, found: Iterable[Any], read: Callable[[Any], Posting]) -> Iterator[Posting]:
    """What goes wrong with one costs no other, unless it takes too long."""
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
    """A URL that more than `most` different postings give is not theirs."""
    titles: dict[str | None, set[str]] = defaultdict(set)
    for posting in postings:
        if posting.title:
            titles[posting.url].add(posting.title)
    for posting in postings:
        if len(titles[posting.url]) > most:
            posting.url = None
    return postings


def _told_better(listed: Posting, by_url: Mapping[str, Posting]) -> Posting:
    told = by_url.get(listed.url or "")
    if told is None:
        return listed
    told.fill_from(listed)
    return told


def _own(every: list[Posting], page: Page, listed: Posting) -> Posting | None:
    """Of several (some pages have similar ones, too) the one that the page is about."""
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
    """Whether its link was redirected."""
    return page_url(listed.url or "") != page_url(page.url)
