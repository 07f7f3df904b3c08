"""A real crawl, followed to its end by the clients that most people have: a browser, and npm's `eventsource`."""

from __future__ import annotations

import json
import os
import re
import subprocess
from typing import Any

import pytest
from browser.follow import PAGE, node_project
from machine import find_program
from playwright.async_api import async_playwright
from sites.server import Site
from stack import ROOT, Stack

pytestmark = [pytest.mark.stack]


def check(heard: dict[str, Any], stack: Stack, job_id: str) -> None:
    """Every line once, the end once; then, after one look whether there is more, it has stopped by itself."""
    log = stack.log(job_id)
    assert len(heard["ids"]) == len(set(heard["ids"])) == log.count(b"\n")
    assert heard["ids"][-1] == f"1-{len(log)}"
    assert heard["ends"] == [[f"1-{len(log) + 1}", "finished"]]
    assert heard["states"][-1] == 2


async def test_chromium_follows_a_crawl_to_its_end_and_stops(stack: Stack, site: Site) -> None:
    chromium = find_program("chromium", "chromium-browser", "google-chrome")
    site.delay = 0.2
    job_id = stack.crawl(f"{site.url}/tree/30")
    async with async_playwright() as playwright:
        # Chromium's sandbox refuses to run as root
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = await playwright.chromium.launch(executable_path=chromium, args=arguments)
        page = await browser.new_page()
        await page.route("**/page", lambda route: route.fulfill(body=PAGE, content_type="text/html"))
        await page.goto(f"{stack.url}/page")
        following = "url => new Promise(report => follow(EventSource, url, report))"
        heard = await page.evaluate(following, f"/jobs/{job_id}/logs")
        await browser.close()
    check(heard, stack, job_id)


async def test_the_example_of_a_page_crawls_and_cancels(stack: Stack, site: Site) -> None:
    text = (ROOT / "docs/examples/crawl_in_a_browser.html").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 40
    async with async_playwright() as playwright:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        chromium = find_program("chromium", "chromium-browser", "google-chrome")
        browser = await playwright.chromium.launch(executable_path=chromium, args=arguments)
        page = await browser.new_page()
        await page.route(re.compile("/page[?]"), lambda route: route.fulfill(body=text, content_type="text/html"))
        await page.goto(f"{stack.url}/page?gateway={stack.url}")
        await page.fill("input", f"{site.url}/tree/3")
        await page.click("text=Crawl")
        await page.wait_for_function("document.querySelector('#status').textContent === 'finished'")
        assert "Spider opened" in await page.inner_text("#log")
        assert await page.locator("#items li").count() > 3
        site.hold()
        await page.click("text=Crawl")
        await page.click("#cancel")
        await page.wait_for_function("document.querySelector('#status').textContent === 'cancelled'")
        site.release()
        await browser.close()


def test_npms_eventsource_follows_a_crawl_to_its_end_and_stops(
    stack: Stack, site: Site, request: pytest.FixtureRequest
) -> None:
    assert request.config.cache is not None
    folder = node_project(request.config.cache.mkdir("npm-eventsource"))
    site.delay = 0.2
    job_id = stack.crawl(f"{site.url}/tree/30")
    command = [find_program("node"), "follow.mjs", f"{stack.url}/jobs/{job_id}/logs"]
    # Node.js ends by itself only when nothing is open and no timer runs
    output = subprocess.run(command, cwd=folder, capture_output=True, check=True, timeout=120).stdout
    check(json.loads(output), stack, job_id)
