"""The text of an event for people, for example in a chat: one sentence with a link."""

from __future__ import annotations

from typing import Any

import orjson

from gateway.signals.events import EventType, SignalEvent

#: A message in a sentence is cut to this many characters.
MAX_MESSAGE = 300
#: A title, such as a mail's subject, is cut to this many characters.
MAX_TITLE = 120
_BAD = frozenset(
    {
        *(EventType.JOB_FAILED, EventType.RUN_HELD, EventType.SCHEDULE_MISSED),
        *(EventType.NODE_DOWN, EventType.DEPLOY_FAILED),
        *(EventType.ALERT_FIRING, EventType.ALERT_STILL_FIRING, EventType.ENDPOINT_DISABLED),
    }
)
_GOOD = frozenset({EventType.JOB_FINISHED, EventType.NODE_UP, EventType.DEPLOY_LIVE, EventType.ALERT_RESOLVED})
#: The sentence for each type of event. Besides the event's fields, it may use `because` (its message), `again` (the
#: number of the attempt, if it is not the first), `found` (the counts in words) and `took` (the duration in words).
_TEMPLATES = {
    EventType.JOB_STARTED: "started{again}",
    EventType.JOB_PAUSED: "paused",
    EventType.JOB_RETRIED: "failed and is retried{because}",
    EventType.JOB_FINISHED: "finished: {found} in {took}",
    EventType.JOB_PARTIAL: "finished in part{because}",
    EventType.JOB_FAILED: "failed{because}",
    EventType.JOB_CANCELLED: "was cancelled",
    EventType.ITEMS_BATCH: "has {so_far}",
    EventType.DATASET_CHANGED: "changed {dataset}: {new} new, {changed} changed, {removed} removed",
    EventType.RUN_HELD: "has a run of {dataset} that is held{because}",
    EventType.SCHEDULE_SKIPPED: "was skipped at {due}{because}",
    EventType.SCHEDULE_MISSED: "was missed at {due}{because}",
    EventType.SCHEDULE_LATE: "ran {late} late: it was due at {due}",
    EventType.NODE_DOWN: "is down{because}",
    EventType.NODE_UP: "is up{because}",
    EventType.DEPLOY_LIVE: "{version} is live",
    EventType.DEPLOY_FAILED: "{version} could not be deployed{because}",
    EventType.ALERT_FIRING: "{message}",
    EventType.ALERT_STILL_FIRING: "{message} (for {took} now)",
    EventType.ALERT_RESOLVED: "is as it should be again, after {took}",
    EventType.ENDPOINT_DISABLED: "An endpoint was disabled{because}",
    EventType.TEST: "{message}",
}


def slack_body(event: SignalEvent) -> str:
    """A body for Slack's incoming webhooks; Mattermost, Rocket.Chat and Discord (at `…/slack`) accept it, too."""
    name, said, page = _escaped(_name(event.data)), _escaped(_said(event)), event.data.get("page_url")
    subject = f"<{page}|{name}>" if page else name
    return orjson.dumps({"text": f"{subject} {said}" if subject else said}).decode()


def message_body(event: SignalEvent) -> str:
    """`{"title", "text", "kind"}` for Apprise, which shows the kinds in different colours."""
    name, said, page = _name(event.data), _said(event), event.data.get("page_url")
    title = f"{name} {said}" if name else said
    text = f"{said}\n{page}" if page else said
    kind = "failure" if event.type in _BAD else "success" if event.type in _GOOD else "info"
    return orjson.dumps({"title": _short(title), "text": text, "kind": kind}).decode()


def _short(text: str) -> str:
    return text if len(text) <= MAX_TITLE else text[: MAX_TITLE - 1] + "…"


def _name(data: dict[str, Any]) -> str:
    """The name of the event's subject: `shop/prices`, the name of a schedule, a project, or a node."""
    if group := data.get("group"):
        return f"Node {group}" if data["group_by"] == "node" else str(data.get("name") or group)
    if name := data.get("name"):
        return str(name)
    if "spider" in data:
        return f"{data['project']}/{data['spider']}"
    if about := data.get("site") or data.get("project"):
        return str(about)
    return f"Node {data['node']}" if "node" in data else ""


def _said(event: SignalEvent) -> str:
    data = event.data
    return _TEMPLATES[event.type].format(**data | {"because": _because(data), "again": _again(data)}, **_counts(data))


def _again(data: dict[str, Any]) -> str:
    return f" (attempt {attempt})" if (attempt := data.get("attempt", 1)) > 1 else ""


def _because(data: dict[str, Any]) -> str:
    message = " ".join(str(data.get("message") or "").split())
    if len(message) > MAX_MESSAGE:
        message = message[: MAX_MESSAGE - 1] + "…"
    return f": {message}" if message else ""


def _counts(data: dict[str, Any]) -> dict[str, str]:
    """`found`: `270 items on 280 pages`; `so_far`: `270 items`; `took`, `late`: `3 min 40 s`."""
    items, pages = data.get("items_count", 0), data.get("completed_pages", 0)
    took = lasting(data.get("duration_seconds", 0))
    late = lasting(data.get("late_by_seconds", 0))
    so_far = _counted(items, "item")
    return {"found": f"{so_far} on {_counted(pages, 'page')}", "so_far": so_far, "took": took, "late": late}


#: The units of a duration in seconds, the largest first.
UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def lasting(seconds: float) -> str:
    """A duration in words, such as `3 min 40 s`: the two largest units, without a unit that is zero."""
    left, parts = round(seconds), list[str]()
    for size, unit in UNITS:
        count, left = divmod(left, size)
        parts += [f"{count} {unit}"] if count or parts else []
    return " ".join(part for part in parts[:2] if not part.startswith("0 ")) or "0 s"


def _counted(number: int, thing: str) -> str:
    return f"{number:,} {thing}" + ("" if number == 1 else "s")


def _escaped(text: str) -> str:
    """The text escaped for Slack, so that no part of it is a link or a command such as `<!channel>`."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
