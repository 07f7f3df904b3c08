from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import orjson
import pytest
import redis
from integration.event_stream.fixtures import LIMITS
from integration.event_stream.stage import Gateway, Listener, Play, lines
from pymongo.database import Database
from stores import StoreProcess

from gateway.jobs.messages import status_data
from gateway.jobs.queries import JobFilter, JobQueries, JobsPage
from gateway.jobs.store import JobStore
from gateway.logs.store import LogStore
from gateway.schedules.store import ScheduleStore
from gateway.stores.mongo import Document
from gateway.stores.redis import ALL_EVENTS
from gateway.web.call_queue import Threads
from gateway.web.event_stream.streams import EventStreams
from gateway.web.lasting import LastingAnswers

MakePlay = Callable[..., Play]


@pytest.fixture
def database(shared_database: Database[Document]) -> Iterator[Database[Document]]:
    """Of this test alone: mongomock does not follow a list's projection."""
    database = shared_database.client[f"overview_{uuid.uuid4().hex}"]
    yield database
    database.client.drop_database(database.name)


async def news(listener: Listener, name: str, job_id: str) -> dict[str, object]:
    """The next event of that name that is about that job."""
    count = len(listener.heard.ids(name))
    while True:
        count += 1
        event = (await listener.until(name, count)).of(name)[-1]
        if event["job_id"] == job_id:
            return event


async def test_progress_of_between_a_look_at_the_job_and_its_subscription_is_told(
    database: Database[Document], valkey: StoreProcess, play: MakePlay
) -> None:
    job = play()
    job.start()
    before, changed = job.job, asyncio.Event()
    job.change({"progress": {"completed_pages": 7}}, announce=False)
    stores = JobStore(database), LogStore(database), JobQueries(database), ScheduleStore(database)
    streams = EventStreams(valkey, *stores, Threads(4, lambda: None), LastingAnswers(5000, 5000), limits=LIMITS)
    await streams.start()
    try:
        with streams._hub.watch(before, changed) as feed:
            async with asyncio.timeout(30):
                while feed.progress is None:
                    await changed.wait()
                    changed.clear()
            assert feed.progress["completed_pages"] == 7
    finally:
        await streams.stop()


async def test_many_jobs_are_followed_from_a_snapshot_on(streams: Gateway, play: MakePlay) -> None:
    one, two, other = play(user_id="ada"), play(user_id="ada"), play(user_id="bob")
    one.start()
    async with streams.stream("/events", user_id="ada") as listener:
        snapshot = (await listener.until("snapshot")).of("snapshot")[0]
        assert {job["job_id"] for job in snapshot["jobs"]} == {one.id, two.id}
        other.start()
        two.start()
        assert (await news(listener, "status", two.id))["status"] == "running"
        # both are subscribed to by one command; of progress nothing is in MongoDB here
        one.progress(completed_pages=5)
        assert (await news(listener, "progress", one.id))["completed_pages"] == 5
        one.write(lines(1, 3))
        one.finish()
        assert (await news(listener, "status", one.id))["status"] == "finished"
        new = play(user_id="ada")
        new.start()
        assert (await news(listener, "status", new.id))["user_id"] == "ada"
        new.finish()
        while (await news(listener, "status", new.id))["status"] != "finished":
            pass
        assert other.id not in json.dumps([event.data for event in listener.heard.events])


async def test_the_jobs_may_be_named(streams: Gateway, play: MakePlay) -> None:
    one, two, other = play(), play(), play()
    async with streams.stream("/events", job_id=[one.id, two.id]) as listener:
        await listener.until("snapshot")
        other.start()
        two.start()
        assert (await news(listener, "status", two.id))["status"] == "running"
        assert [event["job_id"] for event in listener.heard.of("status")] == [two.id]


async def test_a_named_job_must_exist_and_not_be_one_of_too_many(streams: Gateway) -> None:
    answer = await streams.http.get("/events", params={"job_id": "0" * 32})
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "job_not_found")
    answer = await streams.http.get("/events", params={"job_id": [f"{number:032x}" for number in range(101)]})
    assert (answer.status_code, answer.json()["error"]["detail"]["field"]) == (422, "job_id")


@pytest.mark.parametrize("user", ["ada", None])
async def test_a_burst_of_one_user_hides_no_new_job_of_another(
    streams: Gateway, play: MakePlay, redis_client: redis.Redis, user: str | None
) -> None:
    async with streams.stream("/events", **({"user_id": user} if user else {})) as listener:
        await listener.until("snapshot")
        new = play(user_id="ada")
        with redis_client.pipeline(transaction=False) as pipeline:
            for who, job_id in [("ada", new.id), *(("bob", f"{number:032x}") for number in range(3000))]:
                message = {"kind": "status", "job_id": job_id, "user_id": who, "data": status_data(new.job)}
                pipeline.publish(ALL_EVENTS, orjson.dumps(message))
            pipeline.execute()
        async with asyncio.timeout(30):
            assert (await news(listener, "status", new.id))["status"] == "pending"


@pytest.mark.parametrize("user", ["ada", None])
async def test_a_job_whose_message_was_lost_is_told_when_messages_arrive_again(
    streams: Gateway, play: MakePlay, redis_client: redis.Redis, user: str | None
) -> None:
    async with streams.stream("/events", **({"user_id": user} if user else {})) as listener:
        await listener.until("snapshot")
        new, other = play(user_id="ada"), play(user_id="bob")
        redis_client.client_kill_filter(_type="pubsub")
        assert (await news(listener, "status", new.id))["status"] == "pending"
        new.start()
        while (await news(listener, "status", new.id))["status"] != "running":
            pass
        told = {event["job_id"] for event in listener.heard.of("status")}
        assert told == ({new.id} if user else {new.id, other.id})


async def test_a_job_that_is_made_while_the_snapshot_is_read_is_told(
    database: Database[Document], valkey: StoreProcess, play: MakePlay
) -> None:
    made: list[Play] = []

    class Queries(JobQueries):
        def page(self, *asked: Any, **options: Any) -> JobsPage:
            found = super().page(*asked, **options)
            made.append(play(user_id="ada"))
            made[0].start()
            return found

    stores = JobStore(database), LogStore(database), Queries(database), ScheduleStore(database)
    streams = EventStreams(valkey, *stores, Threads(4, lambda: None), LastingAnswers(5000, 5000), limits=LIMITS)
    await streams.start()
    try:
        changed = asyncio.Event()
        async with asyncio.timeout(30):
            with streams._hub.watch(play(user_id="bob").job, changed) as feed:
                # whose messages arrive, those of all jobs arrive, too
                while not feed.live:
                    await changed.wait()
                    changed.clear()
            chunks = (await streams.overview([], JobFilter(user_id="ada"))).body_iterator  # type: ignore[attr-defined]
            snapshot = await anext(chunks)
            told = await anext(chunks)
        assert made[0].id.encode() not in snapshot
        assert made[0].id.encode() in told
        await chunks.aclose()
    finally:
        await streams.stop()
