"""Reads sitemaps: XML, an index of others, plain text; gzipped or not. See sitemaps.org/protocol.html."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from io import BytesIO
from typing import Any, NamedTuple

from lxml import etree
from scrapy.utils.gz import gunzip

#: Bytes of a sitemap, unpacked: the protocol's own limit.
MAX_BYTES = 50 << 20
_GZIP = b"\x1f\x8b\x08"
_ENTRIES = {"url": False, "sitemap": True}
#: Alternates of one page; there are not many more languages on the web.
_MAX_ALTERNATES = 500


class NoSitemapError(Exception):
    """It is something else, or cannot be unpacked."""


class Entry(NamedTuple):
    """A page, or another sitemap. `about` has what the file says of it, as an item will have it."""

    url: str
    is_sitemap: bool
    about: dict[str, Any]

    @property
    def lastmod(self) -> str | None:
        return self.about.get("lastmod")


def entries(body: bytes, max_bytes: int = MAX_BYTES) -> Iterator[Entry]:
    """One by one, so that a long one is not in memory as a tree. Raises `NoSitemapError`, at the first one."""
    data = _unpacked(body, max_bytes).removeprefix(b"\xef\xbb\xbf").lstrip()
    if data.startswith(b"<"):
        yield from _xml_entries(data)
    else:
        yield from _text_entries(data)


def _unpacked(body: bytes, max_bytes: int) -> bytes:
    if not body.startswith(_GZIP):
        return body
    try:
        return gunzip(body, max_size=max_bytes)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise NoSitemapError(f"it cannot be unpacked: {error}") from error


def _text_entries(data: bytes) -> Iterator[Entry]:
    for line in data.splitlines():
        text = line.decode("utf-8", "replace").strip()
        if text.startswith(("http://", "https://")):
            yield Entry(text, is_sitemap=False, about={})


def _xml_entries(data: bytes) -> Iterator[Entry]:
    walk = etree.iterparse(
        BytesIO(data), events=("start", "end"), recover=True, resolve_entities=False, no_network=True, huge_tree=False
    )
    try:
        root = next((node for _, node in walk), None)
        if root is None or _name(root) not in {"urlset", "sitemapindex"}:
            raise NoSitemapError("it is neither a sitemap nor an index of sitemaps")
        for event, node in walk:
            if event == "end" and node.getparent() is root:
                if _name(node) in _ENTRIES:
                    yield from _entry(node)
                _let_go(node, root)
    except etree.XMLSyntaxError as error:
        raise NoSitemapError(f"it is no XML: {error}") from error


def _let_go(node: Any, root: Any) -> None:
    """And all before it; what comes after it may have been parsed already."""
    node.clear()
    while node.getprevious() is not None:
        del root[0]


def _entry(node: Any) -> Iterator[Entry]:
    texts = {_name(child): (child.text or "").strip() for child in node}
    url = texts.get("loc")
    if url:
        about = {
            "lastmod": texts.get("lastmod") or None,
            "changefreq": texts.get("changefreq") or None,
            "priority": _priority(texts.get("priority")),
            "alternates": [
                {"language": child.get("hreflang"), "url": child.get("href")}
                for child in node
                if _name(child) == "link" and child.get("href")
            ][:_MAX_ALTERNATES],
        }
        yield Entry(url, is_sitemap=_ENTRIES[_name(node)], about=about)


def _priority(text: str | None) -> float | None:
    try:
        return float(text) if text and len(text) < 10 else None  # noqa: PLR2004 - 0.0 to 1.0
    except ValueError:
        return None


def _name(node: Any) -> str:
    """Without its namespace: many a sitemap has a wrong one, or none."""
    return node.tag.rpartition("}")[2] if isinstance(node.tag, str) else ""
