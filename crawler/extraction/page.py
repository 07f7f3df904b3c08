"""A page that is read by rules: its tree, what its values depend on, and how long that may take."""

from __future__ import annotations

from collections import Counter
from time import monotonic
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

from crawler.page_facts import PageFacts

if TYPE_CHECKING:
    from scrapy.http import HtmlResponse

#: Seconds for all rules of one page; looked at between values, so one expression alone may take longer.
MAX_SECONDS = 10.0


class SlowRulesError(Exception):
    """The rules take too long on this page."""


class Page:
    """`unread` counts, by field, the values that could not be turned into their type; `why` has one example each."""

    def __init__(self, response: HtmlResponse, max_seconds: float = MAX_SECONDS) -> None:
        facts = PageFacts(response)
        self.url = response.url
        self.root: Any = facts.root
        self.base = facts.base
        self.language = facts.language()
        self.unread: Counter[str] = Counter()
        self.missing: Counter[str] = Counter()
        self.why: dict[str, str] = {}
        self._end = monotonic() + max_seconds

    def absolute(self, url: str) -> str:
        """Raises `ValueError` for what cannot be part of a URL."""
        return urljoin(self.base, url.strip())

    def cannot_read(self, field: str, text: str, error: Exception) -> None:
        self.unread[field] += 1
        self.why.setdefault(field, f"{text[:100]!r}: {error}")

    def check_time(self) -> None:
        """Raises `SlowRulesError`."""
        if monotonic() > self._end:
            raise SlowRulesError
