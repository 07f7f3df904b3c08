"""Signs of life of the processes that serve nobody directly: beats and workers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from pymongo import ASCENDING
from pymongo.database import Database

from gateway.crash_points import state_change
from gateway.domain.clock import Clock, seconds_ahead, utc_now
from gateway.domain.unanswered import Unanswered
from gateway.storage.client import Document
from gateway.storage.documents import Documents, moment

#: Every beat's name begins so,
BEAT = "beat"
#: and every worker's.
WORKER = "worker"
#: Both give a sign of life every few seconds; who was silent for so long is gone.
DEAD_AFTER = timedelta(seconds=15)


class Heartbeat(NamedTuple):
    name: str
    at: datetime
    #: Seconds that its machine's clock was ahead of MongoDB's.
    clock_ahead: float = 0.0
    #: By that moment.
    unanswered: Sequence[Unanswered] = ()


class HeartbeatStore:
    def __init__(self, database: Database[Document], clock: Clock = utc_now) -> None:
        self._heartbeats = database["heartbeats"]
        self._documents = Documents(self._heartbeats, read_heartbeat)
        self._clock = clock

    @state_change("heartbeats.beat")
    def beat(self, name: str, unanswered: Sequence[Unanswered] = ()) -> None:
        """`name` is alive now. One document a name: several beats choose names that differ after the prefix."""
        now = self._clock()
        said = {"at": now, "clock_ahead": seconds_ahead(now), "unanswered": [list(one) for one in unanswered]}
        self._heartbeats.update_one({"_id": name}, {"$set": said}, upsert=True)

    @state_change("heartbeats.forget")
    def forget(self, before: datetime) -> None:
        """Whoever has given no sign of life since then."""
        self._heartbeats.delete_many({"at": {"$lt": before}})

    def all(self, name_prefix: str) -> list[Heartbeat]:
        """The last one of everyone whose name begins so, by name."""
        # U+FFFF sorts after every character that a name can hold
        found = self._heartbeats.find({"_id": {"$gte": name_prefix, "$lt": f"{name_prefix}\uffff"}})
        return self._documents.many(found.sort("_id", ASCENDING))


def read_heartbeat(document: Document) -> Heartbeat:
    # those of older versions said no more than when
    unanswered = [Unanswered(*one) for one in document.get("unanswered", ())]
    return Heartbeat(document["_id"], moment(document["at"]), document.get("clock_ahead", 0.0), unanswered)
