"""`GET /jobs/{job_id}/fields`: how full each field of a crawl's items is, and how full it was in the runs before."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Literal

from fastapi import Query
from pydantic import BaseModel, Field
from pydantic.config import JsonDict

from gateway.access.keys import Caller, Scope
from gateway.items.coverage import FieldFacts, FieldOverRuns, MissingFields, MissingOn, compare, over_runs
from gateway.items.fields import FieldCounting
from gateway.items.formats import as_json
from gateway.items.items import ItemStore
from gateway.jobs.job import GOOD_STATUSES, LISTED_URLS, Job, ListedJob
from gateway.jobs.queries import JobFilter, JobQueries
from gateway.schedules.store import JobOrSchedule
from gateway.stores.mongo import mongo_errors
from gateway.web.authorisation import Called, needs
from gateway.web.container import GatewayParts
from gateway.web.dependencies import JobId, Parts, Router
from gateway.web.errors import Responses, problems
from gateway.web.routes.items import attempt_of
from gateway.web.routes.projects import AnyProjectName
from gateway.web.routes.run_days import SpiderName
from gateway.web.schemas.types import Name, QueryModel, Timestamp, UserId

router = Router()

#: The fields of at most `RUNS_OVER` runs are compared; these are searched for among the spider's last `_RUNS_READ`
#: runs. If the first of them may have lost a field already, up to `_EARLIER` runs by an earlier version tell.
RUNS_OVER, _RUNS_READ, _EARLIER = 20, 100, 5
_GOOD = tuple(sorted(GOOD_STATUSES))


class FieldsQuery(QueryModel):
    attempt: Annotated[str, Field(pattern="^[1-9][0-9]{0,5}$")] | None = Field(
        default=None, description="The number of an attempt; by default the attempt that counts."
    )
    compare: Literal["runs"] | None = Field(
        default=None,
        description=f"With the last {RUNS_OVER} runs of the same schedule, or of the same request if it has none, "
        "that ended well before this one; of all users, for a caller who sees these.",
    )


class FieldView(BaseModel):
    """How full a field of a job's items is, and with which types."""

    name: str = Field(description="For a field of an object, both names with a dot between them.")
    path: list[str] = Field(description="The same as one name, or two for a field of an object.")
    filled: int = Field(description="How many items have something in it: no null, blank text, empty list or object.")
    share: float = Field(description="`filled` among the items that were counted; from 0 to 1.")
    types: dict[str, int] = Field(description="How many values are of each type; types as in JSON Schema.")
    example: str | None = Field(description="The first value that is not empty, as JSON; cut if it is long.")
    share_before: float | None = Field(
        description="What was usual: the median of the last five runs before that were not lower themselves; null if "
        "none is known."
    )
    lower: bool = Field(description="Whether the share is lower than before by more than 5 percentage points.")
    lower_since: str | None = Field(
        description="If it is lower: the job since which it was lower in all runs; the same job if this is the first."
    )

    @classmethod
    def of(cls, facts: FieldFacts, job_ids: Sequence[str]) -> FieldView:
        """`job_ids`: of all runs that were compared, the oldest first."""
        count = facts.counted
        return cls(
            name=".".join(facts.path),
            path=list(facts.path),
            filled=count.filled,
            share=round(facts.share, 4),
            types=count.types,
            example=count.example,
            share_before=None if facts.share_before is None else round(facts.share_before, 4),
            lower=facts.is_lower,
            lower_since=None if facts.since is None else job_ids[facts.since],
        )


class FieldsRunView(BaseModel):
    """The run that a job's fields are compared with."""

    job_id: str
    version: str | None
    finished_at: Timestamp | None
    counted: int = Field(description="How many of its items were counted.")


class FieldsView(BaseModel):
    """How full the fields of a job's items are."""

    job_id: str | None = Field(description="The job; for a schedule its run, null before the first one.")
    attempt: int | None = Field(description="The attempt that the items are from; null before the first one.")
    items: int = Field(description="How many items there are.")
    counted: int = Field(description="How many of them were counted. If there are more, ask again: it goes on.")
    fields: list[FieldView] = Field(
        description="In the order of their appearance; those that only runs before had come last."
    )
    more_fields: bool = Field(
        description="Whether there are fields that are not counted: too many, or names too long."
    )
    runs: list[FieldsRunView] = Field(description="The runs that it is compared with, newest first.")
    removed_at: Timestamp | None = Field(description="When its items were removed: their retention time was over.")


_EXAMPLE = {
    "job_id": "5f0c8e3a9d1b4c7e8f2a6b5d4c3e2f1a",
    "attempt": 1,
    "items": 1200,
    "counted": 1200,
    "fields": [
        {
            "name": "price",
            "path": ["price"],
            "filled": 1020,
            "share": 0.85,
            "types": {"number": 1020, "null": 180},
            "example": "12.5",
            "share_before": 0.995,
            "lower": True,
            "lower_since": "5f0c8e3a9d1b4c7e8f2a6b5d4c3e2f1a",
        }
    ],
    "more_fields": False,
    "runs": [
        {
            "job_id": "8a7b6c5d4e3f4a1b8c9d0e1f2a3b4c5d",
            "version": "1.9",
            "finished_at": "2027-06-01T07:10:00.000Z",
            "counted": 1180,
        }
    ],
    "removed_at": None,
}
_OVER_RUNS: JsonDict = {
    "runs": [
        {"job_id": "8a7b6c5d4e3f4a1b8c9d0e1f2a3b4c5d", "version": "1.9", "finished_at": None, "counted": 400},
        {"job_id": "5f0c8e3a9d1b4c7e8f2a6b5d4c3e2f1a", "version": "2.0", "finished_at": None, "counted": 400},
    ],
    "fields": [
        {
            "name": "price",
            "path": ["price"],
            "shares": [0.995, 0.7],
            "lower_since": "5f0c8e3a9d1b4c7e8f2a6b5d4c3e2f1a",
            "lower_in": ["5f0c8e3a9d1b4c7e8f2a6b5d4c3e2f1a"],
            "missing_on": [{"place": "/sale", "items": 120, "missing": 118}],
            "types": {"number": 280, "null": 120},
        }
    ],
    "complete": True,
}
_RESPONSES: Responses = {
    200: {"description": "The fields.", "content": {"application/json": {"example": _EXAMPLE}}},
    **problems(404, 503),
}


@router.get(
    "/jobs/{job_id}/fields", tags=["jobs"], summary="How full the fields of its items are", responses=_RESPONSES
)
@needs(Scope.READ)
async def get_job_fields(
    job_id: JobId, query: Annotated[FieldsQuery, Query()], parts: Parts, caller: Called
) -> FieldsView:
    """The top-level fields of the items so far, and the fields of objects in them: at most 300. One answer counts for
    up to three seconds. What was counted is kept, so that the next answer goes on from there.
    """
    return await parts.threads.run(read_fields, parts, job_id, query, caller)


def read_fields(parts: GatewayParts, job_id: str, query: FieldsQuery, caller: Caller) -> FieldsView:
    """Raises `JobNotFoundError`, `InvalidRequestError`."""
    job = parts[JobOrSchedule].job(job_id)
    if job is None:
        return FieldsView(
            job_id=None, attempt=None, items=0, counted=0, fields=[], more_fields=False, runs=[], removed_at=None
        )
    with mongo_errors():
        return _fields(parts, job, query, caller)


def _fields(parts: GatewayParts, job: Job, query: FieldsQuery, caller: Caller) -> FieldsView:
    attempt = attempt_of(job, query.attempt) or 0
    before = _runs_before(job, parts, caller) if query.compare else []
    counts, *counts_before = parts[FieldCounting].of(
        [(job.id, attempt), *((run.id, run.newest) for run in before)], _said(before)
    )
    job_ids = [*(run.id for run in reversed(before)), job.id]
    return FieldsView(
        job_id=job.id,
        attempt=attempt or None,
        items=parts[ItemStore].count(job.id, attempt),
        counted=counts.items,
        fields=[FieldView.of(facts, job_ids) for facts in compare(counts, counts_before[::-1])],
        more_fields=counts.has_more,
        runs=[
            FieldsRunView(job_id=run.id, version=run.spec.version, finished_at=run.finished_at, counted=one.items)
            for run, one in zip(before, counts_before, strict=True)
        ],
        removed_at=job.items_removed_at,
    )


# --- of a spider's last runs

#: For at most this many fields, the pages on which they are missing are searched for.
_LOOKED_FOR = 3
_MOST_PLACES = 3


class SpiderRunView(BaseModel):
    """A run whose fields were counted."""

    job_id: str
    version: str | None
    finished_at: Timestamp | None
    counted: int = Field(description="How many of its items were counted.")


class MissingFieldPlace(BaseModel):
    """A place where a field is missing, and how often."""

    place: str = Field(description="The first part of the paths of these pages, by the item's `url`.")
    items: int = Field(description="How many of the items that were looked at are from there.")
    missing: int = Field(description="How many of these lack the field.")


class FieldOverRunsView(BaseModel):
    """How full a field was, run by run."""

    name: str = Field(description="For a field of an object, both names with a dot between them.")
    path: list[str] = Field(description="The same as one name, or two for a field of an object.")
    shares: list[float | None] = Field(
        description="The share of items that fill it, from 0 to 1, in each of `runs`; null for a run without items, "
        "or with too many fields to count this one."
    )
    lower_since: str | None = Field(
        description="The job since which its share is lower in all runs than what was usual, by more than 5 "
        "percentage points; null if it is not lower in the last run. Usual is the median of the last five runs that "
        "were not lower themselves. If it is the first of `runs`, runs before these may have been lower, too."
    )
    lower_in: list[str] = Field(description="The jobs among `runs` in which its share is lower than what was usual.")
    missing_on: list[MissingFieldPlace] = Field(
        description="If it is lower: the parts of the site of whose items at least half lack it, in the last run."
    )
    types: dict[str, int] = Field(description="How many values are of each type, in the last run that has items.")


class SpiderFieldsView(BaseModel, json_schema_extra={"examples": [_OVER_RUNS]}):
    """How full the fields of a spider's items were, run by run."""

    runs: list[SpiderRunView] = Field(
        description=f"The last {RUNS_OVER} that ended well, the oldest first: of the schedule of the newest one, or "
        "with the same start URLs and parameters if it has none."
    )
    fields: list[FieldOverRunsView] = Field(
        description="Fields whose share is lower come first; at most 300 of each run."
    )
    complete: bool = Field(description="Whether all items were counted. If not, ask again: it goes on.")


class SpiderFieldsQuery(QueryModel):
    user_id: UserId | None = Field(default=None, description="Only runs of this user.")
    site: Name | None = Field(default=None, description="Only runs of this site.")
    schedule_id: Annotated[str, Field(pattern="^[0-9a-f]{32}$")] | None = Field(
        default=None, description="Only runs of this schedule."
    )


@router.get(
    "/spiders/{project}/{spider}/fields",
    tags=["spiders"],
    summary="How full fields are from run to run",
    responses=problems(503),
)
@needs(Scope.READ)
def get_spider_fields(
    project: AnyProjectName,
    spider: SpiderName,
    query: Annotated[SpiderFieldsQuery, Query()],
    parts: Parts,
    caller: Called,
) -> SpiderFieldsView:
    """Of the spider's last runs that ended well. Runs whose request differs from that of the newest run are left
    out, as other pages fill other fields. One answer counts for up to three seconds.
    """
    wanted = JobFilter(
        user_id=caller.only(query.user_id), project=project, spider=spider, site=query.site,
        schedule_id=query.schedule_id, status=_GOOD,
    )  # fmt: skip
    with mongo_errors():
        return _over(_alike(parts[JobQueries].page(wanted, _RUNS_READ).jobs, parts), parts)


def read_fields_of_alike(newest: ListedJob, parts: GatewayParts, caller: Caller) -> SpiderFieldsView:
    """The last runs of the same schedule, or of the same request, as this job, which is the newest of them."""
    spec = newest.spec
    wanted = JobFilter(
        user_id=caller.only(None), project=spec.project, spider=spec.spider, schedule_id=newest.schedule_id,
        status=_GOOD,
    )  # fmt: skip
    with mongo_errors():
        return _over(_alike(parts[JobQueries].page(wanted, _RUNS_READ).jobs, parts, newest), parts)


def newest_of_each(jobs: Iterable[ListedJob], parts: GatewayParts) -> list[ListedJob]:
    """The first job of each schedule, and of each request without a schedule."""
    listed = list(jobs)
    with mongo_errors():
        params = parts[JobQueries].params([job.id for job in listed if not job.schedule_id])
    found = dict[object, ListedJob]()
    for job in listed:
        asked = job.schedule_id or (_urls(job), as_json(params.get(job.id)))
        found.setdefault((job.spec.project, job.spec.spider, asked), job)
    return list(found.values())


def _runs_before(job: Job, parts: GatewayParts, caller: Caller) -> list[ListedJob]:
    """The runs with which the job is compared, newest first."""
    wanted = JobFilter(
        user_id=None if caller.user_id is None else job.user_id, project=job.spec.project, spider=job.spec.spider,
        schedule_id=job.schedule_id, status=_GOOD, until=job.created_at,
    )  # fmt: skip
    alike = _alike(parts[JobQueries].page(wanted, _RUNS_READ).jobs, parts, job)
    return [*alike[:RUNS_OVER], *_earlier(alike)]


def _earlier(alike: Sequence[ListedJob]) -> list[ListedJob]:
    """The last runs before those that are compared, by other versions than the oldest of these: otherwise, a field
    that a version has lost would count as usually empty once all the runs that are compared are by that version.
    """
    known, older = alike[:RUNS_OVER], alike[RUNS_OVER:]
    return [job for job in older if job.spec.version != known[-1].spec.version][:_EARLIER]


def _said(jobs: Iterable[ListedJob]) -> dict[str, int | None]:
    return {job.id: job.progress.items_count for job in jobs if job.progress}


def _over(alike: Sequence[ListedJob], parts: GatewayParts) -> SpiderFieldsView:
    """`alike`: newest first."""
    jobs, earlier = alike[:RUNS_OVER][::-1], _earlier(alike)[::-1]
    # the newest first: if the time is not enough, the earlier ones are left
    read = [*reversed(jobs), *reversed(earlier)]
    counts = parts[FieldCounting].of([(job.id, job.newest) for job in read], _said(read))[::-1]
    found = [_last(one, len(jobs)) for one in over_runs(counts)]
    lower = [one.path for one in found if one.since is not None][:_LOOKED_FOR]
    places = parts[MissingFields].places(jobs[-1].id, jobs[-1].newest, lower) if jobs else {}
    return SpiderFieldsView(
        runs=[
            SpiderRunView(job_id=job.id, version=job.spec.version, finished_at=job.finished_at, counted=one.items)
            for job, one in zip(jobs, counts[len(earlier) :], strict=True)
        ],
        fields=[_over_runs(one, jobs, places.get(one.path, [])) for one in found],
        complete=all(one.is_complete for one in counts),
    )


def _last(one: FieldOverRuns, number: int) -> FieldOverRuns:
    """The field in the last runs only, compared with all."""
    return one._replace(shares=one.shares[-number:], judged=one.judged[-number:])


def _alike(jobs: Sequence[ListedJob], parts: GatewayParts, like: Job | ListedJob | None = None) -> list[ListedJob]:
    """Those of the jobs (newest first) that belong to the same schedule as the job `like`, by default the newest;
    without a schedule, those that were asked for the same.
    """
    like = like or next(iter(jobs), None)
    if like is None or like.schedule_id:
        return [job for job in jobs if like is not None and job.schedule_id == like.schedule_id]
    urls = [job for job in jobs if _urls(job) == _urls(like)]
    params = parts[JobQueries].params([like.id, *(job.id for job in urls)])
    return [job for job in urls if params.get(job.id) == params.get(like.id)]


def _urls(job: Job | ListedJob) -> tuple[tuple[str, ...], int]:
    """The first start URLs, and how many there are."""
    return tuple(job.spec.start_urls[:LISTED_URLS]), job.start_urls_count


def _over_runs(one: FieldOverRuns, jobs: Sequence[ListedJob], places: Sequence[MissingOn]) -> FieldOverRunsView:
    return FieldOverRunsView(
        name=".".join(one.path),
        path=list(one.path),
        shares=[None if share is None else round(share, 4) for share in one.shares],
        lower_since=None if one.since is None else jobs[one.since].id,
        lower_in=[job.id for job, judged in zip(jobs, one.judged, strict=True) if judged.is_lower],
        missing_on=[MissingFieldPlace(**place._asdict()) for place in places[:_MOST_PLACES]],
        types=one.types,
    )
