"""The text of an element as a reader would take it."""

from __future__ import annotations

from typing import Any

from lxml import etree

_UNSEEN = frozenset({"script", "style", "template", "noscript", "head"})
#: Words on both sides of these stand together; every other element begins a new one.
_INLINE = frozenset(
    {
        *(
            "a",
            "abbr",
            "b",
            "bdi",
            "bdo",
            "big",
            "cite",
            "code",
            "data",
            "del",
            "dfn",
            "em",
            "font",
            "i",
            "ins",
            "kbd",
        ),
        *("label", "mark", "q", "s", "samp", "small", "span", "strike", "strong", "sub", "sup", "time", "tt", "u"),
        *("var", "wbr"),
    }
)


def squeeze(text: str) -> str:
    return " ".join(text.split())


def text_of(element: Any) -> str:
    """What is seen of it, white space squeezed. Of a script it is the script."""
    if not len(element) or element.tag in _UNSEEN:
        return squeeze("".join(element.itertext()))
    return squeeze("".join(_parts(element)))


def _parts(element: Any) -> list[str]:
    parts: list[str] = []
    walk = etree.iterwalk(element, events=("start", "end", "comment", "pi"))
    for event, node in walk:
        seen = event in {"start", "end"} and node.tag not in _UNSEEN
        if seen and node.tag not in _INLINE:
            parts.append(" ")
        if event == "start" and seen:
            parts.append(node.text or "")
        elif event == "start":
            walk.skip_subtree()
        elif node is not element:
            parts.append(node.tail or "")
    return parts
