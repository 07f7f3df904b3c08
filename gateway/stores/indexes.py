"""All indexes, by collection. For each frequent query there is an index that begins with the fields that the query
tests for equality.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import Context

from pymongo import ASCENDING, DESCENDING, IndexModel
from pymongo.database import Database

from gateway.crash_points import state_change
from gateway.stores.mongo import Document, within

_NEWEST = {"created_at": DESCENDING, "_id": DESCENDING}
_SINCE = {"since": DESCENDING, "_id": DESCENDING}
_SEEN = {"last_seen_at": DESCENDING, "_id": DESCENDING}
_MOST_COUNTED = {"count": DESCENDING, "_id": DESCENDING}
_AUDITED = {"at": DESCENDING, "_id": DESCENDING}
_PENDING = {"status": "pending"}


def _index(
    name: str, *ascending: str, then: Mapping[str, int] | None = None, where: Document | None = None, **options: bool
) -> IndexModel:
    """An index by the `ascending` fields and `then` by others, of the documents that `where` matches."""
    partial = {"partialFilterExpression": where} if where else {}
    return IndexModel({**dict.fromkeys(ascending, ASCENDING), **(then or {})}, name=name, **options, **partial)


def _there(field: str) -> Document:
    """The condition that the field exists. Indexes of several fields need it in place of `sparse`: a sparse index
    contains each document that has one of its fields, and so all jobs.
    """
    return {field: {"$exists": True}}


INDEXES: dict[str, list[IndexModel]] = {
    "jobs": [
        _index("live_key", "live_key", unique=True, sparse=True),
        _index("idempotency_key", "idempotency_key", unique=True, sparse=True),
        # the first job of a partition, and all partitions; only jobs that could start now have a partition
        _index("queue_lane_rank", "status", "lane", "rank", where=_PENDING),
        # the few jobs that need attention: workers look at pending ones, beats at all others
        _index("status_attend_at", "status", "attend_at", where=_there("attend_at")),
        # how many of a user's jobs are before another in the queue, counted without reading a job. `user_id` comes
        # before `set_aside`, so that MongoDB does not choose this index for queries about all users
        _index("free_user_rank", "status", "blocked", "user_id", "set_aside", "rank", where=_PENDING),
        # how many jobs of a user wait
        _index("waiting_user", "status", "user_id", where=_PENDING),
        # how many jobs of a user wait for their start time
        _index("scheduled_user", "status", "user_id", where={"status": "scheduled"}),
        # how many jobs of a user are paused
        _index("paused_user", "status", "user_id", where={"status": "paused"}),
        # jobs of a partition whose stored waiting reason is out of date
        _index("lane_reason", "lane", "waiting_reason", where=_there("lane")),
        # the last ends and starts
        _index("ended_newest", then={"finished_at": DESCENDING, "_id": DESCENDING}, where=_there("finished_at")),
        _index("started_newest", then={"started_at": DESCENDING, "_id": DESCENDING}, where=_there("started_at")),
        # jobs on their way to a node
        _index("assigned", "assignment.attempt", sparse=True),
        # the users with jobs that have something to announce, and the first job of each
        _index("user_signals_due", "user_id", "signals_due", where=_there("signals_due")),
        # the same for jobs of older releases, which called webhooks from the jobs
        _index("user_webhooks_due", "user_id", "webhooks_due", where=_there("webhooks_due")),
        # runs that are to be folded into their datasets
        _index("dataset_due", "dataset_due", sparse=True),
        # the runs of a dataset
        _index("dataset_newest", "spec.dataset.name", then=_NEWEST, where=_there("spec.dataset")),
        _index("newest", then=_NEWEST),
        _index("user_newest", "user_id", then=_NEWEST),
        _index("tag_newest", "tags", then=_NEWEST),
        _index("spider_newest", "spec.spider", then=_NEWEST),
        _index("project_newest", "spec.project", then=_NEWEST),
        # the runs of one spider, of all users and of one user; spiders of other projects may have the same name
        _index("project_spider_newest", "spec.project", "spec.spider", then=_NEWEST),
        _index("user_project_spider_newest", "user_id", "spec.project", "spec.spider", then=_NEWEST),
        _index("status_newest", "status", then=_NEWEST),
        _index("reason_newest", "waiting_reason", then=_NEWEST, where=_there("waiting_reason")),
        _index("dead_newest", "dead", then=_NEWEST, where={"dead": True}),
        # runs of sites, by their end
        _index("site_finished", then={"finished_at": DESCENDING}, where=_there("spec.site")),
        # scheduled jobs that have become due
        _index("status_not_before", "status", "not_before"),
        # the runs of the same request
        _index("fingerprint_newest", "fingerprint", then=_NEWEST),
        _index("schedule_newest", "schedule_id", then=_NEWEST, where=_there("schedule_id")),
        # the runs of many schedules that have not ended
        _index("status_schedule", "status", "schedule_id", where=_there("schedule_id")),
        _index("held", "held", sparse=True),
        _index("noted", "noted", sparse=True),
        _index("site_newest", "spec.site", then=_NEWEST, where=_there("spec.site")),
        # jobs that wait for the same hold
        _index("blocked_exclusive_rank", "exclusive", "rank", where={"blocked": True}),
    ],
    "schedules": [
        # schedules that are due: only active ones have a next run
        _index("next_run", "next_run", sparse=True),
        _index("live_key", "live_key", unique=True, sparse=True),
        _index("idempotency_key", "idempotency_key", unique=True, sparse=True),
        _index("newest", then=_NEWEST),
        _index("user_newest", "user_id", then=_NEWEST),
        _index("state_newest", "state", then=_NEWEST),
        _index("project_newest", "crawl.spec.project", then=_NEWEST),
        _index("project_spider_newest", "crawl.spec.project", "crawl.spec.spider", then=_NEWEST),
        _index("user_project_spider_newest", "user_id", "crawl.spec.project", "crawl.spec.spider", then=_NEWEST),
        # how many schedules a user has
        _index("user_state", "user_id", "state"),
        _index("site", "site", sparse=True),
        _index("target", "target", sparse=True),
    ],
    "schedule_ledger": [
        _index("schedule_due", "schedule_id", then={"due": DESCENDING, "_id": DESCENDING}),
        _index("recorded", then={"recorded_at": DESCENDING}),
        # skipped or missed occurrences that are not announced yet
        _index("announce_due", "announce_due", sparse=True),
    ],
    "sites": [],
    "targets": [
        _index("site_number", "site", "number"),
        _index("number", "number", unique=True),
    ],
    # one document per entry of Celery's beat_schedule
    "static_entries": [],
    # one document per user and key of the last day
    "idempotency_keys": [_index("claimed", "claimed_at")],
    # one document per sequence of numbers
    "counters": [],
    # `_id` is a resource, `holders` the attempts that occupy it
    "holds": [],
    "nodes": [],
    "keys": [],
    "audit": [
        _index("newest", then=_AUDITED),
        *(_index(f"{name}_newest", name, then=_AUDITED) for name in ("user_id", "key_id", "route")),
    ],
    "saved_views": [_index("user_created", "user_id", "created_at")],
    "spiders": [_index("node", "node")],
    # one document per user, and per endpoint
    "webhook_secrets": [],
    # one document per node that was found dead
    "node_states": [],
    "endpoints": [
        _index("user_newest", "user_id", then=_NEWEST),
        _index("of_all", "of_all_users", sparse=True),
        _index("events", "events"),
    ],
    "alert_rules": [
        _index("user", "user_id"),
        _index("all_users", "of_all_users", sparse=True),
        _index("measure", "when.measure"),
    ],
    "alerts": [
        # the latest, of one user and of all users
        _index("user_since", "user_id", then=_SINCE, where=_there("since")),
        _index("since", then=_SINCE, where=_there("since")),
        # firing alerts, of one user and of all users
        _index("firing_user_since", "firing", "user_id", then=_SINCE, where={"firing": True}),
        _index("rule_user", "rule_id", "user_id"),
        _index("due_at", "due_at", sparse=True),
        _index("updated_at", "updated_at"),
    ],
    "deliveries": [
        # the users with deliveries that are due, and the first delivery of each
        _index("user_due", "user_id", "due_at", where=_there("due_at")),
        # the first deliveries to each endpoint of a user
        _index("user_endpoint_due", "user_id", "endpoint_id", "due_at", where=_there("due_at")),
        _index("endpoint_newest", "endpoint_id", then=_NEWEST, where=_there("endpoint_id")),
        _index("endpoint_state_newest", "endpoint_id", "state", then=_NEWEST, where=_there("endpoint_id")),
        _index("job_newest", "job_id", then=_NEWEST, where=_there("job_id")),
        _index("created", "created_at"),
    ],
    # one document per project that has variables or settings
    "projects": [],
    # one document per project, and one document that counts the changes of all of them
    "project_versions": [_index("untold", "untold", "_id", where={"untold": True})],
    # one document per version
    "eggs": [],
    # keyed by prefixes of `_id`
    "egg_chunks": [_index("written", "written_at")],
    "egg_copies": [
        _index("node", "node"),
        _index("project_version", "project", "version"),
        _index("outdated_node", "outdated", "node", where=_there("outdated")),
        _index("leased", "leased_until", sparse=True),
    ],
    # one document per kind
    "retention": [],
    # keyed by `_id`
    "budget_days": [_index("day", "day")],
    "run_days": [
        # for several subjects at once
        _index("kind_user_subject_day", "kind", "user_id", "subject", "day"),
        _index("day", "day"),
    ],
    # one document per attempt that has had errors, keyed by prefixes of `_id`
    "attempt_errors": [],
    "error_groups": [
        # the latest, of all users and of one
        _index("seen", then=_SEEN),
        _index("user_seen", "user_id", then=_SEEN),
        _index("spider_seen", "spider", then=_SEEN),
        _index("project_seen", "project", then=_SEEN),
        _index("spider_project_state_seen", "spider", "project", "state", then=_SEEN),
        # the groups of a user's spider, whose number is limited
        _index("spider_user_seen", "spider", "project", "user_id", then=_SEEN),
        _index("state_seen", "state", then=_SEEN),
        _index("user_state_seen", "user_id", "state", then=_SEEN),
        _index("kind_seen", "kind", then=_SEEN),
        # the most frequent
        _index("count", then=_MOST_COUNTED),
        _index("user_count", "user_id", then=_MOST_COUNTED),
        _index("project_count", "project", then=_MOST_COUNTED),
        # the first seen
        _index("first_seen", "first.at", "_id"),
        _index("user_first_seen", "user_id", "first.at", "_id"),
        _index("project_first_seen", "project", "first.at", "_id"),
    ],
    # one document for each document that cannot be read; its id is `<collection>/<id>`
    "unreadable": [],
    # keyed by prefixes of `_id` alone
    "attempts": [],
    "items": [],
    "item_fields": [],
    "datasets": [
        _index("live_name", "live_name", unique=True, sparse=True),
        _index("newest", then=_NEWEST),
        _index("user_newest", "user_id", then=_NEWEST),
        # the datasets of one name, of all users
        _index("name", "name"),
        _index("deleted", "deleted_at", sparse=True),
    ],
    # keyed by prefixes of `_id`
    "dataset_records": [],
    "dataset_changes": [
        # the changes of one item
        _index("dataset_key_seq", "dataset", "key_hash", then={"seq": DESCENDING}),
        # changes before a given time
        _index("dataset_at", "dataset", then={"at": DESCENDING, "seq": DESCENDING}),
    ],
    "dataset_runs": [
        # runs whose exports are to be written
        _index("exports_due", "exports_due", sparse=True),
        _index("dataset_newest", "dataset", then={"started_at": DESCENDING, "_id": DESCENDING}),
        _index("dataset_last_seq", "dataset", "last_seq"),
        _index("dataset_state", "dataset", "state"),
        # held runs, of all datasets
        _index("held_newest", "state", then={"started_at": DESCENDING}, where={"state": "held"}),
    ],
    "files": [],
    "logs": [],
    "progress": [],
    "requests": [],
}


#: Seconds that building all indexes may take. This is enough for collections with millions of documents.
BUILD_SECONDS = 3600.0


@state_change("indexes.ensure")
def ensure_indexes(database: Database[Document]) -> None:
    """Create missing indexes. If they exist, this takes a round trip per collection. The caller's deadline does not
    apply.
    """
    Context().run(_ensure, database)


@within(BUILD_SECONDS)
def _ensure(database: Database[Document]) -> None:
    for collection, models in INDEXES.items():
        if models:
            database[collection].create_indexes(models)
