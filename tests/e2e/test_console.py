"""A crawl in the console, from its form to its result."""

from __future__ import annotations

import os

import pytest
from machine import find_program
from playwright.sync_api import expect, sync_playwright
from sites.server import Site
from stack import Stack

pytestmark = [pytest.mark.stack]


def test_a_crawl_is_asked_for_in_its_form_and_its_items_are_seen(stack: Stack, site: Site) -> None:
    site.delay = 0.1
    # Chromium's sandbox refuses to run as root
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    program = find_program("chromium", "chromium-browser", "google-chrome")
    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=program, args=options) as browser,
    ):
        page = browser.new_page(base_url=stack.url)
        page.set_default_timeout(60_000)
        expect.set_options(timeout=60_000)
        page.goto("/")
        page.get_by_role("link", name="New crawl").first.click()
        page.get_by_label("Spider").fill("seo")
        page.get_by_label("Start URLs").fill(f"{site.url}/tree/12")
        page.get_by_label("Max pages").fill("9")
        preview = page.get_by_role("region", name="Preview")
        expect(preview).to_contain_text("Starts immediately on")
        page.get_by_role("button", name="Start crawl").click()
        page.wait_for_url("**/console/jobs/**")
        job_id = page.url.partition("/console/jobs/")[2][:32]
        # the page follows the crawl by itself
        expect(page.get_by_role("main").locator('[data-status="finished"]').first).to_be_visible()
        page.goto(f"/console/jobs/{job_id}/items")
        expect(page.get_by_role("main")).to_contain_text("/tree/12")
        assert stack.status(job_id)["completed_pages"] == 9
        # the same again is the same crawl
        page.goto(f"/console/crawl?from={job_id}")
        expect(preview.get_by_role("link", name=job_id[:8])).to_be_visible()
