"""What a salary is for: an hour, a day, a week, a month or a year."""

from __future__ import annotations

import re

from crawler.job_posting.posting import Period

#: Characters of a text that should be a unit.
MAX_LENGTH = 100
_UNITS: dict[Period, str] = {
    "hour": r"hours?|hrs?|h|stunden?|std|heure|hora|ora|uur|timme|time|godz\w*",
    "day": r"days?|d|tag|jour|d[ií]a|giorno|dag|dzie[nń]",
    "week": r"weeks?|wk|w|woche|semaine|semana|settimana",
    "month": r"months?|mo|mth|monat|mois|m[eê]s|mese|maand|m[aå]nad|miesi[aą]c\w*|mies",
    "year": r"years?|yrs?|y|annum|jahr|ann[eé]e|an|a[nñ]o|anno|jaar|år|rok",
}
_WORDS: dict[Period, str] = {
    "hour": r"hourly|p\.?\s?h\.?|st[uü]ndlich|stundenlohn|brutto/h|timlön",
    "day": r"daily|p\.?d\.|day rate|t[aä]glich|tagessatz",
    "week": r"weekly|p\.?w\.?|w[oö]chentlich|hebdomadaire",
    "month": (r"monthly|p\.?(?:c\.?)?m\.?|monatlich|monatsgehalt|mensuel\w*|mensual\w*|mensile|mensal|maandelijks"),
    "year": (
        r"yearly|annual(?:ly)?|p\.?\s?a\.?|lpa|ctc|j[aä]hrlich|jahresgehalt|annuel\w*|anual\w*|annuo|annui|jaarlijks"
    ),
}
_PER = r"(?:/\s?|(?<!\w)(?:(?:per|an?|each|pro|je|im|par|por|al|la|le|na|i)\s+|(?:all|l)['’]\s?))"
#: Where words do not end with spaces.
_UNSPACED: dict[Period, str] = {
    "hour": "時給|/\\s?(?:小时|時間)",
    "day": "日給|日当|/\\s?[日天]",
    "week": "週給|/\\s?[週周]",
    "month": "月給|月収|月薪|/\\s?月",
    "year": "年収|年俸|年薪|/\\s?年",
}
_PATTERNS: dict[Period, re.Pattern[str]] = {
    period: re.compile(
        rf"{_PER}(?:{unit})(?![^\W\d_])|(?<!\w)(?:{_WORDS[period]})(?!\w)|{_UNSPACED[period]}", re.IGNORECASE
    )
    for period, unit in _UNITS.items()
}
_BARE: dict[Period, re.Pattern[str]] = {
    period: re.compile(rf"\s*(?:{unit})(?![^\W\d_])", re.IGNORECASE) for period, unit in _UNITS.items()
}
#: UN/CEFACT codes, ISO 8601 durations and what else is put into `unitText`.
_CODES_OF: dict[Period, tuple[str, ...]] = {
    "hour": ("HUR", "PT1H"),
    "day": ("DAY", "P1D"),
    "week": ("WEE", "P1W", "P7D"),
    "month": ("MON", "P1M"),
    "year": ("ANN", "P1Y", "P12M"),
}
_CODES = {code: period for period, codes in _CODES_OF.items() for code in codes}


def period_of(unit: str | None) -> Period | None:
    """Of a unit by itself: `HOUR`, `per month`, `ANN`, `jährlich`."""
    written = (unit or "")[:MAX_LENGTH].strip().replace("_", " ")
    known = _CODES.get(written.upper())
    return (
        known or next((name for name, bare in _BARE.items() if bare.fullmatch(written)), None) or period_in(written)
    )


def period_in(text: str, after: int = 0) -> Period | None:
    """The first that `text` names: after an amount that ends at `after`, or else before it."""
    bare = _bare(text, after) if after else None
    return bare or _first(text[after:]) or (_first(text[:after]) if after else None)


def _bare(text: str, at: int) -> Period | None:
    """The unit that follows an amount by itself; what has two letters (`an`) may be anything."""
    found = ((name, pattern.match(text, at)) for name, pattern in _BARE.items())
    return next((name for name, match in found if match and len(match[0].strip()) > len("an")), None)


def _first(text: str) -> Period | None:
    found = [(match.start(), name) for name, pattern in _PATTERNS.items() if (match := pattern.search(text))]
    return min(found)[1] if found else None
