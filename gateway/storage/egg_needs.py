"""What waiting jobs need: the eggs that no node with room has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pymongo import ReturnDocument
from pymongo.database import Database

from gateway.crash_points import state_change
from gateway.domain.clock import Clock, utc_now
from gateway.domain.job import DEFAULT_PROJECT, Job
from gateway.domain.lane import Need
from gateway.domain.room import Egg, Room
from gateway.storage.client import Document
from gateway.storage.job_documents import FREE_TO_START, JobDocuments, change
from gateway.storage.job_queue import JobQueue


class EggNeed(NamedTuple):
    egg: Egg
    #: Its job drives a browser.
    render: bool


class EggNeeds:
    def __init__(self, database: Database[Document], clock: Clock = utc_now) -> None:
        self._jobs = database["jobs"]
        self._documents = JobDocuments(database)
        self._queue = JobQueue(database, clock)
        self._clock = clock

    def lacking(self, room: Room) -> Iterator[EggNeed]:
        """Of jobs that could be started now, if a node with room had their egg; each is looked for when it is asked
        for, by one look, however many jobs need it.
        """
        for need in self._queue.needs():
            # of our own project, and of no certain version, there is nothing to bring
            if need.project == DEFAULT_PROJECT or need.version is None or room.fits(need):
                continue
            if not need.render or room.render_eggs is not None:
                yield EggNeed(Egg(need.project, need.version), need.render)

    @state_change("egg_needs.tell")
    def tell(self, egg: Egg, message: str, limit: int) -> list[Job]:
        """Let jobs that wait for this egg say why it does not come; those that did not say so."""
        needs = (Need(egg.project, egg.version, render) for render in (False, True))
        lanes: list[Document] = [{"lane": {"$gt": f"{need}/", "$lt": need.end}} for need in needs]
        told: list[Job] = []
        for lane in lanes:
            query = {**FREE_TO_START, **lane, "message": {"$ne": message}}
            for found in list(self._jobs.find(query, {"_id": 1}, limit=limit - len(told))):
                told += self._tell({**query, "_id": found["_id"]}, message)
            if len(told) >= limit:
                break
        return told

    def _tell(self, query: Document, message: str) -> list[Job]:
        update = change(self._clock(), {"message": message})
        document = self._jobs.find_one_and_update(query, update, return_document=ReturnDocument.AFTER)
        return self._documents.many([] if document is None else [document])
