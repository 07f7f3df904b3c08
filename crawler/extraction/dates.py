"""Dates as pages write them, to ISO 8601."""

from __future__ import annotations

import re
from datetime import datetime
from functools import lru_cache
from typing import Any

#: Characters of a text that is taken for a date; each language is tried on it in turn.
_MAX_LENGTH = 100
_ISO = re.compile(r"\d{4}-\d\d-\d\d")
_ISO_DATE_LENGTH = 10
#: For pages that do not say their language. Each one costs time on whatever is no date.
_LANGUAGES = ("en", "de", "fr", "es", "it", "pt", "nl", "pl", "ru", "sv", "tr", "cs", "ja", "zh")
#: How much of a date the text had → how ISO 8601 writes so much.
_PRECISION = {"year": "%Y", "month": "%Y-%m"}


def date_in(text: str, *, language: str | None = None, order: str | None = None) -> str:
    """`2026-03-01`, `2026-03`, `2026`, or with a time `2026-03-01T12:30:00+02:00`. Raises `ValueError`.

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
    # a date reads the same wherever it stands, whatever the page before was written in
    return DateDataParser(languages=languages, settings=settings, try_previous_locales=False, use_given_order=True)
