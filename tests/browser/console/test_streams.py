"""All tabs share one stream for each path, and no more than a browser may open."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import pytest
from browser.console.platform import Console
from browser.console.tabs import Tab
from forms import first_in_short, in_full
from integration.event_stream.stage import Play, line, lines
from playwright.async_api import Browser, BrowserContext, Page, expect

from gateway.console.static_files import STATIC
from gateway.jobs.job import JobStatus

#: Follows a path, and keeps what it hears.
FOLLOW = """async ([module, path, after]) => {
  const { follow } = await import(module);
  const heard = { ids: [], names: [], states: [], greetings: [] };
  heard.stop = follow(path, {
    after,
    onGreeting: ({ at, state }) => heard.greetings.push([at, state]),
    onEvents: (events) => {
      heard.names.push(...events.map(({ name }) => name));
      heard.ids.push(...events.filter(({ name }) => name === 'log').map(({ id }) => id));
    },
    onState: (state) => heard.states.push(state),
  });
  (window.heard ??= []).push(heard);
}"""
#: Follows all jobs, and tells the test what it hears.
TELL = """async (module) => (await import(module)).follow("/events", {
  onEvents: (events) => events.forEach(({ data }) => window.tell(data)),
})"""
NO_WORKERS = "delete window.SharedWorker"
Made = Callable[..., Play]


@pytest.fixture
def play(console: Console) -> Made:
    def make() -> Play:
        play = Play(console.database, console.redis)
        play.start()
        return play

    return make


@asynccontextmanager
async def browser_context(chromium: Browser, console: Console, script: str = "") -> AsyncIterator[BrowserContext]:
    context = await chromium.new_context(base_url=console.url)
    if script:
        await context.add_init_script(script)
    yield context
    await context.close()


async def follow(page: Page, path: str, after: str | None = None) -> None:
    await page.evaluate(FOLLOW, [STATIC.address("js/streams.js"), path, after])


async def opened(context: BrowserContext, path: str, after: str | None = None) -> Page:
    page = await context.new_page()
    await page.goto("/console/sign-in")
    await follow(page, path, after)
    return page


async def until(look: Callable[[], Awaitable[Any]], wanted: Any) -> None:
    async with asyncio.timeout(90):
        while await look() != wanted:  # noqa: ASYNC110 - what a page has heard is no event here
            await asyncio.sleep(0.05)


async def ids(page: Page) -> Any:
    return await page.evaluate("heard[0].ids")


async def open_streams(console: Console) -> int:
    text = (await asyncio.to_thread(console.http.get, "/metrics")).text
    found = re.search(r"stream_clients\S* (\d+)", text)
    assert found, text
    return int(found[1])


@pytest.mark.parametrize(
    "script", first_in_short([pytest.param("", id="worker"), pytest.param(NO_WORKERS, id="elected-tab")])
)
async def test_tabs_share_a_stream_and_each_hears_all_of_it(
    chromium: Browser, console: Console, play: Made, script: str
) -> None:
    job = play()
    path = f"/jobs/{job.id}/logs"
    async with browser_context(chromium, console, script) as context:
        first = await opened(context, path)
        job.write(lines(1, 20))
        await until(lambda: ids(first), job.event_ids())
        # one that comes later hears where the stream is, and of each kind the newest event
        second = await opened(context, path, job.event_ids()[9])
        await until(lambda: second.evaluate("heard[0].greetings"), [[job.event_ids()[-1], "open"]])
        await follow(second, path)
        # it hears what comes after its greeting
        await until(lambda: second.evaluate("heard.map(({ greetings }) => greetings.length)"), [1, 1])
        job.write(lines(21, 40))
        await until(lambda: second.evaluate("heard.map(({ ids }) => ids)"), [job.event_ids()[20:]] * 2)
        assert "status" in await second.evaluate("heard[0].names")
        await until(lambda: open_streams(console), 1)
        # the tab that began ends: without a worker another one takes the streams over
        await first.close()
        job.write(lines(41, 60))
        await until(lambda: ids(second), job.event_ids()[20:])
        job.finish()
        await until(lambda: second.evaluate("heard[0].states.at(-1)"), "over")
        await second.evaluate("heard.forEach(({ stop }) => stop())")
    await until(lambda: open_streams(console), 0)


@in_full("tabs that share a stream here, and unit/gateway/console/js")
async def test_the_next_user_of_a_browser_hears_nothing_of_the_one_before(chromium: Browser, locked: Console) -> None:
    job = Play(locked.database, locked.redis, user_id="anne")
    job.start()
    path = f"/jobs/{job.id}/logs"
    async with browser_context(chromium, locked) as context:
        heard = []
        for user in ("anne", "bert"):
            page = await context.new_page()
            await Tab(page).sign_in(locked.key(user).token)
            await follow(page, path)
            answered = "heard[0].names.length > 0 || heard[0].states.includes('lost')"
            await until(partial(page.evaluate, answered), wanted=True)
            heard.append(await page.evaluate("[heard[0].greetings[0], heard[0].names]"))
        assert heard[0][1]
        # the second one asks for a stream of its own, and is refused
        assert heard[1] == [[None, "connecting"], []]


@in_full("tabs that share a stream here, and unit/gateway/console/js")
async def test_a_tab_of_an_ended_session_gets_nothing_of_the_next_users(chromium: Browser, locked: Console) -> None:
    annes, berts = (locked.job(JobStatus.RUNNING, user_id=user) for user in ("anne", "bert"))
    told: list[str] = []
    async with browser_context(chromium, locked) as context:
        old, new = Tab(await context.new_page()), Tab(await context.new_page())
        await old.sign_in(locked.key("anne").token)
        await old.page.goto("/console/jobs")
        await old.page.expose_function("tell", lambda text: told.append(text))  # noqa: PLW0108 - no builtin is taken
        await old.page.evaluate(TELL, STATIC.address("js/streams.js"))
        await until(lambda: asyncio.sleep(0, annes.id in "".join(told)), wanted=True)
        # somebody else signs in at the same browser, in another tab: that ends the session of the first
        await new.sign_in(locked.key("bert").token)
        locked.change(berts, message="for bert alone")
        # the first notices it by itself, and is the next user's from then on
        await expect(old.page.get_by_text("Signed in as bert")).to_be_visible()
        assert berts.id not in "".join(told)
        await new.page.get_by_role("button", name="Sign out").press("Enter")
        await old.page.wait_for_url("**/console/sign-in?next=%2Fconsole%2Fjobs")


@in_full("tabs that share a stream here, and unit/gateway/console/js")
async def test_eight_tabs_freeze_no_ninth(chromium: Browser, console: Console, play: Made) -> None:
    jobs = [play() for _ in range(8)]
    async with browser_context(chromium, console) as context, AsyncExitStack() as stack:
        tabs = [await opened(context, f"/jobs/{job.id}/logs") for job in jobs]
        for tab in tabs:
            stack.push_async_callback(tab.close)
            await follow(tab, "/events")
            # Playwright shows a new tab without the event that says so
            await tab.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        for job in jobs:
            job.write(line(1))
        ninth = await context.new_page()
        await ninth.goto("/console/sign-in")
        assert await ninth.evaluate("fetch('/health/live').then(({ status }) => status)") == 200
        # more logs than a browser may follow at once: each has its turn, and none misses a line
        for tab, job in zip(tabs, jobs, strict=True):
            await until(partial(ids, tab), job.event_ids())
        assert await open_streams(console) <= 4
    await until(lambda: open_streams(console), 0)
