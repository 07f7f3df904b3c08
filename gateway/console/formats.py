"""The formats of the console for times, durations, sizes and counts, and for text that is not trusted."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import orjson
from markupsafe import Markup, escape

from gateway.clock import to_iso, utc_now
from gateway.contract.error_fingerprint import title
from gateway.errors import InvalidRequestError
from gateway.items.formats import as_json
from gateway.jobs.job import LIMITS
from gateway.schedules.next_run import Every, parse_interval, parse_time_zone
from gateway.signals.sentences import UNITS, lasting
from gateway.web.schemas.error_group import ErrorGroupView, JobErrorView

#: Control characters, characters that change the direction or position of the text around them, and half surrogate
#: pairs.
_INVISIBLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
#: By default, a text is cut to this many characters.
SHOWN = 200
_SIZES = ("B", "kB", "MB", "GB", "TB", "PB")


def plain(text: object, limit: int = SHOWN) -> str:
    """The text cut at `limit` characters, with visible escapes for control and invisible characters."""
    whole = str(text)
    cut = whole[:limit] + "…" if len(whole) > limit else whole
    return _INVISIBLE.sub(_escaped, cut)


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    short = {0x0A: r"\n", 0x0D: r"\r", 0x09: r"\t"}.get(code)
    return short or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")  # noqa: PLR2004 - one byte


def shown(text: object, limit: int = SHOWN) -> Markup:
    """The text of `plain` as HTML, in an element that isolates its direction from the text around it."""
    return Markup("<bdi>{}</bdi>").format(plain(text, limit))


def prose(text: object, limit: int = SHOWN) -> Markup:
    """A text for people as HTML, with `names` between backticks as code."""
    parts = plain(text, limit).split("`")
    if len(parts) % 2 == 0:
        return shown(text, limit)
    marked = (Markup("<code>{}</code>").format(part) if place % 2 else part for place, part in enumerate(parts))
    return Markup("<bdi>{}</bdi>").format(Markup("").join(marked))


def json_shown(value: object) -> Markup:
    """Indented JSON as HTML, with visible escapes for invisible characters."""
    lines = orjson.dumps(value, option=orjson.OPT_INDENT_2).decode().split("\n")
    return Markup("<bdi>{}</bdi>").format("\n".join(plain(line, 2000) for line in lines))


def json_line(value: object, limit: int = SHOWN) -> Markup:
    """JSON in one line, as text of the page."""
    return shown(as_json(value).decode(), limit)


def duration(value: float | timedelta | None) -> str:
    """A duration such as `2 h 5 min`: the two largest units. Below ten seconds, it has one decimal."""
    if value is None:
        return "–"
    seconds = max(0.0, value.total_seconds() if isinstance(value, timedelta) else value)
    if seconds < 10:  # noqa: PLR2004 - there a tenth matters
        return f"{seconds:.1f} s" if seconds % 1 >= 0.05 else f"{seconds:.0f} s"  # noqa: PLR2004 - would round to 0
    return lasting(seconds)


def size(count: float | None) -> str:
    """A number of bytes, such as `1.5 MB`."""
    if count is None:
        return "–"
    value, unit = float(count), 0
    while value >= 999.5 and unit < len(_SIZES) - 1:  # noqa: PLR2004 - would be written as 1000
        value, unit = value / 1000, unit + 1
    return f"{value:.1f} {_SIZES[unit]}" if unit and value < 99.95 else f"{value:.0f} {_SIZES[unit]}"  # noqa: PLR2004


def count(number: float | None) -> str:
    """A number, such as `12,345`."""
    return "–" if number is None else f"{number:,.0f}" if float(number).is_integer() else f"{number:,.1f}"


def share(part: float | None) -> str:
    """A share as `97 %`. Only exactly 1 becomes 100 %, and only exactly 0 becomes 0 %."""
    if part is None:
        return "–"
    percent = 100 * part
    rounded = round(percent)
    if rounded in {0, 100} and percent != rounded:
        rounded = 1 if rounded == 0 else 99
    return f"{rounded} %"


def exact(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def ago(moment: datetime, now: datetime | None = None) -> str:
    """`3 min ago`, or `in 2 h`; `js/times.js` writes the same."""
    seconds = ((now or utc_now()) - moment).total_seconds()
    distance = abs(seconds)
    if distance < 10:  # noqa: PLR2004 - clocks differ
        return "now"
    name, whole = next((unit, int(distance // size)) for size, unit in UNITS if distance >= size)
    return f"{whole} {name} ago" if seconds > 0 else f"in {whole} {name}"


def when(moment: datetime | None) -> Markup:
    """A `<time>` such as "5 min ago"; `js/times.js` updates it, and shows the exact time in the user's zone."""
    if moment is None:
        return escape("–")
    tag = Markup('<time datetime="{}" title="{}" data-ago>{}</time>')
    return tag.format(to_iso(moment), exact(moment), ago(moment))


def moment(value: datetime | None) -> Markup:
    """A `<time>` with the exact time; `js/times.js` converts it to the user's zone."""
    if value is None:
        return escape("–")
    return Markup('<time datetime="{}" data-exact>{}</time>').format(to_iso(value), exact(value))


def clock(value: datetime | None, zone: str | None = None) -> Markup:
    """A `<time>` with day and time, such as `Tue 09:00`; `js/times.js` converts it to the user's zone. With `zone` it
    stays in this one, which is named: `Tue 09:00 CET`.
    """
    if value is None:
        return escape("")
    soon = abs(value - utc_now()) < timedelta(days=6)
    if zone is not None:
        local = value.astimezone(parse_time_zone(zone))
        words = f"{local:%a %H:%M %Z}" if soon else f"{local:%Y-%m-%d %H:%M %Z}"
        return Markup('<time datetime="{}" title="{}">{}</time>').format(to_iso(value), exact(value), words)
    tag = Markup('<time datetime="{}" title="{}" data-clock>{}</time>')
    return tag.format(to_iso(value), exact(value), f"{value:%a %H:%M} UTC" if soon else f"{value:%Y-%m-%d %H:%M} UTC")


_CRON_AT = re.compile(r"(\d{1,2}) (\d{1,2}) \* \* (\*|1-5|mon-fri)", re.IGNORECASE)
_CRON_NAMES = {"@hourly": "every hour", "@daily": "every day at 00:00", "@midnight": "every day at 00:00"}


def cron_words(interval: str) -> str:
    """The simplest intervals in words, such as `every day at 09:00`; empty for other intervals."""
    if found := _CRON_AT.fullmatch(interval.strip()):
        minute, hour, days = found.groups()
        return f"{'every day' if days == '*' else 'Monday to Friday'} at {int(hour):02}:{int(minute):02}"
    return _CRON_NAMES.get(interval.strip().lower(), "")


def every_words(interval: str) -> str:
    """An interval such as `every 720m` as `every 12 h`; empty for cron, and if it would have to be rounded."""
    try:
        found = parse_interval(interval, "UTC")
    except InvalidRequestError:
        return ""
    if not isinstance(found, Every):
        return ""
    seconds = round(found.gap.total_seconds())
    # `duration` writes the two largest units
    last = next((following for (size, _), (following, _) in pairwise(UNITS) if seconds >= size), 1)
    return "" if seconds % last else f"every {duration(seconds)}"


def page_title(reference: str) -> str:
    """The title of a page, such as `Move from scrapyd` for `docs/how-to/move-from-scrapyd.md#in-four-steps`."""
    name = reference.partition("#")[0].rpartition("/")[2]
    return name.removesuffix(".md").replace("-", " ").capitalize()


def limits(crawl: Any) -> list[tuple[str, int | None]]:
    """The limits of a crawl, each with its label; `None` for a limit that is not set."""
    return [(one.label, getattr(crawl, name)) for name, one in LIMITS.items()]


def error_title(error: ErrorGroupView | JobErrorView) -> str:
    """The error in one line, with the values of its latest occurrence: `KeyError: 'price'`, where the API's title is
    `KeyError: <text>`.
    """
    return title(error.kind, error.name, error.place, error.example.text or error.message)


FILTERS = {
    "error_title": error_title,
    "every_words": every_words,
    "cron_words": cron_words,
    "plain": plain,
    "shown": shown,
    "prose": prose,
    "json_shown": json_shown,
    "json_line": json_line,
    "duration": duration,
    "size": size,
    "count": count,
    "share": share,
    "limits": limits,
    "page_title": page_title,
    "ago": ago,
    "exact": exact,
}
