"""One log of many processes: every line behind the name of the one that wrote it."""

from __future__ import annotations

import os
import re
import sys
from datetime import datetime
from typing import TextIO

import orjson

_COLOURS = (36, 35, 33, 32, 34, 96, 95, 93, 92, 94)
#: Uvicorn's copy of the message, for terminals.
_NOT_SHOWN = frozenset({"color_message"})
#: How Twisted, and so Scrapyd, begins a line: its own time, and who speaks, with the level if it is one of its newer
#: loggers.
_TWISTED = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4} (\[[^\]#]*(?:#(?P<level>\w+))?\])")
#: What the gateway says when it makes the first key. It cannot be had again, so that it is shown even when quiet.
_FIRST_KEY = re.compile(r"The first key, for admins|    db_first_")
_RESET = "\x1b[0m"
#: What a terminal obeys: it is shown, for the lines of a log repeat what others have sent.
_CONTROLS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
#: The supervisor's own lines.
SELF = "up"


def wants_colour(stream: TextIO) -> bool:
    """A terminal, and nobody asked for none (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


class StackLog:
    """Writes `<time> <process> | <line>`, debug lines only if `debug`. Silent once its reader has gone away."""

    def __init__(
        self, names: list[str], *, quiet: bool = False, debug: bool = False, stream: TextIO = sys.stdout
    ) -> None:
        self._stream = stream
        self._quiet = quiet
        self._debug = debug
        self._closed = False
        self._width = max(len(name) for name in [SELF, *names])
        self._colours = (
            {name: _COLOURS[i % len(_COLOURS)] for i, name in enumerate(names)} if wants_colour(stream) else {}
        )

    def say(self, text: str = "") -> None:
        """The supervisor's own voice: shown even when quiet."""
        for line in text.splitlines() or [""]:
            self._write(SELF, line)

    def line(self, name: str, text: str) -> None:
        """A line that the process `name` wrote."""
        if self._quiet and not _FIRST_KEY.match(text):
            return
        twisted = _TWISTED.match(text)
        if twisted and twisted["level"] == "debug" and not self._debug:
            return
        readable = text[twisted.start(1) :] if twisted else _readable(text)
        for part in filter(str.strip, readable.splitlines()):
            self._write(name, part)

    def _write(self, name: str, text: str) -> None:
        now = datetime.now().astimezone().strftime("%H:%M:%S")
        head = f"{now} {name:<{self._width}} |"
        if colour := self._colours.get(name):
            head = f"\x1b[{colour}m{head}{_RESET}"
        elif self._colours:
            head = f"\x1b[1m{head}{_RESET}"
        if self._closed:
            return
        try:
            self._stream.write(f"{head} {_CONTROLS.sub(lambda found: repr(found[0])[1:-1], text)}\n")
            self._stream.flush()
        except (BrokenPipeError, OSError):
            self._closed = True


def _readable(text: str) -> str:
    """Our JSON lines as a person reads them, without their time (ours is there); anything else as it is."""
    if not text.startswith('{"'):
        return text
    try:
        record = orjson.loads(text)
    except ValueError:
        return text
    if not isinstance(record, dict) or "event" not in record:
        return text
    known = {key: record.pop(key, "") for key in ("ts", "level", "logger", "event", "exception")}
    extra = "".join(f" {key}={value}" for key, value in record.items() if key not in _NOT_SHOWN)
    trace = f"\n{known['exception']}" if known["exception"] else ""
    return f"{str(known['level']).upper()} [{known['logger']}] {known['event']}{extra}{trace}"
