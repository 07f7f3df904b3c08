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


def options() -> list[str]:
    """Of its command line."""
    # nothing here is drawn in three dimensions, for which a process of its own would do a processor's work
    plain = ["--disable-gpu", "--disable-software-rasterizer"]
    # its sandbox refuses to run as root
    return [*plain, "--no-sandbox"] if os.geteuid() == 0 else plain


@asynccontextmanager
async def new_tab() -> AsyncIterator[Tab]:
    chromium = find_headless_chromium()
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=options())
        tab = Tab(await browser.new_page(), [], [])
        tab.page.on("console", lambda said: tab.complaints.append(said.text) if said.type != "log" else None)
        tab.page.on("pageerror", lambda error: tab.complaints.append(str(error)))
        tab.page.on("request", lambda request: tab.asked.append(request.url))
        yield tab
        await browser.close()
