"""Leases: what may be done by one job at a time, and which job does it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from pymongo import ASCENDING
from pymongo.database import Database
from pymongo.errors import DuplicateKeyError

from gateway.crash_points import state_change
from gateway.storage.client import Document


class Lease(NamedTuple):
    """`exclusive` of the jobs that want it, who has it, and when it was taken last, as a name for that moment."""

    key: str
    job_id: str
    token: str


class LeaseStore:
    """The `leases` collection. Why no two jobs ever have the same one: `docs/decisions/0011-leases.md`."""

    def __init__(self, database: Database[Document]) -> None:
        self._leases = database["leases"]

    @state_change("leases.take")
    def take(self, key: str, job_id: str, token: str) -> bool:
        """Whether the job has the lease now. It may have had it before; then it has it under the new token."""
        try:
            # where another job has it, this inserts a second document of that name, and fails
            self._leases.update_one({"_id": key, "job_id": job_id}, {"$set": {"token": token}}, upsert=True)
        except DuplicateKeyError:
            return False
        return True

    @state_change("leases.free")
    def free(self, key: str, job_id: str) -> None:
        """For a job that has ended: it never takes one again."""
        self._leases.delete_one({"_id": key, "job_id": job_id})

    @state_change("leases.give_back")
    def give_back(self, lease: Lease) -> None:
        """For a job that goes on, unless it was taken for it again since."""
        self._leases.delete_one({"_id": lease.key, "job_id": lease.job_id, "token": lease.token})

    def holder(self, key: str) -> str | None:
        """The job that has it."""
        lease = self._leases.find_one({"_id": key})
        return None if lease is None else lease["job_id"]

    def held(self, keys: Iterable[str]) -> set[str]:
        """Those that somebody has."""
        return {lease["_id"] for lease in self._leases.find({"_id": {"$in": list(keys)}}, {"_id": 1})}

    def page(self, limit: int, after: str = "") -> list[Lease]:
        """In order of their keys, from above `after` on."""
        found = self._leases.find({"_id": {"$gt": after}}, sort=[("_id", ASCENDING)], limit=limit)
        return [Lease(lease["_id"], lease["job_id"], lease["token"]) for lease in found]
