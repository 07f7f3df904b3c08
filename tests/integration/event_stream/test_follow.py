from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import httpx2
import pytest
import redis
from integration.event_stream.stage import Gateway, Play, gateway, line, lines
from pymongo.database import Database
from stack import wait_until
from stores import StoreProcess

from gateway.jobs.job import JobStatus, WaitingReason
from gateway.stores.mongo import Document
from gateway.stores.redis import job_channel
from gateway.web.event_stream.log_lines import StreamLimits

MakePlay = Callable[..., Play]


async def test_history_comes_first_then_what_is_live_without_gap_or_repeat(streams: Gateway, play: MakePlay) -> None:
    job = play()
    job.start()
    job.write(lines(1, 300))
    async with streams.listen(job.id) as listener:
        await listener.until("log", 300)
        for first in range(301, 1300, 100):
            job.write(lines(first, first + 99))
            await asyncio.sleep(0)
        job.finish()
        heard = await listener.to_the_end()
    assert heard.ids() == job.event_ids()
    assert heard.of("end")[0]["status"] == "finished"
    assert heard.of("log")[0] == {"ts": "2027-06-01T09:00:00.001Z", "level": "INFO", "logger": "seo", "msg": "line 1"}


async def test_lines_of_several_chunks_that_come_at_once_arrive_without_further_news(
    database: Database[Document], valkey: StoreProcess, redis_client: redis.Redis
) -> None:
    job = Play(database, redis_client)
    job.start()
    # nothing wakes the client but the lines
    limits = StreamLimits(poll=3600, refresh=3600)
    async with gateway(database, valkey, limits) as streams, streams.listen(job.id) as listener:
        await listener.until("status")
        job.write(line(1))
        await listener.until("log")
        job.write(b"".join(line(number)[:-1] + b"x" * 2000 + b"\n" for number in range(2, 602)), mongodb=False)
        heard = await listener.until("log", 601)
    assert heard.ids() == job.event_ids()


async def test_a_stream_resumes_after_the_last_event_id(streams: Gateway, play: MakePlay) -> None:
    job = play()
    job.start()
    job.write(lines(1, 100))
    job.finish()
    ids = job.event_ids()
    for known in (0, 41, 99):
        heard = await streams.hear_all(job.id, last_event_id=ids[known])
        assert heard.ids() == ids[known + 1 :]
        assert len(heard.of("end")) == 1


async def test_the_id_may_come_in_the_query_and_the_header_wins(streams: Gateway, play: MakePlay) -> None:
    job = play()
    job.start()
    job.write(lines(1, 10))
    job.finish()
    ids = job.event_ids()
    path = f"/jobs/{job.id}/logs"
    answer = await streams.http.get(path, params={"last_event_id": ids[3]})
    assert answer.text.count("event: log") == 6
    answer = await streams.http.get(path, params={"last_event_id": ids[3]}, headers={"Last-Event-ID": ids[7]})
    assert answer.text.count("event: log") == 2


async def test_the_end_comes_once_and_is_followed_by_no_content(streams: Gateway, play: MakePlay) -> None:
    job = play()
    job.start()
    job.write(lines(1, 5))
    job.finish()
    heard = await streams.hear_all(job.id)
    assert heard.last_id == f"1-{len(job.written[1]) + 1}"
    for seen in (heard.last_id, "1-999999", "7-0"):
        answer = await streams.http.get(f"/jobs/{job.id}/logs", headers={"Last-Event-ID": seen})
        assert (answer.status_code, answer.content) == (204, b"")


async def test_a_malformed_id_is_refused_by_name(streams: Gateway, play: MakePlay) -> None:
    job = play()
    for text in ("x", "1", "1-", "-5", "1-5-6", "1-1e3", "１-２"):
        answer = await streams.http.get(f"/jobs/{job.id}/logs", headers={"Last-Event-ID": text.encode()})
        assert answer.status_code == 422
        assert answer.json()["error"]["detail"]["field"] == "Last-Event-ID"


async def test_an_unknown_job_is_not_found(streams: Gateway) -> None:
    answer = await streams.http.get(f"/jobs/{'0' * 32}/logs")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "job_not_found")


async def test_a_waiting_jobs_stream_opens_at_once_and_says_why_it_waits(streams: Gateway, play: MakePlay) -> None:
    job = play()
    async with streams.listen(job.id) as listener:
        assert (await listener.until("status")).of("status") == [{"status": "pending", "attempt": 0}]
        job.wait_for(WaitingReason.CAPACITY)
        heard = await listener.until("status", 2)
        assert heard.of("status")[-1] == {"status": "pending", "attempt": 0, "waiting_reason": "capacity"}
        job.start()
        heard = await listener.until("status", 3)
        assert heard.of("status")[-1]["status"] == "running"
        job.write(line(1))
        await listener.until("log")


async def test_a_job_that_ends_before_it_began_ends_its_stream(streams: Gateway, play: MakePlay) -> None:
    job = play()
    async with streams.listen(job.id) as listener:
        await listener.until("status")
        job.finish(JobStatus.CANCELLED)
        heard = await listener.to_the_end()
    assert heard.of("end")[0]["status"] == "cancelled"
    answer = await streams.http.get(f"/jobs/{job.id}/logs", headers={"Last-Event-ID": heard.last_id})
    assert answer.status_code == 204


async def test_a_retried_jobs_stream_goes_on_with_the_next_attempt(streams: Gateway, play: MakePlay) -> None:
    job = play()
    job.start()
    job.write(lines(1, 20))
    async with streams.listen(job.id) as listener:
        await listener.until("log", 20)
        job.retry()
        heard = await listener.until("status", 2)
        assert heard.of("status")[-1]["waiting_reason"] == "backoff"
        job.start(3)
        job.write(lines(1, 10))
        job.finish()
        heard = await listener.to_the_end()
    assert heard.ids() == job.event_ids()
    assert heard.last_id == f"3-{len(job.written[3]) + 1}"
    assert len(heard.of("end")) == 1
    names = [event.event for event in heard.events if event.id == "3-0"]
    assert names[0] == "status"


async def test_a_job_that_is_deleted_ends_its_stream(streams: Gateway, play: MakePlay) -> None:
    job = play()
    async with streams.listen(job.id) as listener:
        await listener.until("status")
        job.database["jobs"].delete_one({"_id": job.id})
        heard = await listener.to_the_end()
    assert not heard.of("end")


async def test_progress_comes_with_the_position_and_not_for_every_report(
    streams: Gateway, play: MakePlay, redis_client: redis.Redis
) -> None:
    job = play()
    job.start()
    job.write(lines(1, 3))
    async with streams.listen(job.id) as listener:
        await listener.until("log", 3)
        # the lines are read from a store, perhaps before messages arrive, and MongoDB lacks this progress
        hears = partial(redis_client.pubsub_numsub, job_channel(job.id))
        await asyncio.to_thread(wait_until, lambda: hears()[0][1], what="the subscription")
        for pages in range(200):
            job.progress(completed_pages=pages)
        heard = await listener.until("progress")
        assert len(heard.of("progress")) == 1
        assert heard.ids("progress") == [f"1-{len(job.written[1])}"]


@pytest.mark.parametrize("flush_before", [True, False])
async def test_a_hole_is_filled_from_mongodb(
    streams: Gateway, play: MakePlay, redis_client: redis.Redis, *, flush_before: bool
) -> None:
    job = play()
    job.start()
    async with streams.listen(job.id) as listener:
        job.write(lines(1, 50))
        if flush_before:
            redis_client.flushall()
        await listener.until("log", 50)
        job.write(lines(51, 80), redis=False)
        redis_client.flushall()
        job.write(lines(81, 120))
        heard = await listener.until("log", 120)
        job.finish()
        heard = await listener.to_the_end()
    assert heard.ids() == job.event_ids()
    assert not heard.of("gap")


async def test_lines_reach_a_client_while_only_mongodb_has_them(streams: Gateway, play: MakePlay) -> None:
    job = play()
    job.start()
    async with streams.listen(job.id) as listener:
        for first in (1, 11, 21):
            job.write(lines(first, first + 9), redis=False)
            await listener.until("log", first + 9)
        job.finish()
        assert (await listener.to_the_end()).ids() == job.event_ids()


async def test_lines_that_only_redis_has_yet_are_history_too(streams: Gateway, play: MakePlay) -> None:
    job = play()
    job.start()
    job.write(lines(1, 2500), mongodb=False)
    async with streams.listen(job.id) as listener:
        assert (await listener.until("log", 2500)).ids() == job.event_ids()


async def test_lines_published_twice_are_sent_once(streams: Gateway, play: MakePlay) -> None:
    job = play()
    job.start()
    async with streams.listen(job.id) as listener:
        job.write(lines(1, 10))
        await listener.until("log", 10)
        again, job.written[1] = job.written[1], b""
        job.write(again)
        job.write(lines(11, 12))
        job.finish()
        assert (await listener.to_the_end()).ids() == job.event_ids()


async def test_what_retention_has_removed_is_a_gap(
    streams: Gateway, play: MakePlay, redis_client: redis.Redis
) -> None:
    job = play()
    job.start()
    job.write(lines(1, 10), redis=False, mongodb=False)
    middle = len(job.written[1])
    job.write(lines(11, 15), redis=False)
    stop = len(job.written[1])
    job.write(lines(16, 20), redis=False, mongodb=False)
    job.finish()
    heard = await streams.hear_all(job.id)
    end = len(job.written[1])
    assert heard.of("gap") == [{"from": "1-0", "to": f"1-{middle}"}, {"from": f"1-{stop}", "to": f"1-{end}"}]
    assert heard.ids() == job.event_ids()[10:15]
    assert heard.last_id == f"1-{end + 1}"


async def test_an_attempt_that_nobody_saw_end_is_read_as_far_as_it_is_known(streams: Gateway, play: MakePlay) -> None:
    job = play()
    job.start()
    job.write(lines(1, 7))
    job.change({"status": "error", "message": "the node is gone"})
    heard = await streams.hear_all(job.id)
    assert heard.ids() == job.event_ids()
    assert heard.of("end")[0]["message"] == "the node is gone"
    answer = await streams.http.get(f"/jobs/{job.id}/logs", headers={"Last-Event-ID": heard.last_id})
    assert answer.status_code == 204


async def test_a_torn_last_line_is_sent_when_the_attempt_is_over(streams: Gateway, play: MakePlay) -> None:
    job = play()
    job.start()
    job.write(lines(1, 3) + b"killed in mid-li")
    job.finish()
    assert [entry["msg"] for entry in (await streams.hear_all(job.id)).of("log")][-1] == "killed in mid-li"


async def test_a_large_history_comes_whole(streams: Gateway, play: MakePlay) -> None:
    job = play()
    job.start()
    for first in range(1, 12_000, 1000):
        job.write(lines(first, first + 999), redis=False)
    job.write(b"2027-06-01T09:00:00.000Z [seo] INFO: " + b"x" * (1 << 20) + b"\n", redis=False)
    job.finish()
    heard, again = await asyncio.gather(streams.hear_all(job.id), streams.hear_all(job.id))
    assert heard.ids() == again.ids() == job.event_ids()


async def test_streams_say_when_to_come_back_and_are_not_to_be_stored(streams: Gateway, play: MakePlay) -> None:
    job = play()
    job.start()
    job.finish()
    answer = await streams.http.get(f"/jobs/{job.id}/logs")
    assert answer.text.startswith("retry: 2000\n\n")
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.status_code == httpx2.codes.OK
