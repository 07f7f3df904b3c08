"""What has changed between two crawls of a site, told and exported by a whole platform."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sites.server import Reply, Site, html
from stack import Stack, wait_until

pytestmark = [pytest.mark.stack]

PAGES = 3
OWN = {"user_id": "tester"}


def test_what_has_changed_since_the_last_crawl_is_told_and_exported(stack: Stack, site: Site) -> None:
    address = f"{stack.url}/datasets/pages"
    exports = [{"to": "pages", "format": "jsonl", "what": "changes"}]
    body = {"key": ["url"], "exports": exports}
    stack.http.put(address, params=OWN, json=body).raise_for_status()

    def crawled() -> dict[str, Any]:
        job_id = stack.crawl(f"{site.url}/tree/{PAGES}", dataset="pages", ignore_cache=True)
        assert stack.wait_final(job_id)["status"] == "finished"

        def run() -> Any:
            runs = stack.http.get(f"{address}/runs", params=OWN).raise_for_status().json()["runs"]
            return next((one for one in runs if one["job_id"] == job_id and one["exports"]), None)

        wait_until(run, what="the export of the run")
        found: dict[str, Any] = run()
        return found

    first = crawled()
    assert (first["state"], first["counts"]["new"]) == ("published", PAGES + 1)
    since = stack.http.get(address, params=OWN).json()["last_seq"]
    site.pages[f"/tree/{PAGES}/1"] = Reply(html("<h1>Another title</h1>", "Another title"))
    second = crawled()
    assert second["counts"]["new"] == 0
    query = {**OWN, "since": since}
    changes = stack.http.get(f"{address}/changes", params=query).raise_for_status().json()["changes"]
    changed = {change["key"]["url"]: change["changes"] for change in changes}
    assert changed[f"{site.url}/tree/{PAGES}/1"]["title"]["current"] == "Another title"
    (folder,) = (stack.home / "exports" / "pages" / "changes").glob(f"*-{second['job_id']}")
    assert (folder / "_SUCCESS").exists()
    rows = [json.loads(line) for line in (folder / "changes.jsonl").read_text().splitlines()]
    assert [row["_seq"] for row in rows] == [change["seq"] for change in changes]
