from __future__ import annotations

import json
from collections.abc import Callable

from integration.event_stream.stage import Gateway, Play, line, lines

MakePlay = Callable[..., Play]

TEXT = {"Accept": "text/plain"}
NDJSON = {"Accept": "application/x-ndjson"}


def two_attempts(play: MakePlay) -> Play:
    job = play()
    job.start()
    job.write(lines(1, 3000) + b"caf\xe9 in Latin-1\n")
    job.retry()
    job.start()
    job.write(line(1) + line(2, "ERROR") + b"torn")
    job.finish()
    return job


async def test_text_is_every_attempts_log_byte_for_byte(streams: Gateway, play: MakePlay) -> None:
    job = two_attempts(play)
    answer = await streams.http.get(f"/jobs/{job.id}/logs", headers=TEXT)
    assert answer.content == job.written[1] + job.written[2]
    assert answer.headers["content-type"].startswith("text/plain")
    assert job.id in answer.headers["content-disposition"]


async def test_one_attempt_can_be_asked_for(streams: Gateway, play: MakePlay) -> None:
    job = two_attempts(play)
    answer = await streams.http.get(f"/jobs/{job.id}/logs?attempt=2", headers=TEXT)
    assert answer.content == job.written[2]
    answer = await streams.http.get(f"/jobs/{job.id}/logs?attempt=3", headers=TEXT)
    assert (answer.status_code, answer.json()["error"]["detail"]) == (422, {"field": "attempt"})
    answer = await streams.http.get(f"/jobs/{job.id}/logs?attempt=2")
    assert (answer.status_code, answer.json()["error"]["detail"]) == (422, {"field": "attempt"})


async def test_ndjson_is_one_entry_a_line_with_its_id(streams: Gateway, play: MakePlay) -> None:
    job = two_attempts(play)
    answer = await streams.http.get(f"/jobs/{job.id}/logs", headers=NDJSON)
    entries = [json.loads(text) for text in answer.text.splitlines()]
    assert [entry["id"] for entry in entries] == job.event_ids()
    assert entries[0]["msg"] == "line 1"


async def test_a_link_can_name_the_format(streams: Gateway, play: MakePlay) -> None:
    job = two_attempts(play)
    answer = await streams.http.get(f"/jobs/{job.id}/logs?format=text", headers={"Accept": "text/html"})
    assert answer.content == job.written[1] + job.written[2]
    assert answer.headers["content-disposition"] == f'attachment; filename="{job.id}.log"'
    answer = await streams.http.get(f"/jobs/{job.id}/logs?format=jsonl&attempt=2")
    assert answer.headers["content-disposition"] == f'attachment; filename="{job.id}-2.jsonl"'
    assert (await streams.http.get(f"/jobs/{job.id}/logs?format=pdf")).status_code == 422


async def test_a_log_is_downloaded_by_a_call_of_its_own(streams: Gateway, play: MakePlay) -> None:
    job = two_attempts(play)
    answer = await streams.http.get(f"/jobs/{job.id}/logs/download")
    assert answer.content == job.written[1] + job.written[2]
    assert answer.headers["content-disposition"] == f'attachment; filename="{job.id}.log"'
    answer = await streams.http.get(f"/jobs/{job.id}/logs/download?format=jsonl&attempt=2&level=ERROR")
    assert [json.loads(text)["level"] for text in answer.text.splitlines()] == ["ERROR"] * answer.text.count("\n")
    assert answer.headers["content-disposition"] == f'attachment; filename="{job.id}-2.jsonl"'
    for query, status in (("format=pdf", 422), ("attempt=3", 422), ("token=x", 422)):
        assert (await streams.http.get(f"/jobs/{job.id}/logs/download?{query}")).status_code == status
    assert (await streams.http.get(f"/jobs/{'0' * 32}/logs/download")).status_code == 404


async def test_downloads_can_be_filtered(streams: Gateway, play: MakePlay) -> None:
    job = two_attempts(play)
    answer = await streams.http.get(f"/jobs/{job.id}/logs?level=ERROR&attempt=2", headers=TEXT)
    assert answer.content == line(2, "ERROR") + b"torn"
    answer = await streams.http.get(f"/jobs/{job.id}/logs?q=LINE 2999", headers=NDJSON)
    assert [json.loads(text)["msg"] for text in answer.text.splitlines()] == ["line 2999"]
    answer = await streams.http.get(f"/jobs/{job.id}/logs?logger=seo&attempt=2", headers=TEXT)
    assert answer.content == job.written[2]
    assert (await streams.http.get(f"/jobs/{job.id}/logs?logger=se", headers=TEXT)).content == b""
    answer = await streams.http.get(f"/jobs/{job.id}/logs?logger=seo")
    assert (answer.status_code, answer.json()["error"]["detail"]) == (422, {"field": "logger"})


async def test_the_log_so_far_of_a_running_job_is_given_at_once(streams: Gateway, play: MakePlay) -> None:
    job = play()
    assert (await streams.http.get(f"/jobs/{job.id}/logs", headers=TEXT)).content == b""
    job.start()
    job.write(lines(1, 5))
    assert (await streams.http.get(f"/jobs/{job.id}/logs", headers=TEXT)).content == job.written[1]
