from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from integration.event_stream.stage import Gateway, Play, line, lines

MakePlay = Callable[..., Play]

TRACEBACK = b'Traceback (most recent call last):\n  File "x.py", line 1\nValueError: no such PAGE\n'


async def test_lines_below_the_level_are_left_out_and_a_traceback_follows_its_head(
    streams: Gateway, play: MakePlay
) -> None:
    job = play()
    job.start()
    job.write(lines(1, 50) + line(51, "ERROR") + TRACEBACK + lines(52, 60))
    async with streams.listen(job.id, level="warning") as listener:
        heard = await listener.until("log", 4)
        job.write(line(61) + line(62, "WARNING") + line(63))
        job.finish()
        heard = await listener.to_the_end()
    assert [entry["msg"] for entry in heard.of("log")] == [
        "line 51",
        "Traceback (most recent call last):",
        '  File "x.py", line 1',
        "ValueError: no such PAGE",
        "line 62",
    ]
    assert heard.ids()[0] == job.event_ids()[50]


async def test_text_is_found_in_either_case_in_message_and_logger(streams: Gateway, play: MakePlay) -> None:
    job = play()
    job.start()
    job.write(lines(1, 20) + b"2027-06-01T09:00:00.000Z [scrapy.core] DEBUG: Crawled PAGE \xc3\x89t\xc3\xa9\n")
    job.finish()
    for text, count in (("page é", 1), ("Core", 1), ("LINE 1", 11), ("seo", 20), ("absent", 0)):
        heard = await streams.hear_all(job.id, q=text)
        assert len(heard.ids()) == count
        assert len(heard.of("end")) == 1


async def test_a_filtered_stream_says_how_far_it_has_come_and_resumes_there(streams: Gateway, play: MakePlay) -> None:
    job = play()
    job.start()

    async def keep_writing() -> None:
        while True:
            job.write(lines(1, 5))
            await asyncio.sleep(0.02)

    async with streams.listen(job.id, q="nothing like it") as listener:
        writing = asyncio.create_task(keep_writing())
        heard = await listener.until("progress", 2)
        writing.cancel()
    assert not heard.of("log")
    first, second = heard.ids("progress")
    assert job.event_ids().index(first) < job.event_ids().index(second)
    job.finish()
    rest = await streams.hear_all(job.id, last_event_id=heard.last_id)
    assert rest.ids() == job.event_ids()[job.event_ids().index(heard.last_id) + 1 :]


@pytest.mark.parametrize(("field", "value"), [("level", "loud"), ("q", "x" * 201), ("attempt", "0")])
async def test_a_filter_that_makes_no_sense_is_refused_by_name(
    streams: Gateway, play: MakePlay, field: str, value: str
) -> None:
    job = play()
    answer = await streams.http.get(f"/jobs/{job.id}/logs", params={field: value})
    assert answer.status_code == 422
    assert answer.json()["error"]["detail"]["field"] == field
