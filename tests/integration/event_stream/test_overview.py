from __future__ import annotations

import json
from collections.abc import Callable

from integration.event_stream.stage import Gateway, Listener, Play, lines

MakePlay = Callable[..., Play]


async def news(listener: Listener, name: str, job_id: str) -> dict[str, object]:
    """The next event of that name that is about that job."""
    count = len(listener.heard.ids(name))
    while True:
        count += 1
        event = (await listener.until(name, count)).of(name)[-1]
        if event["job_id"] == job_id:
            return event


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
