"""The console's first page in a browser without cached files: the time until it can be read."""

from __future__ import annotations

import os
import shutil
import statistics

from playwright.sync_api import Browser, sync_playwright

ROUNDS = 5
#: Milliseconds from the navigation's start until there is text on the page.
_PAINTED = "performance.getEntriesByName('first-contentful-paint')[0].startTime"


def readable_seconds(url: str) -> float:
    """Seconds of the median visit. Raises `RuntimeError` if there is no Chromium."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        raise RuntimeError("Chromium is needed (Debian: apt install chromium)")
    with sync_playwright() as playwright:
        # Chromium's sandbox refuses to run as root
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=program, args=options)
        return statistics.median(_visit(browser, url) for _ in range(ROUNDS)) / 1000


def _visit(browser: Browser, url: str) -> float:
    context = browser.new_context()
    page = context.new_page()
    page.goto(url)
    page.wait_for_function("performance.getEntriesByName('first-contentful-paint').length")
    painted: float = page.evaluate(_PAINTED)
    context.close()
    return painted
