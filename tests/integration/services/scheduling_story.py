"""A story that reaches every write of schedules and occurrences. Its end is the same however often it is begun."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Any

from clockwork import HOUR, START, Clockwork, crawl, occurrence
from jobs import make_job

from gateway.errors import JobExistsError, ScheduleExistsError, ScheduleNotFoundError
from gateway.jobs.job import JobStatus
from gateway.schedules.schedule import LedgerKind, Overlap, Schedule
from gateway.schedules.store import StaticEntryStore
from gateway.stores.mongo import connect

EDITED, RETIMED, SKIPPING, DELETED, CANCELLED = ("a" * 32, "b" * 32, "c" * 32, "d" * 32, "e" * 32)
ONE_OFF, RUNNING = "1" * 32, "2" * 32
SECOND = timedelta(seconds=1)


def tell(url: str) -> None:
    database = connect(url)
    works = Clockwork(database)
    begin(works)
    edit_between_insert_and_advance(works)
    take_back_between_advance_and_promote(works)
    cancel_a_held_job(works)
    delete(works)
    # by then, all that an earlier process left half done is old enough to be finished
    last = max(job["updated_at"] for job in database["jobs"].find())
    works.now = max(last, START) + 2 * SECOND
    works.new_beat().tick()
    claim_a_static_entry(database)
    works.edits.run_now(EDITED)
    check(works)


def begin(works: Clockwork) -> None:
    for schedule_id in (EDITED, RETIMED, SKIPPING, DELETED, CANCELLED):
        overlap = Overlap.SKIP if schedule_id == SKIPPING else Overlap.ALLOW
        with suppress(ScheduleExistsError):
            works.schedule(id=schedule_id, overlap=overlap, site="board" if schedule_id == SKIPPING else None)
    works.schedules.overtake("nobody's")
    waiting = make_job(id=ONE_OFF, status=JobStatus.SCHEDULED, created_at=START)
    for job in (waiting, make_job(id=RUNNING, schedule_id=SKIPPING, created_at=START)):
        with suppress(JobExistsError):
            works.jobs.insert(job.model_copy(update={"live_key": job.id}))


def edit_between_insert_and_advance(works: Clockwork) -> None:
    schedule = works.schedules.get(EDITED)
    if schedule.rev == 1 and schedule.next_at == START:
        works.occurrences.insert(works.beat.decide([schedule])[0])
    works.edits.edit(EDITED, {"crawl": crawl(2)})
    works.edits.touch(site="board")


def take_back_between_advance_and_promote(works: Clockwork) -> None:
    schedule = works.schedules.get(RETIMED)
    if schedule.rev == 1:
        works.occurrences.insert(works.beat.decide([schedule])[0])
        counted = {"next_at": START + HOUR, "next_run": START + HOUR, "runs": 1, "last_job_id": occurrence(schedule)}
        works.database["schedules"].update_one({"_id": RETIMED, "rev": 1}, {"$set": counted})
        works.edits.edit(RETIMED, {"timing": schedule.timing.model_copy(update={"interval": "every 2h"})})


def cancel_a_held_job(works: Clockwork) -> None:
    schedule = works.schedules.get(CANCELLED)
    if schedule.next_at == START:
        works.occurrences.insert(works.beat.decide([schedule])[0])
        cancelled = {"$set": {"status": JobStatus.CANCELLED}}
        works.database["jobs"].update_one({"_id": occurrence(schedule), "held": {"$exists": True}}, cancelled)


def delete(works: Clockwork) -> None:
    with suppress(ScheduleNotFoundError):
        works.edits.delete(DELETED)


def claim_a_static_entry(database: Any) -> None:
    entries = StaticEntryStore(database)
    entries.claim("hourly", entries.last_sent().get("hourly"), START)


def check(works: Clockwork) -> None:
    def book(schedule_id: str) -> tuple[list[Any], int, int]:
        schedule: Schedule = works.schedules.get(schedule_id)
        kinds = [(kind, at) for kind, at, _ in works.book(schedule)]
        return kinds, schedule.runs, len([job for job in works.runs(schedule) if job.slot])

    assert book(EDITED) == ([(LedgerKind.FIRED, START)], 1, 1)
    assert works.jobs.get(occurrence(works.schedules.get(EDITED))).spec.start_urls == ("http://site.example/2",)
    assert book(RETIMED) == ([], 0, 0)
    assert book(SKIPPING) == ([(LedgerKind.SKIPPED, START)], 0, 0)
    assert book(CANCELLED)[1:] == (1, 1)
    assert works.jobs.get(ONE_OFF).status is JobStatus.PENDING
    for left in ({"held": {"$exists": True}}, {"noted": False}, {"schedule_id": DELETED}):
        assert works.database["jobs"].count_documents(left) == 0, left
