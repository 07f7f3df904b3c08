"""Debian's Chromium, driven by Playwright, and what it complains of."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from machine import find_headless_chromium
from playwright.async_api import Page, async_playwright


class Tab(NamedTuple):
    page: Page
    #: Errors on the console and in scripts, as they come: a violated policy is one.
    complaints: list[str]
    #: Addresses that were asked for.
    asked: list[str]


@asynccontextmanager
async def new_tab() -> AsyncIterator[Tab]:
    chromium = find_headless_chromium()
    async with async_playwright() as playwright:
        # Chromium's sandbox refuses to run as root
        browser = await playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox"] if os.geteuid() == 0 else []
        )
        tab = Tab(await browser.new_page(), [], [])
        tab.page.on("console", lambda said: tab.complaints.append(said.text) if said.type != "log" else None)
        tab.page.on("pageerror", lambda error: tab.complaints.append(str(error)))
        tab.page.on("request", lambda request: tab.asked.append(request.url))
        yield tab
        await browser.close()
