"""Projects: deployed, rolled back, given variables and settings; and what a user sees of them who is no admin."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from browser.console.platform import HOSTILE, Console
from browser.console.tabs import PHONE, Axe, OpenTab, Tab
from eggs import teller
from playwright.async_api import Page, expect

from gateway.access.keys import Scope
from gateway.contract.records import SpiderInfo

SCHEMA = {
    "type": "object",
    "properties": {
        "category": {"type": "string", "description": HOSTILE[:80], "enum": ["shoes", "hats"], "default": "hats"},
        "pages": {"type": "integer", "description": "How many."},
    },
    "required": ["pages"],
    "additionalProperties": False,
}
INFO = SpiderInfo(project="shop", name="offers", description=HOSTILE[:80], params_schema=SCHEMA, needs_urls=False)


class Scrapyd(ThreadingHTTPServer):
    """Of a node that takes every egg, and needs two looks to install what one depends on."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        #: How often it is still to say that it installs; -1: from the next deployment on.
        self.looks = 0


class _Handler(BaseHTTPRequestHandler):
    server: Scrapyd

    def do_GET(self) -> None:
        state = "building" if self.server.looks > 0 else "ready"
        self.server.looks = max(0, self.server.looks - 1)
        log = f"resolving the requirements\n+ colour==1.0 {HOSTILE[:80]}"
        self._answer({"state": state, "log": log, "message": None, "packages": ["colour==1.0"]})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.server.looks == -1:
            self.server.looks = 2
            self._answer({"status": "error", "code": "still_installing", "fault": "node", "message": "not yet"})
        else:
            self._answer({"spiders": 1, "infos": [INFO.model_dump(mode="json")]})

    def _answer(self, said: dict[str, object]) -> None:
        data = json.dumps({"status": "ok", **said}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def scrapyd() -> Iterator[Scrapyd]:
    with Scrapyd() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


async def deploy(page: Page, version: str, egg: Path) -> None:
    await page.get_by_label("Version", exact=True).fill(version)
    await page.get_by_label("Egg").set_input_files(egg)
    await page.get_by_role("button", name="Deploy").press("Enter")


async def test_a_project_is_deployed_rolled_back_and_given_what_it_needs(
    *, open_tab: OpenTab, locked: Console, axe: Axe, scrapyd: Scrapyd, tmp_path: Path
) -> None:
    locked.node("n1", url=scrapyd.url)
    egg = tmp_path / "shop.egg"
    egg.write_bytes(teller("1", "shop"))
    async with open_tab(locked.url) as tab:
        page = tab.page
        await tab.sign_in(locked.key("root", Scope.ADMIN).token)
        await page.goto("/console/projects")
        await expect(page.get_by_text("No projects yet")).to_be_visible()
        await axe(tab)
        await page.get_by_label("Project", exact=True).fill("shop")
        await deploy(page, "1.0", egg)
        await page.wait_for_url("**/console/projects/shop")
        await expect(page.get_by_role("row", name="1.0").get_by_text("latest", exact=True)).to_be_visible()
        # the second takes its time
        (tmp_path / "requirements.txt").write_text("colour\n")
        await page.get_by_label("Requirements").set_input_files(tmp_path / "requirements.txt")
        scrapyd.looks = -1
        await deploy(page, "1.1", egg)
        await expect(page.get_by_text("+ colour==1.0")).to_be_visible()
        await expect(page.get_by_role("row", name="1.1").get_by_text("latest", exact=True)).to_be_visible()
        await page.get_by_text("2 parameters").click()
        await expect(page.get_by_role("row", name="pages")).to_contain_text("How many.")
        await axe(tab)
        await page.get_by_role("button", name="Roll back to 1.0").press("Enter")
        await page.keyboard.press("Tab")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("row", name="1.0").get_by_text("latest", exact=True)).to_be_visible()
        await _give(tab)
        await page.get_by_role("link", name="Build log of 1.1").click()
        await expect(page.get_by_text("+ colour==1.0")).to_be_visible()
        await axe(tab)
    await _see_as_a_user(open_tab, locked, axe)


async def _give(tab: Tab) -> None:
    """A secret and settings."""
    page = tab.page
    variables = page.get_by_role("region", name="Variables and secrets")
    await variables.get_by_label("Name").fill("lower")
    await variables.get_by_label("Value").fill("s3cret")
    await variables.get_by_role("button", name="Set variable").press("Enter")
    await expect(variables.locator("[data-problem], [role=alert]:visible")).to_have_count(1)
    tab.expect_complaint("422")
    await variables.get_by_label("Name").fill("API_KEY")
    await page.keyboard.press("Enter")
    await expect(variables.get_by_role("row", name="API_KEY")).to_contain_text("secret")
    settings = page.get_by_label("Scrapy settings (JSON)")
    await settings.fill('{"DOWNLOAD_DELAY": 1.5}')
    await page.get_by_role("button", name="Save settings").press("Enter")
    await expect(page.get_by_text("Settings saved.")).to_be_visible()
    await page.reload()
    await expect(settings).to_have_value('{\n  "DOWNLOAD_DELAY": 1.5\n}')
    assert "s3cret" not in await page.content()


async def _see_as_a_user(open_tab: OpenTab, locked: Console, axe: Axe) -> None:
    async with open_tab(locked.url, **PHONE) as tab:
        await tab.sign_in(locked.key("anne", Scope.READ).token)
        await tab.page.goto("/console/projects/shop")
        await expect(tab.page.get_by_text("offers")).to_be_visible()
        text = await tab.page.content()
        assert "API_KEY" not in text
        assert "DOWNLOAD_DELAY" not in text
        await expect(tab.page.get_by_role("button", name="Deploy")).to_have_count(0)
        assert await tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        await axe(tab)
        await tab.page.goto("/console/projects/shop/versions/1.1")
        tab.expect_complaint("403")
