"""Salaries as people write them: `€45,000 – €60,000 a year`, `$30/hr`, `bis zu 60k`."""

from __future__ import annotations

import re
from typing import NamedTuple

from crawler.extraction.numbers import number_in
from crawler.extraction.text import squeeze
from crawler.job_posting.currency import AFTER, BEFORE, currency_of
from crawler.job_posting.period import period_in
from crawler.job_posting.posting import Salary

#: Characters of a text that should be a salary.
MAX_LENGTH = 500
_SPACES = " \N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}\N{THIN SPACE}'\N{RIGHT SINGLE QUOTATION MARK}"
_SCALES_OF = {
    1e3: ("k", "t", "tsd", "thousand", "mil", "тыс"),
    1e4: ("万", "萬"),
    1e5: ("lpa", "lakh", "lakhs", "lac", "lacs", "l"),
    1e6: ("m", "mio", "million"),
    1e7: ("crore", "crores", "cr"),
}
_SCALES = {name: scale for scale, names in _SCALES_OF.items() for name in names}
_INDIAN = frozenset({"lpa", "lakh", "lakhs", "lac", "lacs", "crore", "crores", "cr"})
_LAKHS_A_YEAR = "lpa"
_scales = "|".join(sorted(_SCALES, key=len, reverse=True))
_AMOUNT = re.compile(
    rf"(?:(?P<before>{BEFORE})\s*|(?<![A-Za-z\d.,]))"
    rf"(?P<number>\d{{1,3}}(?:[{_SPACES}]\d{{3}})+(?!\d)(?:[.,]\d{{1,2}})?|\d+(?:[.,]\d+)*)"
    rf"(?:[.,][-–—]{{1,2}}(?!\s*\d))?(?:\s?(?P<scale>[万萬]|(?:{_scales})(?![^\W\d_])\.?))?\s*(?P<after>{AFTER})?",
    re.IGNORECASE,
)
_GROUPED = re.compile(r"\d{1,3}(?:([.,])\d{3})(?:\1\d{3})*")
#: Between the two amounts of a range, once the first one's period is taken away.
_TO = re.compile(
    r"(?:-|–|—|−|~|〜|to|bis|till|until|and|und|à|a|et|y|e|do|tot|até|hasta|up to|bis zu)", re.IGNORECASE
)
_ITS_PERIOD = re.compile(
    r"^\s*(?:/\s?\w+|(?:per|an?|pro|je|par|por)\s+\w+|p\.?\s?[ahm]\.?(?!\w))?\s*|\s+$", re.IGNORECASE
)
_AT_MOST = re.compile(r"(?:up to|max(?:imum)?\.?|bis(?: zu)?|jusqu.[àa]|hasta|fino a|tot|até|<|≤)\W*$", re.IGNORECASE)
_AT_LEAST = re.compile(
    r"(?:from|ab|min(?:imum|destens)?\.?|at least|à partir de|dès|desde|a partir (?:de|di)|vanaf|od"
    r"|starting (?:at|from)|>|≥)\W*$",
    re.IGNORECASE,
)
_AND_MORE = re.compile(r"\s*(?:\+|and (?:up|above)|or more)(?!\s*\d)", re.IGNORECASE)
#: What has numbers but is no salary, whatever it stands beside.
_NO_AMOUNT = re.compile(r"401\s?\(?k\)?|\d+(?:[.,]\d+)?\s?%|\b24/7\b", re.IGNORECASE)
#: Follows numbers of other things, where no currency does.
_OTHER_UNIT = re.compile(
    r"\s*(?:hours|hrs|std\b|stunden|days|tage|weeks|wochen|months|monate|years|yrs|jahre|heures|jours|semaines|h\b)",
    re.IGNORECASE,
)
#: Beyond it a number without currency, scale or period is taken for money, in what should be a salary.
_TELLS_ITSELF = 1000
#: What is larger is no amount of money, whatever the currency.
MAX_AMOUNT = 1e15


class Amount(NamedTuple):
    value: float
    scale: str | None
    currency: str | None
    start: int
    end: int


def salary_of_text(text: str, country: str | None = None) -> Salary | None:
    """What `text` says; with no amounts where it has none ("competitive"). `None` of an empty one."""
    text = squeeze(text)[:MAX_LENGTH]
    if not text:
        return None
    salary = Salary(min=None, max=None, currency=None, period=None, text=text)
    found = _range(text)
    if not found:
        return salary
    low, high = found[0], found[-1]
    values: tuple[float | None, float | None] = (min(low.value, high.value), max(low.value, high.value))
    if len(found) == 1:
        values = _bounds(text, low)
    named = low.currency or high.currency
    scale = high.scale or low.scale
    salary["min"], salary["max"] = (None if value is None else plain_number(value) for value in values)
    salary["currency"] = currency_of(named, country) if named else "INR" if scale in _INDIAN else None
    salary["period"] = "year" if scale == _LAKHS_A_YEAR else period_in(text, low.end) or period_in(text, high.end)
    return salary


def plain_number(value: float) -> int | float:
    return int(value) if value == int(value) else round(value, 4)


def _range(text: str) -> list[Amount]:
    """The amount that is the salary, or the two of a range."""
    amounts = _amounts(text)
    if not amounts:
        return []
    first = next((at for at, amount in enumerate(amounts) if amount.currency), 0)
    for low, high in ((first, first + 1), (first - 1, first)):
        if low >= 0 and high < len(amounts) and _joined(text, amounts[low], amounts[high]):
            return _in_one_scale(amounts[low], amounts[high])
    one = amounts[first]
    says_so = one.currency or one.scale or one.value >= _TELLS_ITSELF or period_in(text, one.end)
    return [one] if says_so else []


def _amounts(text: str) -> list[Amount]:
    hidden = _NO_AMOUNT.sub(lambda match: "x" * len(match[0]), text)
    return [
        amount
        for match in _AMOUNT.finditer(hidden)
        if (amount := _amount(match)) and (amount.currency or not _OTHER_UNIT.match(hidden, amount.end))
    ]


def _amount(match: re.Match[str]) -> Amount | None:
    scale = match["scale"].lower().rstrip(".") if match["scale"] else None
    try:
        value = _value(match["number"])
    except ValueError:
        return None
    value *= _SCALES.get(scale or "", 1)
    if value >= MAX_AMOUNT:
        return None
    end = match.end("after") if match["after"] else match.end("scale") if scale else match.end("number")
    return Amount(value, scale, match["before"] or match["after"], match.start(), end)


def _value(number: str) -> float:
    """Three digits after a mark are thousands, in whatever language: nobody pays a thousandth."""
    grouped = _GROUPED.fullmatch(number)
    return number_in(number, whole=bool(grouped))


def _joined(text: str, low: Amount, high: Amount) -> bool:
    return _TO.fullmatch(_ITS_PERIOD.sub("", text[low.end : high.start])) is not None


def _in_one_scale(low: Amount, high: Amount) -> list[Amount]:
    """`50-60k` is from 50 thousand."""
    if high.scale and not low.scale and low.value < _TELLS_ITSELF:
        low = low._replace(value=low.value * _SCALES[high.scale])
    return [low, high]


def _bounds(text: str, amount: Amount) -> tuple[float | None, float | None]:
    before = text[: amount.start]
    if _AT_MOST.search(before):
        return None, amount.value
    if _AT_LEAST.search(before) or _AND_MORE.match(text, amount.end):
        return amount.value, None
    return amount.value, amount.value
