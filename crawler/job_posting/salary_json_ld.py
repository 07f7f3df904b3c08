"""Salaries in JSON-LD: `baseSalary` as schema.org wants it, and as sites write it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from crawler.job_posting.currency import currency_of
from crawler.job_posting.json_values import different, each, objects, text_of
from crawler.job_posting.period import period_of
from crawler.job_posting.posting import Salary
from crawler.job_posting.salary_text import MAX_AMOUNT, plain_number, salary_of_text

_LOWEST = ("minValue", "minPrice", "percentile10", "percentile25")
_HIGHEST = ("maxValue", "maxPrice", "percentile90", "percentile75")
_EXACT = ("value", "price", "amount", "median")
_CURRENCY = ("currency", "priceCurrency", "currencyCode", "unitCurrency")
_UNIT = ("unitText", "unitCode", "duration", "unit", "referenceQuantity")
MAX_NESTING = 5


def salary_of(posting: dict[str, Any], country: str | None = None) -> Salary | None:
    """Of a `JobPosting`; the first of several that names an amount."""
    overall = text_of(posting.get("salaryCurrency"))
    read = [
        salary
        for name in ("baseSalary", "estimatedSalary")
        for one in different(posting.get(name))
        if (salary := _salary(one, overall, country))
    ]
    told = next((salary for salary in read if _is_amount(salary)), None)
    return told or next((salary for salary in read if salary["text"]), None)


def _is_amount(salary: Salary) -> bool:
    return salary["min"] is not None or salary["max"] is not None


def _salary(value: Any, overall: str | None, country: str | None) -> Salary | None:
    if isinstance(value, str):
        read = salary_of_text(value, country)
        if read and _is_amount(read):
            read["currency"] = read["currency"] or currency_of(overall, country)
        return read
    levels = list(_levels(value, MAX_NESTING, set()))
    low, high = _amount(levels, _LOWEST), _amount(levels, _HIGHEST)
    if low is None and high is None:
        low, high = _exact(levels)
    unit = _text(levels, _UNIT)
    text = _written(levels)
    said = salary_of_text(text, country) if text else None
    if said and low is None and high is None:
        low, high = said["min"], said["max"]
    bounds = sorted(bound for bound in (low, high) if bound is not None)
    both = len(bounds) > 1
    return Salary(
        min=bounds[0] if both else low,
        max=bounds[1] if both else high,
        currency=currency_of(_text(levels, _CURRENCY) or overall, country) or (said["currency"] if said else None),
        period=period_of(unit) or (said["period"] if said else None),
        text=text,
    )


def _levels(value: Any, depth: int, seen: set[int]) -> Iterator[dict[str, Any]]:
    """An object and those that its `value`s are: `MonetaryAmount`, `QuantitativeValue`, some wrap one more. Each
    once, however many references there are to it.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        yield {"value": value}
    for one in objects(value):
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        for name in ("value", "referenceQuantity", "priceSpecification"):
            if depth:
                yield from _levels(list(objects(one.get(name))), depth - 1, seen)


def _amount(levels: list[dict[str, Any]], names: tuple[str, ...]) -> int | float | None:
    values = (_number(one) for level in levels for name in names for one in each(level.get(name)))
    return next((value for value in values if value), None)


def _exact(levels: list[dict[str, Any]]) -> tuple[int | float | None, int | float | None]:
    """One amount as both bounds; a list of two is a range."""
    for level in levels:
        values = [number for name in _EXACT for one in each(level.get(name)) if (number := _number(one))]
        if values:
            return min(values), max(values)
    return None, None


def _number(value: Any) -> int | float | None:
    """Of a number, or a text that is one amount. Zero is what forms write where nothing was filled in."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        # a page may say NaN, or Infinity
        return plain_number(value) if 0 < value < MAX_AMOUNT else None
    read = salary_of_text(value) if isinstance(value, str) else None
    if not read or read["min"] != read["max"] or read["min"] is None:
        return _bare_number(value) if isinstance(value, str) else None
    return read["min"]


def _bare_number(text: str) -> int | float | None:
    """`18`, which a text about a salary would not be believed to be one."""
    try:
        value = float(text)
    except ValueError:
        return None
    return plain_number(value) if 0 < value < MAX_AMOUNT else None


def _text(levels: list[dict[str, Any]], names: tuple[str, ...]) -> str | None:
    found = (
        text_of(level.get(name), ("@value", "name", "unitText", "unitCode")) for level in levels for name in names
    )
    return next((text for text in found if text), None)


def _written(levels: list[dict[str, Any]]) -> str | None:
    """A text that stands where a number should, if it is more than one."""
    texts = (one for level in levels for name in _EXACT for one in each(level.get(name)) if isinstance(one, str))
    return next((text for text in texts if _number(text) is None), None)
