"""A site's search URL: a template with `{keywords}`, `{location}` and `{page}`."""

from __future__ import annotations

import re
from urllib.parse import quote

from gateway.domain.errors import InvalidRequestError

FIELD = "search_url"
KEYWORDS, LOCATION, PAGE = PLACEHOLDERS = ("keywords", "location", "page")
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
#: Scheme and host: whoever fills in a word must not be able to choose where it leads.
_ORIGIN = re.compile(r"[^/?#]*//[^/?#]*")


class SearchUrl:
    """A template that was looked at. Raises `InvalidRequestError` for one that cannot be filled in."""

    def __init__(self, template: str) -> None:
        names = _PLACEHOLDER.findall(template)
        unknown = next((name for name in names if name not in PLACEHOLDERS), None)
        if unknown is not None:
            raise InvalidRequestError(
                FIELD, f"has {{{unknown}}}; there is {', '.join(f'{{{name}}}' for name in PLACEHOLDERS)}"
            )
        if set(_PLACEHOLDER.sub("", template)) & set("{}"):
            raise InvalidRequestError(FIELD, "has a brace without its other; one that is meant is %7B or %7D")
        origin = _ORIGIN.match(template)
        if origin is None or "{" in origin[0]:
            raise InvalidRequestError(FIELD, "must begin with http:// or https:// and a host without placeholders")
        self.template = template
        self.placeholders = frozenset(names)
        #: Those that leave a hole in the path where there is no value; in a query, none is a value too.
        self.in_path = frozenset(_PLACEHOLDER.findall(re.split("[?#]", template, maxsplit=1)[0]))

    def render(self, keywords: str, location: str, page: int | None = None) -> str:
        """The URL for these words; without `page` its placeholder is left open.

        A space becomes %20 and a slash %2F: understood alike in a path and in a query.
        """
        values = {KEYWORDS: quote(keywords, safe=""), LOCATION: quote(location, safe="")}
        values[PAGE] = f"{{{PAGE}}}" if page is None else str(page)
        return _PLACEHOLDER.sub(lambda match: values[match[1]], self.template)

    def refusal(self, words: dict[str, str]) -> tuple[str, str] | None:
        """Which of `keywords` and `location` does not suit the template, and why; `None` if both do."""
        for name, value in words.items():
            if value and name not in self.placeholders:
                return name, f"the site's search_url has no {{{name}}}"
            if not value and name in self.in_path:
                return name, f"is needed: {{{name}}} stands in the path of the site's search_url"
        return None
