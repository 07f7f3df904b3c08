"""The file store, on S3, cannot be reached: crawls end meanwhile, and their files arrive when it is back."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from crawl_verifier import CrawlVerifier
from eggs import egg, source
from fault_table import record
from forms import full_or_short, in_full
from relay import Relay
from s3 import s3_server, s3_settings
from sites.server import Site
from stack import Stack, running_stack, wait_until

pytestmark = [
    pytest.mark.stack,
    pytest.mark.timeout(300),
    in_full("a store that is away in tailer/test_files_on_s3.py"),
]

#: Shorter ones are bridged by repeating the request.
SECONDS = full_or_short(60, 1)
#: Crawls that run when it goes away, and that are asked for meanwhile.
RUNNING, ASKED = full_or_short(20, 4), full_or_short(20, 4)
PAGES = 3
SPIDERS = """
from pathlib import Path

import scrapy


class Writer(scrapy.Spider):
    "Writes each page to a file, and its items to a feed."

    name = "writer"
    custom_settings = {"FEEDS": {"items.csv": {"format": "csv"}}}

    def parse(self, response):
        name = response.url.partition("//")[2].partition("/")[2].replace("/", "_")
        Path(f"{name}.html").write_bytes(response.body)
        yield {"url": response.url}
        if not response.meta["depth"]:
            yield from response.follow_all(css="a")
"""


@pytest.fixture(scope="module")
def way(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Relay]:
    """To the server, which would forget all if it were stopped itself."""
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield Relay.before(server)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, way: Relay) -> Iterator[Stack]:
    with way.running():
        url = f"http://127.0.0.1:{way.port}"
        with running_stack(tmp_path_factory.mktemp("s3-away") / "home", **s3_settings(url)) as stack:
            deployed = stack.http.post(
                f"{stack.url}/projects/writer/versions?version=1",
                content=egg(source("writer", spiders=SPIDERS)),
                headers={"Content-Type": "application/octet-stream"},
            )
            assert deployed.is_success, deployed.text
            yield stack


def files(stack: Stack, job_id: str) -> dict[str, bytes]:
    """All that the job lists, which must not be the same name twice."""
    listed = stack.http.get(f"{stack.url}/jobs/{job_id}/files").raise_for_status().json()
    found = {
        one["name"]: stack.http.get(stack.url + one["url"]).raise_for_status().content for one in listed["files"]
    }
    assert len(found) == len(listed["files"])
    return found


def are_stored(stack: Stack, job_id: str) -> bool:
    exits = [attempt["exit"] for attempt in stack.job(job_id)["attempts"]]
    return not any(one["files"]["pending"] for one in exits)


def has_all_files(verifier: CrawlVerifier, paths: tuple[str, ...], job_id: str) -> bool:
    found = files(verifier.stack, job_id)
    rows = sorted(found.pop("items.csv", b"").decode().split())
    pages = {path[1:].replace("/", "_") + ".html": str(verifier.site.pages[path]).encode() for path in paths}
    return rows == sorted(["url", *(verifier.site.url + path for path in paths)]) and found == pages


def test_crawls_end_without_the_file_store_and_their_files_arrive_when_it_is_back(
    stack: Stack, way: Relay, site: Site
) -> None:
    site.delay = 0.5
    with CrawlVerifier(stack, site, pages=PAGES) as verifier:
        crawl = {"spider": "writer", "project": "writer"}
        running = verifier.begin(RUNNING, **crawl)
        verifier.wait_for_visit(running, after=0)
        with way.closed():
            gone = time.monotonic()
            verifier.begin(ASKED, **crawl)
            named = wait_until(lambda: _told(stack), timeout=120, what="why files are not stored")
            assert "s3://crawls/files is not available" in named["message"]
            assert "FILES_URL" in named["todo"]
            # the end of none of them waits for its files
            verifier.wait()
            assert not all(are_stored(stack, job_id) for job_id in verifier.jobs.values())
            # how long it is away is what is tested
            time.sleep(max(0.0, gone + SECONDS - time.monotonic()))
        back = time.monotonic()
        jobs = verifier.jobs
        wait_until(lambda: all(are_stored(stack, job_id) for job_id in jobs.values()), timeout=120, what="all files")
        recovered = time.monotonic() - back
        wait_until(lambda: stack.check("files")["status"] == "ok", what="a node without troubles")
        verdict = verifier.verdict()
        verdict["lost"] += sum(not has_all_files(verifier, one.paths, jobs[one.number]) for one in verifier.crawls)
    injected = f"for {SECONDS} s, {RUNNING} crawls running, {ASKED} asked for; files counted"
    record("S3 away while crawls write files", injected, recovered=recovered, **verdict)


def _told(stack: Stack) -> dict[str, str] | None:
    check = stack.check("files")
    return check if check["status"] == "down" else None
