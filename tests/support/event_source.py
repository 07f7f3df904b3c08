"""A plain reader of server-sent events for tests. It follows the specification exactly, without leniency."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx2


class Event(NamedTuple):
    event: str
    id: str
    data: Any


def read_events(response: httpx2.Response) -> Iterator[Event]:
    """https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation."""
    event, last_id, data = "message", "", ""
    for line in response.iter_lines():
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not line:
            if data:
                yield Event(event, last_id, json.loads(data))
            event, data = "message", ""
        elif name == "event":
            event = value
        elif name == "id":
            last_id = value
        elif name == "data":
            data += value


def log_text(events: list[Event]) -> str:
    """The log in these events, as the log's file has it."""
    lines = []
    for event in events:
        if event.event == "log":
            entry = event.data
            head = "" if entry.get("cont") else f"{entry['ts']} [{entry['logger']}] {entry['level']}: "
            lines.append(f"{head}{entry['msg']}\n")
    return "".join(lines)
