"""Options that several commands have, and how times are read.

An option is a parameter as `inspect` has it, so that commands which are made from a table have options of their own.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import datetime
from getpass import getpass
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any

import typer

from gateway.cli.api import ApiError
from gateway.cli.terminal import Record, given
from gateway.contract.log_line import LEVELS


def option(name: str, about: str, *flags: str, kind: Any = str, default: Any = None, **more: Any) -> Parameter:
    """An option. `name` is its name in the API; `flags` are `--name` unless they are given."""
    info = typer.Option(default, *(flags or (f"--{name.replace('_', '-')}",)), help=about, **more)
    return Parameter(name, Parameter.KEYWORD_ONLY, default=info, annotation=kind)


def argument(name: str, metavar: str, about: str, *, kind: Any = str, default: Any = ..., **more: Any) -> Parameter:
    info = typer.Argument(default, metavar=metavar, help=about, **more)
    return Parameter(name, Parameter.KEYWORD_ONLY, default=info, annotation=kind)


def flag(name: str, about: str, *flags: str) -> Parameter:
    return option(name, about, *flags, kind=bool, default=False)


def taking(*options: Parameter) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command these options, which it receives as keyword arguments."""

    def change(command: Callable[..., None]) -> Callable[..., None]:
        command.__signature__ = Signature(options)  # type: ignore[attr-defined]  # typer reads it
        return command

    return change


def read_object(option: str, text: str) -> Record:
    """A JSON object, or `@` and the file that it is in. Raises `ApiError`."""
    where = f"{text[1:]} " if text.startswith("@") else ""
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


URL = option("url", "The gateway. Default: DISCOVERYBOT_URL, else the stack that runs here.")
JSON = flag("as_json", "Print the answer of the gateway as JSON, and nothing else.", "--json")
LIMIT = option("limit", "How many at most.", kind=int, default=20, min=1, max=200)
AFTER = option("after", "Continue where another list ended.")
USER = option("user_id", "Only those of this user.", "--user")
SPIDER = option("spider", "Only those of this spider.")
SITE = option("site", "Only those of this site.")


def _known_level(name: str | None) -> str | None:
    if name is not None and name.upper() not in LEVELS:
        raise typer.BadParameter(f"{name!r} is not a level: choose one of {', '.join(LEVELS)}")
    return name and name.upper()


LEVEL = option(
    "level", "Only lines of at least this level (DEBUG … CRITICAL).", metavar="LEVEL", callback=_known_level
)


# --- when: options of `crawl` and `schedules edit`

TIMING = (
    option("at", "Run it at this time: 2027-06-01T09:00; local, or with an offset.", metavar="TIME"),
    option("every", "Run it again and again: s, m, h, d or w.", metavar="15m"),
    option("cron", "The same by five-field cron, or @daily.", metavar="'0 9 * * *'"),
    option("timezone", "The time zone of --cron. Default: UTC."),
    option("jitter", "Shift each run by up to this part of the gap, 0 to 0.5.", kind=float),
    option("overlap", "If the previous run has not ended: skip, queue or allow."),
    option("until", "No run after this time.", metavar="TIME"),
    option("max_runs", "End after so many runs.", kind=int),
)


def timing(
    *,
    at: str | None = None,
    every: str | None = None,
    cron: str | None = None,
    until: str | None = None,
    **others: Any,
) -> Record:
    """The options as fields of the API, without those that were not given. Raises `BadParameter`."""
    if every and cron:
        raise typer.BadParameter("choose one of --every and --cron", param_hint="--cron")
    fields = {
        "schedule_at": read_time(at, "--at"),
        "interval": f"every {every.strip().removeprefix('every').strip()}" if every else cron,
        "ends_at": read_time(until, "--until"),
        **others,
    }
    return given(**fields)


def read_time(text: str | None, option: str) -> str | None:
    """The time with an offset, which is this machine's if the text has none. Raises `BadParameter`."""
    if text is None:
        return None
    try:
        # without a zone, `astimezone` takes it for local time
        return datetime.fromisoformat(text).astimezone().isoformat()
    except (ValueError, OverflowError):
        hint = "2027-06-01T09:00, or with an offset, 2027-06-01T09:00+02:00"
        raise typer.BadParameter(f"{text!r} is not a time such as {hint}", param_hint=option) from None
