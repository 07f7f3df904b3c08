"""A job posting in the form that items have, from JSON-LD and from selectors alike."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypedDict
from urllib.parse import urljoin

Period = Literal["hour", "day", "week", "month", "year"]
Source = Literal["json-ld", "selectors"]


class Location(TypedDict):
    """`text` is all that is said of it; of several places the parts are those of the first."""

    text: str | None
    street: str | None
    city: str | None
    region: str | None
    postal_code: str | None
    country: str | None


class Salary(TypedDict):
    """`text` as it was written, where it was a text. One amount is both `min` and `max`."""

    min: int | float | None
    max: int | float | None
    #: ISO 4217.
    currency: str | None
    period: Period | None
    text: str | None


@dataclass(slots=True)
class Posting:
    """`None` and empty lists stand for what is not known."""

    source: Source
    title: str | None = None
    company: str | None = None
    location: Location | None = None
    remote: bool | None = None
    salary: Salary | None = None
    #: Days and times in ISO 8601.
    posted: str | None = None
    valid_through: str | None = None
    #: In the words of schema.org (`FULL_TIME`), else as written.
    employment_type: list[str] = field(default_factory=list)
    url: str | None = None
    description: str | None = None
    description_html: str | None = None
    #: By which the site tells its postings apart.
    identifier: str | None = None
    #: What it was read from: the JSON-LD object, or the selected texts.
    raw: dict[str, Any] = field(default_factory=dict)

    def as_item(self) -> dict[str, Any]:
        raw = self.raw
        # JSON from a page may be as large as the page: no copy of that
        self.raw = {}
        try:
            return {**asdict(self), "raw": raw}
        finally:
            self.raw = raw

    def identities(self) -> Iterator[tuple[str | None, ...]]:
        """Two postings are the same if they have one of these in common.

        An identifier alone will not do: some sites put their own number, or the company's name, into each of theirs.
        Nor does a URL that two postings with different identifiers share.
        """
        place = self.location["text"] if self.location else None
        if self.identifier:
            yield ("identifier", self.identifier, self.company, self.title, place)
        if self.url:
            yield ("url", self.url, self.identifier)
        if not (self.identifier or self.url):
            # by its hash: a crawl keeps them all
            yield ("text", self.company, self.title, place, self.posted, str(hash(self.description)))

    def fill_from(self, other: Posting) -> None:
        """Take over what is known of it elsewhere and not here."""
        for name in _FILLED:
            if getattr(self, name) in (None, []):
                setattr(self, name, getattr(other, name))


_FILLED = (
    *("title", "company", "location", "remote", "salary", "posted", "valid_through", "employment_type", "url"),
    *("description", "description_html", "identifier"),
)


def location_of_text(text: str | None) -> Location | None:
    """Which of its words is the city nobody can say for sure."""
    if not text:
        return None
    return Location(text=text, street=None, city=None, region=None, postal_code=None, country=None)


# --- where a posting's link leads

_NOWHERE = re.compile(r"#?$|(?!https?:)[a-z][a-z0-9+.-]*:", re.IGNORECASE)


def leads_nowhere(written: str) -> bool:
    """As `#` and `javascript:void(0)` do, which stand for what only scripts know."""
    return _NOWHERE.match(written.strip()) is not None


def web_url(base: str, written: str) -> str | None:
    """`written`, which may be relative to `base`; `None` of what leads nowhere, or cannot be part of a URL."""
    try:
        return None if leads_nowhere(written) else urljoin(base, written.strip())
    except ValueError:
        return None


# How many postings are still wanted, so that none is fetched beyond
class Quota:
    """`under_way` counts the postings whose pages have been asked for; they may be delivered or not."""

    def __init__(self, wanted: int | None) -> None:
        self._wanted = wanted
        self.delivered = 0
        self.under_way = 0

    @property
    def has_room(self) -> bool:
        return self._wanted is None or self.delivered + self.under_way < self._wanted

    @property
    def is_met(self) -> bool:
        return self._wanted is not None and self.delivered >= self._wanted
