"""Descriptions as a reader would take them, a paragraph a line."""

from __future__ import annotations

import html
import re
from typing import Any

from lxml import etree
from lxml.html import fragment_fromstring

from crawler.extraction.text import squeeze

_TAG = re.compile(r"</?[a-z][a-z0-9]*\b[^<>]*>", re.IGNORECASE)
_UNSEEN = frozenset({"script", "style", "template", "noscript", "head"})
_BLOCKS = frozenset(
    {
        *("address", "article", "aside", "blockquote", "br", "dd", "details", "div", "dl", "dt", "figure", "footer"),
        *(
            "form",
            "h1",
            "h2",
            "h3",
            "h4",
            "h5",
            "h6",
            "header",
            "hr",
            "li",
            "main",
            "nav",
            "ol",
            "p",
            "pre",
            "section",
        ),
        *("summary", "table", "tbody", "thead", "tr", "ul"),
    }
)
#: Some sites escape what they write into JSON twice.
_UNESCAPES = 2
#: Characters that are read of a description.
MAX_LENGTH = 200_000


def unescaped(text: str) -> str:
    """`text` without HTML entities."""
    for _ in range(_UNESCAPES):
        if "&" not in text:
            break
        text = html.unescape(text)
    return text


def one_line(text: str) -> str | None:
    """Of a title or a name: no entities, no tags, white space squeezed."""
    text = unescaped(text)
    return squeeze(_TAG.sub(" ", text)) or None


def is_html(text: str) -> bool:
    return _TAG.search(text) is not None


def markup_of(text: str) -> str | None:
    """The HTML that `text` is, escaped or not; `None` if it is plain."""
    for candidate in (text, unescaped(text)):
        if is_html(candidate):
            return candidate.strip()
    return None


def plain_text(text: str) -> str | None:
    """`text` (HTML, HTML that was escaped, or plain already) line by line."""
    text = text[:MAX_LENGTH].replace("\0", "")
    markup = markup_of(text)
    if markup is None:
        return lines_of(unescaped(text))
    try:
        return element_text(fragment_fromstring(markup, create_parent="div"))
    except (etree.LxmlError, ValueError):
        return lines_of(_TAG.sub("\n", markup))


def element_text(element: Any) -> str | None:
    return lines_of("".join(_parts(element)))


def lines_of(text: str) -> str | None:
    """White space squeezed, empty lines left out."""
    lines = (squeeze(line) for line in text.splitlines())
    return "\n".join(line for line in lines if line) or None


def _parts(element: Any) -> list[str]:
    parts: list[str] = []
    walk = etree.iterwalk(element, events=("start", "end", "comment", "pi"))
    for event, node in walk:
        seen = event in {"start", "end"} and node.tag not in _UNSEEN
        if seen and node.tag in _BLOCKS:
            parts.append("\n")
        if event == "start" and seen:
            # line breaks in HTML are spaces
            parts.append(squeeze_inner(node.text))
        elif event == "start":
            walk.skip_subtree()
        elif node is not element:
            parts.append(squeeze_inner(node.tail))
    return parts


def squeeze_inner(text: str | None) -> str:
    """White space as one space each, also at both ends."""
    return re.sub(r"\s+", " ", text or "")
