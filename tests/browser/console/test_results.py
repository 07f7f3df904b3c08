"""The tabs with what a job has found: items, how full their fields are, and files."""

from __future__ import annotations

import base64
from datetime import timedelta
from typing import Any

from browser.console.platform import HOSTILE, Console
from browser.console.tabs import PHONE, Axe, OpenTab, Tab
from forms import in_full
from playwright.async_api import expect

from gateway.clock import utc_now
from gateway.contract.outbox import AttemptId
from gateway.contract.records import ExitReport, FilesKept
from gateway.files.store import FileBytes, FileRecord, FilesPlace, FileStore
from gateway.jobs.job import Job, JobStatus, new_job_id

#: Eight by eight, red.
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAIAQMAAAD+wSzIAAAAA1BMVEX/AAAZ4gk3AAAAC0lEQVQI12NggAIAAAgAAUpmBwUAAAAASUVORK5CYII="
)
DRAWN = b'<svg xmlns="http://www.w3.org/2000/svg" width="8" height="8"><script>alert(1)</script></svg>'


async def test_items_are_shown_with_how_full_their_fields_are(tab: Tab, console: Console, axe: Axe) -> None:
    schedule = new_job_id()
    before = console.job(schedule_id=schedule, age=90_000)
    console.results(
        before, [{"url": f"https://e.example/{n}", "price": n + 1, "seller": {"name": "Ann"}} for n in range(20)]
    )
    job = console.job(schedule_id=schedule)
    found = [
        {"url": f"https://e.example/{n}", "price": n if n % 2 else None, "seller": {"name": HOSTILE}}
        for n in range(20)
    ]
    console.results(job, found)
    await tab.page.goto(f"/console/jobs/{job.id}/items")
    table = tab.page.get_by_role("table", name="Items")
    await expect(table.get_by_role("link", name="https://e.example/19")).to_be_visible()
    fields = (
        tab.page.get_by_role("table", name="Field coverage")
        .or_(tab.page.get_by_role("region", name="Field coverage").get_by_role("table"))
        .first
    )
    row = fields.get_by_role("row").filter(has=tab.page.get_by_role("rowheader", name="price"))
    await expect(row).to_contain_text("50 %")
    await expect(row).to_contain_text("before: 100 %")
    await expect(tab.page.get_by_text("1 lower than before")).to_be_visible()
    await expect(fields.get_by_role("rowheader", name="seller.name")).to_be_visible()
    await axe(tab)


@in_full("web/test_items.py and test_files.py, and items that are shown here")
async def test_an_empty_tab_says_why_and_what_to_do(tab: Tab, console: Console, axe: Axe) -> None:
    failed = console.job(JobStatus.ERROR, message="5 of 5 requests failed", progress={"items_count": 0})
    await tab.page.goto(f"/console/jobs/{failed.id}/items")
    await expect(tab.page.get_by_text("No items found")).to_be_visible()
    await expect(tab.page.get_by_role("link", name="View errors in the log")).to_be_visible()
    await expect(tab.page.locator("data-table").get_by_role("searchbox")).to_be_hidden()
    await axe(tab)
    await tab.page.goto(f"/console/jobs/{failed.id}/files")
    await expect(tab.page.get_by_text("No files", exact=True)).to_be_visible()
    running = console.job(JobStatus.RUNNING)
    await tab.page.goto(f"/console/jobs/{running.id}/items")
    await expect(tab.page.get_by_text("Items appear here as they are scraped.")).to_be_visible()
    console.results(running, [{"first": "one"}])
    await expect(tab.page.get_by_role("cell", name="one")).to_be_visible(timeout=20_000)


def with_files(console: Console, files: dict[str, bytes]) -> Job:
    kept = FilesKept(
        count=len(files),
        refused_count=1,
        refused=[{"name": f"dump{HOSTILE}", "reason": "it has 9 bytes; 8 are allowed"}],
    )
    job = console.job()
    end = ExitReport(attempt=1, ended_at=utc_now(), files=kept)
    console.change(job, **{"attempts.1.exit": end.model_dump(exclude_none=True)})
    store = FileStore(console.database, FileBytes(FilesPlace(console.settings.files_location)))
    attempt = AttemptId(job.id, 1)
    for name, data in files.items():
        store.keep(attempt, name, [data])
        facts: dict[str, Any] = {"size": len(data), "sha256": "0" * 64}
        store.note(
            FileRecord.of(attempt, name, modified_at=utc_now() - timedelta(hours=1), stored_at=utc_now(), **facts)
        )
    return job


@in_full("web/test_items.py and test_files.py, and items that are shown here")
async def test_pictures_are_shown_and_other_files_are_links(tab: Tab, console: Console, axe: Axe) -> None:
    page = b"<script>alert(1)</script>"
    job = with_files(console, {
        "images/full/red.png": PNG, "broken.jpg": b"no picture", "drawn.svg": DRAWN, "page.html": page,
        "odd #?%\u202egnp.exe\n'\"><b>.csv": b"a,b",
    })  # fmt: skip
    await tab.page.goto(f"/console/jobs/{job.id}/files")
    picture = tab.page.get_by_role("img", name="red.png")
    await expect(picture).to_be_visible()
    await expect(tab.page.get_by_role("link", name="cannot be shown as an image")).to_be_visible()
    assert await picture.evaluate("img => img.decode().then(() => img.naturalWidth)") == 8
    await expect(tab.page.get_by_text("it has 9 bytes; 8 are allowed")).to_be_visible()
    assert await tab.page.locator("main b, main script").count() == 0
    await axe(tab)
    await tab.page.get_by_role("link", name="red.png").press("Enter")
    await expect(tab.page.get_by_role("dialog", name="images/full/red.png").get_by_role("img")).to_be_visible()
    await axe(tab)
    await tab.page.keyboard.press("Escape")
    odd = tab.page.get_by_role("link", name="odd")
    await expect(odd).to_have_text("odd #?%\\u202egnp.exe\\n'\"><b>.csv")
    async with tab.page.expect_download() as download:
        await odd.press("Enter")
    assert (await (await download.value).path()).read_bytes() == b"a,b"


@in_full("web/test_items.py and test_files.py, and items that are shown here")
async def test_the_tabs_fit_on_a_phone(open_tab: OpenTab, console: Console) -> None:
    job = with_files(console, {f"images/{n}{'x' * 100}.png": PNG for n in range(5)} | {"y" * 150: b"1"})
    console.results(job, [{f"field{n}": HOSTILE for n in range(20)}])
    async with open_tab(console.url, **PHONE) as tab:
        for name in ("items", "files"):
            await tab.page.goto(f"/console/jobs/{job.id}/{name}")
            await expect(tab.page.get_by_role("table").first).to_be_visible()
            assert await tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name


@in_full("web/test_items.py and test_files.py, and items that are shown here")
async def test_items_and_files_of_another_are_not_there(open_tab: OpenTab, locked: Console) -> None:
    job = locked.job(user_id="bert")
    async with open_tab(locked.url) as tab:
        await tab.sign_in(locked.key("anne").token)
        for name in ("items", "files", "fields"):
            answer = await tab.page.goto(f"/console/jobs/{job.id}/{name}")
            assert answer
            assert answer.status == 404
            tab.expect_complaint("404")
