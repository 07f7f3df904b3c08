"""The services that add ended jobs to what is known across runs."""

from __future__ import annotations

from typing import Any

from pymongo.database import Database

from gateway.clock import Clock, utc_now
from gateway.contract.error_fingerprint import GroupKind
from gateway.contract.error_fingerprint import group as new_group
from gateway.contract.outbox import AttemptId
from gateway.error_groups.attempt_errors import AttemptErrorStore, FoundErrors, RunErrors
from gateway.error_groups.ended_runs import EndedRuns
from gateway.error_groups.store import ErrorGroupStore
from gateway.jobs.job import Job
from gateway.jobs.run_days import RunDays


def error_groups(database: Database[dict[str, Any]], clock: Clock = utc_now) -> ErrorGroupStore:
    return ErrorGroupStore(database, AttemptErrorStore(database), RunDays(database, clock), clock)


def ended_runs(database: Database[dict[str, Any]], clock: Clock = utc_now) -> EndedRuns:
    return EndedRuns(database, RunDays(database, clock), error_groups(database, clock), clock)


def found_error(text: str, count: int = 1, kind: GroupKind = "exception", **facts: Any) -> FoundErrors:
    name, place = {"status": ("503", "shop.example"), "log": ("ERROR", "shop/spider.py:parse")}.get(
        kind, ("ValueError", "shop/spider.py:parse_price")
    )
    name, place = facts.pop("name", name), facts.pop("place", place)
    made = new_group(kind, name, place, text, url="https://shop.example/sale/7")
    return FoundErrors(**{**made, "count": count, "log_start": 4711, **facts})


def add_errors(database: Database[dict[str, Any]], job: Job, *errors: FoundErrors, clock: Clock = utc_now) -> None:
    """Add the errors of a stored job that has ended, as a tailer and a worker would."""
    if errors:
        AttemptErrorStore(database).save(AttemptId(job.id, 1), RunErrors(list(errors)))
    assert not ended_runs(database, clock).add([job]).left
