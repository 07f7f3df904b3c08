"""The two clients that most people have: the browser's own EventSource, and the one of npm."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from browser.chromium import new_tab
from browser.follow import PAGE, node_project
from integration.event_stream.stage import Gateway, Play, lines
from machine import find_program

MakePlay = Callable[..., Play]


async def perform(job: Play) -> None:
    """Two attempts, some of it live."""
    job.start()
    job.write(lines(1, 500))
    await asyncio.sleep(0.5)
    job.write(lines(501, 600))
    job.retry()
    job.start()
    for first in range(1, 200, 20):
        job.write(lines(first, first + 19))
        await asyncio.sleep(0.02)
    job.finish()


def check(heard: dict[str, Any], job: Play) -> None:
    assert heard["ids"] == job.event_ids()
    assert heard["ends"] == [[f"2-{len(job.written[2]) + 1}", "finished"]]
    # it was closed by the server, came back once, was told that there is no more (204), and has given up
    assert heard["states"] == [0, 2]
    assert heard["opened"] == 1


async def test_chromiums_event_source_follows_to_the_end_and_stops(streams: Gateway, play: MakePlay) -> None:
    job = play()
    async with new_tab() as (page, *_):
        statuses: list[int] = []
        page.on("response", lambda answer: statuses.append(answer.status) if "/logs" in answer.url else None)
        await page.route("**/page", lambda route: route.fulfill(body=PAGE, content_type="text/html"))
        await page.goto(f"{streams.url}/page")
        following = asyncio.create_task(
            page.evaluate("url => new Promise(report => follow(EventSource, url, report))", f"/jobs/{job.id}/logs")
        )
        await perform(job)
        heard = await following
    check(heard, job)
    assert statuses == [200, 204]


@pytest.fixture(scope="session")
def npm_folder(request: pytest.FixtureRequest) -> Path:
    assert request.config.cache is not None
    return node_project(request.config.cache.mkdir("npm-eventsource"))


async def test_npms_eventsource_follows_to_the_end_and_stops(
    streams: Gateway, play: MakePlay, npm_folder: Path
) -> None:
    job = play()
    following = await asyncio.create_subprocess_exec(
        find_program("node"),
        "follow.mjs",
        f"{streams.url}/jobs/{job.id}/logs",
        cwd=npm_folder,
        stdout=asyncio.subprocess.PIPE,
    )
    await perform(job)
    output, _ = await following.communicate()
    # Node.js ends by itself only when nothing is open and no timer runs
    assert following.returncode == 0
    check(json.loads(output), job)
