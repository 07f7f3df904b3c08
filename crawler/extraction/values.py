"""Converts what a selector has found to a value of the field's type: text, dates, numbers."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import lru_cache
from typing import Any

from lxml import etree

from crawler.extraction.rules import Kind, Page, Rule

_UNSEEN = frozenset({"script", "style", "template", "noscript", "head"})
#: Elements that do not separate words; every other element begins a new word.
_INLINE = frozenset({
    "a", "abbr", "b", "bdi", "bdo", "big", "cite", "code", "data", "del", "dfn", "em", "font", "i", "ins", "kbd",
    "label", "mark", "q", "s", "samp", "small", "span", "strike", "strong", "sub", "sup", "time", "tt", "u", "var",
    "wbr",
})  # fmt: skip


def squeeze(text: str) -> str:
    return " ".join(text.split())


def text_of(element: Any) -> str:
    """The visible text of an element, with white space squeezed; for a script, its code."""
    if not len(element) or element.tag in _UNSEEN:
        return squeeze("".join(element.itertext()))
    return squeeze("".join(seen_parts(element, lambda tag: "" if tag in _INLINE else " ")))


def seen_parts(
    element: Any, between: Callable[[str], str], text: Callable[[str | None], str] = lambda text: text or ""
) -> list[str]:
    """The visible texts in an element, each converted by `text`. At both ends of an element there is what `between`
    returns for its tag.
    """
    parts: list[str] = []
    walk = etree.iterwalk(element, events=("start", "end", "comment", "pi"))
    for event, node in walk:
        seen = event in {"start", "end"} and node.tag not in _UNSEEN
        if seen:
            parts.append(between(node.tag))
        if event == "start" and seen:
            parts.append(text(node.text))
        elif event == "start":
            walk.skip_subtree()
        elif node is not element:
            parts.append(text(node.tail))
    return parts


# --- dates as pages write them, to ISO 8601

#: Maximum number of characters of a date. A limit is needed because the languages are tried one after the other.
_MAX_LENGTH = 100
_ISO = re.compile(r"\d{4}-\d\d-\d\d")
_ISO_DATE_LENGTH = 10
#: Languages that are tried for pages that do not say theirs. Each costs time on texts that are no dates.
_LANGUAGES = ("en", "de", "fr", "es", "it", "pt", "nl", "pl", "ru", "sv", "tr", "cs", "ja", "zh")
#: Precision of the date in the text → format of such a date in ISO 8601.
_PRECISION = {"year": "%Y", "month": "%Y-%m"}


def date_in(text: str, *, language: str | None = None, order: str | None = None) -> str:
    """The date in `text` as `2026-03-01`, `2026-03`, `2026`, or `2026-03-01T12:30:00+02:00`. Raises `ValueError`.

    `order` (`DMY`, `MDY`, `YMD`) says how to read `03/04/2026`; otherwise the language does.
    """
    text = " ".join(text[:_MAX_LENGTH].split())
    return _iso(text) or _spelled(text, (language or "").lower().partition("-")[0], order)


def _iso(text: str) -> str | None:
    if not _ISO.match(text):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return text if len(text) == _ISO_DATE_LENGTH else moment.isoformat()


def _spelled(text: str, language: str, order: str | None) -> str:
    data = _parser(language, order).get_date_data(text)
    if data.date_obj is None:
        raise ValueError("there is no date in it")
    if data.period == "time":
        return str(data.date_obj.isoformat())
    return str(data.date_obj.strftime(_PRECISION.get(data.period, "%Y-%m-%d")))


@lru_cache(maxsize=64)
def _parser(language: str, order: str | None) -> Any:
    # a tenth of a second that few crawls need
    from dateparser.data.languages_info import language_order  # noqa: PLC0415 - see above
    from dateparser.date import DateDataParser  # noqa: PLC0415 - see above

    settings = {
        "PREFER_DAY_OF_MONTH": "first",
        "PREFER_MONTH_OF_YEAR": "first",
        "RETURN_TIME_AS_PERIOD": True,
        **({"DATE_ORDER": order} if order else {}),
    }
    languages = list(dict.fromkeys([language, "en"])) if language in language_order else list(_LANGUAGES)
    # without the locales of earlier dates, so that a date is read the same on whichever page it is
    return DateDataParser(languages=languages, settings=settings, try_previous_locales=False, use_given_order=True)


# --- numbers as people write them: `1.234,56 €`, `1,234.56`, `12 345`, `-5 %`

_SIGNS = {"-": -1, "\N{MINUS SIGN}": -1}
#: Characters that group digits in all languages; `.` and `,` can group them or begin the fraction.
_SPACES = " \N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}\N{THIN SPACE}'\N{RIGHT SINGLE QUOTATION MARK}"
_NUMBER = re.compile(rf"(?P<sign>(?<!\w)[-+\N{{MINUS SIGN}}])?[$€£¥₹]?(?P<body>[.,]?\d+(?:[.,{_SPACES}]\d+)*)")
_GROUPED_BY_SPACE = re.compile(rf"\d{{1,3}}(?:[{_SPACES}]\d{{3}}(?!\d))+(?:[.,]\d+)?|[^{_SPACES}]+")
_SPACE = re.compile(f"[{_SPACES}]")
_GROUP = 3
#: Maximum number of digits of an integer that always fits into 64 bits.
_MAX_DIGITS = 18
#: Maximum number of digits of a number that a float can hold.
_LARGEST_EXPONENT = sys.float_info.max_10_exp
#: Languages that write 1.5 as `1,5`, by the first part of their tag.
_COMMA_LANGUAGES = frozenset(
    {
        *("af", "az", "be", "bg", "bs", "ca", "cs", "da", "de", "el", "es", "et", "eu", "fi", "fr", "gl", "hr", "hu"),
        *("hy", "id", "is", "it", "ka", "kk", "lt", "lv", "mk", "nb", "nl", "nn", "no", "pl", "pt", "ro", "ru", "sk"),
        *("sl", "sq", "sr", "sv", "tr", "uk", "uz", "vi"),
    }
)
#: Regions of these languages that write 1.5 as `1.5`.
_POINT_REGIONS = frozenset({"de-ch", "de-li", "it-ch", "es-mx", "es-us", "es-gt", "es-hn", "es-pa", "es-pe", "es-pr"})


def decimal_mark(language: str | None) -> str:
    """The decimal mark in a language (a tag such as `de-AT`)."""
    tag = (language or "").lower().replace("_", "-")
    return "," if tag.partition("-")[0] in _COMMA_LANGUAGES and tag not in _POINT_REGIONS else "."


def number_in(text: str, *, mark: str | None = None, usual_mark: str = ".", whole: bool = False) -> int | float:
    """The first number in `text`. Raises `ValueError` if there is none, or none that makes sense.

    `mark` is the decimal mark, if it is known. Without it the number itself tells. If it could be read both ways
    (`1.234`), `usual_mark` decides, and a `whole` number has no fraction.
    """
    match = _NUMBER.search(text)
    if not match:
        raise ValueError("there is no number in it")
    body = _SPACE.sub("", _first_number(match["body"]))
    mark = mark or _mark_of(body, usual_mark, whole=whole)
    digits, _, fraction = body.partition(mark) if mark else (body, "", "")
    number = _ungrouped(digits, fraction)
    if len(number) > _LARGEST_EXPONENT:
        raise ValueError("it is too large for a number")
    if whole and fraction.strip("0"):
        raise ValueError("it is not a whole number")
    sign = _SIGNS.get(match["sign"] or "", 1)
    if fraction and not whole:
        return sign * float(f"{number}.{fraction}")
    return sign * (int(number) if len(number) <= _MAX_DIGITS else float(number))


def _first_number(body: str) -> str:
    """`body` up to where a space does not group digits but begins another number."""
    match = _GROUPED_BY_SPACE.match(body)
    return match[0] if match else body


def _mark_of(body: str, usual_mark: str, *, whole: bool) -> str | None:
    marks = [char for char in body if char in ".,"]
    if not marks:
        return None
    last = marks[-1]
    if len(set(marks)) > 1:
        return last
    if len(marks) > 1:
        return None
    before, _, after = body.partition(last)
    could_group = len(after) == _GROUP and 0 < len(before) <= _GROUP and before != "0"
    if not could_group:
        return last
    return last if last == usual_mark and not whole else None


def _ungrouped(digits: str, fraction: str) -> str:
    if not fraction.isdigit() and fraction:
        raise ValueError("it has more than one decimal mark")
    first, *groups = re.split("[.,]", digits)
    # the last group has three digits everywhere, those before it two in India
    if groups and (len(groups[-1]) != _GROUP or not all(len(group) in {2, 3} for group in groups)):
        raise ValueError("its digits are not grouped as those of a number")
    return first + "".join(groups) or "0"


# --- from what a selector has found to a value of the field's type

#: Attributes that are read instead of the text if they exist, by the type of the field.
_TELLING: dict[Kind, tuple[str, ...]] = {
    "url": ("href", "src", "action", "data-src"),
    "date": ("datetime",),
}
_NO = frozenset({"false", "no", "0", "off", "none", "null", "n"})


def source_of(node: Any, rule: Rule) -> str | None:
    """The text from which a value is read. `node` is an element, or a text, number or boolean that XPath gives."""
    if isinstance(node, str):
        return node
    if isinstance(node, bool | int | float):
        return json.dumps(int(node) if isinstance(node, float) and node.is_integer() else node)
    if rule.attribute:
        return _attribute(node, rule.attribute)
    if rule.type == "html":
        return etree.tostring(node, encoding="unicode", method="html", with_tail=False)
    # a <meta> has no text, so its content is read
    names = (*_TELLING.get(rule.type, ()), *(("content",) if node.tag == "meta" else ()))
    attribute = next((value for name in names if (value := _attribute(node, name))), None)
    return attribute or _text(node, rule.type)


def _attribute(node: Any, name: str) -> str | None:
    value = node.get(name)
    return None if value is None else str(value)


def _text(node: Any, kind: Kind) -> str:
    return "".join(node.itertext()) if kind == "json" else text_of(node)


def matches(pattern: Any, text: str) -> Iterator[str]:
    """The first group of each match, or the whole match if the pattern has no group."""
    for match in pattern.finditer(text):
        value = match.group(1) if pattern.groups else match.group(0)
        if value is not None:
            yield value


def value_of(text: str, rule: Rule, page: Page) -> Any:
    """The text converted to the rule's type. Raises `ValueError` if that is not possible."""
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
