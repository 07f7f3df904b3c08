"""The page of a job: where it stands and what to do next, its life, its counts as curves, and a tab for all else.

Each tab is a page of its own: `/console/jobs/{id}/log` and so on. A tab's function below ends with `tab(…)`, and its
template fills the block `tab` of `job/base.html`, and the block `tab_scripts` if it has modules of its own.
"""

from __future__ import annotations

from typing import Any

from fastapi import Request, Response
from fastapi.responses import RedirectResponse

from gateway.jobs.advice import Advice, Place, advice
from gateway.jobs.job import Job, JobStatus
from gateway.jobs.queries import JobQueries
from gateway.jobs.timeline import timeline
from gateway.schedules.store import JobOrSchedule, RunOf
from gateway.web.console.pages import Pages, Viewer, page
from gateway.web.dependencies import JobId, Parts
from gateway.web.routes.life import MomentView
from gateway.web.schemas.job import JobDetail

router = Pages()

TABS = {"log": "Log", "items": "Items", "requests": "Requests", "files": "Files", "runs": "Runs"}


@router.page("/console/jobs/{job_id}", like="GET /jobs/{job_id}")
def job_page(request: Request, job_id: JobId, parts: Parts) -> Response:
    """Leads to what one wants to see first: the log while it runs, else the items."""
    named = parts[JobOrSchedule].find(job_id)
    link = Viewer.of(request).link
    if isinstance(named, RunOf):
        return RedirectResponse(link(f"/console/schedules/{job_id}"))
    first = "items" if named.status in {JobStatus.FINISHED, JobStatus.PARTIAL} else "log"
    return RedirectResponse(link(f"/console/jobs/{job_id}/{first}"))


@router.page("/console/jobs/{job_id}/log", like="GET /jobs/{job_id}/logs")
def log_tab(request: Request, job_id: JobId, parts: Parts) -> Response:
    return tab(request, job_id, parts, "log")


@router.page("/console/jobs/{job_id}/items", like="GET /jobs/{job_id}/items")
def items_tab(request: Request, job_id: JobId, parts: Parts) -> Response:
    return tab(request, job_id, parts, "items")


@router.page("/console/jobs/{job_id}/requests", like="GET /jobs/{job_id}")
def requests_tab(request: Request, job_id: JobId, parts: Parts) -> Response:
    return tab(request, job_id, parts, "requests")


@router.page("/console/jobs/{job_id}/files", like="GET /jobs/{job_id}/files")
def files_tab(request: Request, job_id: JobId, parts: Parts) -> Response:
    return tab(request, job_id, parts, "files")


@router.page("/console/jobs/{job_id}/runs", like="GET /jobs/{job_id}/runs")
def runs_tab(request: Request, job_id: JobId, parts: Parts) -> Response:
    return tab(request, job_id, parts, "runs")


def tab(request: Request, job_id: str, parts: Parts, name: str, **context: Any) -> Response:
    """The page with this tab open. Its template knows `job` (a `JobDetail`) and `context`."""
    named = parts[JobOrSchedule].find(job_id)
    link = Viewer.of(request).link
    if isinstance(named, RunOf):
        return RedirectResponse(link(f"/console/schedules/{job_id}"))
    advised = advice(named)
    return page(
        request,
        f"job/{name}.html",
        job=JobDetail.of(named, parts[JobQueries].queue_position(named)),
        may=_possible(named),
        moments=[MomentView.of(moment) for moment in timeline(named)],
        advice=advised,
        places=_places(named, advised, link) if advised else {},
        tabs=[(link(f"/console/jobs/{job_id}/{one}"), title) for one, title in TABS.items()],
        tab=link(f"/console/jobs/{job_id}/{name}"),
        **context,
    )


def _possible(job: Job) -> set[str]:
    """What may be done with it now."""
    asked = job.stop_reason
    acts = {
        "cancel": not job.is_final and job.cancel_requested_at is None,
        "pause": job.status in {JobStatus.PENDING, JobStatus.RUNNING} and asked is None,
        "resume": job.status is JobStatus.PAUSED and job.cancel_requested_at is None,
        "requeue": job.is_final and job.dead,
        "retry": job.is_final and not job.dead,
        "delete": job.is_final and job.settled is True,
    }
    return {act for act, is_possible in acts.items() if is_possible}


def _places(job: Job, advised: Advice, link: Any) -> dict[Place, str]:
    """The addresses of the places that the advice names."""
    here = f"/console/jobs/{job.id}"
    every = {
        Place.LOG: link(f"{here}/log"),
        Place.REQUESTS: link(f"{here}/requests", failed="true"),
        Place.ITEMS: link(f"{here}/items"),
        Place.RUNS: link(f"{here}/runs"),
        Place.AGAIN: link("/console/crawl", **{"from": job.id}),
        Place.NODES: link("/console/nodes"),
        Place.PROJECT: link(f"/console/projects/{job.spec.project}"),
        Place.SCHEDULE: link(f"/console/schedules/{job.schedule_id}"),
        Place.OF_USER: link("/console/jobs", user_id=job.user_id, status="running"),
        Place.OF_SITE: link("/console/jobs", site=job.spec.site, status="running"),
        Place.OVERVIEW: link("/"),
    }
    return {step.place: every[step.place] for step in advised.steps if step.place}
