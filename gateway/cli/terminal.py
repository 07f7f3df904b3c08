"""Where all commands write, where the gateway is, and how times are shown."""

from __future__ import annotations

import codecs
import errno
import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from io import TextIOWrapper
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, BinaryIO, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import psutil
from rich.console import Console, ConsoleOptions
from rich.segment import Segment
from rich.text import Text

from embedded.stack.state import StackState
from gateway.private_names import require_names

require_names("rich", Console, "_render_buffer")

# --- where the CLI writes: results to stdout, everything about them to stderr.
#
# Text of a page, a log or the gateway is shown but never obeyed: with its control characters it could make a terminal
# move the cursor, fill the clipboard (OSC 52) or type in the user's place.

#: C0 without tab and line feed, DEL, C1, marks that change the direction of writing, halves of surrogate pairs.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
#: Those of them that a JSON string may hold unescaped.
_CONTROLS_IN_JSON = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str) -> str:
    r"""The text, with its control characters as `\x1b`, `\r` or `\u202e`."""
    return _CONTROLS.sub(lambda found: repr(found[0])[1:-1], text)


def visible_json(text: str) -> str:
    """The same JSON, and nothing in it that a terminal obeys."""
    return _CONTROLS_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class _Visible(Console):
    def render_str(self, text: str, **options: Any) -> Text:
        # before rich removes some of the control characters silently
        return super().render_str(visible(text), **options)

    def _render_buffer(self, buffer: Iterable[Segment]) -> str:
        """All that is printed passes here; `control` is rich's own."""
        return super()._render_buffer(
            part if part.control else part._replace(text=visible(part.text)) for part in buffer
        )


# names from outside are shown unchanged: `[/b]` is no markup, and `:key:` no emoji
_console = partial(_Visible, highlight=False, markup=False, emoji=False)
#: Columns of piped output: nothing is cut there.
_PIPED = 100_000


def _is_terminal() -> bool:
    """Whether stdout is one. It is `None` if the shell has closed it: `>&-`."""
    return sys.stdout is not None and sys.stdout.isatty()


out = _console()
err = _console(stderr=True)

#: Replacements of the same width for our own marks, if the encoding of the output lacks these.
_PLAIN = {"…": "~", "→": ">", "✓": "+", "✗": "x", "·": "-", "─": "-", "–": "-", "—": "-"}


def _spelled_out(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    plain = (_PLAIN.get(one) or one.encode("ascii", "backslashreplace").decode() for one in lacking)
    return "".join(plain), error.end


def prepare_output() -> None:
    r"""Make stdout and stderr write `\xe9` instead of raising an error if their encoding has no é. Fit tables into
    `COLUMNS` if it is set, else into the terminal.
    """
    codecs.register_error("discoverybot", _spelled_out)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # if stdout is a pipe in place of a file, asking for its position fails
            with suppress(OSError):
                stream.reconfigure(errors="discoverybot")
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns):
        out.width = int(columns)
    elif not _is_terminal():
        out.width = _PIPED


Record = dict[str, Any]
#: Makes a cell from a record.
Cell = Callable[[Record], Any]


#: Maximum number of characters of an id that are shown. Commands accept the beginning of an id.
ID_SHOWN = 8
#: Columns of space between two columns; least width of a column that can shrink; the same for the last column.
_GAP, _LEAST, _LAST = 2, 10, 12
_COLUMN = re.compile(r"(?P<leaves>[0-9]?)(?P<form>[>*]?)(?P<head>.*) (?P<field>[^: ]+):?(?P<shape>[a-z]*)")


class _Column(NamedTuple):
    head: str
    show: Cell
    #: `>` aligns it to the right; `*` lets it shrink.
    form: str
    #: If there is too little room, the column with the highest number is left out first; 0 always stays.
    leaves: int

    def line(self, text: Text, width: int) -> Text:
        text = text.copy()
        text.truncate(width, overflow="ellipsis")
        text.align("right" if self.form == ">" else "left", width)
        return text


class RecordTable(NamedTuple):
    """A table with one line for each record, however narrow it is: columns become narrower or are left out."""

    columns: list[_Column]
    rows: list[list[Text]]

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> Iterator[Text]:
        widths = self._fitting(options.max_width)
        for row in self.rows:
            cells = [self.columns[place].line(row[place], width) for place, width in widths.items()]
            line = Text(" " * _GAP, no_wrap=True, overflow="ignore").join(cells)
            line.rstrip()
            yield line

    def _fitting(self, room: int) -> dict[int, int]:
        """The columns that are shown, by index, with their widths."""
        widths = {place: max(row[place].cell_len for row in self.rows) for place in range(len(self.columns))}
        while True:
            space = room - _GAP * (len(widths) - 1)
            fitting = self._squeezed(widths, space, _LAST)
            leaving = max(widths, key=lambda place: (self.columns[place].leaves, place))
            if sum(fitting.values()) <= space:
                return fitting
            if not self.columns[leaving].leaves:
                return self._squeezed(widths, space, _LEAST)
            del widths[leaving]

    def _squeezed(self, widths: dict[int, int], space: int, last: int) -> dict[int, int]:
        """The widths, reduced until they fit, or until no column can shrink further."""
        fitting, soft = dict(widths), [place for place in widths if self.columns[place].form == "*"]
        least = {place: last if place == max(widths) else _LEAST for place in soft}
        while sum(fitting.values()) > space:
            giving = [place for place in soft if fitting[place] > least[place]]
            if not giving:
                break
            fitting[max(giving, key=lambda place: fitting[place])] -= 1
        return fitting


def new_table(columns: str, records: Iterable[Record], **cells: Cell) -> RecordTable:
    """Each record is a line. `columns` has heads and fields: `JOB job_id:id, *START start, 2>AGE created_at:age`.

    A column with `*` is cut if the terminal is narrow; one with `>` is aligned to the right. Columns with a number
    are left out if there is too little room, the highest number first. A field is shown as it is, as an id that is
    cut (`:id`), a time (`:time`), its age (`:age`) or an address (`:url`). If `cells` has a function with its name,
    that makes the cell.
    """
    made = list[_Column]()
    for found in map(_parts_of, columns.split(", ")):
        show = cells.get(found["field"]) or partial(_cell, found["field"], _FORMS.get(found["shape"], str))
        made.append(_Column(found["head"], show, found["form"], int(found["leaves"] or 0)))
    rows = [[Text(column.head, style="bold") for column in made]]
    rows += [[_in_one_line(column.show(record)) for column in made] for record in records]
    return RecordTable(made, rows)


def _parts_of(column: str) -> re.Match[str]:
    found = _COLUMN.fullmatch(column)
    if found is None:
        raise ValueError(column)
    return found


def _in_one_line(value: Any) -> Text:
    return value if isinstance(value, Text) else Text(visible(str(value)).replace("\n", " ").replace("\t", " "))


def _cell(field: str, form: Callable[[Any], str], record: Record) -> str:
    return "-" if record.get(field) is None else form(record[field])


def print_json(document: Any) -> None:
    """Print one document as JSON that no terminal interprets."""
    text = json.dumps(document, indent=2, ensure_ascii=not out.encoding.startswith("utf"))
    out.print(visible_json(text), soft_wrap=True)


def _end_without_reader(console: Console) -> None:
    """End without an error if the reader of the output has closed it: `| head` has read enough."""
    discard(console.file)
    if not console.stderr:
        raise SystemExit(0)


def discard(stream: IO[str]) -> None:
    """Discard what is still buffered. Otherwise the interpreter complains when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


# for every console: typer makes some of its own for the help
Console.on_broken_pipe = _end_without_reader  # type: ignore[method-assign, assignment]


@contextmanager
def stdout_bytes() -> Iterator[BinaryIO]:
    """Stdout for bytes, such as those of a file or of items. Raises `OSError`."""
    if sys.stdout is None:
        raise OSError(errno.EBADF, "stdout is closed")
    try:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        out.on_broken_pipe()


def program() -> str:
    """The command that runs this program again: as uv was called, else our name if the shell finds it, else the path
    relative to the current folder.
    """
    if by_uv := _by_uv():
        return by_uv
    path = Path(sys.executable).with_name("discoverybot")
    if shutil.which("discoverybot") or not path.exists():
        return "discoverybot"
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


#: Commands of uv that run us in an environment which the shell does not know: how uv's process looks → what to type.
_UV_COMMANDS = {("uv", "tool", "uvx"): "uvx", ("uv", "tool", "run"): "uv tool run", ("uv", "run"): "uv run"}


def _by_uv() -> str | None:
    """The command of uv that has started this process, without our own arguments."""
    if "UV" not in os.environ or (parent := psutil.Process().parent()) is None:
        return None
    try:
        name, *words = parent.cmdline()
    except (psutil.Error, ValueError):
        return None
    said = (Path(name).name, *words[: len(words) - len(sys.argv) + 1])
    for command, typed in _UV_COMMANDS.items():
        if said[: len(command)] == command:
            return " ".join((typed, *map(shlex.quote, said[len(command) :])))
    return None


def given(**fields: Any) -> Record:
    """The fields that have a value."""
    return {name: value for name, value in fields.items() if value is not None}


def counted(number: int, thing: str) -> str:
    """`1 page`, `2 pages`."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


# --- where the gateway is: said on the command line, in the environment, or by the stack that runs here

DEFAULT_PORT = 8001


def home() -> Path:
    """The data folder. The rest of the settings may be wrong: the CLI talks to a gateway that has its own."""
    return Path(os.environ.get("DISCOVERYBOT_HOME") or ".discoverybot").absolute()


def gateway_url(given: str | None = None) -> str:
    """`--url`, else `DISCOVERYBOT_URL`, else the stack of the data folder, else `GATEWAY_PORT` here."""
    found = given or os.environ.get("DISCOVERYBOT_URL")
    if not found:
        stack = StackState.read(home())
        port = os.environ.get("GATEWAY_PORT") or DEFAULT_PORT
        found = stack.gateway_url if stack else f"http://127.0.0.1:{port}"
    return (found if "://" in found else f"http://{found}").rstrip("/")


# --- times


def shown(moment: str | None) -> str:
    """An ISO time in this machine's time, with its offset; a dash for none."""
    if moment is None:
        return "-"
    return datetime.fromisoformat(moment).astimezone().strftime("%Y-%m-%d %H:%M:%S %z")


def until_then(moment: str, now: datetime | None = None) -> str:
    """`in 42s`, `in 5m`, `in 3h`, `in 2d`."""
    return f"in {_span(datetime.fromisoformat(moment) - (now or datetime.now(UTC)))}"


def age(moment: str, now: datetime | None = None) -> str:
    """`42s`, `5m`, `3h`, `2d` since an ISO time."""
    return _span((now or datetime.now(UTC)) - datetime.fromisoformat(moment))


def _span(time: timedelta) -> str:
    seconds = int(time.total_seconds())
    for unit, letter in _UNITS:
        if seconds >= unit:
            return f"{seconds // unit}{letter}"
    return f"{max(seconds, 0)}s"


_UNITS = ((86400, "d"), (3600, "h"), (60, "m"))


def took(began: str | None, ended: str | None, now: datetime | None = None) -> str:
    """`42s`, `3m 5s`, `2h 10m`, `3d 4h` between two ISO times, or up to now; a dash if it has not begun."""
    if began is None:
        return "-"
    end = datetime.fromisoformat(ended) if ended else now or datetime.now(UTC)
    seconds = max(0, int((end - datetime.fromisoformat(began)).total_seconds()))
    for (unit, letter), (smaller, its) in pairwise((*_UNITS, (1, "s"))):
        if seconds >= unit:
            return f"{seconds // unit}{letter} {seconds % unit // smaller}{its}"
    return f"{seconds}s"


def listed(moment: str, zone: str | None = None) -> str:
    """An ISO time in a list: `2027-06-01 09:00`, in this machine's time, or in a time zone that is then named."""
    at = datetime.fromisoformat(moment)
    if zone is None:
        return at.astimezone().strftime("%Y-%m-%d %H:%M")
    try:
        return at.astimezone(ZoneInfo(zone)).strftime("%Y-%m-%d %H:%M %Z")
    except (ZoneInfoNotFoundError, ValueError):  # a machine that knows fewer time zones than the gateway
        return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")


def _address(url: str) -> str:
    """The URL without `https://`, which is the usual scheme."""
    return url.removeprefix("https://")


_FORMS: dict[str, Callable[[Any], str]] = {
    "id": lambda value: str(value)[:ID_SHOWN],
    "time": listed,
    "second": lambda value: shown(value)[:19],
    "age": age,
    "yes": lambda value: "yes" if value else "no",
    "url": _address,
}
