"""Reads salaries from texts and from JSON-LD."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from crawler.extraction.values import number_in, squeeze
from crawler.job_posting.fields import different, each, objects, text_of
from crawler.job_posting.posting import Period, Salary

_CURRENCY_CODES = (
    "AED", "ARS", "AUD", "BGN", "BHD", "BRL", "CAD", "CHF", "CLP", "CNY", "COP", "CZK", "DKK", "EGP", "EUR", "GBP",
    "HKD", "HUF", "IDR", "ILS", "INR", "ISK", "JPY", "KES", "KRW", "KWD", "MAD", "MXN", "MYR", "NGN", "NOK", "NZD",
    "OMR", "PEN", "PHP", "PKR", "PLN", "QAR", "RON", "RSD", "RUB", "SAR", "SEK", "SGD", "THB", "TND", "TRY", "TWD",
    "UAH", "USD", "VND", "ZAR",
)  # fmt: skip
_SYMBOLS_OF = {
    "AUD": ("AU$", "A$"),
    "BRL": ("R$",),
    "CAD": ("CA$", "C$", "CAD$"),
    "CNY": ("元",),
    "EUR": ("€",),
    "GBP": ("£",),
    "HKD": ("HK$",),
    "ILS": ("₪",),
    "INR": ("₹",),
    "JPY": ("¥", "円"),
    "KRW": ("₩",),
    "MXN": ("MX$",),
    "NGN": ("₦",),
    "NZD": ("NZ$",),
    "PHP": ("₱",),
    "RUB": ("₽",),
    "SGD": ("S$",),
    "THB": ("฿",),
    "TRY": ("₺",),
    "TWD": ("NT$",),
    "UAH": ("₴",),
    "USD": ("US$", "USD$", "$"),
    "VND": ("₫",),
}
_WORDS_OF = {
    "CHF": ("SFR", "FR"),
    "CNY": ("RMB",),
    "CZK": ("KČ",),
    "EUR": ("EURO", "EUROS"),
    "GBP": ("POUND", "POUNDS"),
    "HUF": ("FT",),
    "INR": ("RS",),
    "PLN": ("ZŁ", "ZL"),
    "RON": ("LEI",),
    "USD": ("DOLLAR", "DOLLARS"),
    "ZAR": ("R",),
    # only the country says which crown is meant
    "": ("KR",),
}
_SYMBOLS = {symbol: code for code, symbols in _SYMBOLS_OF.items() for symbol in symbols}
_CURRENCY_WORDS = {word: code for code, words in _WORDS_OF.items() for word in words}
#: The currency of a symbol that several countries use, by the country of the posting.
_AT_HOME = {
    "$": {"CA": "CAD", "AU": "AUD", "NZ": "NZD", "SG": "SGD", "HK": "HKD", "MX": "MXN", "TW": "TWD", "CL": "CLP"},
    "¥": {"CN": "CNY"},
    "KR": {"SE": "SEK", "NO": "NOK", "DK": "DKK", "IS": "ISK"},
}
_COUNTRIES_OF = {
    "AU": ("AUSTRALIA",),
    "CA": ("CANADA",),
    "CL": ("CHILE",),
    "CN": ("CHINA",),
    "DK": ("DENMARK", "DANMARK"),
    "HK": ("HONG KONG",),
    "IS": ("ICELAND",),
    "MX": ("MEXICO", "MÉXICO"),
    "NO": ("NORWAY", "NORGE"),
    "NZ": ("NEW ZEALAND",),
    "SE": ("SWEDEN", "SVERIGE"),
    "SG": ("SINGAPORE",),
    "TW": ("TAIWAN",),
}
_COUNTRIES = {name: code for code, names in _COUNTRIES_OF.items() for name in names}
_named = "|".join(
    sorted([*_CURRENCY_CODES, *(word for word in _CURRENCY_WORDS if word not in {"R", "FR"})], key=len, reverse=True)
)
_marked = "|".join(re.escape(symbol) for symbol in sorted(_SYMBOLS, key=len, reverse=True))
#: Regular expressions (for use with `IGNORECASE`) for the name of a currency before and after an amount.
BEFORE = rf"(?:{_marked}|(?<![^\W\d_])(?:(?:{_named}|Fr)\b\.?|R(?=\s?\d)))"
AFTER = rf"(?:{_marked}|(?:{_named}|Fr)(?![^\W\d_])\.?)"


def currency_of(name: str | None, country: str | None = None) -> str | None:
    """The code for a symbol, a word or a code; `country`, as a posting has it, tells dollars and crowns apart."""
    spelled = (name or "").strip().rstrip(".").upper()
    home = (country or "").strip().upper()
    at_home = _AT_HOME.get(spelled, {}).get(_COUNTRIES.get(home, home))
    known = at_home or _SYMBOLS.get(spelled) or _CURRENCY_WORDS.get(spelled)
    return known or (spelled if spelled in _CURRENCY_CODES else None)


# --- what a salary is for: an hour, a day, a week, a month or a year

#: Maximum number of characters that are read of a unit.
MAX_PERIOD_LENGTH = 100
_UNITS: dict[Period, str] = {
    "hour": r"hours?|hrs?|h|stunden?|std|heure|hora|ora|uur|timme|time|godz\w*",
    "day": r"days?|d|tag|jour|d[ií]a|giorno|dag|dzie[nń]",
    "week": r"weeks?|wk|w|woche|semaine|semana|settimana",
    "month": r"months?|mo|mth|monat|mois|m[eê]s|mese|maand|m[aå]nad|miesi[aą]c\w*|mies",
    "year": r"years?|yrs?|y|annum|jahr|ann[eé]e|an|a[nñ]o|anno|jaar|år|rok",
}
_PERIOD_WORDS: dict[Period, str] = {
    "hour": r"hourly|p\.?\s?h\.?|st[uü]ndlich|stundenlohn|brutto/h|timlön",
    "day": r"daily|p\.?d\.|day rate|t[aä]glich|tagessatz",
    "week": r"weekly|p\.?w\.?|w[oö]chentlich|hebdomadaire",
    "month": (r"monthly|p\.?(?:c\.?)?m\.?|monatlich|monatsgehalt|mensuel\w*|mensual\w*|mensile|mensal|maandelijks"),
    "year": (
        r"yearly|annual(?:ly)?|p\.?\s?a\.?|lpa|ctc|j[aä]hrlich|jahresgehalt|annuel\w*|anual\w*|annuo|annui|jaarlijks"
    ),
}
_PER = r"(?:/\s?|(?<!\w)(?:(?:per|an?|each|pro|je|im|par|por|al|la|le|na|i)\s+|(?:all|l)['’]\s?))"
#: Units in languages that do not separate words by spaces.
_UNSPACED: dict[Period, str] = {
    "hour": "時給|/\\s?(?:小时|時間)",
    "day": "日給|日当|/\\s?[日天]",
    "week": "週給|/\\s?[週周]",
    "month": "月給|月収|月薪|/\\s?月",
    "year": "年収|年俸|年薪|/\\s?年",
}
_PATTERNS: dict[Period, re.Pattern[str]] = {
    period: re.compile(
        rf"{_PER}(?:{unit})(?![^\W\d_])|(?<!\w)(?:{_PERIOD_WORDS[period]})(?!\w)|{_UNSPACED[period]}", re.IGNORECASE
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
_PERIOD_CODES = {code: period for period, codes in _CODES_OF.items() for code in codes}


def period_of(unit: str | None) -> Period | None:
    """The period of a unit that stands alone: `HOUR`, `per month`, `ANN`, `jährlich`."""
    written = (unit or "")[:MAX_PERIOD_LENGTH].strip().replace("_", " ")
    known = _PERIOD_CODES.get(written.upper())
    return (
        known or next((name for name, bare in _BARE.items() if bare.fullmatch(written)), None) or period_in(written)
    )


def period_in(text: str, after: int = 0) -> Period | None:
    """The first period that `text` names after an amount that ends at `after`, or else before it."""
    bare = _bare(text, after) if after else None
    return bare or _first(text[after:]) or (_first(text[:after]) if after else None)


def _bare(text: str, at: int) -> Period | None:
    """The unit that follows an amount directly. Those of one or two letters (`an`) are ambiguous and do not count."""
    found = ((name, pattern.match(text, at)) for name, pattern in _BARE.items())
    return next((name for name, match in found if match and len(match[0].strip()) > len("an")), None)


def _first(text: str) -> Period | None:
    found = [(match.start(), name) for name, pattern in _PATTERNS.items() if (match := pattern.search(text))]
    return min(found)[1] if found else None


# --- salaries as people write them: `€45,000 – €60,000 a year`, `$30/hr`, `bis zu 60k`

#: Maximum number of characters that are read of a salary.
MAX_SALARY_LENGTH = 500
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
#: Texts with numbers that are never salaries.
_NO_AMOUNT = re.compile(r"401\s?\(?k\)?|\d+(?:[.,]\d+)?\s?%|\b24/7\b", re.IGNORECASE)
#: A number without a currency is not a salary if one of these follows it.
_OTHER_UNIT = re.compile(
    r"\s*(?:hours|hrs|std\b|stunden|days|tage|weeks|wochen|months|monate|years|yrs|jahre|heures|jours|semaines|h\b)",
    re.IGNORECASE,
)
#: In a text about a salary, a number of this size is an amount even without currency, scale or period.
_TELLS_ITSELF = 1000
#: Larger numbers are no amounts of money in any currency.
MAX_AMOUNT = 1e15


class Amount(NamedTuple):
    value: float
    scale: str | None
    currency: str | None
    start: int
    end: int


def salary_of_text(text: str, country: str | None = None) -> Salary | None:
    """The salary in `text`, without amounts if it names none ("competitive"); `None` for an empty text."""
    text = squeeze(text)[:MAX_SALARY_LENGTH]
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
    """The amount of the salary, or the two amounts of a range."""
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
        if (amount := _written_amount(match)) and (amount.currency or not _OTHER_UNIT.match(hidden, amount.end))
    ]


def _written_amount(match: re.Match[str]) -> Amount | None:
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
    """The value of a number. Three digits after a mark are thousands, because salaries have no thousandths."""
    grouped = _GROUPED.fullmatch(number)
    return number_in(number, whole=bool(grouped))


def _joined(text: str, low: Amount, high: Amount) -> bool:
    return _TO.fullmatch(_ITS_PERIOD.sub("", text[low.end : high.start])) is not None


def _in_one_scale(low: Amount, high: Amount) -> list[Amount]:
    """The bounds of a range, with a scale that only the second has applied to both: `50-60k` begins at 50,000."""
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


# --- salaries in JSON-LD: `baseSalary` as schema.org wants it, and as sites write it

_LOWEST = ("minValue", "minPrice", "percentile10", "percentile25")
_HIGHEST = ("maxValue", "maxPrice", "percentile90", "percentile75")
_EXACT = ("value", "price", "amount", "median")
_CURRENCY = ("currency", "priceCurrency", "currencyCode", "unitCurrency")
_UNIT = ("unitText", "unitCode", "duration", "unit", "referenceQuantity")
MAX_NESTING = 5


def salary_of(posting: dict[str, Any], country: str | None = None) -> Salary | None:
    """The salary of a `JobPosting`; of several, the first that names an amount."""
    overall = text_of(posting.get("salaryCurrency"))
    read = [
        salary
        for name in ("baseSalary", "estimatedSalary")
        for one in different(posting.get(name))
        if (salary := _salary(one, overall, country))
    ]
    amount = next((salary for salary in read if _is_amount(salary)), None)
    return amount or next((salary for salary in read if salary["text"]), None)


def _is_amount(salary: Salary) -> bool:
    return salary["min"] is not None or salary["max"] is not None


def _salary(value: Any, overall: str | None, country: str | None) -> Salary | None:
    if isinstance(value, str):
        read = salary_of_text(value, country)
        if read and _is_amount(read):
            read["currency"] = read["currency"] or currency_of(overall, country)
        return read
    levels = list(_levels(value, MAX_NESTING, set()))
    low, high = _stated_amount(levels, _LOWEST), _stated_amount(levels, _HIGHEST)
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
    """An object and the objects nested in its values (`MonetaryAmount`, `QuantitativeValue`, sometimes one more).
    Each is given once, however many references to it there are.
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


def _stated_amount(levels: list[dict[str, Any]], names: tuple[str, ...]) -> int | float | None:
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
    """The amount in a number, or in a text with one amount. Zero does not count: forms write it for empty fields."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        # the comparison also excludes NaN and Infinity, which a page may contain
        return plain_number(value) if 0 < value < MAX_AMOUNT else None
    read = salary_of_text(value) if isinstance(value, str) else None
    if not read or read["min"] != read["max"] or read["min"] is None:
        return _bare_number(value) if isinstance(value, str) else None
    return read["min"]


def _bare_number(text: str) -> int | float | None:
    """The amount in a text such as `18`, which `salary_of_text` does not take for a salary."""
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
    """The first text in the place of an amount that is more than a number."""
    texts = (one for level in levels for name in _EXACT for one in each(level.get(name)) if isinstance(one, str))
    return next((text for text in texts if _number(text) is None), None)
