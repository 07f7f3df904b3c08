"""Every index, by collection. Each hot query has one whose prefix is its equalities."""

from __future__ import annotations

from contextvars import Context

from pymongo import ASCENDING, DESCENDING, IndexModel
from pymongo.database import Database

from gateway.crash_points import state_change
from gateway.stores.mongo import Document, within

_NEWEST = [("created_at", DESCENDING), ("_id", DESCENDING)]
_AUDITED = [("at", DESCENDING), ("_id", DESCENDING)]

INDEXES: dict[str, list[IndexModel]] = {
    "jobs": [
        IndexModel([("live_key", ASCENDING)], name="live_key", unique=True, sparse=True),
        IndexModel([("idempotency_key", ASCENDING)], name="idempotency_key", unique=True, sparse=True),
        # the best job of a lane, and which lanes there are; only jobs that could be started now have one
        IndexModel(
            [("status", ASCENDING), ("lane", ASCENDING), ("rank", ASCENDING)],
            name="queue_lane_rank",
            partialFilterExpression={"status": "pending"},
        ),
        # whom somebody must look at; few of many
        IndexModel([("attend_at", ASCENDING)], name="attend_at", sparse=True),
        # how many of a user's jobs are before another
        IndexModel(
            [("status", ASCENDING), ("blocked", ASCENDING), ("user_id", ASCENDING), ("rank", ASCENDING)],
            name="waiting_user_rank",
            partialFilterExpression={"status": "pending"},
        ),
        # how many of one user wait
        IndexModel(
            [("status", ASCENDING), ("user_id", ASCENDING)],
            name="waiting_user",
            partialFilterExpression={"status": "pending"},
        ),
        # and how many wait for their time
        IndexModel(
            [("status", ASCENDING), ("user_id", ASCENDING)],
            name="scheduled_user",
            partialFilterExpression={"status": "scheduled"},
        ),
        IndexModel(
            [("waiting_reason", ASCENDING), ("_id", ASCENDING)],
            name="waiting_reason_id",
            partialFilterExpression={"waiting_reason": {"$exists": True}},
        ),
        IndexModel([("finished_at", ASCENDING)], name="finished", sparse=True),
        # who is on its way to a node
        IndexModel([("assignment.attempt", ASCENDING)], name="assigned", sparse=True),
        # the users whose webhooks are to be called, and the first of each
        IndexModel(
            [("user_id", ASCENDING), ("webhooks_due", ASCENDING)],
            name="user_webhooks_due",
            partialFilterExpression={"webhooks_due": {"$exists": True}},
        ),
        IndexModel(_NEWEST, name="newest"),
        IndexModel([("user_id", ASCENDING), *_NEWEST], name="user_newest"),
        IndexModel([("tags", ASCENDING), *_NEWEST], name="tag_newest"),
        IndexModel([("spec.spider", ASCENDING), *_NEWEST], name="spider_newest"),
        IndexModel([("status", ASCENDING), *_NEWEST], name="status_newest"),
        IndexModel([("dead", ASCENDING), *_NEWEST], name="dead_newest", partialFilterExpression={"dead": True}),
        # runs of sites, by their end
        IndexModel(
            [("finished_at", DESCENDING)],
            name="site_finished",
            partialFilterExpression={"spec.site": {"$exists": True}},
        ),
        # scheduled jobs that have become due
        IndexModel([("status", ASCENDING), ("not_before", ASCENDING)], name="status_not_before"),
        # partial, not sparse: every job has the other fields, and would be in a sparse one
        IndexModel(
            [("schedule_id", ASCENDING), *_NEWEST],
            name="schedule_newest",
            partialFilterExpression={"schedule_id": {"$exists": True}},
        ),
        # the runs of many schedules that are not over
        IndexModel(
            [("status", ASCENDING), ("schedule_id", ASCENDING)],
            name="status_schedule",
            partialFilterExpression={"schedule_id": {"$exists": True}},
        ),
        IndexModel([("held", ASCENDING)], name="held", sparse=True),
        IndexModel([("noted", ASCENDING)], name="noted", sparse=True),
        IndexModel(
            [("spec.site", ASCENDING), *_NEWEST],
            name="site_newest",
            partialFilterExpression={"spec.site": {"$exists": True}},
        ),
        # who waits for the same hold
        IndexModel(
            [("exclusive", ASCENDING), ("rank", ASCENDING)],
            name="blocked_exclusive_rank",
            partialFilterExpression={"blocked": True},
        ),
    ],
    "schedules": [
        # those that are due: only active ones have a next run
        IndexModel([("next_run", ASCENDING)], name="next_run", sparse=True),
        IndexModel([("live_key", ASCENDING)], name="live_key", unique=True, sparse=True),
        IndexModel([("idempotency_key", ASCENDING)], name="idempotency_key", unique=True, sparse=True),
        IndexModel(_NEWEST, name="newest"),
        IndexModel([("user_id", ASCENDING), *_NEWEST], name="user_newest"),
        IndexModel([("state", ASCENDING), *_NEWEST], name="state_newest"),
        # how many a user has
        IndexModel([("user_id", ASCENDING), ("state", ASCENDING)], name="user_state"),
        IndexModel([("site", ASCENDING)], name="site", sparse=True),
        IndexModel([("target", ASCENDING)], name="target", sparse=True),
    ],
    "schedule_ledger": [
        IndexModel([("schedule_id", ASCENDING), ("due", DESCENDING), ("_id", DESCENDING)], name="schedule_due"),
        IndexModel([("recorded_at", DESCENDING)], name="recorded"),
    ],
    "sites": [],
    "targets": [
        IndexModel([("site", ASCENDING), ("number", ASCENDING)], name="site_number"),
        IndexModel([("number", ASCENDING)], name="number", unique=True),
    ],
    # one document an entry of Celery's beat_schedule
    "static_entries": [],
    # one document a user and key of the last day
    "idempotency_keys": [IndexModel([("claimed_at", ASCENDING)], name="claimed")],
    # one document a kind of running number
    "counters": [],
    # `_id` is a resource, `holders` the attempts that occupy it
    "holds": [],
    "nodes": [],
    "keys": [],
    "audit": [
        IndexModel(_AUDITED, name="newest"),
        *(
            IndexModel([(name, ASCENDING), *_AUDITED], name=f"{name}_newest")
            for name in ("user_id", "key_id", "route")
        ),
    ],
    "spiders": [IndexModel([("node", ASCENDING)], name="node")],
    # one document a version
    "eggs": [],
    # keyed by prefixes of `_id`
    "egg_chunks": [IndexModel([("written_at", ASCENDING)], name="written")],
    "egg_copies": [
        IndexModel([("node", ASCENDING)], name="node"),
        IndexModel([("project", ASCENDING), ("version", ASCENDING)], name="project_version"),
        IndexModel([("outdated", ASCENDING)], name="outdated", sparse=True),
    ],
    # one document a kind
    "retention": [],
    # one document for each that cannot be read, `<collection>/<id>`
    "unreadable": [],
    # keyed by prefixes of `_id` alone
    "items": [],
    "logs": [],
}


#: Seconds that all indexes may take, of a collection with millions of documents too.
BUILD_SECONDS = 3600.0


@state_change("indexes.ensure")
def ensure_indexes(database: Database[Document]) -> None:
    """Create what is missing; what is there costs one round trip a collection. No deadline around it counts."""
    Context().run(_ensure, database)


@within(BUILD_SECONDS)
def _ensure(database: Database[Document]) -> None:
    for collection, models in INDEXES.items():
        if models:
            database[collection].create_indexes(models)
