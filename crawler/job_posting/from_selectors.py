"""Postings that a site's selectors find, for sites without JSON-LD."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lxml import etree

from crawler.extraction.reader import Select, selector
from crawler.extraction.values import squeeze, text_of
from crawler.job_posting.fields import day_in, element_text, is_remote_text, lines_of
from crawler.job_posting.posting import Posting, leads_nowhere, location_of_text, web_url
from crawler.job_posting.salary import salary_of_text

#: Of these fields nothing but their text is wanted.
_TEXTS = ("title", "company", "location", "salary")
_HEADINGS = selector("h1, h2, h3, h4, h5")
_LINKS = selector("a[href]")


class SelectedPostings:
    """`selectors` by field, as in `SiteSelectors`. Raises `ValueError` for one that does not compile."""

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
        """What is known of the posting from `scope`: a result, or the posting's own page."""
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
        """The same of an element of a list, whose heading or link is its title where no selector says."""
        posting = self.read(result, base, language)
        if not posting.title and "title" not in self._select:
            posting.title = _title(result)
        return posting

    def _found(self, name: str, scope: Any) -> list[Any]:
        select = self._select.get(name)
        return select(scope) if select else []

    def _text(self, name: str, scope: Any) -> str | None:
        return next((text for found in self._found(name, scope) if (text := _told(found))), None)

    def _url(self, scope: Any) -> str | None:
        """By its selector; without one the title's link, else the first one, around the result or in it."""
        if "url" in self._select:
            return next((url for found in self._found("url", scope) if (url := _href(found))), None)
        if "result" in self._select and scope.tag == "html":
            return None
        titles = [found for found in self._found("title", scope) if hasattr(found, "tag")]
        return next((url for found in (*titles, scope) if (url := _href(found))), None)


def _told(found: Any) -> str | None:
    text = found if isinstance(found, str) else found.get("content") or text_of(found)
    return squeeze(text) or None


def _time(found: Any) -> str | None:
    return _told(found) if isinstance(found, str) else found.get("datetime") or _told(found)


def _title(result: Any) -> str | None:
    candidates = [*(_HEADINGS(result) if _HEADINGS else ()), *(_LINKS(result) if _LINKS else ())]
    return next((text for found in candidates if (text := _told(found))), None)


def _described(found: Any) -> str | None:
    return None if found is None else lines_of(found) if isinstance(found, str) else element_text(found)


def _markup(found: Any) -> str | None:
    if found is None or isinstance(found, str):
        return None
    return str(etree.tostring(found, encoding="unicode", method="html", with_tail=False))


def _href(found: Any) -> str | None:
    """Of a text, a link, the first link in an element, or the link that it is in, if it leads anywhere."""
    if isinstance(found, str):
        return found.strip() or None
    links = [found, *(_LINKS(found) if _LINKS else ()), *found.iterancestors("a")]
    hrefs = (str(href).strip() for link in links if (href := link.get("href")))
    return next((href for href in hrefs if not leads_nowhere(href)), None)
