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
    """The place of a job. `text` has all places; the other fields are those of the first."""

    text: str | None
    street: str | None
    city: str | None
    region: str | None
    postal_code: str | None
    country: str | None


class Salary(TypedDict):
    """A salary. `text` is the original text, if there was one. A single amount is both `min` and `max`."""

    min: int | float | None
    max: int | float | None
    #: ISO 4217.
    currency: str | None
    period: Period | None
    text: str | None


@dataclass(slots=True)
class Posting:
    """A job posting. `None` and empty lists stand for unknown values."""

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
    #: The identifier that the site gives to the posting.
    identifier: str | None = None
    #: What it was read from: the JSON-LD object, or the selected texts.
    raw: dict[str, Any] = field(default_factory=dict)

    def as_item(self) -> dict[str, Any]:
        raw = self.raw
        # `asdict` would copy `raw`, which can be as large as the page
        self.raw = {}
        try:
            return {**asdict(self), "raw": raw}
        finally:
            self.raw = raw

    def identities(self) -> Iterator[tuple[str | None, ...]]:
        """Keys of the posting: two postings with one of them in common are the same.

        An identifier alone is not enough, because some sites use the same number, or the company's name, for all
        their postings. Nor is a URL, which postings with different identifiers can share.
        """
        place = self.location["text"] if self.location else None
        if self.identifier:
            yield ("identifier", self.identifier, self.company, self.title, place)
        if self.url:
            yield ("url", self.url, self.identifier)
        if not (self.identifier or self.url):
            # the description's hash, because a crawl keeps all identities in memory
            yield ("text", self.company, self.title, place, self.posted, str(hash(self.description)))

    def fill_from(self, other: Posting) -> None:
        """Fill fields that are unknown here with those of `other`."""
        for name in _FILLED:
            if getattr(self, name) in (None, []):
                setattr(self, name, getattr(other, name))


_FILLED = (
    *("title", "company", "location", "remote", "salary", "posted", "valid_through", "employment_type", "url"),
    *("description", "description_html", "identifier"),
)


def location_of_text(text: str | None) -> Location | None:
    """A location with this text only, because it is uncertain which of the words is the city."""
    if not text:
        return None
    return Location(text=text, street=None, city=None, region=None, postal_code=None, country=None)


# --- where a posting's link leads

_NOWHERE = re.compile(r"#?$|(?!https?:)[a-z][a-z0-9+.-]*:", re.IGNORECASE)


def leads_nowhere(written: str) -> bool:
    """Whether a link leads to no page, such as `#` and `javascript:void(0)`, whose targets only scripts know."""
    return _NOWHERE.match(written.strip()) is not None


def web_url(base: str, written: str) -> str | None:
    """The absolute URL of `written`, which may be relative to `base`; `None` if it leads nowhere or is not valid."""
    try:
        return None if leads_nowhere(written) else urljoin(base, written.strip())
    except ValueError:
        return None


class Quota:
    """Counts how many postings are still wanted, so that no more pages than needed are fetched. `under_way` counts
    the postings whose pages were requested; not all of them need to be delivered.
    """

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
