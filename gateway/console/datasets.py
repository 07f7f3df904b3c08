"""`/console/datasets`: the datasets, the changes of each run, and the held runs with their reasons."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Annotated, Any, NamedTuple

from fastapi import Query, Request, Response

from gateway.access.keys import Scope
from gateway.clock import to_iso
from gateway.console.job import tab
from gateway.console.pages import Pages, Viewer, page
from gateway.datasets.dataset import Dataset, DatasetRun, RunState
from gateway.datasets.feed import DatasetFeed
from gateway.datasets.figures import JsonType, filled_as
from gateway.datasets.judging import FindingCode
from gateway.datasets.store import DatasetStore, RunStore
from gateway.errors import CursorExpiredError, JobNotFoundError
from gateway.items.formats import Row
from gateway.items.items import ItemStore
from gateway.jobs.job import Job
from gateway.jobs.store import JobStore
from gateway.schedules.store import JobOrSchedule
from gateway.stores.mongo import mongo_errors
from gateway.web.authorisation import Called, needs
from gateway.web.container import GatewayParts
from gateway.web.dependencies import JobId, Parts
from gateway.web.routes.datasets import Name, RunJob, find, health, runs_page, views
from gateway.web.routes.fields import FieldsQuery, read_fields
from gateway.web.schemas.dataset import (
    ChangeView,
    DatasetPage,
    DatasetRunsQuery,
    DatasetRunView,
    DatasetsQuery,
    OwnedQuery,
)
from gateway.web.schemas.types import Cursor, UserId

router = Pages()

#: Runs, and changes, on one page.
_RUNS, _CHANGES = 25, 50
#: At most this many items of a run are searched for examples, and this many examples are shown.
_LOOKED_AT, _EXAMPLES = 200, 3


class DatasetPageQuery(OwnedQuery):
    #: The dataset's user, for a viewer who sees datasets of several users; `user_id` would be the user to view as.
    owner: UserId | None = None
    after: Cursor | None = None

    @property
    def whose(self) -> str | None:
        return self.owner or self.user_id


class RunPageQuery(OwnedQuery):
    owner: UserId | None = None
    #: The number of the last change on the previous page.
    since: Annotated[int, Query(ge=0, le=10**15)] | None = None


class RunChanges(NamedTuple):
    """A page of the changes that a published run has made."""

    changes: list[ChangeView]
    #: The number after which the next page begins; `None` on the last page.
    following: int | None
    #: Whether the changes are deleted already.
    is_gone: bool = False


@router.page("/console/datasets")
@needs(Scope.READ, by_project=True)
def datasets(query: Annotated[DatasetsQuery, Query()], request: Request, parts: Parts, caller: Called) -> Response:
    with mongo_errors():
        user_id = caller.only(query.user_id)
        found, following = parts[DatasetStore].of_user(user_id, query.limit, query.after, caller.projects)
        last = {(one.user_id, one.name): _last_run(one, parts) for one in found}
        listed = DatasetPage(datasets=views(found, parts, caller), next=following)
    return page(request, "datasets/list.html", found=listed, asked=query, last=last)


def _last_run(dataset: Dataset, parts: GatewayParts) -> DatasetRunView | None:
    runs, _ = parts[RunStore].of_dataset(dataset.id, 1)
    return DatasetRunView.of(runs[0]) if runs else None


@router.page("/console/datasets/{name}")
@needs(Scope.READ, by_project=True)
def dataset_runs(
    name: Name, query: Annotated[DatasetPageQuery, Query()], request: Request, parts: Parts, caller: Called
) -> Response:
    dataset = find(name, query.whose, parts, caller)
    owned = {"user_id": query.whose}
    runs = runs_page(name, DatasetRunsQuery(**owned, limit=_RUNS, after=query.after), parts, caller)
    undecided = runs_page(name, DatasetRunsQuery(**owned, state=[RunState.HELD]), parts, caller).runs
    with mongo_errors():
        newest = parts[RunStore].get(dataset.head_run) if dataset.head_run else None
        held = [(run, examples(run, dataset.empty_values, parts)) for run in undecided]
        changed = changes_of_run(dataset, newest, parts) if newest else None
    return _page(
        request,
        parts,
        "runs",
        dataset,
        asked=query,
        runs=runs,
        most=max((run.counts.new + run.counts.changed + run.counts.removed for run in runs.runs), default=0),
        held=held,
        changed=changed,
        newest=newest and DatasetRunView.of(newest),
    )


@router.page("/console/datasets/{name}/items")
@needs(Scope.READ, by_project=True)
def dataset_items(
    name: Name, query: Annotated[DatasetPageQuery, Query()], request: Request, parts: Parts, caller: Called
) -> Response:
    return _page(request, parts, "items", find(name, query.whose, parts, caller))


@router.page("/console/datasets/{name}/normal")
@needs(Scope.READ, by_project=True)
def dataset_normal(
    name: Name, query: Annotated[DatasetPageQuery, Query()], request: Request, parts: Parts, caller: Called
) -> Response:
    dataset = find(name, query.whose, parts, caller)
    return _page(
        request, parts, "normal", dataset, found=health(name, OwnedQuery(user_id=query.whose), parts, caller)
    )


@router.page("/console/datasets/{name}/runs/{run}")
@needs(Scope.READ, by_project=True)
def dataset_run(  # noqa: PLR0917 - what a route is given
    name: Name, run: RunJob, query: Annotated[RunPageQuery, Query()], request: Request, parts: Parts, caller: Called
) -> Response:
    dataset = find(name, query.owner or query.user_id, parts, caller)
    return _page(request, parts, "run", dataset, job_id=run, **_of_run(dataset, run, parts, query.since))


class LostQuery(DatasetPageQuery):
    #: A run of the dataset; by default the last published one.
    run: RunJob | None = None


@router.page("/console/datasets/{name}/lost")
@needs(Scope.READ, by_project=True)
def dataset_lost(
    name: Name, query: Annotated[LostQuery, Query()], request: Request, parts: Parts, caller: Called
) -> Response:
    """A part of the page of a dataset: the fields that lost values in a published run. It is loaded separately,
    because the first count takes seconds.
    """
    dataset = find(name, query.whose, parts, caller)
    job_id = query.run or dataset.head_run or ""
    with mongo_errors(), suppress(JobNotFoundError):
        run = parts[RunStore].get(job_id)
        if run is not None and run.dataset == dataset.id and run.state is RunState.PUBLISHED:
            spec = parts[JobStore].get(job_id).spec
            fields = read_fields(parts, job_id, FieldsQuery(compare="runs"), caller).fields
            lost = [one for one in fields if one.lower]
            return page(request, "datasets/lost.html", lost=lost, job_id=job_id, spec=spec, is_named=bool(query.run))
    return page(request, "datasets/lost.html", lost=[])


_TABS = {"": "Runs and changes", "/items": "Items", "/normal": "Usual values"}


def addresses(dataset: Dataset, viewer: Viewer, parts: GatewayParts) -> dict[str, Any]:
    """The context for links in templates: the dataset's page, its route, its user, and a time of yesterday."""
    # a viewer of several users' datasets needs the user in links, because two datasets may have the same name
    owner = dataset.user_id if viewer.caller.user_id is None else None
    return {
        "base": f"/console/datasets/{dataset.name}",
        "owner": owner,
        "api": f"/datasets/{dataset.name}",
        "owned": f"?user_id={owner}" if owner else "",
        "day_ago": to_iso(parts.clock() - timedelta(days=1)),
    }


def _page(request: Request, parts: GatewayParts, name: str, dataset: Dataset, **context: Any) -> Response:
    viewer = Viewer.of(request)
    named = addresses(dataset, viewer, parts)
    with mongo_errors():
        (view,) = views([dataset], parts, viewer.caller)
    return page(
        request,
        f"datasets/{name}.html",
        dataset=view,
        tabs=[(viewer.link(named["base"] + path, owner=named["owner"]), title) for path, title in _TABS.items()],
        **named,
        **context,
    )


# --- one run


def _of_run(dataset: Dataset, job_id: str, parts: GatewayParts, since: int | None = None) -> dict[str, Any]:
    """The context of templates about a run: `run` (`None` before it is folded), `changed`, `shown_examples`."""
    with mongo_errors():
        run = parts[RunStore].get(job_id)
        if run is None or run.dataset != dataset.id:
            return {"run": None, "changed": None, "shown_examples": []}
        view = DatasetRunView.of(run)
        changed = changes_of_run(dataset, run, parts, since)
        return {"run": view, "changed": changed, "shown_examples": examples(view, dataset.empty_values, parts)}


def changes_of_run(
    dataset: Dataset, run: DatasetRun, parts: GatewayParts, since: int | None = None
) -> RunChanges | None:
    """The changes of a run; `None` if it has made none."""
    if run.state is not RunState.PUBLISHED or run.first_seq is None or run.last_seq is None:
        return None
    after = run.first_seq - 1 if since is None else max(since, run.first_seq - 1)
    try:
        found = parts[DatasetFeed].changes(dataset, after, _CHANGES)
    except CursorExpiredError:
        return RunChanges([], None, is_gone=True)
    changes = [ChangeView.of(one) for one in found.changes if one.seq <= run.last_seq]
    return RunChanges(changes, found.next if found.next < run.last_seq else None)


def examples(run: DatasetRunView, empty_values: Collection[str], parts: GatewayParts) -> list[Row]:
    """A few items of a held run. If it is held because of a field, the items show the problem of this field."""
    finding = next((one for one in run.findings if one.holds), None)
    if finding is None or run.state is not RunState.HELD:
        return []
    rows = [item.row for item in parts[ItemStore].page(run.job_id, None, None, _LOOKED_AT)]
    fits = _EXAMPLE_OF.get(finding.code)
    if finding.field is not None and fits is not None:
        name, usual = finding.field, finding.type
        rows = [row for row in rows if fits(filled_as(row.get(name), empty_values), usual)] or rows
    return rows[:_EXAMPLES]


def _is_empty(kind: JsonType | None, _: str | None) -> bool:
    return kind is None


def _is_flipped(kind: JsonType | None, usual: str | None) -> bool:
    return kind is not None and kind != usual


#: For each finding about a field: whether an item shows the problem, given the type of its value and the usual type.
_EXAMPLE_OF: dict[str, Callable[[JsonType | None, str | None], bool]] = {
    FindingCode.FIELD_LOWER: _is_empty,
    FindingCode.FIELD_COLLAPSED: _is_empty,
    FindingCode.TYPE_FLIPPED: _is_flipped,
}


# --- the tab of a job


@router.page("/console/jobs/{job_id}/changes")
# other projects may feed the dataset, so what has changed since the run before may be theirs
@needs(Scope.READ, by_project=False)
def changes_tab(request: Request, job_id: JobId, parts: Parts) -> Response:
    job = parts[JobOrSchedule].job(job_id)
    dataset = dataset_of(job, parts)
    found = of_job(job, dataset, request, parts)
    return tab(request, job_id, parts, "changes", order=job.spec.dataset if job else None, **found)


def dataset_of(job: Job | None, parts: GatewayParts) -> Dataset | None:
    """The dataset of the job's run; `None` if the job has none, or it does not exist yet."""
    order = job.spec.dataset if job else None
    if job is None or order is None:
        return None
    with mongo_errors():
        return parts[DatasetStore].look(job.user_id, order.name)


def of_job(job: Job | None, dataset: Dataset | None, request: Request, parts: GatewayParts) -> dict[str, Any]:
    """The context of templates about the job's run."""
    if job is None or dataset is None:
        return {"run": None}
    return {**addresses(dataset, Viewer.of(request), parts), **_of_run(dataset, job.id, parts)}


def of_schedule(job_ids: Sequence[str], request: Request, parts: GatewayParts) -> dict[str, Any]:
    """The context of a schedule's page: the newest of these jobs that is a run of a dataset. Other schedules may have
    runs of the same dataset.
    """
    with mongo_errors():
        run = parts[RunStore].newest_of(job_ids)
        dataset = parts[DatasetStore].by_id(run.dataset) if run else None
    if run is None or dataset is None or dataset.deleted_at is not None:
        return {"run": None}
    named = addresses(dataset, Viewer.of(request), parts)
    return {**named, **_of_run(dataset, run.job_id, parts), "dataset_name": dataset.name}
