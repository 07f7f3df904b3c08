"""Datasets: what is known of a user's items after many runs, and what each run has changed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, Self

import orjson
from pydantic import BaseModel, Field

from gateway.contract.crawl import CrawlSpec, DatasetOptions
from gateway.contract.seen_pages import SKIP_SEEN
from gateway.exports.export import ExportOrder, ExportWhat

#: How content is hashed (`content.py`). A dataset whose records have hashes of another form hashes them again.
FORM = 1
DEFAULT_CONFIRM = 1
DEFAULT_DROP_GUARD = 0.2
#: A run that removes no more records than this is never held for what it removes.
FEW_REMOVED = 3
#: The examples that are kept of a held run, and of items that are left out.
EXAMPLES = 3
#: The most scopes whose last runs a dataset remembers.
MAX_SCOPES = 1000


class Lease(BaseModel, extra="ignore"):
    """A worker folds a run of this dataset; nobody else does before the lease is over."""

    token: str
    until: datetime


class Dataset(BaseModel, populate_by_name=True, extra="ignore"):
    """One document of `datasets`."""

    id: str = Field(alias="_id")
    user_id: str
    name: str
    #: Raised with each change of an option.
    rev: int = 1
    key: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    confirm_removed: int = DEFAULT_CONFIRM
    drop_guard: float = DEFAULT_DROP_GUARD
    empty_values: tuple[str, ...] = ()
    #: The JSON Schema that each item has to fit, as text; empty if there is none.
    item_schema: str = ""
    #: What is written of each published run.
    exports: tuple[ExportOrder, ...] = ()
    #: The last published run, its plan, and the number of its last change: what has a higher number is not visible.
    head_run: str | None = None
    head_plan: str | None = None
    head_seq: int = 0
    #: All changes up to this one are in the records.
    applied_seq: int = 0
    #: The number of the last change that is no longer kept.
    floor_seq: int = 0
    #: How many items are present.
    items: int = 0
    #: How many runs were published.
    runs: int = 0
    #: When the newest published run of each scope had started. One that started before is not published after it.
    heads: dict[str, datetime] = Field(default_factory=dict)
    #: Only runs that started then or later teach what is normal; absent until somebody has said that much is new.
    learn_from: datetime | None = None
    #: When the newest complete run had ended: until then, each present item was seen.
    complete_at: datetime | None = None
    lease: Lease | None = None
    created_at: datetime
    updated_at: datetime
    #: Since when it is being deleted. Nothing else changes it any more.
    deleted_at: datetime | None = None

    @property
    def hashing(self) -> str:
        """What the content hash of a record depends on besides its item."""
        return f"{FORM}:{digest(sorted(self.ignore))}"

    @property
    def pinned_schema(self) -> dict[str, Any]:
        """Empty if there is none."""
        schema: dict[str, Any] = orjson.loads(self.item_schema or "{}")
        return schema

    @property
    def is_applied(self) -> bool:
        return self.applied_seq >= self.head_seq


#: The options of a dataset and their defaults.
OPTIONS: dict[str, Any] = {
    name: Dataset.model_fields[name].get_default(call_default_factory=True)
    for name in (*DatasetOptions.model_fields, "item_schema", "exports")
}


class ChangeType(StrEnum):
    NEW = "new"
    CHANGED = "changed"
    REMOVED = "removed"
    #: Not for readers: a record was seen, or missed, in a way that its next removal depends on.
    SEEN = "seen"
    MISSED = "missed"


#: The types that readers see.
SHOWN = (ChangeType.NEW, ChangeType.CHANGED, ChangeType.REMOVED)


class Difference(BaseModel, extra="ignore"):
    """One field of a changed item. A field that is missing is `None` there."""

    field: str
    previous: Any = None
    current: Any = None


class Record(BaseModel, populate_by_name=True, extra="ignore"):
    """The state of one item: one document of `dataset_records`, with the id `<dataset>:<key hash>`."""

    id: str = Field(alias="_id")
    key: dict[str, Any] = Field(default_factory=dict)
    #: The item, or its JSON text if BSON cannot hold it.
    item: dict[str, Any] | None = None
    raw: str | None = None
    #: Of its content, and by which `Dataset.hashing` it was made.
    hash: str
    hashed_by: str
    #: The change that made it what it is, and the job of that run.
    seq: int
    run: str
    #: The last change that was applied to it, marks included.
    applied: int
    first_seen: datetime
    changed_at: datetime
    #: The scopes in which it is there, each with the number of complete runs in a row that have missed it.
    scopes: dict[str, int] = Field(default_factory=dict)
    #: It is not present any more.
    removed: bool = False

    @property
    def key_hash(self) -> str:
        return self.id.rpartition(":")[2]


class ItemChange(BaseModel, populate_by_name=True, extra="ignore"):
    """One document of `dataset_changes`, with the id `<dataset>:<number>:<plan>`. It has all that its record will
    have, so that the record can be made from it alone, any number of times. It is visible once its plan is published.
    """

    id: str = Field(alias="_id")
    dataset: str
    seq: int
    plan: str
    run: str
    type: ChangeType
    key_hash: str
    key: dict[str, Any] = Field(default_factory=dict)
    #: The item; of a removed one the last that was known. Marks have none.
    item: dict[str, Any] | None = None
    raw: str | None = None
    hash: str = ""
    hashed_by: str = ""
    #: What is different in a changed item; `None` if it is too large to be kept here.
    differences: list[Difference] | None = None
    at: datetime
    first_seen: datetime
    scopes: dict[str, int] = Field(default_factory=dict)

    @property
    def change_id(self) -> str:
        """The same for every telling of this change."""
        return f"{self.run}:{self.key_hash}"

    def to_record(self) -> dict[str, Any]:
        """The document of the record after this change."""
        record = {
            "_id": record_id(self.dataset, self.key_hash),
            **self.model_dump(include={"key", "hash", "hashed_by", "seq", "run", "first_seen", "scopes"}),
            **self.model_dump(include={"item", "raw"}, exclude_none=True),
            "applied": self.seq,
            "changed_at": self.at,
        }
        return {**record, "removed": True} if self.type is ChangeType.REMOVED else record


class RunState(StrEnum):
    #: Its changes are being written; nobody sees them yet.
    PLANNED = "planned"
    PUBLISHED = "published"
    #: It differs from what is normal. A person decides about it, or a better run replaces it.
    HELD = "held"
    REJECTED = "rejected"
    #: It looked wrong while it was going on, so its crawl was paused. Once that has ended, it is judged as a whole.
    PAUSED = "paused"
    #: A run of the same scope that started later is published already.
    SUPERSEDED = "superseded"
    #: The crawl failed or was cancelled.
    SKIPPED = "skipped"
    #: It could not be folded, for a reason that stays; `message` says it.
    FAILED = "failed"


class Incomplete(StrEnum):
    """Why a run says nothing about items that it did not find."""

    NOT_FINISHED = "not_finished"
    OWN_LIMIT = "own_limit"
    ENDED_EARLY = "ended_early"
    ITEMS_LOST = "items_lost"
    #: It has left out pages that were seen lately.
    SEEN_SKIPPED = "seen_skipped"


class RunCounts(BaseModel, extra="ignore"):
    """What a run would change, or has changed."""

    #: Items that the run has found, each key once.
    items: int = 0
    new: int = 0
    changed: int = 0
    removed: int = 0
    same: int = 0
    #: Present items of its scope that it did not find and that are not removed yet.
    missed: int = 0
    #: Items whose key another, later item of the run has, too.
    repeated: int = 0
    #: Items that are left out because they have no value in a field of the key.
    without_key: int = 0
    #: Items that are left out because they break the dataset's schema.
    set_apart: int = 0


class StoredFinding(BaseModel, extra="ignore"):
    """Why a run is held: a code, the field, the normal value, the value of this run, and a message."""

    code: str
    field: str | None = None
    #: The type that values of the field usually have, if they have another one.
    type: str | None = None
    normal: float | None = None
    here: float | None = None
    #: Whether it holds the run. Otherwise it is only shown: too few runs are known, or the change does no harm.
    holds: bool = True
    message: str


class SchemaBreak(BaseModel, extra="ignore"):
    """How items of a run break the schema of its dataset."""

    #: Its path, without places in arrays; absent if it is about the item as a whole.
    field: str | None = None
    #: The keyword of JSON Schema, such as `type` or `required`.
    rule: str
    #: How many items do.
    items: int = 1
    #: Of the first one, and that item as JSON, cut.
    message: str
    example: str


class RunExport(BaseModel, extra="ignore"):
    """What came of an export of a run."""

    to: str
    what: ExportWhat
    format: str
    #: Rows in the file; `None` while there is no file.
    rows: int | None = None
    written_at: datetime | None = None
    #: Why it could not be written.
    problem: str | None = None


class DatasetRun(BaseModel, populate_by_name=True, extra="ignore"):
    """One document of `dataset_runs`. A job is a run of one dataset, so its id is the run's."""

    job_id: str = Field(alias="_id")
    dataset: str
    state: RunState
    #: Id of the plan of its changes. Plans with different changes have different ids, also those of one job. So what
    #: a worker has written for a plan that was given up is never taken for a part of the plan that is published.
    plan: str | None = None
    scope: str
    started_at: datetime
    ended_at: datetime
    #: Why the run removes no items; absent for a complete run.
    incomplete: Incomplete | None = None
    counts: RunCounts = RunCounts()
    #: Its changes have the numbers `first_seq` to `last_seq`; absent unless it is planned or published.
    first_seq: int | None = None
    last_seq: int | None = None
    #: Why it is held; of a published run, why it would have been held.
    findings: list[StoredFinding] = Field(default_factory=list)
    #: Somebody has accepted it: it is not held again.
    accepted_by: str | None = None
    accepted: bool = False
    rejected_by: str | None = None
    #: What `normal.py` has counted.
    figures: dict[str, Any] | None = None
    #: The first items that were left out, as JSON, cut.
    left_out: list[str] = Field(default_factory=list)
    #: Why items are set apart.
    schema_breaks: list[SchemaBreak] = Field(default_factory=list)
    message: str | None = None
    #: When its exports are to be written; absent if nothing is left to do.
    exports_due: datetime | None = None
    exports_failures: int = 0
    exports: list[RunExport] = Field(default_factory=list)
    at: datetime

    @classmethod
    def of(cls, dataset: Dataset, job_id: str, **facts: Any) -> Self:
        return cls(job_id=job_id, dataset=dataset.id, **facts)


def record_id(dataset_id: str, key_hash: str) -> str:
    return f"{dataset_id}:{key_hash}"


def change_id(dataset_id: str, seq: int, plan: str = "") -> str:
    """Without a plan: what sorts before the ids of all changes with this number."""
    return f"{dataset_id}:{seq:015d}:{plan}"


def digest(value: Any) -> str:
    """16 hexadecimal digits."""
    return hashlib.blake2b(orjson.dumps(value, option=orjson.OPT_SORT_KEYS), digest_size=8).hexdigest()


def scope_of(spec: CrawlSpec) -> str:
    """The scope of a run: a complete run has seen all items of its scope, and says nothing about other scopes."""
    looked_at: Mapping[str, Any] = {
        **spec.model_dump(include={"project", "spider", "params", "depth", "site"}, mode="json"),
        # a run that skips pages seen lately has the same scope as one that fetches all pages
        "settings": {name: value for name, value in spec.settings.items() if name != SKIP_SEEN},
        "start_urls": sorted(spec.start_urls),
    }
    return digest(looked_at)
