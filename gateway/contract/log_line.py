"""Splits the bytes of a log file into entries with a position.

The id of a line is the position at which it ends: `<attempt>-<byte offset one past its newline>`. Only the bytes
decide where entries begin and end, so a reader that reads a log again, from any entry on, finds the same entries.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import NamedTuple, Self

import orjson

#: A physical line longer than this is cut into entries of this many bytes.
MAX_LINE = 1 << 20
LEVELS = {"DEBUG": 10, "INFO": 20, "WARNING": 30, "ERROR": 40, "CRITICAL": 50}
#: The level of lines before the first head: before logging is set up, Python prints hardly anything but errors.
HEADLESS_LEVEL = "ERROR"

_LEVEL = "|".join(LEVELS)
# A logger may have the name of a spider, with spaces and brackets. So the name ends only where a level follows.
_LOGGER = rf"[^\]\n]+(?:\](?! (?:{_LEVEL}): )[^\]\n]*)*"
# The head of our format (`LOG_FORMAT` of the outbox) or of Scrapy's default, which has neither zone nor milliseconds
# and is taken as UTC. Only ASCII digits and white space match, as in the expressions for bytes below: Unicode text
# has more of both, and the two expressions must agree.
_HEAD = re.compile(
    r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,](\d{3}))?(?:Z|[+-]\d\d:?\d\d)? "
    rf"\[({_LOGGER})\] ({_LEVEL}): (.*)",
    re.DOTALL | re.ASCII,
)


# The same in bytes, up to the message.
_TIME = rb"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{3})?(?:Z|[+-]\d\d:?\d\d)? "
_LOGGER_BYTES, _LEVEL_BYTES = _LOGGER.encode(), _LEVEL.encode()
_HEAD_BYTES = re.compile(rb"%b\[(%b)\] (%b): " % (_TIME, _LOGGER_BYTES, _LEVEL_BYTES))
_HEADS = re.compile(rb"^" + _HEAD_BYTES.pattern, re.MULTILINE)
_POSITION = re.compile(r"(\d{1,6})-(\d{1,15})", re.ASCII)


class Position(NamedTuple):
    """Everything before byte `offset` of attempt `attempt`'s log has been read. Positions are ordered."""

    attempt: int
    offset: int

    def __str__(self) -> str:
        return f"{self.attempt}-{self.offset}"

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """`None` for text that is not the id of one of our events."""
        match = _POSITION.fullmatch(text)
        return cls(int(match[1]), int(match[2])) if match else None


class LogEntry(NamedTuple):
    """One line, or one piece of an over-long line. Offsets are bytes in the attempt's log."""

    start: int
    end: int
    ts: str | None
    level: str
    logger: str | None
    msg: str
    #: Whether the line has no head of its own (a traceback, a multi-line message) and belongs to the line before it.
    cont: bool

    def to_json(self) -> bytes:
        """The `data:` of its SSE event: JSON in one line, without a false `cont`. A continued line has no time and
        logger.
        """
        data: dict[str, object] = {"ts": self.ts, "level": self.level, "logger": self.logger, "msg": self.msg}
        if self.cont:
            data = {"level": self.level, "msg": self.msg, "cont": True}
        return orjson.dumps(data)

    @classmethod
    def from_json(cls, start: int, end: int, data: bytes) -> Self:
        """The entry that `to_json` has written as `data`, at these offsets."""
        fields = orjson.loads(data)
        is_cont = fields.get("cont", False)
        return cls(start, end, fields.get("ts"), fields["level"], fields.get("logger"), fields["msg"], is_cont)

    @property
    def text(self) -> str:
        """The line in our own log format."""
        return self.msg if self.cont else f"{self.ts} [{self.logger}] {self.level}: {self.msg}"


class Survey(NamedTuple):
    """Counts of entries that are found without making the entries: a mebibyte of log may have a million of them."""

    #: By logger and level: the number of lines. A line without a head counts for the line that it belongs to.
    lines: Counter[tuple[str, str]]
    #: The level and the logger of the last line.
    level: str
    logger: str | None
    #: By time (to the second, as it is in the log) and level: the number of lines, and the offset in `data` at which
    #: the first of them begins. Lines before the first head have no time.
    times: dict[tuple[bytes, str], tuple[int, int]]


#: The length of the time, to the second, at the beginning of a head.
_SECOND = len("2027-06-01T09:00:01")


def survey(data: bytes, level: str, logger: str | None) -> Survey:
    """Count the lines of `data`. It has complete entries; only the last may be a piece of an over-long line. `level`
    and `logger`: those of the line before `data`.
    """
    lines: Counter[tuple[str, str]] = Counter()
    times: dict[tuple[bytes, str], tuple[int, int]] = {}
    position, second = 0, b""

    def add(end: int, *, is_open: bool = False) -> None:
        count = data.count(b"\n", position, end) + is_open
        lines[logger or "", level] += count
        if second and count:
            before, first = times.get((second, level), (0, position))
            times[second, level] = before + count, first

    for head in _HEADS.finditer(data):
        add(head.start())
        logger, level = (part.decode("utf-8", "replace") for part in head.groups())
        position = head.start()
        second = data[position : position + _SECOND]
    add(len(data), is_open=position < len(data) and not data.endswith(b"\n"))
    return Survey(+lines, level, logger, times)


def end_of_entries(data: bytes, least: int, *, final: bool = False) -> int:
    """The end of the first entry that ends at byte `least` or later; if there is none, the end of the last complete
    entry. `least` is at most `MAX_LINE`. `final`: an incomplete last line counts as complete.
    """
    line = data.rfind(b"\n", 0, max(0, least - 1)) + 1
    newline = data.find(b"\n", max(0, least - 1), line + MAX_LINE)
    if newline >= 0:
        return newline + 1
    if len(data) - line >= MAX_LINE:
        return line + MAX_LINE
    return len(data) if final else line


def head_at(data: bytes, start: int) -> tuple[bytes, ...] | None:
    """Logger and level of the line that begins at `data[start]`; `None` if it has no head of its own."""
    match = _HEAD_BYTES.match(data, start)
    return match.groups() if match else None


def _parse_line(raw: bytes, start: int, end: int, head_level: str) -> LogEntry:
    text = raw.decode("utf-8", "replace").rstrip("\r\n")
    match = _HEAD.fullmatch(text)
    if match is None:
        return LogEntry(start, end, None, head_level, None, text, cont=True)
    day, time, millis, logger, level, msg = match.groups()
    return LogEntry(start, end, f"{day}T{time}.{millis or '000'}Z", level, logger, msg, cont=False)


def split_entries(
    data: bytes, start: int, head_level: str = HEADLESS_LEVEL, *, final: bool = False
) -> tuple[list[LogEntry], str]:
    """The complete entries in `data`, which begins at byte `start` of the log, and the level for further lines
    without a head.

    A torn last line is left for later unless the log is `final`; the caller goes on at the last entry's `end`.
    """
    entries: list[LogEntry] = []
    position = 0
    while position < len(data):
        newline = data.find(b"\n", position, position + MAX_LINE)
        if newline >= 0:
            stop = newline + 1
        elif len(data) - position >= MAX_LINE:
            stop = position + MAX_LINE
        elif final:
            stop = len(data)
        else:
            break
        entry = _parse_line(data[position:stop], start + position, start + stop, head_level)
        head_level = entry.level
        entries.append(entry)
        position = stop
    return entries, head_level
