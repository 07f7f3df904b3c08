"""Postings in JSON-LD: reads the scripts of a page, finds the postings in them, and converts each `JobPosting`."""

from __future__ import annotations

import html
import importlib
import json
import re
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from types import ModuleType
from typing import Any, NamedTuple

from lxml import etree

from crawler.job_posting import fields
from crawler.job_posting.posting import Posting, web_url
from crawler.job_posting.salary import salary_of

#: Maximum number of characters of a broken script that is repaired; a valid one may be longer.
MAX_BROKEN = 500_000
MAX_OBJECTS = 1000
_TYPE = "application/ld+json"
_scripts: Callable[[Any], Any] = etree.XPath(
    "//script[contains(translate(@type, 'APLICTONDJS', 'aplictondjs'), 'ld+json')]"
)
#: Marks that hide a script from old browsers or from XML. They are only looked for at its beginning and end.
_OPENING = re.compile(r"<!--|(?://|/\*)?\s{0,9}<!\[CDATA\[\s{0,9}(?:\*/)?")
_CLOSING = re.compile(r"(?:-->|(?://|/\*)?\s{0,9}\]\]>\s{0,9}(?:\*/)?)$")
_LONGEST_CLOSING = 40
#: Characters that XML, and so lxml, does not allow.
_NOT_TEXT = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_BAD_ESCAPE = re.compile(r'\\(?!["\\/bfnrt]|u[0-9a-fA-F]{4})(.)', re.DOTALL)
_TRAILING_COMMA = re.compile(r",(?=\s*[}\]])")
_BETWEEN = re.compile(r"[\s,;\x00]*")


def json_ld(root: Any) -> Iterator[Any]:
    """The JSON values in the scripts of a page, mostly objects."""
    for script in _scripts(root):
        yield from script_objects("".join(script.itertext()))


def script_objects(text: str) -> list[Any]:
    """The objects in one script; those that cannot be mended are left out."""
    for mend in (_as_it_is, *(_MENDS if len(text) <= MAX_BROKEN else ())):
        found = _read(mend(text))
        if found is not None:
            return found
    return list(_one_by_one(_clean(text)))


def _read(text: str) -> list[Any] | None:
    script = etree.Element("script", type=_TYPE)
    script.text = text
    try:
        return list(_extractor.extract_items(script))
    except (ValueError, RecursionError, IndexError):
        return None


def _as_it_is(text: str) -> str:
    return _NOT_TEXT.sub(" ", text)


def _clean(text: str) -> str:
    """The JSON without what surrounds it, and without common mistakes such as trailing commas."""
    bare = _as_it_is(text).strip()
    opening = _OPENING.match(bare)
    closing = _CLOSING.search(bare, max(0, len(bare) - _LONGEST_CLOSING))
    inner = bare[opening.end() if opening else 0 : closing.start() if closing else len(bare)].strip().rstrip(";")
    return _TRAILING_COMMA.sub("", _BAD_ESCAPE.sub(r"\1", inner))


def _without_entities(text: str) -> str:
    return _clean(html.unescape(text))


_MENDS: tuple[Callable[[str], str], ...] = (_clean, _without_entities)


def _one_by_one(text: str) -> Iterator[Any]:
    """The complete objects in a text with several objects in a row, or with something else after them."""
    decoder, at = json.JSONDecoder(strict=False), 0
    for _ in range(MAX_OBJECTS):
        between = _BETWEEN.match(text, at)
        at = between.end() if between else at
        try:
            found, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return
        if isinstance(found, dict | list):
            yield from found if isinstance(found, list) else [found]


def _import_extractor() -> Any:
    """Import only extruct's reader of JSON-LD.

    The package itself imports the readers of all other syntaxes, with rdflib, html5lib and BeautifulSoup. That takes
    14 MB and 0.3 s; this takes 4 ms.
    """
    spec = None if "extruct" in sys.modules else find_spec("extruct")
    if spec is None or spec.submodule_search_locations is None:
        return importlib.import_module("extruct.jsonld").JsonLdExtractor()
    package = ModuleType("extruct")
    package.__path__ = list(spec.submodule_search_locations)
    sys.modules["extruct"] = package
    try:
        return importlib.import_module("extruct.jsonld").JsonLdExtractor()
    finally:
        # others that import extruct later must get the whole package
        for name in [name for name in sys.modules if name.partition(".")[0] == "extruct"]:
            del sys.modules[name]


_extractor = _import_extractor()


# --- the postings in a page's JSON-LD, and its links to postings

_POSTING = "jobposting"
#: The type of lists. A `BreadcrumbList` has entries as well, but is not meant.
_LIST = "itemlist"
_ENTRIES = frozenset({"listitem", _POSTING})
#: How many levels of a document are searched.
MAX_DEPTH = 30


class JobNode(NamedTuple):
    """A `JobPosting`."""

    #: The object as written in the page.
    written: dict[str, Any]
    #: The object with references replaced by the objects that they refer to.
    whole: dict[str, Any]


class Graph:
    """The objects of a page. It replaces references (`{"@id": …}`) by the objects that they refer to."""

    def __init__(self, documents: list[Any]) -> None:
        self._nodes = [node for document in documents for node in _nodes(document, MAX_DEPTH)]
        self._by_id: dict[str, dict[str, Any]] = {}
        self._meanings: dict[tuple[str, int], dict[str, Any]] = {}
        for node in self._nodes:
            name = node.get("@id")
            if isinstance(name, str) and len(node) > 1:
                self._by_id.setdefault(name, node)

    def postings(self) -> list[JobNode]:
        """Each `JobPosting` on any level, once."""
        found = {
            id(node): node
            for node in self._nodes
            if _POSTING in fields.types_of(node) and node.keys() - {"@type", "@id"}
        }
        return [JobNode(node, self._resolved(node, 2)) for node in found.values()]

    def links(self) -> list[str]:
        """The URLs in `ItemList`s, the form of lists of postings that search engines ask for."""
        entries = (
            one
            for node in self._nodes
            if _LIST in fields.types_of(node)
            for one in fields.each(node.get("itemListElement"))
        )
        found = (next(_linked_urls(entry), None) for entry in entries)
        return list(dict.fromkeys(url for url in found if url))

    def _resolved(self, node: dict[str, Any], depth: int) -> dict[str, Any]:
        """`node` with its references replaced, down to `depth` levels. Two are enough: a posting's organisation, its
        place and the place's address.
        """
        return {name: self._meant(value, depth) for name, value in node.items()} if depth else node

    def _meant(self, value: Any, depth: int) -> Any:
        if isinstance(value, list):
            return [self._meant(one, depth) if isinstance(one, dict) else one for one in value]
        if not isinstance(value, dict):
            return value
        name = value.get("@id")
        if len(value) > 1 or not isinstance(name, str) or name not in self._by_id:
            return self._resolved(value, depth - 1)
        # once each: a page might refer to one a thousand times
        if (name, depth) not in self._meanings:
            self._meanings[name, depth] = self._resolved(self._by_id[name], depth - 1)
        return self._meanings[name, depth]


def _nodes(value: Any, depth: int) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for one in inner if depth else ():
        if isinstance(one, dict | list):
            yield from _nodes(one, depth - 1)


def _linked_urls(entry: Any) -> Iterator[str]:
    """The URLs in an entry of a list: a URL, or an object with a URL or with an `item` that has one."""
    if isinstance(entry, str):
        yield entry
    elif isinstance(entry, dict):
        types = fields.types_of(entry)
        about = [entry.get("item")] if "listitem" in types else []
        if not types or types & _ENTRIES:
            yield from (url for name in ("url", "@id") if isinstance(url := entry.get(name), str))
        for inner in about:
            yield from _linked_urls(inner)


# --- a schema.org `JobPosting` as a posting
def posting_of(job: JobNode, base: str, language: str | None = None) -> Posting:
    """The posting of a `JobPosting`. Relative URLs are relative to `base`; `language` is the page's, for dates that
    are spelled out.
    """
    node = job.whole
    location = fields.location_of(node)
    title = fields.text_of(node.get("title")) or fields.text_of(node.get("name"))
    written = "\n".join(one for one in fields.each(node.get("description")) if isinstance(one, str))
    description = fields.plain_text(written)
    remote = fields.is_remote(node)
    if remote is None:
        remote = fields.is_remote_text(title, location["text"] if location else None, description=description)
    return Posting(
        source="json-ld",
        title=title,
        company=fields.text_of(node.get("hiringOrganization")),
        location=location,
        remote=remote,
        salary=salary_of(node, location["country"] if location else None),
        posted=fields.day_of(node.get("datePosted"), language),
        valid_through=fields.moment_of(node.get("validThrough"), language),
        employment_type=fields.employment_types(node.get("employmentType")),
        url=next(_posting_urls(node, base), None),
        description=description,
        description_html=fields.markup_of(written),
        identifier=fields.text_of(node.get("identifier"), ("value", "@value", "@id", "name")),
        raw=job.written,
    )


def _posting_urls(node: dict[str, Any], base: str) -> Iterator[str]:
    for name in ("url", "mainEntityOfPage", "@id", "sameAs"):
        written = fields.text_of(node.get(name), ("@id", "url", "@value"))
        if written and (name == "url" or written.startswith(("http://", "https://"))):
            url = web_url(base, written)
            if url:
                yield url
