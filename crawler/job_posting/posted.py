"""When a posting was published, or ends: ISO 8601, whatever it was written as."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

from crawler.extraction.dates import date_in
from crawler.extraction.text import squeeze
from crawler.job_posting.json_values import each, text_of

#: Characters of a text that should be a date.
MAX_LENGTH = 200
_DAY_LENGTH = len("2026-03-01")
#: Beyond it seconds since 1970 are milliseconds.
_MILLISECONDS_FROM = 100_000_000_000
#: Seconds or milliseconds as a text; what is shorter, or longer, may be a date without hyphens.
_EPOCH = re.compile(r"[0-9]{9,13}")
_SPAN = re.compile(
    r"(?<!\w)(\d{1,4}|an?|one)\s*\+?\s*(minutes?|mins?|m|hours?|hrs?|h|days?|d|weeks?|wks?|w|months?|mos?|mo|years?|yrs?|y)"
    r"(?![^\W\d_])(?=\s*(?:\+|ago\b|$))",
    re.IGNORECASE,
)
_DAYS = {"m": 0.0, "h": 1 / 24, "d": 1.0, "w": 7.0, "mo": 30.0, "y": 365.0}
_TODAY = re.compile(
    r"(?:just (?:posted|now)|today|moments? ago|heute|gerade eben|aujourd.hui|hoy|oggi|vandaag)\b|new$", re.IGNORECASE
)
_YESTERDAY = re.compile(r"(?:yesterday|gestern|hier$|ayer|ieri|gisteren|ontem)\b", re.IGNORECASE)
_LABEL = re.compile(
    r"^(?:re-?)?(?:posted|published|updated|active|listed|added|date|employer|veröffentlicht|erschienen|publi[eé]e?|"
    r"publicad[oa]|pubblicat[oa]|geplaatst|:|-|\s)+(?:(?:on|am|le|el|il)\s)?",
    re.IGNORECASE,
)


def day_in(text: str, *, language: str | None = None, now: datetime | None = None) -> str | None:
    """The day that `text` names, `3 days ago` and `30+ days ago` too; `None` if it names none, or only a month."""
    now = now or datetime.now(UTC)
    text = squeeze(text)[:MAX_LENGTH]
    if not text:
        return None
    bare = _LABEL.sub("", text)
    ago = _days_ago(text, bare)
    if ago is not None:
        return _day_before(now, ago)
    moment = _moment(text, language) or _moment(bare, language)
    return moment[:_DAY_LENGTH] if moment and len(moment) >= _DAY_LENGTH else None


def _day_before(now: datetime, days: float) -> str | None:
    try:
        return (now - timedelta(days=days)).date().isoformat()
    except OverflowError:
        return None


def moment_of(value: Any, language: str | None = None) -> str | None:
    """Of a JSON-LD value: a text, or seconds or milliseconds since 1970."""
    for one in each(value):
        if isinstance(one, int | float) and not isinstance(one, bool):
            return _of_epoch(one)
    text = text_of(value)
    if text is None:
        return None
    return _of_epoch(int(text)) if _EPOCH.fullmatch(text) else _moment(text, language)


def day_of(value: Any, language: str | None = None) -> str | None:
    """The same, as a day."""
    moment = moment_of(value, language)
    if moment and len(moment) >= _DAY_LENGTH:
        return moment[:_DAY_LENGTH]
    text = text_of(value)
    return day_in(text, language=language) if text else None


def _days_ago(text: str, bare: str) -> float | None:
    """`bare` is the text without what is before the date."""
    if span := _SPAN.search(text):
        count = 1 if span[1].lower() in {"a", "an", "one"} else int(span[1])
        unit = span[2].lower()
        return count * _DAYS["mo" if unit.startswith("mo") else unit[0]]
    if _YESTERDAY.match(bare):
        return 1.0
    return 0.0 if _TODAY.match(bare) or _TODAY.match(text) else None


def _moment(text: str, language: str | None) -> str | None:
    try:
        return date_in(text, language=language)
    except (ValueError, OverflowError):
        return None


def _of_epoch(seconds: float) -> str | None:
    try:
        moment = datetime.fromtimestamp(seconds / 1000 if seconds >= _MILLISECONDS_FROM else seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return moment.isoformat()
