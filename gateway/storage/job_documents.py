"""Jobs as their documents: read, changed, and told apart by what there is room for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from gateway.domain.job import DEFAULT_PROJECT, Job, JobStatus
from gateway.domain.room import Egg, Room
from gateway.storage.client import Document

#: Waits for nothing but a slot. Equalities, so that an index leads past all those that wait for a lease.
FREE_TO_START: Document = {"status": JobStatus.PENDING, "blocked": None}


def read_job(document: Document) -> Job:
    document.pop("node", None)
    return Job.model_validate(document)


def read_optional(document: Document | None) -> Job | None:
    return None if document is None else read_job(document)


def change(now: datetime, changes: Document, *, unset: Sequence[str] = (), increment: str | None = None) -> Document:
    """The update that makes these changes, and tells when."""
    update: dict[str, Any] = {"$set": {**changes, "updated_at": now}}
    if unset:
        update["$unset"] = dict.fromkeys(unset, "")
    if increment:
        update["$inc"] = {increment: 1}
    return update


def fits(room: Room) -> Document:
    """The condition that a job must fulfil to find its place in `room`."""
    plain = _code(room.eggs)
    if room.render_eggs is None:
        # an equality, so that an index leads past all the others
        return {"render": None, **plain}
    if room.render_eggs == room.eggs:
        return plain
    return {"$or": [{"render": None, **plain}, {"render": True, **_code(room.render_eggs)}]}


def _code(eggs: Iterable[Egg]) -> Document:
    versions: defaultdict[str, list[str | None]] = defaultdict(lambda: [None])
    for egg in sorted(eggs):
        versions[egg.project].append(egg.version)
    if not versions:
        return {"spec.project": DEFAULT_PROJECT}
    deployed = ({"spec.project": name, "spec.version": {"$in": known}} for name, known in versions.items())
    return {"$or": [{"spec.project": DEFAULT_PROJECT}, *deployed]}
