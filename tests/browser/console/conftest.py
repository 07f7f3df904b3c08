"""The console in Debian's Chromium: a gateway on a real port over the embedded MongoDB and Valkey, and tabs.

`console` is a gateway without keys, and what puts things into its database; `locked` is one that takes keys. Both
serve all tests of a file. `tab` is a new page of `console`, in the one Chromium of this process. All these tests
run on one loop, because a browser belongs to its loop.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from browser.chromium import options
from browser.console.platform import Console, opened
from browser.console.tabs import DESK, Axe, OpenTab, Tab, check
from integration.web.conftest import serve, settings
from machine import find_headless_chromium
from playwright.async_api import Browser, async_playwright, expect

from gateway.settings import Settings

__all__ = ["serve", "settings"]

# as long as any other step: machines are busy
expect.set_options(timeout=30_000)

_HERE = Path(__file__).parent
_ON_ONE_LOOP = pytest.mark.asyncio(loop_scope="session")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(_ON_ONE_LOOP, append=False)


@pytest.fixture(scope="module")
def console(serve: Any, settings: Settings, request: pytest.FixtureRequest) -> Iterator[Console]:
    with opened(serve, settings, f"console-{request.path.stem}") as running:
        yield running


@pytest.fixture(scope="module")
def locked(serve: Any, settings: Settings, request: pytest.FixtureRequest) -> Iterator[Console]:
    with opened(serve, settings, f"locked-{request.path.stem}", with_keys=True) as running:
        yield running


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def chromium() -> AsyncIterator[Browser]:
    program = find_headless_chromium()
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program, args=options())
        yield browser
        await browser.close()


@pytest.fixture(scope="session")
def open_tab(chromium: Browser) -> OpenTab:
    """Opens a tab at this address, in a context of its own with these options (`PHONE`). At the end the page must
    have had no complaints.
    """

    @asynccontextmanager
    async def opening(url: str, **options: Any) -> AsyncIterator[Tab]:
        context = await chromium.new_context(base_url=url, **{**DESK, **options})
        tab = Tab(await context.new_page())
        try:
            yield tab
        finally:
            # its streams would keep the gateway from ending
            await context.close()
        assert tab.complaints == []

    return opening


@pytest_asyncio.fixture(loop_scope="session")
async def tab(open_tab: OpenTab, console: Console) -> AsyncIterator[Tab]:
    async with open_tab(console.url) as opened_tab:
        yield opened_tab


@pytest.fixture(scope="session")
def axe() -> Axe:
    """Fails with what axe-core finds on the page of a tab, light and dark."""
    return check
