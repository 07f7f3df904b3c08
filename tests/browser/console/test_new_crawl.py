"""The form of a new crawl: what will happen is said before, and the same request can be pasted elsewhere."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import pytest
from browser.console.platform import HOSTILE, Console
from browser.console.tabs import PHONE, Axe, OpenTab, Tab
from forms import in_full
from playwright.async_api import Page, Route, expect

from gateway.access.keys import Scope
from gateway.clock import utc_now
from gateway.contract.records import SpiderInfo
from gateway.projects.eggs import SpiderStore

JOB_PAGE = re.compile(r"/console/jobs/([0-9a-f]{32})")
ODD = HOSTILE[:50].replace("\x07", "")
PARAMS: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "robots": {"type": "boolean", "default": True, "description": "Obey robots.txt."},
        "format": {"enum": ["text", "html"], "default": "text"},
        "words": {"type": "integer", "minimum": 1, "default": 100},
        "include": {"type": "array", "items": {"type": "string"}},
        "rules": {"type": "object"},
    },
}

#: Names that mean something to JavaScript, and one with a dot.
SLY: dict[str, Any] = {
    "type": "object",
    "properties": {
        "__proto__.headers.Authorization": {"enum": ["Bearer evil"]},
        "__proto__": {"type": "object"},
        "constructor": {"type": "string"},
        "shop.page": {"type": "string"},
    },
    "required": ["__proto__.headers.Authorization"],
}


@pytest.fixture(scope="module", autouse=True)
def spiders(console: Console) -> None:
    odd = {"type": "object", "properties": {"<i>odd</i>\u202e": {"description": HOSTILE}}}
    infos = [
        SpiderInfo(project="default", name="article", description="Reads articles.", params_schema=PARAMS),
        SpiderInfo(project="shop", version="1.3", latest=False, name="offers", needs_urls=False),
        SpiderInfo(project="shop", version="1.4", name="offers", description="Finds offers.", needs_urls=False),
        SpiderInfo(project="odd", version="1", name=ODD, description=HOSTILE, params_schema=odd),
        SpiderInfo(project="sly", version="1", name="sly", needs_urls=False, params_schema=SLY),
        *(SpiderInfo(project="many", version="1", name=f"spider_{number}") for number in range(150)),
    ]
    SpiderStore(console.database).publish("n1", infos)
    console.node()
    # it lives for as long as the tests take
    later = utc_now() + timedelta(days=1)
    console.database["nodes"].update_one({}, {"$set": {"heartbeat_at": later, "protocols_at": later}})


def job_on(page: Page) -> str:
    found = JOB_PAGE.search(page.url)
    assert found is not None
    return found[1]


def preview(page: Page) -> Any:
    return page.get_by_role("region", name="Preview")


async def fill(page: Page, label: str, text: str) -> None:
    await page.get_by_label(label, exact=False).first.fill(text)


async def test_a_crawl_is_asked_for_with_the_keyboard_alone(tab: Tab, axe: Axe, console: Console) -> None:
    page = tab.page
    await page.goto("/console/crawl")
    # the form of what is chosen appears below, and the address is one to keep
    await expect(page.get_by_label("Spider")).to_be_focused()
    # half a name is no mistake until its field is left
    await page.keyboard.type("articl")
    await expect(preview(page)).to_contain_text("This would be refused")
    await expect(page.get_by_label("Spider")).not_to_have_attribute("aria-invalid", "true")
    await page.keyboard.press("Tab")
    await expect(page.get_by_label("Spider")).to_have_attribute("aria-invalid", "true")
    await page.keyboard.press("Shift+Tab")
    await page.keyboard.type("article")
    await page.keyboard.press("Tab")
    await expect(page.get_by_text("Reads articles.")).to_be_visible()
    await page.wait_for_url("**/console/crawl?spider=article*")
    await page.get_by_label("Start URLs").focus()
    await page.keyboard.type("https://example.com/\nhttp://127.0.0.1/")
    # what is wrong is said beside its field, before anything is sent
    await expect(page.get_by_label("Start URLs")).to_have_attribute("aria-invalid", "true")
    await expect(preview(page)).to_contain_text("127.0.0.1 is not a public address")
    await axe(tab)
    for _ in "http://127.0.0.1/":
        await page.keyboard.press("Backspace")
    await page.get_by_label("words").fill("7")
    await page.get_by_label("robots").press("Space")
    await expect(preview(page)).to_contain_text(re.compile("Starts .*on n1"))
    await page.get_by_role("button", name="Start crawl").press("Enter")
    await page.wait_for_url(JOB_PAGE)
    job = console.jobs.get(job_on(page))
    assert (job.user_id, job.spec.start_urls) == ("operator", ("https://example.com/",))
    # what is left as it was is not sent, so that other programs' requests are the same
    assert job.spec.params == {"robots": False, "words": 7}
    await page.goto(f"/console/crawl?from={job.id}")
    await expect(page.get_by_label("words")).to_have_value("7")
    await expect(preview(page)).to_contain_text("already exists")
    await expect(preview(page).get_by_role("link", name=job.id[:8])).to_be_visible()
    await page.get_by_label("Run even if the same crawl ran recently").check()
    await expect(preview(page)).to_contain_text(re.compile("Starts .*on n1"))
    tab.complaints.clear()  # the page of a job is another chapter


async def test_enter_in_the_field_of_the_spider_chooses_and_starts_nothing(tab: Tab) -> None:
    page = tab.page
    await page.goto("/console/crawl")
    await fill(page, "Start URLs", "https://example.com/")
    await page.get_by_label("Spider").focus()
    await page.keyboard.type("articl")
    await page.keyboard.press("Enter")
    await expect(page.get_by_label("Spider")).to_have_value("article")
    await expect(page.get_by_label("Start URLs")).to_be_focused()
    await page.wait_for_url("**/console/crawl?spider=article*")
    # the whole name, which would be enough for a crawl
    await expect(preview(page)).to_contain_text(re.compile("Starts .*on n1"))
    await page.get_by_label("Spider").press("Enter")
    await expect(page.get_by_label("Start URLs")).to_be_focused()
    await expect(page).to_have_url(re.compile(r"/console/crawl\?"))


@in_full("web/test_crawl_preview.py, and a crawl that is asked for here")
async def test_it_runs_each_morning_in_paris(tab: Tab, console: Console, axe: Axe) -> None:
    page = tab.page
    await page.goto("/console/crawl?spider=article")
    await fill(page, "Start URLs", "https://example.com/")
    await page.get_by_label("Run", exact=True).select_option("daily")
    await expect(page.get_by_label("Interval")).to_have_value("0 9 * * *")
    await page.get_by_label("Time zone").fill("Europe/Pari")
    await expect(preview(page)).to_contain_text("did you mean Europe/Paris?")
    await page.get_by_label("Time zone").fill("paris")
    await page.get_by_label("Time zone").press("Tab")
    await expect(page.get_by_label("Time zone")).to_have_value("Europe/Paris")
    await expect(preview(page)).to_contain_text(
        re.compile(r"Next run: \w+ \d+ \w+ at 09:00 in Europe/Paris\. In your time")
    )
    await expect(preview(page).get_by_role("listitem")).to_have_count(10)
    await expect(preview(page).get_by_role("listitem").first).to_contain_text("09:00 +0")
    await page.get_by_label("First run not before").fill("2127-03-29T00:00")
    await expect(preview(page)).to_contain_text("clocks go forward 1 h before this run")
    await page.get_by_label("Schedule name").fill("mornings")
    await axe(tab)
    await page.get_by_text("Overlap, missed runs, end date").click()
    await page.get_by_label("If the previous run has not ended").select_option("queue")
    await page.get_by_label("Max runs").fill("7")
    pasted = await _pasted(page)
    await page.get_by_label("Schedule name").fill("evenings")
    await expect(preview(page)).to_contain_text("An identical schedule already exists")
    await expect(page.get_by_text("The CLI has no option for: name.")).to_be_visible()
    await page.get_by_role("button", name="Schedule crawl").press("Enter")
    await page.wait_for_url("**/console/schedules/*")
    await expect(page.get_by_text("Showing the existing one")).to_be_visible()
    assert pasted == [page.url.rpartition("/")[2]] * 3
    made = console.schedules.get(page.url.rpartition("/")[2])
    assert (made.name, made.timing.interval, made.timing.timezone) == ("mornings", "0 9 * * *", "Europe/Paris")
    assert (made.overlap, made.max_runs) == ("queue", 7)
    await page.goto("/console/crawl?spider=article")
    await fill(page, "Start URLs", "https://example.com/another")
    await page.get_by_label("Run", exact=True).select_option("weekdays")
    await page.get_by_role("button", name="Schedule crawl").press("Enter")
    await expect(page.get_by_text("Schedule created")).to_be_visible()
    tab.complaints.clear()


def _answering(body: str) -> Callable[[Route], Awaitable[None]]:
    async def answer(route: Route) -> None:
        await route.fulfill(body=body, content_type="application/json")

    return answer


@in_full("web/test_crawl_preview.py, and a crawl that is asked for here")
async def test_what_is_said_before_is_one_sentence_and_says_what_is_to_be_filled_in(tab: Tab) -> None:
    page = tab.page
    given = {"accepted": True, "problems": [], "answer": {"cached": False}, "runs": [], "schedule": None, "crawl": {}}
    for position, words in ((2, "Starts on n1, with 1 crawl ahead in the queue."), (1, "Starts immediately on n1.")):
        place = {"node": "n1", "waiting_reason": None, "queue_position": position}
        answer = json.dumps({**given, "place": place})
        await page.route("**/crawl/preview", _answering(answer))
        await page.goto("/console/crawl?spider=article")
        await expect(preview(page).locator("p")).to_have_text([words])
        await page.unroute("**/crawl/preview")
    await fill(page, "Start URLs", "https://example.com/")
    await page.get_by_label("Run", exact=True).select_option("cron")
    await expect(preview(page)).to_have_text(re.compile("Enter an interval: a cron expression such as 0 9"))
    await page.get_by_label("Interval").fill("0 9 * * *")
    await expect(preview(page).get_by_role("listitem")).to_have_count(10)
    await page.get_by_label("Interval").fill("")
    await expect(page.get_by_label("Interval")).to_have_attribute("aria-invalid", "true")
    await expect(page.get_by_text("has none")).to_have_count(0)


@in_full("web/test_crawl_preview.py, and a crawl that is asked for here")
async def test_no_name_of_a_parameter_means_anything_to_the_page(tab: Tab) -> None:
    page = tab.page
    await page.goto("/console/crawl?project=sly&spider=sly")
    await page.get_by_label("constructor").fill("Ferrari")
    await page.get_by_label("shop.page").fill("7")
    same = page.get_by_label("Command", exact=True)
    named = '{"__proto__.headers.Authorization":"Bearer evil","constructor":"Ferrari","shop.page":"7"}'
    await expect(same).to_contain_text(named)
    await page.get_by_label("__proto__", exact=False).last.fill('{"headers": {"X": "1"}}')
    await expect(page.get_by_text("cannot have this name", exact=True)).to_be_visible()
    assert await page.evaluate("'headers' in {} || 'X' in {}") is False
    tab.expect_complaint("422")  # the gateway takes no name that begins with `_`


async def test_the_same_request_can_be_pasted_elsewhere(tab: Tab, console: Console) -> None:
    page = tab.page
    await page.goto("/console/crawl?spider=article")
    await fill(page, "Start URLs", 'https://example.com/it\'s "here" $HOME?a=1&b=2#\u00e9')
    await fill(page, "include", "^/a'b\"c$\nö `date`")
    await fill(page, "rules", '{"a": [true, null, 1.5, "\\u202e"]}')
    await page.get_by_text("Expectations, settings").click()
    await fill(page, "Tags", "it's a tag")
    await fill(page, "Scrapy settings", 'DOWNLOAD_DELAY=0.5\nUSER_AGENT=it\'s "me"')
    await expect(preview(page)).to_contain_text("This would be refused")
    await fill(page, "Start URLs", "https://example.com/it's?a=$HOME&b=`x`")
    await expect(preview(page)).to_contain_text(re.compile("Starts .*on n1"))
    first, *others = await _pasted(page)
    assert others == [first] * 2
    spec = console.jobs.get(first).spec
    assert spec.start_urls == ("https://example.com/it's?a=$HOME&b=`x`",)
    assert spec.params == {"include": ["^/a'b\"c$", "ö `date`"], "rules": {"a": [True, None, 1.5, "\u202e"]}}
    assert spec.settings == {"DOWNLOAD_DELAY": 0.5, "USER_AGENT": 'it\'s "me"'}


async def _pasted(page: Page) -> list[str]:
    """The ids of the job or schedule that the same requests are answered with, one by each program."""
    ids = []
    for name, program in (
        ("curl", ["bash", "-c"]),
        ("Python", [sys.executable, "-c"]),
        ("CLI", ["bash", "-c"]),
    ):
        await page.get_by_role("button", name=name, exact=True).click()
        text = await page.get_by_label("Command", exact=True).inner_text()
        answer = await _run([*program, text + (" --no-follow --json" if name == "CLI" else "")])
        ids.append(answer.get("schedule_id") or answer["job_id"])
    return ids


async def _run(command: list[str]) -> dict[str, Any]:
    path = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"  # noqa: PTH120 - of a text
    process = await asyncio.create_subprocess_exec(
        *command,
        env={**os.environ, "PATH": path, "no_proxy": "127.0.0.1"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, problems = await process.communicate()
    assert process.returncode == 0, problems.decode()
    answer: dict[str, Any] = json.loads(out)
    return answer


@in_full("web/test_crawl_preview.py, and a crawl that is asked for here")
async def test_a_deployed_spider_takes_what_it_says(tab: Tab, open_tab: OpenTab, console: Console, axe: Axe) -> None:
    page = tab.page
    await page.goto("/console/crawl")
    await page.get_by_label("Project").select_option("shop")
    await expect(page.get_by_label("Version")).to_be_visible()
    await page.get_by_label("Spider").fill("offers")
    await page.get_by_label("Project").focus()
    await expect(page.get_by_text("Finds offers.")).to_be_visible()
    await page.get_by_label("Parameters optional").fill("category=shoes\nno value")
    await expect(preview(page)).to_contain_text("name=value on each line")
    await expect(page.get_by_label("Command", exact=True)).to_contain_text("Fix the invalid field")
    await page.get_by_label("Parameters optional").fill("category=shoes\nsize=42")
    await page.get_by_role("button", name="curl").press("Enter")
    await expect(page.get_by_label("Command", exact=True)).to_contain_text(
        '"params":{"category":"shoes","size":"42"}'
    )
    await expect(preview(page)).to_contain_text("Waiting for a node with this version")
    # of many spiders those that fit are offered
    await page.get_by_label("Project").select_option("many")
    await page.get_by_label("Spider").fill("spider_14")
    await expect(page.locator("#spiders option")).to_have_count(11)
    # nobody's name does anything
    await page.goto(f"/console/crawl?project=odd&spider={quote(ODD)}")
    await expect(page.locator("#parameters code")).to_have_text("<i>odd</i>\\u202e")
    await axe(tab)
    await page.goto("/console/crawl?project=odd&spider=nosuch")
    await expect(page.get_by_text("No spider has this name in project")).to_be_visible()
    async with open_tab(console.url, **PHONE) as phone:
        await phone.page.goto("/console/crawl?project=shop&spider=offers")
        assert await phone.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        await axe(phone)


@in_full("web/test_crawl_preview.py, and a crawl that is asked for here")
async def test_another_users_crawl_is_not_filled_in(open_tab: OpenTab, locked: Console) -> None:
    SpiderStore(locked.database).publish("n1", [SpiderInfo(project="default", name="article", params_schema=PARAMS)])
    annes = locked.job(user_id="anne", start_urls=("https://annes.example/",))
    async with open_tab(locked.url) as tab:
        await tab.sign_in(locked.key("bert").token)
        answer = await tab.page.goto(f"/console/crawl?from={annes.id}")
        assert answer is not None
        assert answer.status == 404
        assert "annes.example" not in await tab.page.content()
        await tab.page.goto("/console/crawl?spider=article")
        await expect(tab.page.get_by_label("User")).to_have_count(0)
        await expect(tab.page.get_by_label("Command", exact=True)).to_contain_text("$DISCOVERYBOT_KEY")
        await fill(tab.page, "Start URLs", "https://example.com/")
        await tab.page.get_by_role("button", name="Start crawl").press("Enter")
        await tab.page.wait_for_url(JOB_PAGE)
        assert locked.jobs.get(job_on(tab.page)).user_id == "bert"
        tab.complaints.clear()
    # an admin who looks as a user asks for that user
    admin = {"Authorization": f"Bearer {locked.key('root', Scope.ADMIN).token}"}
    page = locked.http.get("/console/crawl?spider=article&user_id=anne", headers=admin)
    assert 'name="user_id" value="anne"' in page.text
