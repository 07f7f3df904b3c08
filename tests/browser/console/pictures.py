"""`make screenshots`: a picture of every page of the console, light, dark and on a phone, for `docs/console.md`."""

from __future__ import annotations

import asyncio
import io
import os
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

if __name__ == "__main__":
    _TESTS = Path(__file__).parents[2]
    # in place of this folder, which has a `platform` of its own
    sys.path[:1] = [str(_TESTS / "support"), str(_TESTS)]

from browser.console.platform import opened
from browser.console.sample import Sample, living
from browser.console.tabs import PHONE
from integration.web.conftest import _serve
from machine import find_program
from PIL import Image
from playwright.async_api import Browser, async_playwright
from stores import embedded_mongo, valkey_server

from gateway.settings import Settings

DOCS = Path(__file__).parents[3] / "docs"
PAGE = DOCS / "console.md"
FOLDER = DOCS / "console"
_COLORS = 128
#: The section of `docs/console.md` with the pictures.
HEADING = "## What it looks like\n"


class Picture(NamedTuple):
    name: str
    title: str
    #: The page's route; the parts of its address come from the sample.
    route: str
    #: What follows the address.
    query: str = ""
    #: The part that the picture begins with; empty for the top of the page.
    begins_at: str = ""


PICTURES = (
    Picture("sign-in", "Sign in", "/console/sign-in"),
    Picture("overview", "Overview", "/"),
    Picture("jobs", "Jobs", "/console/jobs"),
    Picture("job", "A job", "/console/jobs/{job_id}/log"),
    Picture("job-log", "A job: log", "/console/jobs/{job_id}/log", begins_at=".tabs"),
    Picture("job-items", "A job: items", "/console/jobs/{job_id}/items", begins_at=".tabs"),
    Picture("job-requests", "A job: requests", "/console/jobs/{job_id}/requests", begins_at=".tabs"),
    Picture("job-files", "A job: files", "/console/jobs/{job_id}/files", begins_at=".tabs"),
    Picture("job-runs", "A job: its runs beside each other", "/console/jobs/{job_id}/runs", begins_at=".tabs"),
    Picture("crawl", "New crawl", "/console/crawl", "?project=shop&spider=offers"),
    Picture("schedules", "Schedules", "/console/schedules"),
    Picture("week", "Schedules: a week", "/console/schedules/week"),
    Picture("schedule", "A schedule", "/console/schedules/{schedule_id}"),
    Picture("schedule-edit", "A schedule: changing it", "/console/schedules/{schedule_id}/edit"),
    Picture("datasets", "Datasets", "/console/datasets"),
    Picture("dataset", "A dataset", "/console/datasets/{name}"),
    Picture("dataset-normal", "A dataset: what is normal", "/console/datasets/{name}/normal"),
    Picture("sites", "Sites", "/console/sites"),
    Picture("site", "A site", "/console/sites/{name}"),
    Picture("site-new", "A new site", "/console/new-site"),
    Picture("site-edit", "A site: changing it", "/console/sites/{name}/edit"),
    Picture("target", "A target", "/console/targets/{target_id}"),
    Picture("projects", "Projects", "/console/projects"),
    Picture("project", "A project", "/console/projects/{project}"),
    Picture("version", "A version of a project", "/console/projects/{project}/versions/{version}"),
    Picture("spider", "A spider", "/console/spiders/{project}/{spider}"),
    Picture("errors", "Errors", "/console/errors"),
    Picture("error", "An error", "/console/errors/{error_id}"),
    Picture("nodes", "Nodes", "/console/nodes"),
    Picture("dead-letters", "Dead letters", "/console/dead-letters"),
    Picture("keys", "Keys", "/console/keys"),
    Picture("audit", "Audit", "/console/audit"),
)
#: Pages that have no picture, and why.
WITHOUT = {
    "/console/jobs/{job_id}": "leads to one of the job's tabs",
    "/console/jobs/{job_id}/fields": "a part of the tab with the items",
    "/console/jobs/{job_id}/changes": "as the page of the run's dataset",
    "/console/datasets/{name}/items": "as the items of a job",
    "/console/datasets/{name}/lost": "a part of the page of a dataset",
    "/console/jobs/{job_id}/errors": "as the list of errors",
    "/console/jobs/{job_id}/compare": "needs a second run",
    "/console/jobs/{job_id}/compare/items": "a part of it",
    "/console/spiders/{project}/{spider}/coverage": "a part of the page of a spider",
    "/console/jobs/{job_id}/log/volume": "a part of the tab with the log",
    "/console/jobs/{job_id}/requests/pictures": "a part of the tab with the requests",
    "/console/unusual": "a part of the overview",
    "/console/lost-fields": "a part of the list of jobs",
    "/console/help-search": "an address for the palette, as JSON",
    "/console/jobs/{job_id}/notable": "a part of the head of a job",
    "/console/views/{view_id}": "leads to a list",
    "/console/alerts/firing": "a number in the navigation",
    "/console/alerts": "needs crawls that fail",
    "/console/alerts/rules/{rule_id}": "a form",
    "/console/endpoints": "a list and a form, as the keys",
    "/console/endpoints/{endpoint_id}": "needs a receiver that has answered",
    "/console/datasets/{name}/runs/{run}": "a part of the page of its dataset",
}
_DESK = {"viewport": {"width": 1200, "height": 800}}
KINDS: dict[str, dict[str, Any]] = {
    "light": {**_DESK, "color_scheme": "light"},
    "dark": {**_DESK, "color_scheme": "dark"},
    "phone": {**PHONE, "color_scheme": "light"},
}


def section() -> str:
    """What `docs/console.md` shows."""
    rows = [f"| {one.title} | {' | '.join(_shown(one, kind) for kind in KINDS)} |" for one in PICTURES]
    table = ["| page | light | dark | phone |", "|---|---|---|---|", *rows]
    line = "`make screenshots` takes these pictures again, from a sample platform."
    return "\n".join([HEADING, line, "", *table, ""])


def _shown(picture: Picture, kind: str) -> str:
    return f"![{picture.title}, {kind}](console/{picture.name}-{kind}.png)"


def written(text: str) -> str:
    """The page with this section in the place of the one that it has."""
    before, _, rest = text.partition(HEADING)
    following = rest.partition("\n## ")[2]
    return f"{before}{section()}\n## {following}"


async def _take(browser: Browser, url: str, sample: Sample, wanted: set[str]) -> None:
    for kind, options in KINDS.items():
        context = await browser.new_context(base_url=url, locale="en", timezone_id="Europe/Paris", **options)
        page = await context.new_page()
        signed_in = False
        for picture in PICTURES:
            if picture.route != "/console/sign-in" and not signed_in:
                await page.request.post("/session", data={"key": sample.key})
                signed_in = True
            if wanted and picture.name not in wanted:
                continue
            await page.goto(picture.route.format(**sample.ids) + picture.query)
            await page.wait_for_timeout(1500)
            if picture.begins_at:
                await page.locator(picture.begins_at).evaluate("part => part.scrollIntoView({block: 'start'})")
                await page.wait_for_timeout(500)
            _keep(await page.screenshot(), FOLDER / f"{picture.name}-{kind}.png")
        await context.close()


def _keep(picture: bytes, path: Path) -> None:
    """With few colours: a page has few, and the whole set stays small."""
    with Image.open(io.BytesIO(picture)) as image:
        image.convert("RGB").quantize(_COLORS, dither=Image.Dither.NONE).save(path, optimize=True)


async def _all(url: str, sample: Sample, wanted: set[str]) -> None:
    program = find_program("chromium", "chromium-browser", "google-chrome")
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program, args=options)
        await _take(browser, url, sample, wanted)
        await browser.close()


def main() -> None:
    """All pictures, or those that are named."""
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        with valkey_server(folder / "valkey") as redis_url, embedded_mongo(folder / "mongo") as mongo_uri:
            settings = Settings(redis_url=str(redis_url), mongo_uri=str(mongo_uri), discoverybot_home=folder / "home")
            with opened(_serve, settings, "sample", with_keys=True) as console:
                sample = Sample(console)
                with living(sample):
                    asyncio.run(_all(console.url, sample, set(sys.argv[1:])))
    PAGE.write_text(written(PAGE.read_text()))
    for stale in set(FOLDER.glob("*.png")) - {
        FOLDER / f"{one.name}-{kind}.png" for one in PICTURES for kind in KINDS
    }:
        stale.unlink()


if __name__ == "__main__":
    main()
