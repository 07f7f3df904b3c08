"""Options that several commands have, and how times are read.

An option is an `inspect.Parameter`, so that commands that are made from a table can have options of their own.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from datetime import datetime, time, timedelta
from functools import wraps
from getpass import getpass
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any

import typer

from gateway.cli.api import ApiError
from gateway.cli.terminal import Record, given
from gateway.clock import utc_now
from gateway.contract.log_line import LEVELS

#: The placeholder for a value in the help, if the option has none of its own.
_METAVARS: dict[Any, str] = {str: "TEXT", list[str]: "TEXT", int: "N", float: "N", Path: "FILE"}


def option(
    name: str,
    about: str,
    *flags: str,
    kind: Any = str,
    default: Any = None,
    words: Iterable[str] = (),
    also: Mapping[str, str] | None = None,
    **more: Any,
) -> Parameter:
    """An option. `name` is its name in the API; `flags` are `--name` unless they are given. `words` are its values:
    a shell completes them, and a misspelt one is refused. `also` has more words, each with the value that it stands
    for.
    """
    more.setdefault("metavar", _METAVARS.get(kind))
    if words:
        known = {**{word: word for word in words}, **(also or {})}
        more |= {"autocompletion": one_of(known), "callback": _reader(known)}
    info = typer.Option(default, *(flags or (f"--{name.replace('_', '-')}",)), help=about, **more)
    return Parameter(name, Parameter.KEYWORD_ONLY, default=info, annotation=kind)


def under(heading: str, *options: Parameter) -> tuple[Parameter, ...]:
    """The same options, under a heading of their own in the help."""
    infos = [copy(one.default) for one in options]
    for info in infos:
        info.rich_help_panel = heading
    return tuple(one.replace(default=info) for one, info in zip(options, infos, strict=True))


def argument(name: str, metavar: str, about: str, *, kind: Any = str, default: Any = ..., **more: Any) -> Parameter:
    info = typer.Argument(default, metavar=metavar, help=about, **more)
    return Parameter(name, Parameter.KEYWORD_ONLY, default=info, annotation=kind)


def flag(name: str, about: str, *flags: str) -> Parameter:
    return option(name, about, *flags, kind=bool, default=False)


def taking(*options: Parameter) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command these options, which it receives as keyword arguments. Its errors name them."""

    def change(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def run(**values: Any) -> None:
            try:
                command(**values)
            except ApiError as error:
                raise _naming_options(error, options, values) from None

        run.__signature__ = Signature(options)  # type: ignore[attr-defined]  # typer reads it
        return run

    return change


#: Fields of the API whose options have other names.
_ASKED_BY = {
    "schedule_at": ("at",), "ends_at": ("until",), "interval": ("every", "cron"), "start_urls": ("words",),
    "spider": ("spider", "words"), "params": ("pairs", "params"), "fetch.headers": ("headers",),
    "fetch.proxy": ("proxy",), "url": ("url_", "to"), "expect.min_items": ("min_items",),
    "user_id": ("user_id", "user"), "scopes": ("scope",), "expires_at": ("expires",),
}  # fmt: skip


def _naming_options(error: ApiError, options: Sequence[Parameter], values: Record) -> ApiError:
    """The error with the option instead of the field, if it has one: `--max-pages: …` for `max_pages: …`."""
    field = error.detail.get("field") if isinstance(error.detail, dict) else None
    if not isinstance(field, str) or not str(error).startswith(f"{field}: "):
        return error
    known = {one.name: one for one in options}
    parts = field.split(".")
    for size in range(len(parts), 0, -1):
        path = ".".join(parts[:size])
        asked = [name for name in _ASKED_BY.get(path, (path,)) if name in known]
        if asked:
            name = next((name for name in asked if values.get(name)), asked[0])
            # an index in a list means nothing to a user who gave the option once
            further = " ".join((spelled(known[name], path), *(part for part in parts[size:] if not part.isdigit())))
            return ApiError(f"{further}{str(error)[len(field) :]}", error.exit_code, detail=error.detail)
    return error


def spelled(parameter: Parameter, field: str) -> str:
    """`--max-pages`, or the name of an argument in the help. Of `[SPIDER] [URL…]`, the part for the field."""
    info = parameter.default
    if not getattr(info, "param_decls", None):
        names = [word.strip("[]…") for word in str(info.metavar).split()]
        return next((name for name in names if name.lower() == field), names[-1])
    longest: str = max(info.param_decls, key=len)
    return longest.partition("/")[0]


def read_object(option: str, text: str) -> Record:
    """A JSON object, or the one in the file after `@`. Raises `ApiError`."""
    option, where = f"--{option}", f"{text[1:]} " if text.startswith("@") else ""
    try:
        record = json.loads(Path(text[1:]).read_text(encoding="utf-8") if where else text)
    except OSError as error:
        raise ApiError(f"{option}: {where}cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ApiError(f"{option}: {where}is not JSON: {error}") from None
    if not isinstance(record, dict):
        raise ApiError(f"{option}: {where}must be a JSON object")
    return record


def read_secret(name: str) -> str:
    """A secret: asked for without an echo on a terminal, otherwise all of stdin without the last line feed."""
    if sys.stdin.isatty():
        return getpass(f"{name}: ")
    return sys.stdin.read().removesuffix("\n")


URL = option("url", "The gateway. Default: DISCOVERYBOT_URL, else the stack that runs here.", metavar="URL")
JSON = flag("as_json", "Print the answer of the gateway as JSON, and nothing else.", "--json")
LIMIT = option("limit", "How many at most.", "--limit", "-n", kind=int, default=20, min=1, max=200)
AFTER = option("after", "Continue where another list ended.", metavar="NEXT")
USER = option("user_id", "Only those of this user.", "--user", metavar="USER")
SITE = option("site", "Only those of this site of `sites`.", metavar="NAME")
HOST = option("host", "Only those that crawl this host, or one below it.", metavar="example.com")


def one_of(values: Iterable[str]) -> Callable[[str], list[str]]:
    """A completion function for a shell that offers these values."""
    known = tuple(values)
    return lambda incomplete: [one for one in known if one.startswith(incomplete)]


def _reader(known: Mapping[str, str]) -> Callable[[Any], Any]:
    """A function that reads the words of an option, or the one. The gateway refuses words that are like none."""

    def read(given: Any) -> Any:
        if isinstance(given, str):
            return _meant(given, known)
        return [_meant(word, known) for word in given] if given else given

    return read


def _meant(word: str, known: Mapping[str, str]) -> str:
    """Raises `BadParameter` for a misspelt word."""
    if word in known:
        return known[word]
    from difflib import get_close_matches  # noqa: PLC0415 - few commands need it

    if close := get_close_matches(word.lower().replace("-", "_"), known, 1):
        raise typer.BadParameter(f"{word!r} is none of {', '.join(known)}: did you mean {close[0]}?")
    return word


def _known_level(name: str | None) -> str | None:
    if name is not None and name.upper() not in LEVELS:
        raise typer.BadParameter(f"{name!r} is not a level: choose one of {', '.join(LEVELS)}")
    return name and name.upper()


LEVEL = option(
    "level", "Only lines of at least this level (DEBUG … CRITICAL).", metavar="LEVEL", callback=_known_level,
    autocompletion=one_of(LEVELS),
)  # fmt: skip


# --- when: options of `crawl` and `schedules edit`

# fmt: off
TIMING = under(
    "When",
    option("at", "At this time: 2027-06-01T09:00; local, or with an offset. 09:00 with --every 1d.", metavar="TIME"),
    option("every", "Run it again and again: s, m, h, d or w.", metavar="15m"),
    option("cron", "The same by five-field cron, or @daily.", metavar="'0 9 * * *'"),
    option("timezone", "The time zone of --cron: Europe/Paris, or Paris. Default: UTC.", metavar="ZONE"),
    option("jitter", "Shift each run by up to this part of the gap, 0 to 0.5.", kind=float),
    option(
        "overlap", "If the previous run has not ended: skip, queue or allow.", metavar="HOW",
        words=("skip", "queue", "allow"),
    ),
    option("until", "No run after this time.", metavar="TIME"),
    option("max_runs", "End after so many runs.", kind=int),
)
# fmt: on


def timing(
    *,
    at: str | None = None,
    every: str | None = None,
    cron: str | None = None,
    until: str | None = None,
    timezone: str | None = None,
    **others: Any,
) -> Record:
    """The options as fields of the API, without those that were not given. Raises `BadParameter`."""
    if every and cron:
        raise typer.BadParameter("choose one of --every and --cron", param_hint="--cron")
    zone, clock = _zone(timezone), _CLOCK.fullmatch(at or "")
    if clock and every and every.strip() in {"1d", "every 1d"}:
        # what is meant is that time of every day, and not a day after the run before
        at, every, cron = None, None, f"{int(clock[2])} {int(clock[1])} * * *"
    elif clock:
        raise typer.BadParameter("a time alone goes with --every 1d; once: 2027-06-01T09:00", param_hint="--at")
    fields = {
        "schedule_at": read_time(at, "--at"),
        "interval": f"every {every.strip().removeprefix('every').strip()}" if every else cron,
        "ends_at": read_time(until, "--until"),
        "timezone": zone,
        **others,
    }
    return given(**fields)


_CLOCK = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])")


def _zone(text: str | None) -> str | None:
    """The time zone, whose city is enough: `Paris`. What names none is left to the gateway to refuse."""
    if not text or "/" in text:
        return text
    from zoneinfo import available_timezones  # noqa: PLC0415 - reads a folder, and few commands need it

    city, known = text.strip().replace(" ", "_").lower(), available_timezones()
    areas = (one for one in known if not one.startswith(("posix/", "right/")))
    found = sorted(one for one in areas if one.lower().rpartition("/")[2] == city)
    if text in known or not found:
        return text
    if len(found) > 1:
        raise typer.BadParameter(f"{text!r} may be {', '.join(found)}", param_hint="--timezone")
    return found[0]


_AGO = re.compile(r"([0-9]{1,6})([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
#: `yesterday`, `yesterday 18:00`, `18:00`.
_DAY_AND_CLOCK = re.compile(r"(today|yesterday)?(?:(?:(?<=y)[ T])?([01]?[0-9]|2[0-3]):([0-5][0-9]))?", re.IGNORECASE)
#: The last night begins at this time of yesterday, as in the console.
_LAST_NIGHT = "yesterday 18:00"


def moment(name: str, about: str) -> Parameter:
    """An option for a time, which may be given by how long ago it was."""

    def read(text: str | None) -> str | None:
        return read_moment(text, f"--{name}")

    return option(name, about, metavar="TIME|2h|last-night", callback=read)


def read_moment(text: str | None, option: str) -> str | None:
    """As `read_time`; or how long ago it was, `2h`; or a time by this machine's clock: `yesterday` (its beginning),
    `yesterday 18:00`, `18:00` (the last one), `last-night` (from 18:00 of yesterday). Raises `BadParameter`.
    """
    text = text and _by_the_clock(text.strip(), utc_now().astimezone())
    if text and (ago := _AGO.fullmatch(text.strip())):
        return (utc_now() - timedelta(**{_UNITS[ago[2]]: int(ago[1])})).isoformat(timespec="milliseconds")
    return read_time(text, option, "2h, for two hours ago, last-night, yesterday, 18:00, yesterday 18:00, ")


def _by_the_clock(text: str, now: datetime) -> str:
    """A day by its name, or a time of a day, as a local time without an offset, so that the offset of that day is
    found, even if the clocks have changed since. Another text stays as it is.
    """
    said = _LAST_NIGHT if text.lower().replace(" ", "-") == "last-night" else text
    found = _DAY_AND_CLOCK.fullmatch(said)
    if not said or found is None:
        return text
    day, hour, minute = found.groups()
    at = datetime.combine(now.date(), time(int(hour or 0), int(minute or 0)))
    if (day or "").lower() == "yesterday" or (day is None and at > now.replace(tzinfo=None)):
        at -= timedelta(days=1)
    return at.isoformat()


def read_time(text: str | None, option: str, before: str = "") -> str | None:
    """The time with an offset, which is this machine's if the text has none. Raises `BadParameter`, whose message
    puts `before` in front of its examples.
    """
    if text is None:
        return None
    try:
        # `astimezone` takes a time without a zone for local time
        return datetime.fromisoformat(text).astimezone().isoformat()
    except (ValueError, OverflowError):
        hint = f"{before}2027-06-01T09:00, or with an offset, 2027-06-01T09:00+02:00"
        raise typer.BadParameter(f"{text!r} is not a time such as {hint}", param_hint=option) from None
