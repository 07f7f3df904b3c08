"""The documentation in a real browser, as `make docs` builds it and under the policy that it is sent with."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from browser.chromium import new_tab
from browser.test_reference import serving
from machine import missing

from gateway.console.help import ARCHIVE
from gateway.settings import Settings


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    if not ARCHIVE.exists():
        missing("the documentation is not built: make docs")
    with serving(Settings()) as address:
        yield address


async def test_a_page_is_drawn_and_searched_and_breaks_no_policy(url: str) -> None:
    async with new_tab() as tab:
        await tab.page.goto(f"{url}/help/docs/troubleshooting.md")
        await tab.page.get_by_role("heading", name="no_items").wait_for()
        await tab.page.wait_for_load_state("networkidle")
        await tab.page.keyboard.press("/")
        await tab.page.get_by_role("combobox", name="Search").fill("expectation_broken")
        found = tab.page.get_by_role("option", name="expectation_broken").first
        address = await found.get_attribute("href", timeout=60_000)
        assert address == f"{url}/help/docs/troubleshooting.html?h=expectation_broken#expectation_broken"
        assert tab.complaints == []
        assert {urlsplit(address).netloc for address in tab.asked if "data:" not in address} == {urlsplit(url).netloc}
