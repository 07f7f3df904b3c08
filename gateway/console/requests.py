"""The tab with a crawl's requests, and the links that filter them."""

from __future__ import annotations

from typing import Any, NamedTuple
from urllib.parse import urlencode

import orjson
from fastapi import Request, Response
from pydantic import ValidationError

from gateway.access.keys import Scope
from gateway.console.formats import count
from gateway.console.job import tab
from gateway.console.pages import Pages, Viewer
from gateway.errors import InvalidRequestError
from gateway.jobs.job import FINAL_STATUSES, Job, JobStatus
from gateway.requests.store import RequestStore
from gateway.schedules.store import JobOrSchedule
from gateway.web.authorisation import needs
from gateway.web.dependencies import JobId, Parts
from gateway.web.routes.items import attempt_of
from gateway.web.routes.requests import RequestsQuery, left_out_of

router = Pages()

#: The parameters that the page passes to the API; the table itself adds `q` and `sort`.
_FILTERS = ("failed", "slow_ms", "redirected", "cached", "status", "attempt")
_CHOICES: tuple[tuple[str, dict[str, str]], ...] = (
    ("All", {}),
    ("Failed", {"failed": "true"}),
    ("Over 1 s", {"slow_ms": "1000"}),
    ("Over 5 s", {"slow_ms": "5000"}),
    ("Redirected", {"redirected": "true"}),
    ("4xx", {"status": "4xx"}),
    ("5xx", {"status": "5xx"}),
    ("Cached", {"cached": "true"}),
)
_COLUMNS: tuple[dict[str, Any], ...] = (
    {"name": "url", "label": "URL", "kind": "link"},
    {"name": "redirected_to", "label": "Redirected to", "kind": "link"},
    {"name": "status", "label": "Status", "kind": "code"},
    {"name": "ms", "label": "Duration", "kind": "ms", "sorts": ["-ms"]},
    {"name": "bytes", "label": "Size", "kind": "bytes", "sorts": ["-bytes"]},
    {"name": "parent", "label": "Found on", "kind": "link"},
    {"name": "reason", "label": "Failure", "kind": "text"},
    {"name": "retries", "label": "Retries", "kind": "some"},
    {"name": "cached", "label": "Cached", "kind": "yes"},
    {"name": "failed", "label": "Failed", "kind": "yes"},
    {"name": "attempt", "label": "Attempt", "kind": "some"},
    {"name": "at", "label": "Time", "kind": "time", "sorts": ["at"]},
)
#: Columns that are hidden by default, each with the filter that shows it.
_SHOWN_WITH = {
    "redirected_to": "redirected",
    "cached": "cached",
    "attempt": "attempt",
    "retries": "failed",
    "reason": "failed",
    "failed": "",
}
_DOWNLOADS = {"JSON lines": {"format": "jsonl"}, "CSV": {"format": "csv", "bom": "true"}}


class Choice(NamedTuple):
    words: str
    query: dict[str, str]
    is_current: bool


@router.page("/console/jobs/{job_id}/requests")
@needs(Scope.READ)
def requests_tab(request: Request, job_id: JobId, parts: Parts) -> Response:
    asked = request.query_params
    given = {name: asked[name] for name in _FILTERS if asked.get(name)}
    # parameters that stay when another filter is chosen
    kept = {name: asked[name] for name in ("q", "sort", "attempt") if asked.get(name)}
    wanted = {name: value for name, value in given.items() if name != "attempt"}
    found = parts[JobOrSchedule].whole(job_id)
    left_out, problem = _left_out(found, given)
    return tab(
        request,
        job_id,
        parts,
        "requests",
        problem=problem,
        left_out=left_out,
        columns=_columns(given, has_failures=_has_failures(found)),
        choices=[Choice(words, {**query, **kept}, query == wanted) for words, query in _CHOICES],
        attempts=_attempts(found, given.get("attempt"), {**wanted, **kept}),
        nothing=_why_nothing(found, parts[RequestStore], is_filtered=bool(wanted)),
        is_live=found is not None and not found.settled,
        source=_address(job_id, given),
        pictures=Viewer.of(request).link(f"/console/jobs/{job_id}/requests/pictures", attempt=given.get("attempt")),
        downloads={words: _address(job_id, {**given, **asked}) for words, asked in _DOWNLOADS.items()},
    )


def _left_out(job: Job | None, given: dict[str, str]) -> tuple[int, str | None]:
    """How many requests are not in the record, because it is full; and the problem with the filters, or `None`."""
    try:
        query = RequestsQuery.model_validate(given)
        return left_out_of(job, attempt_of(job, query.attempt)), None
    except ValidationError as error:
        return 0, "; ".join(f"{one['loc'][0]}: {one['msg']}" for one in error.errors())
    except InvalidRequestError as error:
        return 0, error.message


def _address(job_id: str, query: dict[str, str]) -> str:
    return f"/jobs/{job_id}/requests?{urlencode(query)}"


def _has_failures(job: Job | None) -> bool:
    return job is not None and job.progress is not None and job.progress.errors_count > 0


def _columns(given: dict[str, str], *, has_failures: bool) -> str:
    """The columns as JSON. Columns of a given filter are shown, and those of failures if there are failures."""
    shown = {None, *given, *(["failed"] if has_failures else [])}
    columns = [{**one, "hidden": _SHOWN_WITH.get(one["name"]) not in shown} for one in _COLUMNS]
    return orjson.dumps(columns).decode()


def _attempts(job: Job | None, current: str | None, kept: dict[str, str]) -> list[Choice]:
    """The attempts to choose from, if the job has several."""
    if job is None or len(job.attempts) < 2:  # noqa: PLR2004 - several
        return []
    counts = str(job.attempt)
    numbers = sorted(map(int, job.attempts))
    every = [(f"Attempt {number}", str(number)) for number in numbers] + [("All attempts", "all")]
    return [Choice(words, {**kept, "attempt": value}, value == (current or counts)) for words, value in every]


def _why_nothing(job: Job | None, requests: RequestStore, *, is_filtered: bool) -> str:
    if is_filtered and job is not None and requests.has_any(job.id):
        return "No matching requests"
    if job is None or job.status not in FINAL_STATUSES:
        runs = job is not None and job.status is JobStatus.RUNNING
        return "No requests yet. Each appears once its response has been processed." if runs else "No requests yet"
    asked = job.progress.requested_pages if job.progress else 0
    made = f"{count(asked)} {'page' if asked == 1 else 'pages'} requested. " if asked else ""
    if job.items_removed_at is not None:
        return f"{made}The record was deleted by retention (ITEM_RETENTION_DAYS)"
    return f"{made}No requests were recorded" if made else "No requests recorded"
