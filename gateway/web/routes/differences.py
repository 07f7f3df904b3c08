"""`GET /jobs/{job_id}/differences`: which items of a run are new, changed or gone since another run."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query
from pydantic import BaseModel, Field
from pydantic.config import JsonDict

from gateway.access.keys import Scope
from gateway.datasets.content import URL_FIELD
from gateway.datasets.fold_plan import RunItems
from gateway.datasets.run_comparison import (
    MOST_COMPARED,
    ComparedItems,
    DifferentItem,
    ItemComparing,
    ItemsKey,
    SeenItems,
)
from gateway.datasets.store import DatasetStore
from gateway.items.items import ItemStore
from gateway.jobs.job import Job
from gateway.jobs.queries import JobQueries
from gateway.schedules.store import JobOrSchedule
from gateway.stores.mongo import mongo_errors
from gateway.web.authorisation import Called, needs
from gateway.web.container import GatewayParts
from gateway.web.dependencies import JobId, Parts, Router
from gateway.web.errors import Responses, problems
from gateway.web.schemas.dataset import ChangedField, ChangeKind, by_field
from gateway.web.schemas.types import QueryModel, Text

router = Router(tags=["jobs"])

_JOB, _OTHER = "5f0c8e3a9d1b4c7e8f2a6b5d4c3e2f1a", "8a7b6c5d4e3f4a1b8c9d0e1f2a3b4c5d"


class DifferencesQuery(QueryModel):
    other_job_id: Annotated[str, Field(pattern="^[0-9a-f]{32}$")] | None = Field(
        default=None,
        description="The run that it is compared with; by default the last one before it that ended well, of the "
        "same schedule or request; of any user, for a caller who sees all.",
    )
    key: Annotated[Text, Field(min_length=1, max_length=500)] | None = Field(
        default=None,
        description="The fields that make two items the same item, separated by commas; by default the key of the "
        "dataset if the crawl has one, else `url`.",
    )
    limit: int = Field(default=50, ge=1, le=200, description="How many items of each kind are shown.")


class ItemDifferenceView(BaseModel):
    """An item that is new, changed or gone."""

    type: ChangeKind
    key: dict[str, Any] = Field(
        description="Empty for an item without `url`, which is compared by all of its content."
    )
    item: dict[str, Any] = Field(description="Of a removed one as the other run had it.")
    changes: dict[str, ChangedField] | None = Field(
        description="The differences of a changed item, by field; null if they are too large."
    )

    @classmethod
    def of(cls, one: DifferentItem) -> ItemDifferenceView:
        changes = None if one.differences is None else by_field(one.differences)
        return cls(type=one.type.value, key=one.key, item=one.row, changes=changes)


_EXAMPLE: JsonDict = {
    "job_id": _JOB,
    "other_job_id": _OTHER,
    "key": ["url"],
    "compared": 1200,
    "other_compared": 1180,
    "is_whole": True,
    "new": 25,
    "changed": 1,
    "removed": 5,
    "same": 1174,
    "repeated": 0,
    "without_key": 0,
    "differences": [
        {
            "type": "changed",
            "key": {"url": "https://shop.example/17"},
            "item": {"url": "https://shop.example/17", "price": 9.5},
            "changes": {"price": {"previous": 12.5, "current": 9.5}},
        }
    ],
}


class ItemDifferences(BaseModel, json_schema_extra={"examples": [_EXAMPLE]}):
    """How the items of two runs differ."""

    job_id: str | None = Field(description="The job; for a schedule its run, null before the first one.")
    other_job_id: str | None = Field(
        description="The run that it is compared with; null if there is none before it that ended well."
    )
    key: list[str] = Field(description="The fields that make two items the same item.")
    compared: int = Field(
        description=f"How many items of the run were compared: the first {MOST_COMPARED:,} at most."
    )
    other_compared: int = Field(description="The same of the other run.")
    is_whole: bool = Field(
        description="Whether these are all items of both. If not, what seems new or removed may only come later in "
        "the other run."
    )
    new: int
    changed: int
    removed: int
    same: int
    repeated: int = Field(description="How many items have the key of an item before them, in whose place they are.")
    without_key: int = Field(description="How many items lack a field of the key, and are not compared.")
    differences: list[ItemDifferenceView] = Field(description="Changed items first, then new ones and removed ones.")


_RESPONSES: Responses = problems(404, 503)


@router.get("/jobs/{job_id}/differences", summary="What is new or gone since another run", responses=_RESPONSES)
@needs(Scope.READ)
def get_item_differences(
    job_id: JobId, query: Annotated[DifferencesQuery, Query()], parts: Parts, caller: Called
) -> ItemDifferences:
    """Compares the items of both runs by a key, without a dataset. Nothing is kept. An answer takes a few seconds at
    most. The items of a run that goes on are compared as far as they have come.
    """
    job = parts[JobOrSchedule].job(job_id)
    other = parts[JobOrSchedule].job(query.other_job_id) if query.other_job_id else None
    with mongo_errors():
        if job is not None and query.other_job_id is None:
            other = next(iter(parts[JobQueries].runs_before(job, 1, of_all_users=caller.user_id is None)), None)
        key = _key(job, query.key, parts)
        if job is None or other is None:
            return _view(job, None, key, ComparedItems(SeenItems(is_whole=True), SeenItems(is_whole=True)))
        before, now = (RunItems(parts[ItemStore], one.id, one.newest) for one in (other, job))
        found = parts[ItemComparing].compare(before, now, key, query.limit)
    return _view(job, other, key, found)


def _key(job: Job | None, asked: str | None, parts: GatewayParts) -> ItemsKey:
    """The key fields of the request, or else those of the dataset."""
    fields = tuple(name for part in (asked or "").split(",") if (name := part.strip()))
    order = job.spec.dataset if job else None
    dataset = parts[DatasetStore].look(job.user_id, order.name) if job and order else None
    if dataset is None:
        return ItemsKey(fields)
    return ItemsKey(fields or dataset.key, dataset.ignore)


def _view(job: Job | None, other: Job | None, key: ItemsKey, found: ComparedItems) -> ItemDifferences:
    both = (found.before, found.now)
    return ItemDifferences(
        job_id=job and job.id,
        other_job_id=other and other.id,
        key=list(key.fields or (URL_FIELD,)),
        compared=found.now.read,
        other_compared=found.before.read,
        is_whole=all(one.is_whole for one in both),
        repeated=sum(one.repeated for one in both),
        without_key=sum(one.without_key for one in both),
        differences=[ItemDifferenceView.of(one) for one in found.examples],
        **{name: getattr(found, name) for name in ("new", "changed", "removed", "same")},
    )
