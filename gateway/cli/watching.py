"""Shows a crawl while it runs: its log line by line, and below it a line with its progress."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from attrs import define, field
from rich.console import Console
from rich.live import Live
from rich.text import Text

from gateway.cli.terminal import counted, shown, visible
from gateway.logs.fold import folded_as

if TYPE_CHECKING:
    from discoverybot_client import Event

LEVEL_STYLES = {
    "DEBUG": "dim",
    "INFO": "",
    "WARNING": "yellow",
    "ERROR": "red",
    "CRITICAL": "bold white on red",
}
STATUS_STYLES = {
    "scheduled": "blue",
    "pending": "blue",
    "running": "cyan",
    "paused": "yellow",
    "finished": "green",
    "partial": "yellow",
    "error": "red",
    "cancelled": "magenta",
}


def log_line(entry: dict[str, Any]) -> Text:
    """One `log` event as a line; a continuation is indented under its head."""
    style = LEVEL_STYLES.get(str(entry.get("level")), "")
    if entry.get("cont"):
        return Text(f"  {visible(str(entry['msg']))}", style=style)
    time = str(entry.get("ts") or "")[11:23]
    return Text.assemble(
        (f"{time} ", "dim"),
        (f"{entry.get('level'):<8} ", style or "green"),
        (f"{visible(str(entry.get('logger')))} ", "cyan dim"),
        (visible(str(entry.get("msg"))), style),
    )


def status_text(status: str) -> Text:
    return Text(status, style=STATUS_STYLES.get(status, ""))


def progress_line(status: str, progress: dict[str, Any]) -> Text:
    """`running  120 pages  118 items  0 errors  57.1 pages/s`."""
    errors = int(progress.get("errors_count", 0))
    pages = counted(progress.get("completed_pages", 0), "page")
    items = counted(progress.get("items_count", 0), "item")
    return Text.assemble(
        (f" {status} ", f"bold {STATUS_STYLES.get(status, '')} reverse"),
        f"  {pages}  {items}  ",
        (counted(errors, "error"), "red" if errors else ""),
        f"  {progress.get('pages_per_s', 0):.1f} pages/s",
    )


@define(eq=False, repr=False, slots=False)
class LogLines:
    """Prints lines of a log. On a terminal, one line stands for Scrapy's setup and one for its statistics, unless
    `whole` is true. Call `flush` at the end.
    """

    _console: Console
    _whole: bool = False
    _held: list[Text] = field(init=False, factory=list)
    _held_as: str | None = field(init=False, default=None)

    def __attrs_post_init__(self) -> None:
        self._whole = self._whole or not self._console.is_terminal

    def print(self, entry: dict[str, Any]) -> None:
        name = None if self._whole else self._name(entry)
        if name != self._held_as:
            self.flush()
        self._held_as = name
        if name is None:
            self._console.print(log_line(entry), soft_wrap=True)
        else:
            self._held.append(log_line(entry))

    def _name(self, entry: dict[str, Any]) -> str | None:
        cont = bool(entry.get("cont"))
        return folded_as(entry.get("logger"), entry["level"], entry["msg"], self._held_as, cont=cont)

    def flush(self) -> None:
        """Print the lines that were held back."""
        if len(self._held) > 1:
            what = f"… {len(self._held)} lines of Scrapy's {self._held_as} (`logs --full` shows them)"
            self._held = [Text(what, style="dim")]
        for line in self._held:
            self._console.print(line, soft_wrap=True)
        self._held, self._held_as = [], None


@define(eq=False, repr=False, slots=False)
class TerminalLog:
    """Shows events on `console`. The progress line is only shown if that is a terminal."""

    _console: Console
    #: Whether to print Scrapy's setup and statistics in full.
    _whole: bool = False
    _lines: LogLines = field(init=False)
    _status: str = field(init=False, default="pending")
    _progress: dict[str, Any] = field(init=False, factory=dict)
    _dropped: bool = field(init=False, default=False)

    def __attrs_post_init__(self) -> None:
        self._lines = LogLines(self._console, self._whole)

    def show(self, events: Iterable[Event]) -> dict[str, Any] | None:
        """Show all events. Returns the data of the `end` event."""
        if not self._console.is_terminal:
            return self._show(events, None)
        with Live(self._line(), console=self._console, transient=True, refresh_per_second=8) as live:
            return self._show(events, live)

    def _show(self, events: Iterable[Event], live: Live | None) -> dict[str, Any] | None:
        end = None
        for event in events:
            if event.name == "end":
                end = event.data
                break
            self._take(event)
            if live is not None and event.name != "log":
                live.update(self._line())
        self._lines.flush()
        return end

    def _line(self) -> Text:
        return progress_line(self._status, self._progress)

    def _take(self, event: Event) -> None:
        if event.name == "log":
            self._lines.print(event.data)
        elif event.name == "progress":
            self._progress = event.data
        elif event.name == "status":
            self._show_status(event.data)
        elif event.name == "gap":
            self._note(f"lines from {event.data.get('from')} to {event.data.get('to')} are no longer kept")
        elif event.name == "dropped" and not self._dropped:
            self._note("connection lost, reconnecting")
        self._dropped = event.name == "dropped"

    def _show_status(self, data: dict[str, Any]) -> None:
        changed, self._status = data.get("status") != self._status, str(data.get("status"))
        reason, next_run = data.get("waiting_reason"), data.get("next_run")
        if changed or reason or next_run:
            attempt = f", attempt {data['attempt']}" if data.get("attempt", 0) > 1 else ""
            later = f"next run {shown(next_run)}" if next_run else None
            why = "".join(f": {text}" for text in (reason, later, data.get("message")) if text)
            self._note(f"{self._status}{attempt}{why}")

    def _note(self, text: str) -> None:
        self._lines.flush()
        self._console.print(Text(f"── {text}", style="blue"), soft_wrap=True)
