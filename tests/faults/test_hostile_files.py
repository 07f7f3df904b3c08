"""Spiders of a deployed project put FIFOs, links, folders and endless files in the place of their own files.

They run on the one node there is, beside crawls of others.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import pytest
from breakable import Platform
from crawl_verifier import CrawlVerifier
from eggs import egg, source
from fault_table import record
from forms import FULL, full_or_short, in_full
from hostile import KINDS
from sites.server import Site, html
from stack import Stack, wait_until

pytestmark = [pytest.mark.stack, pytest.mark.timeout(720), in_full("each kind in tailer/test_hostile_files.py")]

#: Of files that one of the two crawls replaces; the other hides its items alone.
NAMES = ("crawl.log", "report.json", "progress.json", "active", "stopping", "started", "shipped.json", "exit.json")
KINDS_PLANTED = tuple(KINDS) if FULL else ("fifo", "link to an environment", "file without end")
#: Kinds that are there at the same time, one after the other; in short all at once.
ROUNDS = [(kind,) for kind in KINDS_PLANTED] * 3 if FULL else [KINDS_PLANTED]
BYSTANDERS = full_or_short(10, 4)
#: Seconds within which others' crawls begin meanwhile.
PROMPT = full_or_short(5.0, 20.0)
PATIENCE = 150.0
#: Puts what its parameters say into its folder; it runs until the file `gate` is there.
SPIDERS = """
import asyncio, os, pathlib, socket
import scrapy

def listen(path):
    here = os.open(".", os.O_RDONLY)
    os.chdir(path.parent)
    socket.socket(socket.AF_UNIX).bind(path.name)
    os.fchdir(here)

def endless(path):
    path.touch()
    os.truncate(path, 1 << 42)

KINDS = {
    "fifo": os.mkfifo,
    "socket": listen,
    "folder": lambda path: path.mkdir(),
    "link to an environment": lambda path: path.symlink_to(f"/proc/{os.getppid()}/environ"),
    "link to /dev/zero": lambda path: path.symlink_to("/dev/zero"),
    "link to nothing": lambda path: path.symlink_to("nowhere"),
    "file without end": endless,
}

class Planter(scrapy.Spider):
    name = "planter"

    async def parse(self, response):
        yield {"number": 0}
        await asyncio.sleep(1)
        folder = pathlib.Path(os.environ["DISCOVERYBOT_ATTEMPT_DIR"])
        for name in self.files.split():
            if name in ("report.json", "progress.json", "active"):
                name = f"state/{name}"
            (folder / name).unlink(missing_ok=True)
            KINDS[self.kind](folder / name)
        while not pathlib.Path(self.gate).exists():
            await asyncio.sleep(0.1)
"""


@pytest.fixture(scope="module")
def stack(platform: Platform) -> Stack:
    stack, content = platform.stack, egg(source("planter", spiders=SPIDERS))
    answer = stack.http.post(f"{stack.url}/projects/planter/versions?version=1", content=content, timeout=90)
    answer.raise_for_status()
    known = f"{stack.url}/spiders?project=planter"
    wait_until(lambda: stack.http.get(known).json().get("projects"), timeout=90, what="the project")
    return stack


def plant(stack: Stack, site: Site, gate: Path, kind: str) -> tuple[str, str]:
    """The jobs of two crawls that do so: one with its items alone."""

    def crawl(files: str) -> str:
        path = f"/plant/{gate.parent.name}/{KINDS_PLANTED.index(kind)}/{len(files)}"
        site.pages |= {path: html("plant")}
        params = {"kind": kind, "files": files, "gate": str(gate)}
        return stack.crawl(site.url + path, project="planter", spider="planter", params=params, max_retries=0)

    return crawl("items.jsonl"), crawl(" ".join(NAMES))


def wait_until_named(stack: Stack, jobs: Sequence[str]) -> None:
    def named() -> bool:
        message = stack.check("files")["message"]
        return all(f"{job}-1: items.jsonl " in message for job in jobs)

    wait_until(named, what="a word in /health")


def test_a_hostile_file_of_any_kind_costs_nobody_else_anything(
    stack: Stack, site: Site, verifier: CrawlVerifier, tmp_path_factory: pytest.TempPathFactory
) -> None:
    slowest = 0.0
    for kinds in ROUNDS:
        gate = tmp_path_factory.mktemp("gate") / "open"
        planted = [plant(stack, site, gate, kind) for kind in kinds]
        slowest = max(slowest, verifier.begun(BYSTANDERS))
        wait_until_named(stack, [items_alone for items_alone, _ in planted])
        gate.touch()
        slowest = max(slowest, verifier.begun())
        for job in chain(*planted):
            stack.wait_final(job, timeout=PATIENCE)
            assert b"PATH=" not in stack.log(job)
        for items_alone, _ in planted:
            facts = stack.job(items_alone)["attempts"][0]["exit"]
            assert facts["items_lost"].startswith("items.jsonl ")
    wait_until(lambda: stack.check("files")["status"] == "ok", what="the end of it in /health")
    verifier.wait()
    assert slowest < PROMPT
    record(
        "Hostile files of every kind",
        f"{len(NAMES) + 1} names × {len(KINDS_PLANTED)} kinds, {len(verifier.crawls)} crawls of others",
        recovered=slowest, **verifier.verdict(),
    )  # fmt: skip
