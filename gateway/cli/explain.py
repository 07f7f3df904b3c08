"""A job in words: `discoverybot jobs show` says why a job waits, why it failed, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from textwrap import wrap

from rich.text import Text

from gateway.cli.api import Api, ApiError
from gateway.cli.terminal import Record, age, counted, out, program, shown, visible
from gateway.cli.watching import status_text


def summary(status: Record) -> Text:
    """`finished: 32 pages, 30 items, 1 error`, and the message if there is one."""
    text = _counts(status)
    return text.append(f"\n{visible(status['message'])}") if status.get("message") else text


def _counts(status: Record) -> Text:
    counts = ", ".join(
        counted(status.get(field) or 0, thing)
        for field, thing in (("completed_pages", "page"), ("items_count", "item"), ("errors_count", "error"))
    )
    return Text.assemble(status_text(status["status"]), f": {counts}")


_GOOD = frozenset({"finished", "partial"})
#: `waiting_reason` → why a job waits, and what to do about it.
_WAITING = {
    "capacity": (
        "every slot that it could use is taken",
        "wait, or add nodes: `{program} nodes` shows their slots",
    ),
    "site_busy": (
        "another run of site {site} has not ended",
        "wait, or cancel that run: `{program} jobs --site {site}`",
    ),
    "previous_run": (
        "the previous run of its schedule has not ended",
        "wait, or cancel that run: `{program} jobs --schedule {schedule}`",
    ),
    "user_quota": (
        "user {user} has as many crawls running as one user may have",
        "wait, or cancel one: `{program} jobs --user {user} --status running`",
    ),
    "no_node": ("no node takes work", "`{program} nodes` says why, and what to do"),
    "no_such_project": (
        "no node has version {version} of project {project}",
        "deploy it: `{program} deploy FOLDER --project {project} --version {version}`",
    ),
    "disk_full": (
        "the disks of the nodes that could run it are full",
        "make room there: `{program} nodes` names them",
    ),
    "backoff": (
        "the last try failed, and the next one is at {not_before}",
        "wait; `{program} logs {id}` has the log",
    ),
}
#: Columns before the text of each line, and the fewest for the text.
_MARGIN, _NARROWEST = 11, 20
#: Lines of the log that are shown of an attempt without a report.
_LOG_TAIL = 5
_NOT_SEEN = ("it is being queued", "wait; if that lasts, `{program} doctor` says what is wrong")
#: What to do about a job in another state.
_NEXT = {
    "scheduled": "wait for its time, {next_run}, or `{program} cancel {id}`",
    "running": "`{program} logs -f {id}` to watch it, `{program} cancel {id}` to stop it",
    "paused": "`{program} resume {id}` to go on, `{program} cancel {id}` to end it",
    "finished": "`{program} items {id}` for what it found",
    "partial": "`{program} items {id}` for what it found, `{program} jobs retry {id}` to run it again",
    "error": "`{program} logs {id} --level ERROR` for what went wrong, `{program} {again} {id}` to run it again",
    "cancelled": "`{program} jobs retry {id}` to run it again",
}


def explain(job: Record, options: Record) -> Text:
    """How far a job is, why it waits, how it failed, and what to do next."""
    if "schedule" in job:
        last = job["last_run"]
        ran = f"last run: {last['job_id']}, {last['status']}" if last else "no run yet"
        text = f"{job['job_id']} is a schedule: {job['state']}, next run: {shown(job['next_run'])}, {ran}"
        return Text(f"{text}\n`{program()} schedules show {job['job_id']}` says more")
    names = {
        "program": program(), "id": job["job_id"], "site": job["site"], "schedule": job["schedule_id"],
        "user": job["user_id"], "project": job["spec"]["project"], "version": job["version"],
        "not_before": shown(job["not_before"]), "next_run": shown(job["next_run"]),
        "again": "requeue" if job["dead"] else "jobs retry",
    }  # fmt: skip
    why, todo = job["message"], _NEXT.get(job["status"])
    if job["status"] == "pending":
        reason, todo = _WAITING.get(job["waiting_reason"], _NOT_SEEN)
        # each attempt's own line says how it failed
        why = "; ".join(filter(None, (reason.format(**names), None if job["attempts"] else why)))
    lines = [
        ("job", job["job_id"]),
        ("status", _counts(job)),
        ("crawl", what_is_crawled(job["spec"])),
        ("asked for", f"{shown(job['created_at'])} ({age(job['created_at'])} ago) by {job['user_id']}"),
        ("version", job["version"]),
        *(line for attempt in job["attempts"] for line in _attempt(attempt)),
        ("queue", f"place {job['queue_position']}" if job["queue_position"] else None),
        ("cancel", f"asked for at {shown(job['cancel_requested_at'])}" if job["cancel_requested_at"] else None),
        ("pause", _pause(job)),
        ("result" if job["status"] == "finished" else "why", why),
        *_notable(options["gateway"], job),
        *_advice(job),
        ("webhooks", job["webhook_message"]),
        ("to do", todo and todo.format(**names)),
        ("page", options["gateway"].page(job["job_id"])),
    ]
    return Text("\n").join(_headed(head, text) for head, text in lines if text)


def what_is_crawled(spec: Record) -> str:
    """`spider seo of project default, from https://example.com +2`; a spider may know by itself where it starts."""
    urls = spec["start_urls"]
    more = f" +{len(urls) - 1}" if len(urls) > 1 else ""
    start = f", from {urls[0]}{more}" if urls else ""
    return f"spider {spec['spider']} of project {spec['project']}{start}"


def _notable(api: Api, job: Record) -> Iterator[tuple[str, str]]:
    """Of a job that is over: the fields with fewer values than before, and the slowest request."""
    if job["status"] not in _GOOD:
        return
    path = f"/jobs/{job['job_id']}"
    try:
        found = api.get(f"{path}/fields", compare="runs")
        slowest = api.get(f"{path}/requests", sort="-ms", limit=1)["requests"]
    except ApiError:  # what is shown besides must not depend on it
        return
    for one in (one for one in found["fields"] if found["items"] and one["lower"]):
        yield "field", f"{one['name']}: filled in {one['share']:.0%} of the items, before {one['share_before']:.0%}"
    yield from (("slowest", f"{one['ms']} ms: {one['url']}") for one in slowest if one["ms"] is not None)


def _advice(job: Record) -> Iterator[tuple[str, str]]:
    """What went wrong and what to do next. For a waiting job, `_WAITING` says that. An older gateway
    gives no advice.
    """
    advice = job.get("advice")
    if advice and job["status"] != "pending":
        yield "advice", advice["what"]
        yield from (("", f"- {step}") for step in advice["steps"])
        yield "", f"more in {advice['reference']}"


def _pause(job: Record) -> str | None:
    if not job["pause_requested_at"]:
        return None
    end = f", it is cancelled at {shown(job['expires_at'])} unless it is resumed" if job["expires_at"] else ""
    return f"asked for at {shown(job['pause_requested_at'])}{end}"


def _headed(head: str, text: str | Text) -> Text:
    """A text with a head. On a terminal, further lines are indented, and no word is split, because it may
    be a URL.
    """
    shown = visible(text) if isinstance(text, str) else text
    if out.is_terminal and isinstance(shown, str):
        room = max(out.width - _MARGIN, _NARROWEST)
        folded = (wrap(line, room, break_long_words=False, break_on_hyphens=False) for line in shown.splitlines())
        shown = f"\n{' ' * _MARGIN}".join(chain.from_iterable(folded))
    return Text.assemble((f"{head:<{_MARGIN}}", "bold"), shown)


def _attempt(attempt: Record) -> Iterator[tuple[str, str]]:
    """Where the attempt ran, how it ended, and which errors the node has seen."""
    seen = attempt["exit"] or {}
    ended = ": ".join(filter(None, (attempt["status"] or "not over yet", attempt["message"])))
    yield f"attempt {attempt['attempt']}", f"on node {attempt['node']}: {ended}"
    yield from (("", ": ".join(filter(None, (one.get("url"), one.get("reason"))))) for one in seen.get("errors", ()))
    yield from (("", line) for line in (seen.get("log_tail") or "").splitlines()[-_LOG_TAIL:])
    yield from (("", f"{what} lost: {seen[f'{what}_lost']}") for what in ("items", "log") if seen.get(f"{what}_lost"))
