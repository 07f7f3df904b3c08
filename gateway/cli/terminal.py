"""Where all commands write to, where the gateway is, and how times are shown."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from rich.console import Console
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from embedded.stack.state import StackState

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
#: Columns of what is piped somewhere: tables must not lose their right half to a terminal that is not there.
_PIPED = 200

out = _console(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else _PIPED)
err = _console(stderr=True)


Record = dict[str, Any]
#: What makes a cell of a record.
Cell = Callable[[Record], Any]


def new_table(columns: str, records: Iterable[Record], **cells: Cell) -> Table:
    """Each record is a line. `columns` has heads and fields: `JOB job_id, *START start, >AGE created_at:age`.

    A `*` lets a column have several lines where the terminal is narrow, a `>` moves it to the right. A field is shown
    as it is, as a time (`:time`) or by its age (`:age`), or by the one of `cells` that has its name.
    """
    table = Table(box=None, pad_edge=False, header_style="bold")
    shows = list[Cell]()
    for column in columns.split(", "):
        head, _, field = column.rpartition(" ")
        field, _, form = field.partition(":")
        shows.append(cells.get(field) or partial(_cell, field, _FORMS.get(form, str)))
        table.add_column(
            head.lstrip("*>"),
            justify="right" if head.startswith(">") else "left",
            **({"overflow": "fold"} if head.startswith("*") else {"no_wrap": True}),
        )
    for record in records:
        values = (show(record) for show in shows)
        table.add_row(*(one if isinstance(one, Text) else Text(visible(str(one))) for one in values))
    return table


def _cell(field: str, form: Callable[[Any], str], record: Record) -> str:
    return "-" if record[field] is None else form(record[field])


def print_json(document: Any) -> None:
    """One document, and nothing in it that a terminal obeys."""
    out.print(visible_json(json.dumps(document, indent=2, ensure_ascii=False)), soft_wrap=True)


def _end_without_reader(console: Console) -> None:
    """End without an error when the reader of the output has closed it: `| head` has read enough."""
    # the buffered output must go somewhere, or the interpreter complains at its end
    os.dup2(os.open(os.devnull, os.O_WRONLY), console.file.fileno())
    if not console.stderr:
        raise SystemExit(0)


# for every console: typer makes some of its own for the help
Console.on_broken_pipe = _end_without_reader  # type: ignore[method-assign, assignment]


@contextmanager
def stdout_bytes() -> Iterator[BinaryIO]:
    """Stdout for bytes, such as those of a file or of items."""
    try:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        out.on_broken_pipe()


def program() -> str:
    """What to type to run us again: our name where the shell finds it, else the path from the present folder."""
    path = Path(sys.executable).with_name("discoverybot")
    if shutil.which("discoverybot") or not path.exists():
        return "discoverybot"
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def given(**fields: Any) -> Record:
    """Those that have a value."""
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
    return found.rstrip("/")


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
    for unit, letter in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= unit:
            return f"{seconds // unit}{letter}"
    return f"{max(seconds, 0)}s"


_FORMS: dict[str, Callable[[Any], str]] = {"time": shown, "age": age, "yes": lambda value: "yes" if value else "no"}
