"""The page of a job: its state and what to do next, its history, its counts as curves, and tabs for everything else.

Each tab has an address of its own, such as `/console/jobs/{id}/log`. The function of a tab below ends with `tab(…)`,
and its template fills the block `tab` of `job/base.html`, and the block `tab_scripts` if it needs scripts.
"""

from __future__ import annotations

import re
from typing import Any

from fastapi import Request, Response
from fastapi.responses import RedirectResponse

from gateway.access.keys import Caller, Scope
from gateway.console.flags import flags_of
from gateway.console.job_view import no_log, parameters, runs, start_urls, story
from gateway.console.pages import Pages, Viewer, page
from gateway.errors import JobNotFoundError
from gateway.jobs.advice import Advice, Place, Remedy, advice
from gateway.jobs.attempts import AttemptStore
from gateway.jobs.job import Job, JobStatus, WaitingReason
from gateway.jobs.queries import JobFilter, JobQueries
from gateway.logs.fold import FOLDED
from gateway.nodes.store import NodeStore
from gateway.schedules.store import JobOrSchedule, RunOf
from gateway.stores.mongo import mongo_errors
from gateway.web.authorisation import Called, needs
from gateway.web.container import GatewayParts
from gateway.web.dependencies import JobId, Parts
from gateway.web.routes.jobs import queue_position
from gateway.web.schemas.job import JobDetail

router = Pages()

#: The tab `runs` shows at most this many runs.
RUNS_SHOWN = 30
#: Running jobs are counted up to here.
_MOST_RUNNING = 100
TABS = {
    "log": "Log",
    "items": "Items",
    "requests": "Requests",
    "errors": "Errors",
    "files": "Files",
    "changes": "Changes",
    "runs": "Runs",
}


@router.page("/console/jobs/{job_id}")
@needs(Scope.READ)
def job_page(request: Request, job_id: str, parts: Parts, caller: Called) -> Response:
    """Redirect to the most important tab: the items of a crawl that has succeeded at least in part, else the log. The
    beginning of an id, as lists and the command line show it, is enough.
    """
    if _BEGINNING.fullmatch(job_id):
        job_id = _whole_id(job_id, parts, caller)
    elif not _WHOLE.fullmatch(job_id):
        raise JobNotFoundError(job_id)
    named = parts[JobOrSchedule].find(job_id)
    link = Viewer.of(request).link
    if isinstance(named, RunOf):
        return RedirectResponse(link(f"/console/schedules/{job_id}"))
    first = "items" if named.status in {JobStatus.FINISHED, JobStatus.PARTIAL} else "log"
    return RedirectResponse(link(f"/console/jobs/{job_id}/{first}"))


_BEGINNING, _WHOLE = re.compile("[0-9a-f]{4,31}"), re.compile("[0-9a-f]{32}")


def _whole_id(beginning: str, parts: GatewayParts, caller: Caller) -> str:
    """Raises `JobNotFoundError` unless it is the beginning of the id of one job that the caller may see."""
    with mongo_errors():
        found = parts[JobQueries].page(caller.limited(JobFilter(id_prefix=beginning)), 2).jobs
    if len(found) != 1:
        raise JobNotFoundError(beginning)
    return found[0].id


@router.page("/console/jobs/{job_id}/log")
@needs(Scope.READ)
def log_tab(request: Request, job_id: JobId, parts: Parts) -> Response:
    return tab(request, job_id, parts, "log", folded=FOLDED)


@router.page("/console/jobs/{job_id}/runs")
@needs(Scope.READ)
def runs_tab(request: Request, job_id: JobId, parts: Parts) -> Response:
    found = parts[JobOrSchedule].job(job_id)
    beside = parts[JobQueries].runs_beside(found, RUNS_SHOWN) if found else []
    return tab(request, job_id, parts, "runs", beside=runs(beside, parts.clock()) if beside else None)


def tab(request: Request, job_id: str, parts: Parts, name: str, **context: Any) -> Response:
    """The page with this tab open. Its template gets `job` (a `JobDetail`) and `context`."""
    named = parts[JobOrSchedule].find(job_id)
    if isinstance(named, RunOf):
        return RedirectResponse(Viewer.of(request).link(f"/console/schedules/{job_id}"))
    named = parts[AttemptStore].complete(named)
    advised, viewer = advice(named), Viewer.of(request)
    detail = JobDetail.of(named, queue_position(named, parts, viewer.caller))
    return page(
        request,
        f"job/{name}.html",
        job=detail,
        may=_possible(named),
        story=story(named, parts.clock()),
        no_log=no_log(named),
        parameters=parameters(named.spec),
        start_urls=start_urls(named.spec),
        now=parts.clock(),
        advice=advised and _for_viewer(advised, named, detail.queue_position, parts, viewer),
        flags=flags_of([job_id], parts, viewer.caller).get(job_id, []) if named.spec.dataset else [],
        is_over=named.is_final and named.settled is not False,
        places=_places(named, advised, viewer) if advised else {},
        tabs=[(viewer.link(f"/console/jobs/{job_id}/{one}") + "#tab", title) for one, title in _tabs(viewer)],
        tab=viewer.link(f"/console/jobs/{job_id}/{name}") + "#tab",
        **context,
    )


def _for_viewer(advised: Advice, job: Job, place: int | None, parts: GatewayParts, viewer: Viewer) -> Advice:
    """The advice with what the viewer can do about it: who is no admin asks one. For a job that waits for a slot it
    says who has the slots, and when it is this job's turn. Not for those who may see only some projects, because it
    would reveal how many jobs others have.
    """
    if not viewer.may(Scope.ADMIN):
        advised = advised._replace(steps=tuple(map(_asking, advised.steps)))
    waits = job.status is JobStatus.PENDING and job.waiting_reason is WaitingReason.CAPACITY
    if not waits or viewer.caller.projects:
        return advised
    with mongo_errors():
        nodes = [one for one in parts[NodeStore].lately() if one.is_alive(parts.clock(), parts.dead_after)]
        running = JobFilter(status=(JobStatus.RUNNING,))
        seen = parts[JobQueries].count(viewer.caller.limited(running), _MOST_RUNNING)
    slots, used = sum(one.max_slots for one in nodes), sum(one.used_slots for one in nodes)
    if not seen:
        # there would be nothing to see
        steps = (Remedy("Wait for one of these jobs to end"), *advised.steps[1:])
        advised = advised._replace(steps=steps)
    turn = "" if place is None else " This job is next." if place == 1 else f" {_ahead(place - 1)} before it."
    if not slots:
        return advised._replace(what=f"{advised.what}{turn}")
    whose = "" if seen else " None of them is yours."
    return advised._replace(what=f"{advised.what} {used} of {slots} crawls run now.{whose}{turn}")


def _ahead(number: int) -> str:
    return "1 waiting job starts" if number == 1 else f"{number:,} waiting jobs start"


def _asking(step: Remedy) -> Remedy:
    return Remedy(f"Ask an admin: {step.words[0].lower()}{step.words[1:]}") if step.is_for_admins else step


def _tabs(viewer: Viewer) -> list[tuple[str, str]]:
    """The tabs that the viewer may open."""
    return [(one, title) for one, title in TABS.items() if one != "changes" or not viewer.caller.projects]


#: The scope that a place needs. Everybody who may see the job may go to the other places.
_SCOPES = {Place.NODES: Scope.ADMIN, Place.AGAIN: Scope.CRAWL}


def _possible(job: Job) -> set[str]:
    """The actions that are possible for the job now."""
    is_pausable = job.status in {JobStatus.PENDING, JobStatus.RUNNING} and job.stop_reason is None
    loses = job.status is JobStatus.RUNNING and job.progress is not None and job.progress.can_go_on is False
    acts = {
        "cancel": not job.is_final and job.cancel_requested_at is None,
        "pause": is_pausable and not loses,
        "pause_anew": is_pausable and loses,
        "resume": job.status is JobStatus.PAUSED and job.cancel_requested_at is None,
        "requeue": job.is_final and job.dead,
        "retry": job.is_final and not job.dead,
        "delete": job.is_final and job.settled is True,
    }
    return {act for act, is_possible in acts.items() if is_possible}


def _places(job: Job, advised: Advice, viewer: Viewer) -> dict[Place, str]:
    """The addresses of the places in the advice, without places that the viewer may not see."""
    here, link = f"/console/jobs/{job.id}", viewer.link
    every = {
        Place.LOG: link(f"{here}/log") + "#first-error",
        Place.REQUESTS: link(f"{here}/requests", failed="true") + "#tab",
        Place.ITEMS: link(f"{here}/items") + "#tab",
        Place.RUNS: link(f"{here}/runs") + "#tab",
        Place.AGAIN: link("/console/crawl", **{"from": job.id}),
        Place.NODES: link("/console/nodes"),
        Place.PROJECT: link(f"/console/projects/{job.spec.project}"),
        Place.SCHEDULE: link(f"/console/schedules/{job.schedule_id}"),
        Place.OF_USER: link("/console/jobs", user=job.user_id, status="running"),
        Place.OF_SITE: link("/console/jobs", site=job.spec.site, status=["running", "paused"]),
        Place.RUNNING: link("/console/jobs", status="running"),
        Place.OVERVIEW: link("/"),
    }
    closed = {place for place, scope in _SCOPES.items() if not viewer.may(scope)}
    named = {step.place for step in advised.steps if step.place}
    return {place: every[place] for place in named - closed}
