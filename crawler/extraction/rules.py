"""The rules by which `extract` reads pages, as they are written in `params`.

Rules can be nested in three levels, and each level has a class of its own. So the JSON Schema is complete, and a
wrong rule is found before the crawl runs.
"""

from __future__ import annotations

from collections import Counter
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self
from urllib.parse import urljoin

from pydantic import BaseModel, Field, StringConstraints, model_validator

from crawler.extraction.page_facts import PageFacts
from crawler.extraction.page_urls import Pattern, formatted

if TYPE_CHECKING:
    from scrapy.http import HtmlResponse


#: Maximum number of seconds for all rules of one page. This is checked between values, so one expression can take
#: longer.
MAX_SECONDS = 10.0


class SlowRulesError(Exception):
    """The rules take too long on this page."""


class Page:
    """A page to read. `unread` counts, by field, values that could not be converted to their type; `why` has one
    example of each field.
    """

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
        """The absolute URL. Raises `ValueError` if `url` cannot be part of one."""
        return urljoin(self.base, url.strip())

    def cannot_read(self, field: str, text: str, error: Exception) -> None:
        self.unread[field] += 1
        self.why.setdefault(field, f"{text[:100]!r}: {error}")

    def check_time(self) -> None:
        """Raises `SlowRulesError` if the time for this page is over."""
        if monotonic() > self._end:
            raise SlowRulesError


#: Maximum number of fields of one item or object.
MAX_FIELDS = 100
#: Maximum number of pages that pagination leads to from one start.
MAX_PAGES = 10_000

Kind = Literal["text", "html", "number", "integer", "boolean", "date", "url", "json"]
_check_selector, _selector_field = formatted("selector")
_check_css, _css_field = formatted("css-selector")
_check_xpath, _xpath_field = formatted("xpath")
Selector = Annotated[str, _check_selector, _selector_field]
Css = Annotated[str, _check_css, _css_field]
XPath = Annotated[str, _check_xpath, _xpath_field]
Name = Annotated[str, StringConstraints(min_length=1, max_length=100)]


class LeafRule(BaseModel, extra="forbid", json_schema_extra={"not": {"required": ["css", "xpath"]}}):
    """How one field is read."""

    css: Css | None = Field(default=None, description="CSS selector; it may end with `::text` or `::attr(name)`.")
    xpath: XPath | None = Field(default=None, description="XPath 1.0; begin it with `.` to stay within the item.")
    attribute: Annotated[str, Field(min_length=1, max_length=100)] | None = Field(
        default=None, description="Read this attribute of the selected element, not its text."
    )
    regex: Pattern | None = Field(
        default=None, description="RE2 pattern: keep its first group, or the whole match if it has no group."
    )
    type: Kind = Field(default="text", description="The type that the text is converted to.")
    many: bool = Field(default=False, alias="list", description="Take all matches, not only the first.")
    required: bool = Field(default=False, description="Drop the item if this field has no value.")
    default: Any = Field(default=None, description="The value if nothing is found.")
    decimal: Literal[".", ","] | None = Field(
        default=None, description="What stands before a number's fraction; otherwise the number itself tells."
    )
    date_order: Literal["DMY", "MDY", "YMD"] | None = Field(
        default=None, description="How to read 03/04/2026; by default the page's language decides."
    )

    @model_validator(mode="after")
    def _one_selector(self) -> Self:
        if self.css and self.xpath:
            raise ValueError("give css or xpath, not both")
        return self


class InnerRule(LeafRule):
    """How a field of an object is read."""

    fields: dict[Name, Selector | LeafRule] = Field(
        default_factory=dict, max_length=MAX_FIELDS, description="Fields of an object for each match."
    )


class FieldRule(LeafRule):
    """How a field of an item is read."""

    fields: dict[Name, Selector | InnerRule] = Field(
        default_factory=dict, max_length=MAX_FIELDS, description="Fields of an object for each match."
    )


Rule = LeafRule | InnerRule | FieldRule
#: A rule may be its selector alone.
Fields = dict[Name, Selector | FieldRule]


class _Pages(BaseModel, extra="forbid"):
    max_pages: int = Field(
        default=100, ge=1, le=MAX_PAGES, description="The most pages of one list, including the first."
    )


class NextLink(_Pages):
    """The next page of a list is behind a link."""

    next: Selector = Field(description="The link to the next page.")


class PageParam(_Pages):
    """The next page of a list is at the same URL with a number in its query."""

    page_param: Name = Field(description="Name of the query parameter that counts the pages.")
    start: int = Field(default=1, ge=0, description="Its value on the first page, if the URL does not have it.")
    step: int = Field(default=1, ge=1, description="How much it grows from page to page.")
