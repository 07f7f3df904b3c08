"""What the JSON-LD of a page says of postings: the postings themselves, and links to them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from crawler.job_posting.json_values import each, types_of

_POSTING = "jobposting"
#: Not a `BreadcrumbList`, which has entries, too.
_LIST = "itemlist"
_ENTRIES = frozenset({"listitem", _POSTING})
#: Levels of a document that are looked into.
MAX_DEPTH = 30


class JobNode(NamedTuple):
    """A `JobPosting`."""

    #: As it stands in the page.
    written: dict[str, Any]
    #: With what it refers to in place of the references.
    whole: dict[str, Any]


class Graph:
    """The objects of a page, with those that are only referred to (`{"@id": …}`) where they are meant."""

    def __init__(self, documents: list[Any]) -> None:
        self._nodes = [node for document in documents for node in _nodes(document, MAX_DEPTH)]
        self._by_id: dict[str, dict[str, Any]] = {}
        self._meanings: dict[tuple[str, int], dict[str, Any]] = {}
        for node in self._nodes:
            name = node.get("@id")
            if isinstance(name, str) and len(node) > 1:
                self._by_id.setdefault(name, node)

    def postings(self) -> list[JobNode]:
        """Each `JobPosting`, wherever it stands, once."""
        found = {
            id(node): node for node in self._nodes if _POSTING in types_of(node) and node.keys() - {"@type", "@id"}
        }
        return [JobNode(node, self._resolved(node, 2)) for node in found.values()]

    def links(self) -> list[str]:
        """URLs in an `ItemList`, which is how search engines want lists of postings told."""
        entries = (
            one for node in self._nodes if _LIST in types_of(node) for one in each(node.get("itemListElement"))
        )
        found = (next(_urls(entry), None) for entry in entries)
        return list(dict.fromkeys(url for url in found if url))

    def _resolved(self, node: dict[str, Any], depth: int) -> dict[str, Any]:
        """Two levels are enough: a posting's organisation, its place and the place's address."""
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


def _urls(entry: Any) -> Iterator[str]:
    """Of an entry of a list: a URL, or an object that has one, or that is about one."""
    if isinstance(entry, str):
        yield entry
    elif isinstance(entry, dict):
        types = types_of(entry)
        about = [entry.get("item")] if "listitem" in types else []
        if not types or types & _ENTRIES:
            yield from (url for name in ("url", "@id") if isinstance(url := entry.get(name), str))
        for inner in about:
            yield from _urls(inner)
