"""Deliveries: one document for each event and receiver, with the outcome of each try.

The documents are also the queue: `due_at` is the time of the next call. A worker leases a call by setting `due_at` to
the end of the lease. The field is absent once no call is left.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple
from urllib.parse import urlsplit

from pydantic import BaseModel, Field
from pymongo import ASCENDING
from pymongo.database import Database
from pymongo.errors import BulkWriteError

from gateway.clock import Clock, utc_now
from gateway.crash_points import state_change
from gateway.stores.documents import NO_TIME, Documents, page, reader, text
from gateway.stores.mongo import DUPLICATE_KEY, Document, Repeating, refusals

#: A delivery keeps at most this many tries, the newest ones.
MOST_TRIES = 20
#: At most this many deliveries are counted as waiting.
MAX_COUNTED = 1000
#: One write makes at most this many deliveries due again, so that it does not exceed the time limit of a write.
AGAIN_AT_ONCE = 500
_NAMESPACE = uuid.UUID("3b8f4a2e-5d0c-4a6e-9d3b-7c1f0e2a9b64")


class DeliveryState(StrEnum):
    """What has become of a call."""

    #: A call is still to be made, the first or a repeated one.
    PENDING = "pending"
    DELIVERED = "delivered"
    #: All tries have failed.
    FAILED = "failed"
    #: The receiver asked for no further call (410).
    REFUSED = "refused"
    #: The endpoint was paused or disabled, so no call was made.
    SKIPPED = "skipped"


#: The states of deliveries that the receiver did not get, and that are not sent again automatically.
MISSING = (DeliveryState.FAILED, DeliveryState.REFUSED, DeliveryState.SKIPPED)


class DeliveryTry(BaseModel, extra="forbid"):
    at: datetime
    seconds: float
    #: The status of the answer, if there was an answer.
    status: int | None = None
    #: Why the call failed.
    problem: str | None = None
    #: The beginning of the answer's body.
    answer: str | None = None


class Delivery(BaseModel, extra="forbid", populate_by_name=True):
    id: str = Field(alias="_id")
    #: The receiver's user: the calls count towards this user's share.
    user_id: str
    #: The `webhook-id` of each of its calls.
    message_id: str
    #: The event's type.
    type: str
    body: str
    url: str
    #: The endpoint that receives it; absent for a webhook that was named with the crawl.
    endpoint_id: str | None = None
    #: The job that the event is about.
    job_id: str | None = None
    traceparent: str | None = None
    created_at: datetime
    state: DeliveryState = DeliveryState.PENDING
    due_at: datetime | None = None
    #: The number of calls since it was made, or since a user last asked to send it again.
    tries: int = 0
    calls: list[DeliveryTry] = Field(default_factory=list)

    @classmethod
    def new(cls, message_id: str, receiver: str, now: datetime, **fields: object) -> Delivery:
        """`receiver` is an endpoint's id or a URL. Each receiver gets one delivery of a message, with a fixed id."""
        return cls(
            id=uuid.uuid5(_NAMESPACE, f"{message_id} {receiver}").hex,
            message_id=message_id,
            created_at=now,
            due_at=now,
            **fields,
        )


class DueCall(NamedTuple):
    id: str
    host: str


class CallsToCome(NamedTuple):
    #: Deliveries that are due and that no worker has claimed.
    waiting: int
    #: When the longest-waiting of these became due.
    since: datetime | None
    #: Deliveries whose calls have all failed so far, and are retried.
    failing: int


def host_of(url: str) -> str:
    """The URL's host; empty if the URL cannot be parsed, which makes its call fail."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


class DeliveryStore:
    """The `deliveries` collection."""

    def __init__(self, database: Database[Document], clock: Clock = utc_now) -> None:
        self._deliveries = database["deliveries"]
        self._documents = Documents(self._deliveries, reader(Delivery))
        self._due = Documents(self._deliveries, _due_call)
        self._clock = clock

    @state_change("deliveries.add")
    def add(self, made: Sequence[Delivery]) -> None:
        """Insert deliveries. Those that exist already stay as they are."""
        documents = [one.model_dump(by_alias=True, exclude_none=True) for one in made]
        try:
            if documents:
                Repeating(self._deliveries).insert_many(documents)
        except BulkWriteError as error:
            refusals(error, {DUPLICATE_KEY})

    # --- the queue

    def next_user(self, after: str) -> str | None:
        """The next user, in the order of ids, who has a call that is due."""
        query = {"user_id": {"$gt": after}, "due_at": {"$lte": self._clock()}}
        found = self._deliveries.find_one(query, {"user_id": 1}, sort=[("user_id", ASCENDING), ("due_at", ASCENDING)])
        return found["user_id"] if found else None

    def due(self, user_id: str, limit: int) -> list[DueCall]:
        """The user's calls that are due, the longest due first."""
        return self._first_due({"user_id": user_id}, limit)

    def due_of(self, user_id: str, endpoint_id: str | None, limit: int) -> list[DueCall]:
        """Like `due`, but only calls of one endpoint; `None`: calls of webhooks that requests for crawls named."""
        return self._first_due({"user_id": user_id, "endpoint_id": endpoint_id}, limit)

    def waiting_for(self, user_id: str, endpoint_id: str | None, most: int) -> int:
        """How many calls to one endpoint of the user are still to be made; counted up to `most`."""
        query = {"user_id": user_id, "endpoint_id": endpoint_id, "due_at": {"$gt": NO_TIME}}
        return self._deliveries.count_documents(query, limit=most)

    def _first_due(self, whose: Document, limit: int) -> list[DueCall]:
        return self._due.find(
            {**whose, "due_at": {"$lte": self._clock()}}, limit, [("due_at", ASCENDING)], {"url": 1}
        )

    @state_change("deliveries.claim")
    def claim(self, delivery_id: str, until: datetime) -> Delivery | None:
        """Claim the call until `until`. `None` if it is not due any more, because another worker has it."""
        query = {"_id": delivery_id, "due_at": {"$lte": self._clock()}}
        found = self._deliveries.find_one_and_update(query, {"$set": {"due_at": until}}, return_document=True)
        return self._documents.optional(found)

    @state_change("deliveries.note")
    def note(
        self, claimed: Delivery, state: DeliveryState, due_at: datetime | None = None, call: DeliveryTry | None = None
    ) -> None:
        """Store the call that was made, if any, and the new state. If another worker has claimed the delivery since,
        only the call is stored, unless it was successful: a successful call is always the last one.
        """
        update: Document = {"$set": {"state": state}, "$unset": {"due_at": ""}}
        if due_at is not None:
            update = {"$set": {"state": state, "due_at": due_at}}
        if call is not None:
            update["$inc"] = {"tries": 1}
            update["$push"] = {"calls": {"$each": [call.model_dump(exclude_none=True)], "$slice": -MOST_TRIES}}
        mine = {} if state is DeliveryState.DELIVERED else {"due_at": claimed.due_at}
        self._deliveries.update_one({"_id": claimed.id, **mine}, update)

    @state_change("deliveries.call_again")
    def call_again(self, query: Document, limit: int) -> int:
        """Send up to `limit` of these deliveries once more, if they have no further call. Returns how many."""
        wanted = {**query, "due_at": {"$exists": False}}
        found = [one["_id"] for one in self._deliveries.find(wanted, {"_id": 1}, limit=limit)]
        again = {"state": DeliveryState.PENDING, "due_at": self._clock(), "tries": 0}
        for place in range(0, len(found), AGAIN_AT_ONCE):
            some = {"_id": {"$in": found[place : place + AGAIN_AT_ONCE]}, "due_at": {"$exists": False}}
            Repeating(self._deliveries).update_many(some, {"$set": again})
        return len(found)

    # --- what came of them

    def get(self, delivery_id: str) -> Delivery | None:
        return self._documents.find_one({"_id": delivery_id})

    def page(
        self, conditions: Sequence[Document], limit: int, after: str | None
    ) -> tuple[list[Delivery], str | None]:
        """A page, as `documents.page` returns it."""
        return page(self._documents, conditions, limit, after)

    def to_come(self, moment: datetime) -> CallsToCome:
        """Count the calls that are still to be made. A call counts as waiting if it was due at `moment`. At most
        `MAX_COUNTED` deliveries are counted.
        """
        # the index begins with the user; `$exists` is not used, because an index cannot skip documents by it
        query = {"user_id": {"$gte": ""}, "due_at": {"$gt": NO_TIME}}
        found = list(self._deliveries.find(query, {"due_at": 1, "tries": 1}, limit=MAX_COUNTED))
        waiting = [one["due_at"] for one in found if one["due_at"] <= moment]
        return CallsToCome(len(waiting), min(waiting, default=None), sum(bool(one["tries"]) for one in found))

    # --- their end

    @state_change("deliveries.forget")
    def forget(self, before: datetime, limit: int) -> int:
        """Remove up to `limit` deliveries that were made before `before`; returns how many were removed."""
        return self._remove({"created_at": {"$lt": before}}, limit)

    @state_change("deliveries.supersede")
    def supersede(self, newer: Delivery) -> None:
        """Remove the earlier deliveries of the same type, job and endpoint that have no further call: the newer one
        replaces them.
        """
        same = {"job_id": newer.job_id, "endpoint_id": newer.endpoint_id, "type": newer.type}
        over = {"created_at": {"$lt": newer.created_at}, "due_at": {"$exists": False}}
        Repeating(self._deliveries).delete_many({**same, **over})

    @state_change("deliveries.delete_of")
    def delete_of(self, *, job_ids: Collection[str] = (), endpoint_ids: Collection[str] = (), limit: int) -> int:
        """Remove up to `limit` deliveries about these jobs, and as many for these endpoints; returns how many."""
        return self._remove({"job_id": {"$in": list(job_ids)}}, limit) + self._remove(
            {"endpoint_id": {"$in": list(endpoint_ids)}}, limit
        )

    def _remove(self, query: Document, limit: int) -> int:
        found = [one["_id"] for one in self._deliveries.find(query, {"_id": 1}, limit=limit)]
        return Repeating(self._deliveries).delete_many({"_id": {"$in": found}}).deleted_count if found else 0


def _due_call(document: Document) -> DueCall:
    return DueCall(text(document["_id"]), host_of(text(document["url"])))
