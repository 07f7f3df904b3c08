"""The documentation as a site: `docs/zensical.toml` has a place for each page, and advice leads to what is there."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from typing import Any
from zipfile import ZipFile

from jobs import make_job
from machine import missing
from unit.house.sources import ROOT, relative

from gateway.console.help import ARCHIVE, _in_site
from gateway.contract.reasons import Reason
from gateway.jobs.advice import advice
from gateway.jobs.job import JobStatus, WaitingReason

#: Each stands in the list of decisions, which has a place.
DECISION = re.compile(r"docs/decisions/\d{4}-")


def _named(entries: Any) -> Iterator[str]:
    if isinstance(entries, str):
        yield entries
        return
    for entry in entries:
        for below in entry.values():
            yield from _named(below)


def test_every_page_has_one_place_in_the_navigation() -> None:
    settings = tomllib.loads((ROOT / "docs/zensical.toml").read_text(encoding="utf-8"))
    named = sorted(_named(settings["project"]["nav"]))
    pages = {relative(page) for page in (ROOT / "docs").rglob("*.md") if not DECISION.match(relative(page))}
    assert named == sorted(pages | {"README.md", "SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md"})


def test_the_search_finds_no_history() -> None:
    if not ARCHIVE.exists():
        missing("the documentation is not built: make docs")
    with ZipFile(ARCHIVE) as site:
        found = {one["location"].partition("#")[0] for one in json.loads(site.read("search.json"))["items"]}
    assert "docs/reference/keys.html" in found
    assert not [one for one in found if one.startswith(("CHANGELOG", "docs/decisions/"))]


def test_advice_leads_to_a_heading_of_the_site_as_it_is_built() -> None:
    if not ARCHIVE.exists():
        missing("the documentation is not built: make docs")
    jobs = [make_job(status=JobStatus.ERROR, reason=reason) for reason in Reason]
    jobs += [make_job(waiting_reason=reason) for reason in [*WaitingReason, None]]
    with ZipFile(ARCHIVE) as site:
        for reference in {found.reference for job in jobs if (found := advice(job))}:
            path, _, anchor = reference.partition("#")
            page = site.read(_in_site(path)).decode()
            assert not anchor or f'id="{anchor}"' in page, reference
