"""What waiting jobs need: the eggs that no node with room has."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from pymongo import ReturnDocument
from pymongo.database import Database

from gateway.crash_points import state_change
from gateway.domain.clock import Clock, utc_now
from gateway.domain.job import Job
from gateway.domain.room import Egg, Room
from gateway.storage.client import Document
from gateway.storage.job_documents import FREE_TO_START, change, read_optional


class EggNeed(NamedTuple):
    egg: Egg
    #: Its job drives a browser.
    render: bool


class EggNeeds:
    def __init__(self, database: Database[Document], clock: Clock = utc_now) -> None:
        self._jobs = database["jobs"]
        self._clock = clock

    def lacking(self, now: datetime, room: Room, limit: int) -> list[EggNeed]:
        """Of jobs that could be started now, if a node with room had their egg."""
        found: list[EggNeed] = []
        for render, eggs in ((None, room.eggs), (True, room.render_eggs)):
            if eggs is not None:
                found += self._lacking(now, render, set(eggs), limit - len(found))
        return found

    def _lacking(self, now: datetime, render: bool | None, there: set[Egg], limit: int) -> list[EggNeed]:  # noqa: FBT001 - as it stands in the job
        found: list[EggNeed] = []
        # each look passes over what is there and what was found before
        while len(found) < limit:
            others = [{"spec.project": egg.project, "spec.version": egg.version} for egg in sorted(there)]
            query = {**FREE_TO_START, "not_before": {"$lte": now}, "render": render, "spec.version": {"$gt": ""}}
            if others:
                query["$nor"] = others
            document = self._jobs.find_one(query, {"spec.project": 1, "spec.version": 1})
            if document is None:
                break
            egg = Egg(document["spec"]["project"], document["spec"]["version"])
            found.append(EggNeed(egg, render=bool(render)))
            there.add(egg)
        return found

    @state_change("egg_needs.tell")
    def tell(self, egg: Egg, message: str, limit: int) -> list[Job]:
        """Let jobs that wait for this egg say why it does not come; those that did not say so."""
        told: list[Job] = []
        query: Document = {
            **FREE_TO_START,
            "spec.project": egg.project,
            "spec.version": egg.version,
            "placement": None,
            "message": {"$ne": message},
        }
        update = change(self._clock(), {"message": message})
        while len(told) < limit:
            document = self._jobs.find_one_and_update(query, update, return_document=ReturnDocument.AFTER)
            if (job := read_optional(document)) is None:
                break
            told.append(job)
        return told
