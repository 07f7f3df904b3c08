"""The log of a job in a browser: of any length, searched, linked, live, and whatever a spider has written."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from browser.console.platform import Console
from browser.console.tabs import PHONE, Axe, OpenTab, Tab
from forms import in_full
from integration.event_stream.gateway_process import GatewayProcess
from integration.event_stream.stage import Play, lines
from playwright.async_api import CDPSession, Locator, Page, Route, expect

from gateway.contract.log_line import split_entries
from gateway.jobs.job import Job
from gateway.logs.store import LogChunk, count_lines

HEAD = b"2027-06-01T09:00:01.250Z "
HOSTILE = "<b id=bold>bold</b><script>alert(1)</script>\u202egnp.exe\x07\x1b[31m"
ERROR = (
    HEAD + b"[scrapy.core.scraper] ERROR: Spider error processing <GET https://example.com/>\n"
    b"Traceback (most recent call last):\nValueError: no price\n"
)
LONG = b"x" * 300_000
#: Has the rows drawn again, where they are.
REDRAWN = """async () => {
  const wrap = [...document.querySelectorAll("button")].find(button => button.textContent === "Wrap");
  wrap.click();
  wrap.click();
  await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
}"""
#: Lines of the log that most tests look at; two of its chunks have what the tests look for.
LINES = 30_000


def long_log(console: Console) -> tuple[Job, list[str]]:
    """A job whose log is long, and the ids of its lines."""
    job, place, ids = console.job(), 0, list[str]()
    for first in range(1, LINES, 1000):
        data = lines(first, first + 999)
        if first == 12_001:
            data += (
                ERROR + HEAD + b"[seo] WARNING: " + HOSTILE.encode() + b"\n" + HEAD + b"[seo] INFO: " + LONG + b"\n"
            )
        entries, _ = split_entries(data, place)
        counts = count_lines(entries, None)
        console.logs.append(LogChunk(job.id, 1, place, place + len(data), "INFO", data, None, counts))
        ids += [f"1-{entry.end}" for entry in entries]
        place += len(data)
    console.database["jobs"].update_one({"_id": job.id}, {"$set": {"attempts.1.log_end": place}})
    return job, ids


class LogPage:
    def __init__(self, page: Page) -> None:
        self.page = page
        self.box = page.get_by_role("table", name="Log")
        self.hits = page.locator(".log-hits")
        self.search = page.get_by_role("searchbox", name="Search the log")

    async def open(self, job_id: str, rest: str = "") -> None:
        await self.page.goto(f"/console/jobs/{job_id}/log{rest}")
        await expect(self.box).to_be_visible()

    def row(self, text: str) -> Locator:
        return self.page.locator(".log-row").filter(has=self.page.get_by_text(text, exact=True))

    async def has_current_in_sight(self) -> bool:
        return await self.page.evaluate(
            "() => { const [a, b] = ['.log-row[aria-current]', '.log-box'].map(one => document.querySelector(one)"
            ".getBoundingClientRect()); return a.top >= b.top - 1 && a.bottom <= b.bottom + 1; }"
        )

    @property
    def current(self) -> Locator:
        return self.page.locator(".log-row[aria-current]")


async def until(look: Callable[[], Awaitable[Any]], wanted: Any) -> None:
    async with asyncio.timeout(90):
        while await look() != wanted:  # noqa: ASYNC110 - what a page shows is no event here
            await asyncio.sleep(0.05)


@pytest.fixture(scope="module")
def logged(console: Console) -> tuple[Job, list[str]]:
    return long_log(console)


async def test_the_whole_log_is_searched_by_keyboard_alone(tab: Tab, logged: tuple[Job, list[str]], axe: Axe) -> None:
    log = LogPage(tab.page)
    await log.open(logged[0].id)
    # it begins at the end, and has all rows but only a few elements
    await expect(log.row(f"line {LINES}")).to_be_visible()
    await expect(log.box).to_have_attribute("aria-rowcount", str(LINES + 5))
    assert await tab.page.locator(".log-row").count() < 150
    await tab.page.keyboard.press("Control+f")
    await expect(log.search).to_be_focused()
    await tab.page.keyboard.type("LINE 1234")
    await expect(log.hits).to_have_text("1 of 11")
    await expect(log.current).to_contain_text("line 1234")
    await until(log.has_current_in_sight, wanted=True)
    await expect(log.current.locator("mark")).to_have_text("line 1234")
    assert int(await tab.page.locator(".log-marks").get_attribute("data-marks") or 0) == 11
    for key, hit, line in (("Enter", 2, 12340), ("Enter", 3, 12341), ("Shift+Enter", 2, 12340)):
        await tab.page.keyboard.press(key)
        await expect(log.hits).to_have_text(f"{hit} of 11")
        await expect(log.current).to_contain_text(f"line {line}")
    await axe(tab)
    await tab.page.keyboard.press("Escape")
    await expect(log.search).to_be_hidden()
    # the rows have the focus again: e leads to the first error, arrows to its neighbours, / to the search
    await tab.page.keyboard.press("e")
    await expect(log.current).to_contain_text("Spider error processing")
    await tab.page.keyboard.press("ArrowDown")
    await expect(log.current).to_contain_text("Traceback")
    await tab.page.keyboard.press("End")
    await expect(log.row(f"line {LINES}")).to_be_visible()
    await tab.page.keyboard.press("Home")
    await expect(log.row("line 1")).to_be_visible()
    await tab.page.keyboard.press("/")
    await tab.page.keyboard.type("nowhere")
    await expect(log.hits).to_have_text("No matches")


#: Where the marks beside the scroll bar begin, as shares of its height, and how much of it they cover.
MARKS = """canvas => {
  const { data } = canvas.getContext('2d').getImageData(0, 0, 1, canvas.height);
  const isMarked = Array.from({ length: canvas.height }, (_, y) => data[4 * y + 3] > 0);
  const begin = isMarked.flatMap((is, y) => (is && !isMarked[y - 1] ? [y / canvas.height] : []));
  return [begin, isMarked.filter(Boolean).length / canvas.height];
}"""


@in_full("web/test_log_search.py and event_stream, and a log that is searched and followed here")
async def test_each_hit_has_a_thin_mark_at_its_place_and_escape_ends_the_search_anywhere(
    tab: Tab, console: Console
) -> None:
    job = console.job()
    hits = {0, 100, 450, 898}
    # lines of a hit are long: its place is that of its row, not of its byte
    said = [f"Kettle {n} {'x' * 900}" if n in hits else f"line {n}" for n in range(899)]
    console.log(job, [f"2027-06-01 09:00:01 [seo] INFO: {one}" for one in said])
    log = LogPage(tab.page)
    await log.open(job.id)
    await tab.page.keyboard.press("Control+f")
    await tab.page.keyboard.type("kettle")
    await expect(log.hits).to_have_text("4 of 4")
    await expect(log.current).to_contain_text("Kettle 898")
    begin, covered = await tab.page.locator(".log-marks").evaluate(MARKS)
    assert begin == pytest.approx([number / 899 for number in sorted(hits)], abs=0.005)
    assert covered < 0.02
    # the log has the focus now
    await log.box.click(position={"x": 300, "y": 200})
    await tab.page.keyboard.press("Escape")
    await expect(log.search).to_be_hidden()
    await expect(tab.page.locator(".log-marks")).to_have_attribute("data-marks", "0")


@in_full("web/test_log_search.py and event_stream, and a log that is searched and followed here")
async def test_a_late_answer_to_a_search_does_not_touch_the_next_one(tab: Tab, logged: tuple[Job, list[str]]) -> None:
    is_held, may_go_on = asyncio.Event(), asyncio.Event()

    async def hold(route: Route) -> None:
        # where the nearest of very many hits is
        is_held.set()
        await may_go_on.wait()
        await route.continue_()

    await tab.page.route("**/logs/search?*q=LINE&*to=*", hold)
    log = LogPage(tab.page)
    await log.open(logged[0].id)
    await tab.page.keyboard.press("Control+f")
    await tab.page.keyboard.type("LINE")
    await is_held.wait()
    await log.search.fill("LINE 1234")
    await expect(log.hits).to_have_text("1 of 11")
    async with tab.page.expect_response("**/logs/search?*q=LINE&*to=*"):
        may_go_on.set()
    await tab.page.evaluate("() => new Promise((done) => setTimeout(done))")
    await expect(log.hits).to_have_text("1 of 11")
    await tab.page.keyboard.press("Enter")
    await expect(log.hits).to_have_text("2 of 11")


@in_full("web/test_log_search.py and event_stream, and a log that is searched and followed here")
async def test_a_long_search_goes_on_by_itself_until_the_text_is_changed(
    tab: Tab, logged: tuple[Job, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    # each answer has looked at one chunk
    monkeypatch.setattr("gateway.web.routes.log_search._SEARCH_SECONDS", 0.0)
    may_go_on = asyncio.Event()

    async def hold(route: Route) -> None:
        await may_go_on.wait()
        await route.continue_()

    await tab.page.route("**/logs/search?*from=*", hold)
    log = LogPage(tab.page)
    await log.open(logged[0].id)
    await tab.page.keyboard.press("Control+f")
    await tab.page.keyboard.type("LINE 12")
    await expect(log.hits).to_have_text(re.compile(r"^[1-9]\d* so far, searching…$"))
    await log.search.fill("LINE 1234")
    await expect(log.hits).to_have_text("Searching…")
    may_go_on.set()
    await expect(log.hits).to_have_text("1 of 11")
    await expect(log.current).to_contain_text("line 1234")
    await tab.page.keyboard.press("Shift+Enter")
    await expect(log.hits).to_have_text("11 of 11")
    await expect(log.current).to_contain_text("line 12349")


async def test_a_line_has_a_link_and_what_is_hostile_changes_only_itself(
    tab: Tab, logged: tuple[Job, list[str]], axe: Axe
) -> None:
    job, ids = logged
    log = LogPage(tab.page)
    hostile = ids[13_003]
    await log.open(job.id, f"#{hostile}")
    await expect(log.current).to_contain_text(
        "<b id=bold>bold</b><script>alert(1)</script>\\u202egnp.exe\\x07\\x1b[31m"
    )
    await until(log.has_current_in_sight, wanted=True)
    assert await tab.page.locator("#bold").count() == 0
    # a filter that hides the line is left
    await log.open(job.id, f"?level=ERROR#{hostile}")
    await expect(log.current).to_contain_text("gnp.exe")
    assert "level" not in tab.page.url
    # 300 kB in one line: its beginning, and the whole on demand
    await expect(log.page.locator(".log-row", has_text="xxx")).to_be_visible()
    await tab.page.get_by_role("button", name="Show all 300,000 characters").click()
    whole = tab.page.get_by_role("dialog")
    assert len(await whole.locator("pre").inner_text()) == len(LONG)
    await tab.page.keyboard.press("Escape")
    await expect(whole).to_have_count(0)

    # a line's time leads to the line, also if the rows are to be drawn again while it is pressed
    async def led() -> bool:
        # the rows may move before that, to where the focus has gone back
        await log.row("line 13000").get_by_role("link").hover()
        await tab.page.mouse.down()
        await tab.page.evaluate(REDRAWN)
        await tab.page.mouse.up()
        return tab.page.url.endswith(f"#{ids[12_999]}")

    await until(led, wanted=True)
    await expect(log.current).to_contain_text("line 13000")
    await axe(tab)


@in_full("web/test_log_search.py and event_stream, and a log that is searched and followed here")
async def test_levels_and_loggers_are_shown_alone_counted_and_downloaded(
    tab: Tab, logged: tuple[Job, list[str]]
) -> None:
    log = LogPage(tab.page)
    await log.open(logged[0].id)
    await tab.page.get_by_role("button", name="Warning and up 4").click()
    await expect(log.box).to_have_attribute("aria-rowcount", "4")
    await expect(log.row("ValueError: no price")).to_be_visible()
    assert "level=WARNING" in tab.page.url
    async with tab.page.expect_download() as download:
        await tab.page.get_by_role("button", name="Download filtered").click()
    assert (
        await (await download.value).path()
    ).read_bytes() == ERROR + HEAD + b"[seo] WARNING: " + HOSTILE.encode() + b"\n"
    await tab.page.get_by_role("combobox", name="Logger").select_option("scrapy.core.scraper")
    await expect(log.box).to_have_attribute("aria-rowcount", "3")
    await tab.page.reload()
    await expect(log.box).to_have_attribute("aria-rowcount", "3")
    await tab.page.get_by_role("button", name=re.compile("^All")).click()
    await tab.page.get_by_role("combobox", name="Logger").select_option("")
    await expect(log.box).to_have_attribute("aria-rowcount", str(LINES + 5))


@in_full("web/test_log_search.py and event_stream, and a log that is searched and followed here")
async def test_a_log_without_lines_says_why_until_there_are_some(tab: Tab, console: Console, axe: Axe) -> None:
    log = LogPage(tab.page)
    ended = console.job()
    for changes, words in (
        ({"attempts.1.log_end": 0}, "The crawl wrote no log."),
        ({"attempts.1.log_end": 700}, "No log was stored."),
        ({"logs_removed_at": ended.finished_at}, "The log was deleted"),
    ):
        console.change(ended, **changes)
        await tab.page.goto(f"/console/jobs/{ended.id}/log")
        await expect(tab.page.get_by_text(words)).to_be_visible()
        await expect(log.box).to_be_hidden()
    await axe(tab)
    play = Play(console.database, console.redis)
    play.start()
    await tab.page.goto(f"/console/jobs/{play.id}/log")
    await expect(tab.page.get_by_text("No log yet.")).to_be_visible()
    play.write(lines(1, 3))
    await expect(log.row("line 3")).to_be_visible()
    await expect(tab.page.get_by_text("No log yet.")).to_be_hidden()
    # a filter that leaves no line says so
    await tab.page.get_by_role("button", name="Error and up 0").click()
    await expect(tab.page.get_by_text("No lines match this level and logger.")).to_be_visible()
    play.write(ERROR)
    await expect(log.row("ValueError: no price")).to_be_visible()
    await expect(tab.page.get_by_text("No lines match this level and logger.")).to_be_hidden()


@in_full("web/test_log_search.py and event_stream, and a log that is searched and followed here")
async def test_it_scrolls_to_any_place_on_a_phone(
    open_tab: OpenTab, console: Console, logged: tuple[Job, list[str]], axe: Axe
) -> None:
    async with open_tab(console.url, **PHONE) as tab:
        log = LogPage(tab.page)
        await log.open(logged[0].id)
        await expect(log.row(f"line {LINES}")).to_be_visible()
        await log.box.evaluate("box => { box.scrollTop = box.scrollHeight / 3; }")
        await expect(log.page.locator(".log-row").nth(20)).to_contain_text(re.compile(r"line (99|100|101)\d\d"))
        await log.box.evaluate("box => { box.scrollTop = 0; }")
        await expect(log.row("line 1")).to_be_visible()
        assert await tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        await axe(tab)


@pytest.fixture
def play(console: Console) -> Play:
    play = Play(console.database, console.redis)
    play.start()
    return play


async def test_it_follows_lets_go_when_one_scrolls_up_and_says_what_came(tab: Tab, play: Play) -> None:
    log = LogPage(tab.page)
    play.write(lines(1, 200))
    await log.open(play.id)
    await expect(log.row("line 200")).to_be_visible()
    play.write(lines(201, 260))
    await expect(log.row("line 260")).to_be_visible()
    await log.box.hover()
    await tab.page.mouse.wheel(0, -400)
    follows = tab.page.get_by_role("button", name="Follow")
    await expect(follows).to_have_attribute("aria-pressed", "false")
    seen = await log.page.locator(".log-row").nth(15).inner_text()
    play.write(lines(261, 572))
    new = tab.page.get_by_role("button", name="312 new lines")
    await expect(new).to_be_visible()
    # what one reads stays where it is
    assert await log.page.locator(".log-row").nth(15).inner_text() == seen
    # a search goes on counting
    await tab.page.keyboard.press("Control+f")
    await tab.page.keyboard.type("line 31")
    await expect(log.hits).to_contain_text("of 11")
    play.write(lines(313, 315))
    await expect(log.hits).to_contain_text("of 14")
    await tab.page.keyboard.press("Escape")
    await tab.page.get_by_role("button", name="new lines").click()
    await expect(log.row("line 315")).to_be_visible()
    play.retry()
    play.start()
    play.write(lines(1, 3))
    await expect(log.page.get_by_text("Attempt 2")).to_be_visible()
    play.finish()
    await expect(tab.page.locator(".log-state")).to_have_text("Ended")


#: The text of every row, in order, as one scrolls through all of them.
READ = """async box => {
  const texts = new Map();
  const areDrawn = async () => {
    do {
      for (let frame = 0; frame < 3; frame++) await new Promise(requestAnimationFrame);
    } while (box.querySelector('.log-unread'));
  };
  const last = Number(box.getAttribute('aria-rowcount')) - 1;
  box.scrollTop = 0;
  for (let step = 0; step < 200 && !texts.has(last); step++) {
    await areDrawn();
    for (const text of box.querySelectorAll('.log-text')) {
      texts.set(Number(text.parentNode.dataset.number), text.textContent);
    }
    box.scrollTop += box.clientHeight / 2;
  }
  return [...texts.keys()].sort((a, b) => a - b).map(number => texts.get(number));
}"""


@pytest.fixture
def restarting(console: Console, tmp_path: Path) -> Iterator[GatewayProcess]:
    """The same platform through a gateway of its own."""
    settings = console.settings
    mongo, redis = str(settings.mongo_uri), settings.redis_location
    places = {"MONGO_URI": mongo, "REDIS_URL": redis, "DISCOVERYBOT_HOME": str(settings.discoverybot_home)}
    gateway = GatewayProcess(mongo, redis, tmp_path / "gateway.log", app="gateway.web.app:create_app", **places)
    gateway.start()
    try:
        gateway.wait_ready()
        yield gateway
    finally:
        gateway.stop(signal.SIGKILL)


@in_full("web/test_log_search.py and event_stream, and a log that is searched and followed here")
async def test_a_restart_of_the_gateway_loses_and_repeats_no_line(
    open_tab: OpenTab, restarting: GatewayProcess, play: Play
) -> None:
    play.write(lines(1, 50))
    async with open_tab(f"http://127.0.0.1:{restarting.port}") as tab:
        log = LogPage(tab.page)
        await log.open(play.id)
        await expect(log.row("line 50")).to_be_visible()
        play.write(lines(51, 70))
        await expect(log.row("line 70")).to_be_visible()
        await asyncio.to_thread(restarting.stop)
        await expect(tab.page.locator(".log-state")).to_have_attribute("data-state", "lost")
        play.write(lines(71, 90))
        play.write(lines(91, 100), redis=False)
        restarting.start()
        await asyncio.to_thread(restarting.wait_ready)
        play.write(lines(101, 110))
        await expect(log.row("line 110")).to_be_visible(timeout=60_000)
        await expect(log.box).to_have_attribute("aria-rowcount", "110")
        assert await log.box.evaluate(READ) == [f"line {number}" for number in range(1, 111)]
        # the browser tells the page which addresses did not answer meanwhile
        tab.complaints.clear()


async def cpu_seconds(session: CDPSession) -> float:
    """Of the main thread so far."""
    told = await session.send("Performance.getMetrics")
    return next(float(one["value"]) for one in told["metrics"] if one["name"] == "TaskDuration")


@in_full("web/test_log_search.py and event_stream, and a log that is searched and followed here")
async def test_a_log_that_grows_fast_blocks_nothing(tab: Tab, play: Play) -> None:
    """Shortened; `python -m bench log` has 3,000 lines a second for a minute."""
    log = LogPage(tab.page)
    play.write(lines(1, 10))
    await log.open(play.id)
    await expect(log.row("line 10")).to_be_visible()
    session = await tab.page.context.new_cdp_session(tab.page)
    await session.send("Performance.enable", {"timeDomain": "threadTicks"})
    before = await cpu_seconds(session)
    for batch in range(30):
        await asyncio.to_thread(play.write, lines(11 + batch * 300, 310 + batch * 300))
        await asyncio.sleep(0.05)
    await expect(log.row("line 9010")).to_be_visible()
    await expect(log.box).to_have_attribute("aria-rowcount", "9010")
    assert await tab.page.locator(".log-row").count() < 150
    # it takes 0.13 s, however busy the machine is
    assert await cpu_seconds(session) - before < 1


@in_full("web/test_log_search.py and event_stream, and a log that is searched and followed here")
async def test_rows_become_others_unless_one_is_selected(tab: Tab, play: Play) -> None:
    log = LogPage(tab.page)
    play.write(lines(1, 100))
    await log.open(play.id)
    await expect(log.row("line 100")).to_be_visible()
    await tab.page.evaluate("for (const row of document.querySelectorAll('.log-row')) row.wasThere = true")
    play.write(lines(101, 400) + ERROR)
    await expect(log.row("ValueError: no price")).to_be_visible()
    assert await log.row("line 400").evaluate("row => row.wasThere")
    await log.row("line 400").evaluate("row => { window.kept = row; getSelection().selectAllChildren(row); }")
    text = await tab.page.evaluate("kept.textContent")
    play.write(lines(401, 700))
    await expect(log.row("line 700")).to_be_visible()
    assert await tab.page.evaluate("kept.textContent") == text


SETUP = (
    HEAD + b"[scrapy.utils.log] INFO: Scrapy 2.19.0 started (bot: shop)\n",
    HEAD + b"[scrapy.crawler] INFO: Overridden settings:\n{'BOT_NAME': 'shop',\n 'LOG_LEVEL': 'INFO'}\n",
)
STATISTICS = HEAD + b"[scrapy.statscollectors] INFO: Dumping Scrapy stats:\n{'item_scraped_count': 7}\n"


@in_full("web/test_log_search.py and event_stream, and a log that is searched and followed here")
async def test_scrapys_setup_and_statistics_are_a_row_each_until_they_are_wanted(tab: Tab, console: Console) -> None:
    job, data = console.job(), b"".join((*SETUP, HEAD + b"[shop] INFO: the first page\n", STATISTICS))
    entries, _ = split_entries(data, 0)
    chunk = LogChunk(job.id, 1, 0, len(data), "INFO", data, None, count_lines(entries, None))
    console.logs.append(chunk)
    console.database["jobs"].update_one({"_id": job.id}, {"$set": {"attempts.1.log_end": len(data)}})
    log = LogPage(tab.page)
    await log.open(job.id)
    await expect(log.row("the first page")).to_be_visible()
    await expect(log.page.locator(".log-row")).to_have_count(3)
    await expect(log.page.get_by_text("Show 2 lines of Scrapy’s statistics")).to_be_visible()
    await log.page.get_by_text("Show 4 lines of Scrapy’s setup").click()
    await expect(log.page.locator(".log-row")).to_have_count(len(entries))
    await expect(log.row("Overridden settings:")).to_be_visible()
    # a link to a line that would be folded shows it
    await log.page.goto("about:blank")
    await log.open(job.id, f"#1-{entries[1].end}")
    await expect(log.page.locator(".log-row[aria-current]")).to_contain_text("Overridden settings:")
    # its logger's lines are what was asked for
    await log.open(job.id, "?logger=scrapy.crawler")
    await expect(log.row("Overridden settings:")).to_be_visible()
