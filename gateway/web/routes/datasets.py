"""`/datasets`: items that are tracked across runs, and the feed of their changes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any

import orjson
from fastapi import Path, Query, Request, Response

from gateway.access.keys import Caller, Scope
from gateway.contract.crawl import DATASET_NAME
from gateway.datasets.dataset import Dataset, RunState
from gateway.datasets.feed import DatasetFeed, FeedWatch
from gateway.datasets.figures import RunFigures
from gateway.datasets.fold import known_figures, normal_of
from gateway.datasets.fold_queue import FoldQueue
from gateway.datasets.item_schema import learned_schema
from gateway.datasets.judging import compare
from gateway.datasets.rows import ChangeRows, RecordRows
from gateway.datasets.service import Datasets
from gateway.datasets.store import DatasetStore, RunStore
from gateway.errors import InvalidRequestError
from gateway.exports.export import ExportPlaces
from gateway.stores.mongo import mongo_errors
from gateway.web.authorisation import Called, needs
from gateway.web.call_queue import while_there
from gateway.web.container import GatewayParts
from gateway.web.dependencies import Parts, Router
from gateway.web.downloads import RowPages, download
from gateway.web.errors import problems
from gateway.web.event_stream.log_lines import event
from gateway.web.lasting import Download
from gateway.web.middleware import note_changes
from gateway.web.routes.items import FILE_CONTENT
from gateway.web.schemas.dataset import (
    AcceptQuery,
    ChangesFileQuery,
    ChangesPage,
    ChangesQuery,
    ChangeView,
    DatasetHealth,
    DatasetItemsFileQuery,
    DatasetItemsQuery,
    DatasetItemView,
    DatasetPage,
    DatasetReplace,
    DatasetRunsPage,
    DatasetRunsQuery,
    DatasetRunView,
    DatasetsQuery,
    DatasetUpdate,
    DatasetView,
    OwnedQuery,
    RecordsPage,
    SchemaQuery,
)
from gateway.web.schemas.stream import CHANGES, EVENT_STREAM, event_content
from gateway.web.schemas.types import DownloadQuery

SCHEMA_TYPE = "application/schema+json"

router = Router(prefix="/datasets", tags=["datasets"])

Name = Annotated[str, Path(description="The dataset.", pattern=DATASET_NAME, examples=["prices"])]
#: Not called `job_id`: the gateway would look up the owner of such a job, and the answer would tell users of other
#: datasets whether the job exists.
RunJob = Annotated[
    str, Path(pattern="^[0-9a-f]{32}$", description="The run's job.", examples=["5f0c8e3a9d1b4c7e8f2a6b5d4c3e2f1a"])
]


def find(name: str, user_id: str | None, parts: GatewayParts, caller: Caller) -> Dataset:
    """Raises `DatasetNotFoundError`, `NotYourUserError`, `InvalidRequestError`."""
    return parts[Datasets].find(name, caller.only(user_id), caller.projects)


def datasets_page(query: DatasetsQuery, parts: GatewayParts, caller: Caller) -> DatasetPage:
    with mongo_errors():
        user_id = caller.only(query.user_id)
        found, following = parts[DatasetStore].of_user(user_id, query.limit, query.after, caller.projects)
        return DatasetPage(datasets=views(found, parts, caller), next=following)


def views(found: list[Dataset], parts: GatewayParts, caller: Caller) -> list[DatasetView]:
    held = parts[RunStore].held([one.id for one in found])
    users: dict[str, list[str]] = {}
    for one in found:
        users.setdefault(one.user_id, []).append(one.name)
    waiting = {user: parts[FoldQueue].waiting(user, names, caller.projects) for user, names in users.items()}
    return [DatasetView.of(one, held.get(one.id, 0), waiting[one.user_id].get(one.name, 0)) for one in found]


@router.get("", summary="List datasets", responses=problems(503))
@needs(Scope.READ, by_project=True)
async def list_datasets(query: Annotated[DatasetsQuery, Query()], parts: Parts, caller: Called) -> DatasetPage:
    """Newest first. Pass `next` as `after` for the page that follows."""
    return await parts.threads.run(datasets_page, query, parts, caller)


@router.put(
    "/{name}",
    summary="Make a dataset, or set its options",
    responses={201: {"description": "It is new", "model": DatasetView}, **problems(409, 413, 503)},
)
@needs(Scope.CRAWL)
def put_dataset(  # noqa: PLR0917 - what a route is given
    name: Name,
    body: DatasetReplace,
    query: Annotated[OwnedQuery, Query()],
    response: Response,
    parts: Parts,
    caller: Called,
) -> DatasetView:
    """Options that are left out get their defaults. The `key` of a dataset that has items stays as it is: 422."""
    user_id = caller.asking(query.user_id)
    parts[ExportPlaces].require(user_id, body.exports or ())
    made, is_new = parts[Datasets].put(user_id, name, body.model_dump(exclude_none=True))
    if is_new:
        response.status_code = HTTPStatus.CREATED.value
    return views([made], parts, caller)[0]


@router.get("/{name}", summary="A dataset, and how it fares", responses=problems(404, 503))
@needs(Scope.READ, by_project=True)
def get_dataset(name: Name, query: Annotated[OwnedQuery, Query()], parts: Parts, caller: Called) -> DatasetView:
    """Its options, how many items it has, and what waits to be applied."""
    return views([find(name, query.user_id, parts, caller)], parts, caller)[0]


@router.patch("/{name}", summary="Change options of a dataset", responses=problems(404, 409, 413, 503))
@needs(Scope.CRAWL)
def update_dataset(  # noqa: PLR0917 - what a route is given
    name: Name,
    body: DatasetUpdate,
    query: Annotated[OwnedQuery, Query()],
    request: Request,
    parts: Parts,
    caller: Called,
) -> DatasetView:
    """If `ignore` names other fields, that alone changes no item: stored items are compared in the new way from now
    on.
    """
    dataset = find(name, query.user_id, parts, caller)
    parts[ExportPlaces].require(dataset.user_id, body.exports or ())
    changed = parts[Datasets].change(dataset, body.model_dump(exclude_none=True))
    before, after = views([dataset, changed], parts, caller)
    note_changes(request, before, after)
    return after


@router.delete("/{name}", summary="Delete a dataset", status_code=204, responses=problems(404, 503))
@needs(Scope.CRAWL)
def delete_dataset(name: Name, query: Annotated[OwnedQuery, Query()], parts: Parts, caller: Called) -> None:
    """Deletes the items and changes. The jobs stay. If a run that names the dataset ends later, it makes an empty
    one.
    """
    parts[Datasets].delete(find(name, query.user_id, parts, caller))


# --- the feed


@router.get(
    "/{name}/changes",
    summary="What has changed, in order",
    response_model=ChangesPage,
    responses={
        200: {
            "description": "The changes. With `Accept: text/event-stream` a stream of `change` events that does not "
            "end; the `id` of each is its cursor.",
            "content": event_content(CHANGES),
        },
        **problems(404, 410, 429, 503),
    },
)
@needs(Scope.READ, by_project=True)
async def list_dataset_changes(
    name: Name, query: Annotated[ChangesQuery, Query()], request: Request, parts: Parts, caller: Called
) -> ChangesPage | Response:
    """Each change exactly once, in the order of `seq`; a run's changes become visible together. Keep `next` beside
    what you have done with the changes, and go on from there.

    410 (`cursor_expired`): changes after `since` are no longer kept. Read `GET /datasets/{name}/items` and go on
    after its `seq`.
    """
    dataset = await parts.threads.look(find, name, query.user_id, parts, caller)
    if _is_file(query, "since", "types"):
        return await _changes_file(name, dataset, query, parts)
    since = await parts.threads.look(parts[DatasetFeed].cursor, dataset, query.since)
    if EVENT_STREAM in request.headers.get("accept", ""):
        parts.answers.take()
        since = _last_event_id(request, since)
        page = await _page(parts, dataset, query, since)
        events, headers = _events(parts, dataset, query, page, caller), {"Cache-Control": "no-store"}
        return Download(events, parts.answers, headers=headers, media_type=EVENT_STREAM)
    page = await _page(parts, dataset, query, since)
    if query.wait and not page.changes and not page.pending:
        parts.answers.take()
        await while_there(parts[FeedWatch].changed(dataset, query.wait))
        page = await _page(parts, await _again(parts, dataset, caller), query, page.next)
    return page


@router.get(
    "/{name}/changes/download",
    summary="Download what has changed",
    response_class=Response,
    responses={
        200: {
            "description": "The changes, as the file that `format` names. Its rows have the item's fields after "
            "`_change`, `_at`, `_seq`, `_run` and `_previous`: the values before of what is different.",
            "content": FILE_CONTENT,
        },
        **problems(404, 410, 429, 503),
    },
)
@needs(Scope.READ, by_project=True)
async def download_dataset_changes(
    name: Name, query: Annotated[ChangesFileQuery, Query()], parts: Parts, caller: Called
) -> Response:
    """All changes after `since`, in the order of `seq`."""
    dataset = await parts.threads.look(find, name, query.user_id, parts, caller)
    return await _changes_file(name, dataset, query, parts)


async def _changes_file(name: str, dataset: Dataset, query: ChangesFileQuery, parts: GatewayParts) -> Response:
    since = await parts.threads.look(parts[DatasetFeed].cursor, dataset, query.since)
    rows = ChangeRows(parts[DatasetFeed], dataset, since, query.wanted)
    return await _download(parts, query, rows, f"{name}-changes")


async def _page(parts: GatewayParts, dataset: Dataset, query: ChangesQuery, since: int) -> ChangesPage:
    def read() -> ChangesPage:
        found = parts[DatasetFeed].changes(dataset, since, query.limit, query.wanted)
        # also in the thread, because there may be many large ones
        views = [ChangeView.of(change) for change in found.changes]
        return ChangesPage(changes=views, next=found.next, last_seq=found.last, pending=found.last - found.next)

    return await parts.threads.run(read)


async def _again(parts: GatewayParts, dataset: Dataset, caller: Caller) -> Dataset:
    found: Dataset = await parts.threads.look(parts[Datasets].again, dataset, caller.projects)
    return found


def _last_event_id(request: Request, since: int) -> int:
    told = request.headers.get("last-event-id", "")
    return int(told) if told.isascii() and told.isdigit() and len(told) <= 15 else since  # noqa: PLR2004 - as `SeqText`


#: Seconds without a change after which the cursor alone is sent.
_PING_SECONDS = 15.0


async def _events(
    parts: GatewayParts, dataset: Dataset, query: ChangesQuery, page: ChangesPage, caller: Caller
) -> AsyncIterator[bytes]:
    yield b"retry: 2000\n\n"
    while True:
        for change in page.changes:
            yield b"id: %d\n" % change.seq + event("change", change.model_dump(mode="json"))
        if not page.changes:
            # a heartbeat with a position, so that a client that reconnects does not read skipped changes again
            yield b"id: %d\n\n" % page.next
        if not page.pending:
            await parts[FeedWatch].changed(dataset, _PING_SECONDS)
            dataset = await _again(parts, dataset, caller)
        page = await _page(parts, dataset, query, page.next)


@router.get(
    "/{name}/items",
    summary="The items of a dataset",
    response_model=RecordsPage,
    responses={
        200: {
            "description": "A page of items and what is known of each.",
        },
        **problems(404, 409, 410, 429, 503),
    },
)
@needs(Scope.READ, by_project=True)
async def list_dataset_items(
    name: Name, query: Annotated[DatasetItemsQuery, Query()], parts: Parts, caller: Called
) -> RecordsPage | Response:
    """The items that are present, in the order of their keys' hashes. While a run is applied, a page may have states
    that are later than `seq`, and `as_of` of a change that is not applied yet is answered with 409. With `q` or
    `as_of`, a page ends after two seconds, and its `next` goes on.
    """
    dataset = await parts.threads.look(find, name, query.user_id, parts, caller)
    if _is_file(query, "as_of", "removed", "q"):
        return await _records_file(name, dataset, query, parts, caller)
    return await parts.threads.run(_records_page, dataset, query, parts, caller)


@router.get(
    "/{name}/items/download",
    summary="Download the items of a dataset",
    response_class=Response,
    responses={
        200: {
            "description": "The items, as the file that `format` names. Its rows have the items' fields alone.",
            "content": FILE_CONTENT,
        },
        **problems(404, 409, 410, 429, 503),
    },
)
@needs(Scope.READ, by_project=True)
async def download_dataset_items(
    name: Name, query: Annotated[DatasetItemsFileQuery, Query()], parts: Parts, caller: Called
) -> Response:
    """All items that are present, in the order of their keys' hashes."""
    dataset = await parts.threads.look(find, name, query.user_id, parts, caller)
    return await _records_file(name, dataset, query, parts, caller)


async def _records_file(
    name: str, dataset: Dataset, query: DatasetItemsFileQuery, parts: GatewayParts, caller: Caller
) -> Response:
    # a run of another project may be taken up while the items are read
    check = partial(parts[Datasets].again, dataset, caller.projects) if caller.projects else bool
    rows = RecordRows(parts[DatasetFeed], dataset, query.as_of, query.removed, query.q, check)
    return await _download(parts, query, rows, name)


def _records_page(dataset: Dataset, query: DatasetItemsQuery, parts: GatewayParts, caller: Caller) -> RecordsPage:
    found = parts[DatasetFeed].items(
        dataset, query.after or "", query.limit, as_of=query.as_of, removed=query.removed, text=query.q
    )
    if caller.projects:
        parts[Datasets].again(dataset, caller.projects)
    seq = query.as_of if query.as_of is not None else dataset.applied_seq
    return RecordsPage(items=[DatasetItemView.of(record) for record in found.records], next=found.next, seq=seq)


@router.get("/{name}/health", summary="What is normal, and how the last run compares", responses=problems(404, 503))
@needs(Scope.READ, by_project=True)
async def get_dataset_health(
    name: Name, query: Annotated[OwnedQuery, Query()], parts: Parts, caller: Called
) -> DatasetHealth:
    """How the last run compares with what is normal, by measure and field. What is normal is learned from published
    complete runs: nothing is said before five of them, and for five more it is only said what a run would have been
    held for.
    """
    return await parts.threads.run(health, name, query, parts, caller)


@router.get(
    "/{name}/schema",
    summary="The JSON Schema of the items",
    response_class=Response,
    responses={
        200: {
            "description": "The schema.",
            "content": {SCHEMA_TYPE: {"schema": {"$ref": "#/components/schemas/JsonSchema"}}},
        },
        **problems(404, 503),
    },
)
@needs(Scope.READ, by_project=True)
async def get_dataset_schema(
    name: Name, query: Annotated[SchemaQuery, Query()], parts: Parts, caller: Called
) -> Response:
    """The schema that is pinned as `item_schema`, or else a schema made from the last published complete runs.
    Change it and pin it, to have items set apart that do not fit.
    """
    schema = await parts.threads.run(schema_of, name, query, parts, caller)
    return Response(orjson.dumps(schema), media_type=SCHEMA_TYPE)


def schema_of(name: str, query: SchemaQuery, parts: GatewayParts, caller: Caller) -> dict[str, Any]:
    dataset = find(name, query.user_id, parts, caller)
    if dataset.item_schema and not query.learned:
        return dataset.pinned_schema
    with mongo_errors():
        return learned_schema(known_figures(dataset, parts[RunStore]))


def health(name: str, query: OwnedQuery, parts: GatewayParts, caller: Caller) -> DatasetHealth:
    dataset = find(name, query.user_id, parts, caller)
    with mongo_errors():
        newest, _ = parts[RunStore].of_dataset(dataset.id, 1, states=[RunState.PUBLISHED, RunState.HELD])
        normal = normal_of(dataset, parts[RunStore])
    run = newest[0] if newest else None
    figures = RunFigures.from_dict(run.figures) if run and run.figures else None
    return DatasetHealth.of(normal, run, compare(figures, normal) if figures else [])


# --- files


async def _download(parts: GatewayParts, query: DownloadQuery, rows: RowPages, name: str) -> Response:
    parts.answers.take()
    day = f"{parts.clock():%Y-%m-%d}"
    named = {"Content-Disposition": f'attachment; filename="{name}-{day}.{query.format}"'}
    return await download(parts, query, rows, named)


def _is_file(query: ChangesQuery | DatasetItemsQuery, *options: str) -> bool:
    """Whether a file is asked for, and not a page. `options`: what is for both. Raises `InvalidRequestError` for an
    option of the other one.
    """
    of_files, given = set(DownloadQuery.model_fields), query.model_fields_set
    if query.format is None:
        if odd := sorted(given & of_files - {"format"}):
            raise InvalidRequestError(odd[0], "is for downloads: name a `format`, too")
    elif odd := sorted(given - of_files - {*options, "user_id"}):
        raise InvalidRequestError(odd[0], "is for pages: leave it out with `format`, which downloads all")
    return query.format is not None


# --- runs


@router.get("/{name}/runs", summary="What each run has changed", responses=problems(404, 503))
@needs(Scope.READ, by_project=True)
async def list_dataset_runs(
    name: Name, query: Annotated[DatasetRunsQuery, Query()], parts: Parts, caller: Called
) -> DatasetRunsPage:
    """The runs of the dataset; the run that started last comes first."""
    return await parts.threads.run(runs_page, name, query, parts, caller)


def runs_page(name: str, query: DatasetRunsQuery, parts: GatewayParts, caller: Caller) -> DatasetRunsPage:
    dataset = find(name, query.user_id, parts, caller)
    with mongo_errors():
        found, following = parts[RunStore].of_dataset(dataset.id, query.limit, query.after, query.state)
    return DatasetRunsPage(runs=[DatasetRunView.of(run) for run in found], next=following)


@router.get("/{name}/runs/{run}", summary="One run of a dataset", responses=problems(404, 503))
@needs(Scope.READ, by_project=True)
def get_dataset_run(
    name: Name, run: RunJob, query: Annotated[OwnedQuery, Query()], parts: Parts, caller: Called
) -> DatasetRunView:
    """What it has changed, and why it is held if it is."""
    return DatasetRunView.of(parts[Datasets].run(find(name, query.user_id, parts, caller), run))


@router.post("/{name}/runs/{run}/accept", summary="Publish a held run", responses=problems(404, 409, 503))
@needs(Scope.CRAWL)
def accept_dataset_run(
    name: Name, run: RunJob, query: Annotated[AcceptQuery, Query()], parts: Parts, caller: Called
) -> DatasetRunView:
    """The run's changes become visible within a few seconds. 409 unless the run is held. With `new_normal`, what is
    normal is learned again, from this run on.
    """
    dataset = find(name, query.user_id, parts, caller)
    accepted = parts[Datasets].accept(dataset, run, caller.name, is_normal=query.new_normal)
    return DatasetRunView.of(accepted)


@router.post("/{name}/runs/{run}/reject", summary="Forget a held run", responses=problems(404, 409, 503))
@needs(Scope.CRAWL)
def reject_dataset_run(
    name: Name, run: RunJob, query: Annotated[OwnedQuery, Query()], parts: Parts, caller: Called
) -> DatasetRunView:
    """The run does not change the dataset, and retention may remove its items. 409 unless the run is held."""
    dataset = find(name, query.user_id, parts, caller)
    return DatasetRunView.of(parts[Datasets].reject(dataset, run, caller.name))


@router.post(
    "/{name}/runs/{run}/export", status_code=202, summary="Write a run's exports", responses=problems(404, 409, 503)
)
@needs(Scope.CRAWL)
def export_dataset_run(
    name: Name, run: RunJob, query: Annotated[OwnedQuery, Query()], parts: Parts, caller: Called
) -> DatasetRunView:
    """For a run from before the dataset had `exports`, or a run whose exports were given up: missing exports are
    written within seconds. The outcome of each is in the run's `exports`. 409 unless the run is published.
    """
    return DatasetRunView.of(parts[Datasets].export(find(name, query.user_id, parts, caller), run))
