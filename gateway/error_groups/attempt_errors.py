"""The error groups of single attempts, as their spiders have reported them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple, Self, get_args

from pydantic import BaseModel, Field
from pymongo import ASCENDING
from pymongo.database import Database

from gateway.clock import from_timestamp
from gateway.contract.error_fingerprint import (
    LONGEST_EXAMPLE,
    LONGEST_MESSAGE,
    LONGEST_NAME,
    LONGEST_URL,
    MOST_GROUPS,
    GroupKind,
    readable,
)
from gateway.contract.outbox import AttemptId
from gateway.contract.records import SpiderReport
from gateway.crash_points import state_change
from gateway.stores.documents import Documents, reader
from gateway.stores.mongo import Document, Repeating, of_jobs

#: At most this many bytes of texts are stored for an attempt's groups.
MOST_BYTES = 64 << 10
#: A larger count is cut to this number.
MOST_COUNTED = 1 << 40
#: Documents deleted at a time.
_BATCH = 1000
_FINGERPRINT = re.compile(r"[0-9a-f]{32}")
_KINDS = frozenset(get_args(GroupKind))
_LONGEST = {
    "name": LONGEST_NAME,
    "place": LONGEST_NAME,
    "message": LONGEST_MESSAGE,
    "example": LONGEST_EXAMPLE,
    "url": LONGEST_URL,
}
#: The year 3000, in milliseconds: later times do not fit into every field.
_LATEST = 32503680000_000


class FoundErrors(BaseModel, extra="ignore"):
    """Errors of one group in one attempt, or in a run."""

    fingerprint: str
    kind: str
    #: The exception's class, the level, or the status.
    name: str
    #: The function, or the host.
    place: str
    #: The message without its values (`error_groups.without_values`).
    message: str
    count: int
    #: The first of the errors: its full message, its page, its time, and its place in the log.
    example: str = ""
    url: str = ""
    at: datetime | None = None
    log_start: int | None = None
    #: The attempt with the example; 0 if there was no attempt.
    attempt: int = 0

    @classmethod
    def read(cls, said: dict[str, Any]) -> Self | None:
        """Read a group that a spider's process has written; `None` if it is not a valid group."""
        texts = {name: readable(_text(said, name), longest) for name, longest in _LONGEST.items()}
        made, kind, count = _text(said, "fingerprint"), _text(said, "kind"), said.get("count")
        if kind not in _KINDS or not _FINGERPRINT.fullmatch(made) or type(count) is not int or count < 1:
            return None
        at, start = said.get("at"), said.get("log_start")
        return cls(
            fingerprint=made,
            kind=kind,
            **texts,
            count=min(count, MOST_COUNTED),
            at=from_timestamp(at / 1000) if type(at) is int and 0 < at < _LATEST else None,
            log_start=start if type(start) is int and 0 <= start < MOST_COUNTED else None,
        )

    @property
    def size(self) -> int:
        return sum(len(getattr(self, name).encode()) for name in _LONGEST)

    def with_more(self, other: FoundErrors) -> FoundErrors:
        """The group with the count of a later attempt added."""
        return self.model_copy(update={"count": min(self.count + other.count, MOST_COUNTED)})


def _text(said: dict[str, Any], name: str) -> str:
    value = said.get(name)
    return value if isinstance(value, str) else ""


class RunErrors(NamedTuple):
    groups: list[FoundErrors]
    #: How many errors are in no group, because there were too many groups.
    left_out: int = 0


class AttemptErrors(BaseModel, extra="ignore", populate_by_name=True):
    id: str = Field(alias="_id")
    groups: list[FoundErrors]
    left_out: int = 0


def errors_of(report: SpiderReport) -> RunErrors:
    """The groups in a report that may be stored, the largest first."""
    told = [one for one in map(FoundErrors.read, (report.error_groups or ())[:MOST_GROUPS]) if one is not None]
    kept: dict[str, FoundErrors] = {}
    left_out, size = max(0, min(report.errors_left_out or 0, MOST_COUNTED)), 0
    for one in told:
        size += one.size
        if one.fingerprint in kept:
            continue
        if size > MOST_BYTES:
            left_out += one.count
        else:
            kept[one.fingerprint] = one
    return RunErrors(list(kept.values()), min(left_out, MOST_COUNTED))


class AttemptErrorStore:
    """The collection `attempt_errors`, with one document for each attempt that had errors. Its id is
    `<job>:<attempt>`, so the documents of a job are adjacent in the index.
    """

    def __init__(self, database: Database[Document]) -> None:
        self._errors = database["attempt_errors"]
        self._documents = Documents(self._errors, reader(AttemptErrors))

    @state_change("attempt_errors.save")
    def save(self, attempt_id: AttemptId, found: RunErrors) -> None:
        name = f"{attempt_id.job_id}:{attempt_id.attempt:06d}"
        groups = [one.model_dump(exclude_none=True, exclude={"attempt"}) for one in found.groups]
        document = {"_id": name, "groups": groups, "left_out": found.left_out}
        self._errors.replace_one({"_id": name}, document, upsert=True)

    def of_jobs(self, job_ids: Iterable[str]) -> dict[str, RunErrors]:
        """By job: the groups of all its attempts together, the largest first, without jobs that have none. A job gets
        at most as many groups as one attempt may have.
        """
        wanted = list(job_ids)
        found: dict[str, dict[str, FoundErrors]] = {}
        left_out: dict[str, int] = {}
        with self._errors.find(of_jobs(wanted) if wanted else {"_id": None}, sort=[("_id", ASCENDING)]) as stored:
            for one in self._documents.many(stored):
                job_id, _, attempt = one.id.partition(":")
                groups = found.setdefault(job_id, {})
                left_out[job_id] = left_out.get(job_id, 0) + one.left_out
                for new in one.groups:
                    if known := groups.get(new.fingerprint):
                        groups[new.fingerprint] = known.with_more(new)
                    elif len(groups) < MOST_GROUPS:
                        groups[new.fingerprint] = new.model_copy(update={"attempt": int(attempt)})
                    else:
                        left_out[job_id] += new.count
        return {
            job_id: RunErrors(sorted(groups.values(), key=lambda one: -one.count), left_out[job_id])
            for job_id, groups in found.items()
        }

    @state_change("attempt_errors.delete")
    def delete(self, *job_ids: str) -> None:
        Repeating(self._errors).delete_of_jobs(job_ids, _BATCH)
