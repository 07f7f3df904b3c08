"""How the API shows datasets, their items, changes and runs."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field
from pydantic.config import JsonDict
from typing_extensions import TypeAliasType

from gateway.contract.crawl import DATASET_NAME, DatasetOptions
from gateway.datasets.dataset import (
    SHOWN,
    ChangeType,
    Dataset,
    DatasetRun,
    Difference,
    Incomplete,
    ItemChange,
    Record,
    RunCounts,
    RunExport,
    RunState,
    SchemaBreak,
    StoredFinding,
)
from gateway.datasets.fold_plan import row_of
from gateway.datasets.judging import Comparison, Measure, Normal, Stage
from gateway.exports.export import ExportOrder, Exports
from gateway.web.schemas.types import (
    Body,
    Cursor,
    DownloadQuery,
    FileFormat,
    Open,
    QueryBoolean,
    QueryModel,
    QueryTime,
    SearchText,
    Timestamp,
    UserId,
    WantedFormat,
)

_JOB = "5f0c8e3a9d1b4c7e8f2a6b5d4c3e2f1a"
_TIME = "2027-06-01T07:05:00.000Z"
_KEY_HASH = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"
_DATASET: JsonDict = {
    "name": "prices",
    "user_id": "abc123",
    "key": ["sku"],
    "ignore": ["scraped_at"],
    "confirm_removed": 1,
    "drop_guard": 0.2,
    "empty_values": [],
    "may_fail": [],
    "item_schema": {"type": "object", "required": ["price"], "properties": {"price": {"type": "number"}}},
    "exports": [{"to": "s3://lake/prices", "format": "parquet", "what": "snapshot", "each": "run"}],
    "items": 1204,
    "runs": 31,
    "last_seq": 2211,
    "floor_seq": 0,
    "held": 0,
    "waiting": 0,
    "head_run": _JOB,
    "complete_at": _TIME,
    "created_at": _TIME,
    "updated_at": _TIME,
    "page_url": "/console/datasets/prices",
}
_ITEM: JsonDict = {"sku": "A-1", "title": "Shoe", "price": 49.0}
_CHANGE: JsonDict = {
    "id": f"{_JOB}:{_KEY_HASH}",
    "seq": 2211,
    "type": "changed",
    "deleted": False,
    "key_hash": _KEY_HASH,
    "key": {"sku": "A-1"},
    "item": _ITEM,
    "changes": {"price": {"previous": 59.0, "current": 49.0}},
    "run": _JOB,
    "at": _TIME,
    "first_seen": _TIME,
}
_RUN: JsonDict = {
    "job_id": _JOB,
    "state": "published",
    "incomplete": None,
    "incomplete_message": None,
    "excused": [],
    "started_at": _TIME,
    "ended_at": _TIME,
    "counts": {
        "items": 1204,
        "new": 3,
        "changed": 12,
        "removed": 1,
        "same": 1189,
        "missed": 0,
        "repeated": 0,
        "without_key": 0,
        "set_apart": 1,
    },
    "first_seq": 2196,
    "last_seq": 2211,
    "findings": [],
    "left_out": [],
    "schema_breaks": [
        {
            "field": "price",
            "rule": "type",
            "items": 1,
            "message": "'sold out' is not of type 'number'",
            "example": '{"sku":"A-7","title":"Sandal","price":"sold out"}',
        }
    ],
    "message": None,
    "accepted_by": None,
    "rejected_by": None,
    "exports": [
        {
            "to": "s3://lake/prices",
            "what": "snapshot",
            "format": "parquet",
            "rows": 1204,
            "written_at": _TIME,
            "problem": None,
        }
    ],
    "page_url": f"/console/jobs/{_JOB}",
}
_PAGE: JsonDict = {"changes": [_CHANGE], "next": 2211, "last_seq": 2211, "pending": 0}

KeyHash = Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
SeqText = Annotated[int, Field(ge=0, le=10**15)]


class OwnedQuery(QueryModel):
    user_id: UserId | None = Field(
        default=None, description="Whose dataset; by default the caller's, or the only one of this name."
    )


GivenSchema = Annotated[
    dict[str, Any],
    Field(
        description="A JSON Schema (draft 2020-12) that each item has to fit: one that does not is set apart, "
        "and what was known of it stays. `{}` for none. References lead into its own `$defs`; `format` says nothing, "
        "`patternProperties`, `unevaluatedItems` and `unevaluatedProperties` are refused.",
        examples=[{"type": "object", "required": ["price"], "properties": {"price": {"type": "number"}}}],
    ),
]
#: Not strict, because JSON has no tuples; the numbers and texts inside are strict.
GivenExports = Annotated[Exports, Field(strict=False)]


class DatasetReplace(DatasetOptions, Body, strict=True):
    """The options of a dataset. An option that is left out has its default."""

    item_schema: GivenSchema | None = None
    exports: GivenExports | None = Field(default=None, description="The files to write after each run, and where.")


class DatasetUpdate(DatasetOptions, Body, strict=True):
    """The options to change. An option that is left out is not changed."""

    item_schema: GivenSchema | None = None
    exports: GivenExports | None = Field(default=None, description="All of them: others are written no more.")


class DatasetView(BaseModel, json_schema_extra={"examples": [_DATASET]}):
    """A dataset: its options, and how it fares."""

    name: str = Field(json_schema_extra={"pattern": DATASET_NAME})
    user_id: str
    key: list[str] = Field(description="Empty: the canonical `url`, or the content of items without one.")
    ignore: list[str]
    confirm_removed: int
    drop_guard: float
    empty_values: list[str]
    may_fail: list[str]
    item_schema: dict[str, Any] = Field(
        description="The JSON Schema that each item has to fit; empty: every item fits."
    )
    exports: list[ExportOrder]
    items: int = Field(description="How many items are present.")
    runs: int = Field(description="How many runs were published.")
    last_seq: int = Field(description="The number of the last change: the cursor of those who know all.")
    floor_seq: int = Field(description="Changes up to this number are no longer kept.")
    held: int = Field(description="How many runs are held: somebody should accept or reject them.")
    waiting: int = Field(description="How many runs have ended and are about to be taken up.")
    head_run: str | None = Field(description="The job of the last published run.")
    complete_at: Timestamp | None = Field(description="When the last complete run had ended.")
    created_at: Timestamp
    updated_at: Timestamp
    page_url: str

    @classmethod
    def of(cls, dataset: Dataset, held: int = 0, waiting: int = 0) -> DatasetView:
        same = dataset.model_dump(include=set(cls.model_fields)) | {"item_schema": dataset.pinned_schema}
        page_url = f"/console/datasets/{dataset.name}"
        return cls(**same, last_seq=dataset.head_seq, held=held, waiting=waiting, page_url=page_url)


class DatasetsQuery(OwnedQuery):
    limit: int = Field(default=50, ge=1, le=200, description="The size of a page.")
    after: Cursor | None = Field(default=None, description="The `next` of the previous page.")


class DatasetPage(BaseModel):
    """A page of datasets."""

    datasets: list[DatasetView] = Field(description="The datasets of the page.")
    next: str | None


class ChangedField(BaseModel):
    """A field's values before and after a change."""

    previous: Any = None
    current: Any = None


#: One of `ChangeType` that is shown.
ChangeKind = TypeAliasType(
    "ChangeKind",
    Annotated[Literal["new", "changed", "removed"], Field(description="How an item differs from what was known.")],
)


class ChangeView(BaseModel, json_schema_extra={"examples": [_CHANGE]}):
    """What a run has found out of an item: that it is new, has changed, or is gone."""

    id: str = Field(description="The change's id, the same each time that it is read.")
    seq: int = Field(description="The change's number: changes are in this order. Numbers may be missing.")
    type: ChangeKind
    deleted: bool = Field(description="Whether the item is gone, for programs that have a column for that.")
    key_hash: str = Field(description="The hash of the item's key, the same in all its changes.")
    key: dict[str, Any]
    item: dict[str, Any] = Field(description="The item; of a removed one the last that was known.")
    changes: dict[str, ChangedField] | None = Field(
        description="The differences of a changed item, by field; null if they are too large to be stored."
    )
    run: str = Field(description="The job that found it.")
    at: Timestamp
    first_seen: Timestamp

    @classmethod
    def of(cls, change: ItemChange) -> ChangeView:
        same = change.model_dump(include={"seq", "key_hash", "key", "run", "at", "first_seen"})
        return cls(
            **same,
            id=change.change_id,
            type=change.type.value,
            deleted=change.type is ChangeType.REMOVED,
            item=row_of(change),
            changes=None if change.differences is None else by_field(change.differences),
        )


def by_field(differences: list[Difference]) -> dict[str, ChangedField]:
    return {one.field: ChangedField(previous=one.previous, current=one.current) for one in differences}


#: The format of a download. Without a format, the answer is a page.
Format = Annotated[
    FileFormat | None,
    Field(description="Download all as a file of this format, without `limit` and `after`."),
]


class ChangesFileQuery(OwnedQuery, DownloadQuery):
    format: WantedFormat = "jsonl"
    since: SeqText | QueryTime = Field(
        default=0,
        description="The `next` of the page before: only changes after it. Or a time with an offset: only changes of "
        "runs that have ended since.",
    )
    types: list[ChangeKind] = Field(
        default_factory=list, max_length=3, description="Only changes of these types; may be repeated for several."
    )

    @property
    def wanted(self) -> tuple[ChangeType, ...]:
        return tuple(ChangeType(one) for one in dict.fromkeys(self.types)) or SHOWN


class ChangesQuery(ChangesFileQuery):
    format: Format = None  # type: ignore[assignment]  # no default there
    limit: int = Field(default=200, ge=1, le=1000, description="The size of a page.")
    wait: int = Field(
        default=0, ge=0, le=60, description="If there is no change yet, wait up to so many seconds for one."
    )


class ChangesPage(BaseModel, json_schema_extra={"examples": [_PAGE]}):
    """A page of a dataset's changes, in the order of `seq`."""

    changes: list[ChangeView]
    next: int = Field(description="The value of `since` for the next page, also if this one is empty.")
    last_seq: int = Field(description="The number of the last change that there is.")
    pending: int = Field(description="How many numbers lie between `next` and `last_seq`.")


class DatasetItemView(BaseModel):
    """An item of a dataset, and what is known of it."""

    key_hash: str
    key: dict[str, Any]
    item: dict[str, Any]
    seq: int = Field(description="The change that made it what it is. Apply only changes with a higher `seq` to it.")
    run: str
    first_seen: Timestamp
    changed_at: Timestamp
    removed: bool

    @classmethod
    def of(cls, record: Record) -> DatasetItemView:
        same = record.model_dump(include={"key", "seq", "run", "first_seen", "changed_at", "removed"})
        return cls(**same, key_hash=record.key_hash, item=row_of(record))


class DatasetItemsFileQuery(OwnedQuery, DownloadQuery):
    format: WantedFormat = "jsonl"
    as_of: SeqText | None = Field(default=None, description="The items as they were right after this change.")
    removed: QueryBoolean = Field(default=False, description="Also removed items, in their last state.")
    q: SearchText | None = Field(default=None, description="Only items with this text in a value.")


class DatasetItemsQuery(DatasetItemsFileQuery):
    format: Format = None  # type: ignore[assignment]  # no default there
    limit: int = Field(default=100, ge=1, le=1000, description="The size of a page.")
    after: KeyHash | None = Field(default=None, description="The `next` of the previous page.")


class RecordsPage(BaseModel):
    """A page of a dataset's items."""

    items: list[DatasetItemView]
    next: str | None = Field(description="The value of `after` for the next page; null after the last.")
    seq: int = Field(
        description="Of the first page: to keep up, follow the changes after this number, and apply each only to "
        "items with a lower `seq`."
    )


class DatasetRunView(BaseModel, json_schema_extra={"examples": [_RUN]}):
    """What a run has done to a dataset."""

    job_id: str
    state: RunState
    incomplete: Open[Incomplete] | None = Field(description="Why it removes nothing; null for a complete run.")
    incomplete_message: str | None = Field(
        description="What kept it from being complete, such as the page that failed."
    )
    excused: list[str] = Field(
        description="The pages that failed and may fail (`may_fail`): the run is complete without them."
    )
    started_at: Timestamp
    ended_at: Timestamp
    counts: RunCounts
    first_seq: int | None
    last_seq: int | None
    findings: list[StoredFinding] = Field(description="Why it is held, or was before it was accepted.")
    left_out: list[str] = Field(description="The first items without a key, as JSON, cut.")
    schema_breaks: list[SchemaBreak] = Field(description="Why items are set apart: by field and rule, the first 20.")
    message: str | None
    accepted_by: str | None
    rejected_by: str | None
    exports: list[RunExport] = Field(description="The outcomes of the dataset's exports of this run.")
    page_url: str

    @classmethod
    def of(cls, run: DatasetRun) -> DatasetRunView:
        same = run.model_dump(include=set(cls.model_fields) - {"page_url"})
        return cls(**same, page_url=f"/console/jobs/{run.job_id}")


class DatasetRunsQuery(OwnedQuery):
    state: list[RunState] = Field(default_factory=list, max_length=10, description="Only runs in these states.")
    limit: int = Field(default=50, ge=1, le=200, description="The size of a page.")
    after: Cursor | None = Field(default=None, description="The `next` of the previous page.")


class AcceptQuery(OwnedQuery):
    new_normal: QueryBoolean = Field(
        default=False, description="Take this run as the new normal, and learn again from here."
    )


class DatasetMeasureView(BaseModel):
    """A measure of the last run, and what is normal."""

    measure: Open[Measure]
    field: str | None
    value: float = Field(description="Of the run.")
    normal: float
    lower: float | None = Field(description="Below it a run is held.")
    upper: float | None = Field(description="Above it a run is held.")
    within: bool


class DatasetHealth(BaseModel):
    """What is normal for a dataset, and how its last run compares."""

    stage: Stage
    runs: int = Field(description="How many runs it is learned from.")
    run: DatasetRunView | None = Field(description="The last run, published or held.")
    measures: list[DatasetMeasureView]

    @classmethod
    def of(cls, normal: Normal, run: DatasetRun | None, compared: list[Comparison]) -> DatasetHealth:
        measures = [
            DatasetMeasureView(
                measure=one.measure,
                field=one.field,
                value=one.value,
                normal=one.normal,
                lower=one.lower,
                upper=one.upper,
                within=one.bound is None,
            )
            for one in compared
        ]
        view = DatasetRunView.of(run) if run else None
        return cls(stage=normal.stage, runs=normal.runs, run=view, measures=measures)


class SchemaQuery(OwnedQuery):
    learned: QueryBoolean = Field(default=False, description="The learned one, although another one is pinned.")


class DatasetRunsPage(BaseModel):
    """A page of a dataset's runs."""

    runs: list[DatasetRunView]
    next: str | None
