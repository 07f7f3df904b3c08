"""Currencies, by symbol or name, as ISO 4217."""

from __future__ import annotations

import re

_CODES = (
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
    # which crown only the country tells
    "": ("KR",),
}
_SYMBOLS = {symbol: code for code, symbols in _SYMBOLS_OF.items() for symbol in symbols}
_WORDS = {word: code for code, words in _WORDS_OF.items() for word in words}
#: What a symbol means where more than one country uses it, by the country that the posting is for.
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
_named = "|".join(sorted([*_CODES, *(word for word in _WORDS if word not in {"R", "FR"})], key=len, reverse=True))
_marked = "|".join(re.escape(symbol) for symbol in sorted(_SYMBOLS, key=len, reverse=True))
#: Source of an expression (to be used without regard to case) for what names a currency beside an amount.
BEFORE = rf"(?:{_marked}|(?<![^\W\d_])(?:(?:{_named}|Fr)\b\.?|R(?=\s?\d)))"
AFTER = rf"(?:{_marked}|(?:{_named}|Fr)(?![^\W\d_])\.?)"


def currency_of(name: str | None, country: str | None = None) -> str | None:
    """The code for a symbol, a word or a code; `country`, as a posting has it, tells dollars and crowns apart."""
    spelled = (name or "").strip().rstrip(".").upper()
    home = (country or "").strip().upper()
    at_home = _AT_HOME.get(spelled, {}).get(_COUNTRIES.get(home, home))
    known = at_home or _SYMBOLS.get(spelled) or _WORDS.get(spelled)
    return known or (spelled if spelled in _CODES else None)
