"""The parts that add ended jobs to what is known across runs."""

from __future__ import annotations

from typing import Any

from pymongo.database import Database

from gateway.clock import Clock, utc_now
from gateway.error_groups.attempt_errors import AttemptErrorStore
from gateway.error_groups.ended_runs import EndedRuns
from gateway.error_groups.store import ErrorGroupStore
from gateway.jobs.run_days import RunDays


def error_groups(database: Database[dict[str, Any]], clock: Clock = utc_now) -> ErrorGroupStore:
    return ErrorGroupStore(database, AttemptErrorStore(database), RunDays(database, clock), clock)


def ended_runs(database: Database[dict[str, Any]], clock: Clock = utc_now) -> EndedRuns:
    return EndedRuns(database, RunDays(database, clock), error_groups(database, clock), clock)
