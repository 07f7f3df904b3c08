"""Slots of users: which attempts run for each, where there is a limit to how many may."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pymongo import ASCENDING
from pymongo.database import Database
from pymongo.errors import DuplicateKeyError

from gateway.crash_points import state_change
from gateway.storage.client import Document


class UserSlots(NamedTuple):
    """Attempts, `<job>-<attempt>`, and by which claim one was taken last, as a name for that moment."""

    user_id: str
    attempts: Sequence[str]
    token: str


class UserSlotStore:
    """The `user_slots` collection. Why no more than the limit ever run: `docs/decisions/0012-who-goes-next.md`."""

    def __init__(self, database: Database[Document]) -> None:
        self._slots = database["user_slots"]

    @state_change("user_slots.take")
    def take(self, user_id: str, attempt: str, token: str, most: int) -> bool:
        """Hold one for the attempt; whether it has one now. It is one update. `most` is above 0."""
        room: Document = {"$or": [{"slots": attempt}, {f"slots.{most - 1}": {"$exists": False}}]}
        taken = {"$addToSet": {"slots": attempt}, "$set": {"token": token}}
        if self._slots.update_one({"_id": user_id, **room}, taken).matched_count:
            return True
        try:
            self._slots.insert_one({"_id": user_id, "slots": [attempt], "token": token})
        except DuplicateKeyError:
            # the user has all it may have, unless somebody was quicker to its first one
            return bool(self._slots.update_one({"_id": user_id, **room}, taken).matched_count)
        return True

    @state_change("user_slots.hold")
    def hold(self, user_id: str, attempt: str, token: str) -> None:
        """For an attempt that may run already, so that it needs no room: over the limit by it, at worst."""
        held = {"$addToSet": {"slots": attempt}, "$set": {"token": token}}
        self._slots.update_one({"_id": user_id}, held, upsert=True)

    @state_change("user_slots.free")
    def free(self, user_id: str, attempt: str) -> None:
        """For an attempt that is over: its number does not come again."""
        self._slots.update_one({"_id": user_id}, {"$pull": {"slots": attempt}})

    @state_change("user_slots.give_back")
    def give_back(self, slots: UserSlots) -> None:
        """These of the user's, unless one was taken since."""
        gone = {"$pull": {"slots": {"$in": list(slots.attempts)}}}
        self._slots.update_one({"_id": slots.user_id, "token": slots.token}, gone)

    @state_change("user_slots.forget")
    def forget(self, slots: UserSlots) -> None:
        """A user that has none, and has taken none since."""
        self._slots.delete_one({"_id": slots.user_id, "token": slots.token, "slots": []})

    def full(self, most: int) -> set[str]:
        """Users that have `most` or more."""
        return {found["_id"] for found in self._slots.find({f"slots.{most - 1}": {"$exists": True}}, {"_id": 1})}

    def page(self, limit: int, after: str = "") -> list[UserSlots]:
        """In order of the users, from above `after` on."""
        found = self._slots.find({"_id": {"$gt": after}}, sort=[("_id", ASCENDING)], limit=limit)
        return [UserSlots(one["_id"], one["slots"], one["token"]) for one in found]
