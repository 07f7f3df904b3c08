"""From what a selector found to a value of the field's type."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from lxml import etree

from crawler.extraction.dates import date_in
from crawler.extraction.numbers import decimal_mark, number_in
from crawler.extraction.page import Page
from crawler.extraction.rules import Kind, Rule
from crawler.extraction.text import squeeze, text_of

#: Attributes that say it better than the text does, by the type that is wanted.
_TELLING: dict[Kind, tuple[str, ...]] = {
    "url": ("href", "src", "action", "data-src"),
    "date": ("datetime",),
}
_NO = frozenset({"false", "no", "0", "off", "none", "null", "n"})


def source_of(node: Any, rule: Rule) -> str | None:
    """The text that a value is read from: of a node, an attribute or whatever else XPath may give."""
    if isinstance(node, str):
        return node
    if isinstance(node, bool | int | float):
        return json.dumps(int(node) if isinstance(node, float) and node.is_integer() else node)
    if rule.attribute:
        return _attribute(node, rule.attribute)
    if rule.type == "html":
        return etree.tostring(node, encoding="unicode", method="html", with_tail=False)
    # a <meta> has no text, and none of the types would be found in it
    names = (*_TELLING.get(rule.type, ()), *(("content",) if node.tag == "meta" else ()))
    told = next((value for name in names if (value := _attribute(node, name))), None)
    return told or _text(node, rule.type)


def _attribute(node: Any, name: str) -> str | None:
    value = node.get(name)
    return None if value is None else str(value)


def _text(node: Any, kind: Kind) -> str:
    return "".join(node.itertext()) if kind == "json" else text_of(node)


def matches(pattern: Any, text: str) -> Iterator[str]:
    """The first group of each match, or the whole of it where there is no group."""
    for match in pattern.finditer(text):
        value = match.group(1) if pattern.groups else match.group(0)
        if value is not None:
            yield value


def value_of(text: str, rule: Rule, page: Page) -> Any:
    """Raises `ValueError` where the text is not of the rule's type."""
    return _CONVERT[rule.type](text, rule, page)


def _number(text: str, rule: Rule, page: Page) -> int | float:
    usual = decimal_mark(page.language)
    return number_in(text, mark=rule.decimal, usual_mark=usual, whole=rule.type == "integer")


def _date(text: str, rule: Rule, page: Page) -> str:
    return date_in(text, language=page.language, order=rule.date_order)


def _json(text: str, rule: Rule, page: Page) -> Any:  # noqa: ARG001 - as all of them
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error


_CONVERT: dict[Kind, Callable[[str, Rule, Page], Any]] = {
    "text": lambda text, _rule, _page: squeeze(text),
    "html": lambda text, _rule, _page: text.strip(),
    "number": _number,
    "integer": _number,
    "boolean": lambda text, _rule, _page: squeeze(text).lower() not in _NO,
    "date": _date,
    "url": lambda text, _rule, page: page.absolute(text),
    "json": _json,
}
