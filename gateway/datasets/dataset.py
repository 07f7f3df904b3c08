"""Datasets: what is known of a user's items after many runs, and what each run has changed."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, Self

import orjson
from pydantic import BaseModel, Field

from gateway.contract.crawl import CrawlSpec, DatasetOptions
from gateway.contract.seen_pages import SKIP_SEEN
from gateway.exports.export import ExportOrder, ExportWhat

#: The version of the normal form in which content is hashed (`content.py`). Records with hashes of another version
#: are hashed again.
FORM = 1
DEFAULT_CONFIRM = 1
DEFAULT_DROP_GUARD = 0.2
#: `drop_guard` never holds a run that removes at most this many records.
FEW_REMOVED = 3
#: Examples that a run keeps of items without a key.
EXAMPLES = 3
#: At most this many scopes of a dataset are kept in `heads`.
MAX_SCOPES = 1000


class Lease(BaseModel, extra="ignore"):
    """The right of one worker to fold runs into this dataset, until the lease ends."""

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
    #: The addresses of pages whose failure does not make a run incomplete.
    may_fail: tuple[str, ...] = ()
    #: The JSON Schema that each item has to fit, as text; empty if there is none.
    item_schema: str = ""
    #: The files that are written after each published run.
    exports: tuple[ExportOrder, ...] = ()
    #: The last published run, its plan, and the number of its last change. Changes with higher numbers are not
    #: visible.
    head_run: str | None = None
    head_plan: str | None = None
    head_seq: int = 0
    #: The changes up to this number are applied to the records.
    applied_seq: int = 0
    #: The changes up to this number are deleted.
    floor_seq: int = 0
    #: How many items are present.
    items: int = 0
    #: How many runs were published.
    runs: int = 0
    #: The projects whose runs were taken up, and how many of the published runs were noted here. Releases up to 0.2.0
    #: note neither, so the numbers differ if one of them has published a run.
    projects: tuple[str, ...] = ()
    noted_runs: int = 0
    #: When the newest published run of each scope started. A run of that scope that started earlier is not published
    #: any more.
    heads: dict[str, datetime] = Field(default_factory=dict)
    #: What is normal is learned only from runs that started at this time or later; absent until a user accepts a run
    #: as the new normal.
    learn_from: datetime | None = None
    #: When the newest complete run ended. A complete run has seen every item of its scope.
    complete_at: datetime | None = None
    lease: Lease | None = None
    created_at: datetime
    updated_at: datetime
    #: When a user deleted the dataset. Afterwards its documents are only removed.
    deleted_at: datetime | None = None

    @property
    def hashing(self) -> str:
        """Identifies how content is hashed: the version of the normal form, and the ignored fields."""
        return f"{FORM}:{digest(sorted(self.ignore))}"

    @property
    def pinned_schema(self) -> dict[str, Any]:
        """Empty if there is none."""
        schema: dict[str, Any] = orjson.loads(self.item_schema or "{}")
        return schema

    def is_of(self, projects: Collection[str]) -> bool:
        """Whether all that is in it is known to be of these projects; of any if there are none."""
        if not projects:
            return True
        return bool(self.projects) and self.noted_runs == self.runs and set(self.projects) <= set(projects)

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
    #: Marks, which readers do not see: a run has seen the record again, or has missed it without removing it. They
    #: change the record's `scopes`, which decide when it is removed.
    SEEN = "seen"
    MISSED = "missed"


#: The types that readers see.
SHOWN = (ChangeType.NEW, ChangeType.CHANGED, ChangeType.REMOVED)


class Difference(BaseModel, extra="ignore"):
    """One field of a changed item. `previous` or `current` is `None` where the item does not have the field."""

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
    #: The hash of the content, and the `Dataset.hashing` with which it was made.
    hash: str
    hashed_by: str
    #: The number of the last change that readers see, and the job of its run.
    seq: int
    run: str
    #: The number of the last change that was applied to it, marks included.
    applied: int
    first_seen: datetime
    changed_at: datetime
    #: The scopes in which the item is present. The number counts the complete runs in a row that have missed it.
    scopes: dict[str, int] = Field(default_factory=dict)
    removed: bool = False

    @property
    def key_hash(self) -> str:
        return self.id.rpartition(":")[2]


class ItemChange(BaseModel, populate_by_name=True, extra="ignore"):
    """One document of `dataset_changes`, with the id `<dataset>:<number>:<plan>`. It has all fields of the record, so
    the record can be made from the change alone, any number of times. Readers see it once its plan is published.
    """

    id: str = Field(alias="_id")
    dataset: str
    seq: int
    plan: str
    run: str
    type: ChangeType
    key_hash: str
    key: dict[str, Any] = Field(default_factory=dict)
    #: The item; for a removed item, its last known content. Marks have none.
    item: dict[str, Any] | None = None
    raw: str | None = None
    hash: str = ""
    hashed_by: str = ""
    #: The differences of a changed item; `None` if they are too large to be stored.
    differences: list[Difference] | None = None
    at: datetime
    first_seen: datetime
    scopes: dict[str, int] = Field(default_factory=dict)

    @property
    def change_id(self) -> str:
        """Identifies the change for receivers: the same whenever the change is sent again."""
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
    """What has become of a run's items in a dataset."""

    #: Its changes are being written; nobody sees them yet.
    PLANNED = "planned"
    PUBLISHED = "published"
    #: The run differs from what is normal, and waits until a user accepts or rejects it, or a later run replaces it.
    HELD = "held"
    REJECTED = "rejected"
    #: The run was not normal while its crawl was running, so the crawl was paused. The whole run is judged once the
    #: crawl has ended.
    PAUSED = "paused"
    #: A run of the same scope that started later is published already.
    SUPERSEDED = "superseded"
    #: The crawl failed or was cancelled.
    SKIPPED = "skipped"
    #: The run could not be folded, and another try would not help; `message` has the reason.
    FAILED = "failed"


class Incomplete(StrEnum):
    """Why a run is incomplete: an incomplete run removes no items, because it may not have seen all of them."""

    NOT_FINISHED = "not_finished"
    OWN_LIMIT = "own_limit"
    ENDED_EARLY = "ended_early"
    ITEMS_LOST = "items_lost"
    #: The crawl skipped pages that an earlier crawl had seen recently.
    SEEN_SKIPPED = "seen_skipped"


class RunCounts(BaseModel, extra="ignore"):
    """How many items a run changes, or would change if it were published."""

    #: Items of the run. Items with the same key count once.
    items: int = 0
    new: int = 0
    changed: int = 0
    removed: int = 0
    same: int = 0
    #: Present items of the scope that the run did not find, but that are not removed yet (`confirm_removed`).
    missed: int = 0
    #: Items that a later item of the same run with the same key replaces.
    repeated: int = 0
    #: Items that are left out because a field of the key is empty.
    without_key: int = 0
    #: Items that are left out because they break the dataset's schema.
    set_apart: int = 0


class StoredFinding(BaseModel, extra="ignore"):
    """Why a run is held: a code, the field, the normal value, the value of this run, and a message."""

    code: str
    field: str | None = None
    #: The usual type of the field's values, if the finding is that they have another type.
    type: str | None = None
    normal: float | None = None
    here: float | None = None
    #: Whether the finding holds the run. Otherwise it is only shown: too few runs are known, or it is only a notice.
    holds: bool = True
    message: str


class SchemaBreak(BaseModel, extra="ignore"):
    """One way in which items of a run break the dataset's schema."""

    #: The path of the field, without positions in arrays; absent if the break is about the item as a whole.
    field: str | None = None
    #: The keyword of JSON Schema, such as `type` or `required`.
    rule: str
    #: How many items break the schema in this way.
    items: int = 1
    #: The message for the first such item, and the beginning of that item as JSON.
    message: str
    example: str


class RunExport(BaseModel, extra="ignore"):
    """The outcome of one export of a run."""

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
    #: The id of the plan of its changes. Each plan of a job has its own id, so the changes that a worker has written
    #: for an abandoned plan are never taken for changes of the published plan.
    plan: str | None = None
    scope: str
    started_at: datetime
    ended_at: datetime
    #: Why the run removes no items; absent for a complete run.
    incomplete: Incomplete | None = None
    #: What kept it from being complete, in words.
    incomplete_message: str | None = None
    #: The pages that failed, if the run is complete because they may fail.
    excused: list[str] = Field(default_factory=list)
    counts: RunCounts = RunCounts()
    #: The numbers of its first and last change; absent unless the run is planned or published.
    first_seq: int | None = None
    last_seq: int | None = None
    #: Why it is held. For a published run: what was not normal, but did not hold it.
    findings: list[StoredFinding] = Field(default_factory=list)
    #: Whether a user has accepted it, and who. An accepted run is not held again.
    accepted_by: str | None = None
    accepted: bool = False
    rejected_by: str | None = None
    #: The run's counts (`RunFigures.to_dict`), from which `judging.py` learns.
    figures: dict[str, Any] | None = None
    #: The beginnings of the first items without a key, as JSON.
    left_out: list[str] = Field(default_factory=list)
    #: Why items were set apart.
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
    """The id of a change. Without a plan: a string that sorts before the ids of all changes with this number."""
    return f"{dataset_id}:{seq:015d}:{plan}"


def digest(value: Any) -> str:
    """16 hexadecimal digits."""
    return hashlib.blake2b(orjson.dumps(value, option=orjson.OPT_SORT_KEYS), digest_size=8).hexdigest()


def scope_of(spec: CrawlSpec) -> str:
    """The scope of a run: all crawls with the same spider, parameters, settings and start URLs. A complete run has
    seen all items of its scope, so it removes items of this scope only.
    """
    looked_at: Mapping[str, Any] = {
        **spec.model_dump(include={"project", "spider", "params", "depth", "site"}, mode="json"),
        # a run that skips pages seen lately has the same scope as one that fetches all pages
        "settings": {name: value for name, value in spec.settings.items() if name != SKIP_SEEN},
        "start_urls": sorted(spec.start_urls),
    }
    return digest(looked_at)
