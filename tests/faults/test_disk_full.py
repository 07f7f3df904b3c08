"""The disk of a crawl node, a small one of its own, is filled to the last byte in mid-crawl, and emptied again."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from crawl_verifier import CrawlVerifier
from eggs import egg, source
from fault_table import record
from forms import full_or_short, in_full
from machine import small_disk
from nodes import own_node
from sites.gated import GatedSite
from sites.server import Site
from stack import Stack, running_stack, wait_until

pytestmark = [
    pytest.mark.stack,
    pytest.mark.timeout(420),
    in_full("a full node in services/test_room.py, what ends with it in services/test_pausing.py"),
]

SLOTS = 3
#: Their items take more than what is left of the last block of a file.
PAGES = 40
#: Of the disk, and how much must be free for new work, in MiB.
SIZE, MIN_FREE = 12, 4
#: The same in inodes.
INODES, MIN_FREE_INODES = 2000, 200
ROUNDS = full_or_short(2, 1)
#: Seconds for which the disk stays full after it was seen to be.
FULL_FOR = full_or_short(5, 1)
PATIENCE = 90.0


#: Writes items without end.
GREEDY = """
import asyncio
import scrapy

class Greedy(scrapy.Spider):
    name = "greedy"

    async def start(self):
        while True:
            yield {"text": "x" * (128 << 10)}
            await asyncio.sleep(0.1)
"""


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of the stack's node; everything else is where there is room."""
    node = tmp_path_factory.mktemp("full") / "home" / "node"
    node.mkdir(parents=True)
    with small_disk(node, f"{SIZE}m,nr_inodes={INODES}"):
        yield node


@pytest.fixture(scope="module")
def stack(disk: Path) -> Iterator[Stack]:
    free = {"NODE_MIN_FREE_BYTES": str(MIN_FREE << 20), "NODE_MIN_FREE_INODES": str(MIN_FREE_INODES)}
    variables = {**free, "NODE_SLOTS": str(SLOTS), "CRAWL_STOP_GRACE": "3"}
    with running_stack(disk.parent, **variables) as stack:
        yield stack


@pytest.fixture(autouse=True)
def room_again(disk: Path) -> Iterator[None]:
    yield
    (disk / "filler").unlink(missing_ok=True)


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as filler, suppress(OSError):
        for piece in (1 << 20, 4096, 1):
            with suppress(OSError):
                while True:
                    filler.write(b"x" * piece)


def test_a_crawl_that_may_not_be_repeated_tells_of_a_full_disk_and_the_next_one_waits(
    stack: Stack, disk: Path, site: Site
) -> None:
    # it must not be at its end when the disk is full
    site.delay = 1
    caught = stack.crawl(f"{site.url}/tree/300", max_retries=0)
    wait_until(lambda: stack.status(caught)["completed_pages"], what="the first page")
    fill(disk / "filler")
    end = stack.wait_final(caught)
    assert (end["status"], end["message"] is None) in {("error", False), ("partial", False)}
    fill(disk / "filler")
    waiting = stack.crawl(f"{site.url}/tree/6")
    wait_until(lambda: stack.status(waiting)["waiting_reason"] == "disk_full", what="why it waits")
    (disk / "filler").unlink()
    assert stack.wait_final(waiting)["status"] == "finished"


def use_up_inodes(folder: Path) -> None:
    folder.mkdir()
    with suppress(OSError):
        for number in range(INODES):
            (folder / str(number)).touch()


def test_a_crawl_ends_and_says_so_on_a_disk_on_which_no_file_can_be_made(
    stack: Stack, disk: Path, site: Site
) -> None:
    site.delay = 1
    caught = stack.crawl(f"{site.url}/tree/301", max_retries=0)
    wait_until(lambda: stack.status(caught)["completed_pages"], what="the first page")
    use_up_inodes(disk / "empty")
    stack.http.post(f"{stack.url}/jobs/{caught}/cancel").raise_for_status()
    assert stack.wait_final(caught)["status"] == "cancelled"
    waiting = stack.crawl(f"{site.url}/tree/7")
    wait_until(lambda: stack.status(waiting)["waiting_reason"] == "disk_full", what="why it waits")
    shutil.rmtree(disk / "empty")
    assert stack.wait_final(waiting)["status"] == "finished"


def test_a_crawl_that_fills_the_disk_is_stopped_before_others_have_to_wait(stack: Stack, site: Site) -> None:
    versions, content = f"{stack.url}/projects/greedy/versions?version=1", egg(source("greedy", spiders=GREEDY))
    stack.http.post(versions, content=content, timeout=90).raise_for_status()
    known = f"{stack.url}/spiders?project=greedy"
    wait_until(lambda: stack.http.get(known).json().get("projects"), timeout=90, what="the project")
    greedy = stack.crawl(site.url, project="greedy", spider="greedy", max_retries=0)
    end = stack.wait_final(greedy, timeout=PATIENCE)
    assert (end["status"], end["reason"]) == ("partial", "disk_full")
    assert "NODE_MIN_FREE_BYTES" in end["message"]
    assert stack.wait_final(stack.crawl(f"{site.url}/tree/5"))["status"] == "finished"
    stack.http.delete(f"{stack.url}/jobs/{greedy}").raise_for_status()


def test_crawls_outlive_a_disk_that_is_full_for_a_while(stack: Stack, disk: Path) -> None:
    recovered = 0.0
    with GatedSite() as site, CrawlVerifier(stack, site, pages=PAGES) as verifier:
        for _ in range(ROUNDS):
            site.shut()
            interrupted = verifier.begin(SLOTS)
            wait_until(lambda: site.under_way == SLOTS, timeout=PATIENCE, what="crawls in all slots")
            fill(disk / "filler")
            site.open()
            waiting = verifier.begin(SLOTS)
            wait_until(lambda: own_node(stack)["disk_full"], timeout=PATIENCE, what="a node that says it is full")
            time.sleep(FULL_FOR)  # how long it is full is what is tested
            assert not verifier.first_visit(waiting)
            (disk / "filler").unlink()
            recovered = max(recovered, verifier.wait_for_visit(waiting, after=time.monotonic()))
            verifier.wait()
            assert any(len(stack.job(verifier.jobs[crawl.number])["attempts"]) > 1 for crawl in interrupted)
        record(
            "Disk of a node full", f"{ROUNDS} × to the last byte in mid-crawl, {2 * SLOTS} crawls each",
            recovered=recovered, **verifier.verdict(retried=True),
        )  # fmt: skip
