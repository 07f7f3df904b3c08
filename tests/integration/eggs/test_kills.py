"""Scrapyd killed around everything that it writes when eggs come and go; and a disk that is nearly full."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx2
import pytest
from eggs import teller
from forms import first_in_short, in_full
from node import ROOT

from gateway.contract.outbox import CLOCK, DEPLOYED, NOTED
from gateway.contract.records import Deployments, NotedDeployment, read_record

from .conftest import EggNode, new_node

LISTING = "crawler.node.listing"
#: Replaces an egg, and is killed when half of the new one is written.
KILLED_UPLOAD = """
import io, os, signal, sys
from crawler.node.eggs import EggStorage

class Upload(io.BytesIO):
    def read(self, size=-1):
        if self.tell():
            os.kill(os.getpid(), signal.SIGKILL)
        return super().read(100_000)

EggStorage({"eggs_dir": sys.argv[1]}).put(Upload(bytes(200_000)), "shop", "1")
"""


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("plan")


#: Lists eggs as ever, and of our own project nothing: to import all of it at each start takes half a second.
LISTER = """
import os
if "DISCOVERYBOT_EGG" in os.environ:
    from crawler.node.listing import main
    main()
print('{"spiders": []}')
"""


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What Scrapyd is started in."""
    folder = tmp_path_factory.mktemp("quick")
    (folder / "scrapyd.conf").write_text((ROOT / "scrapyd.conf").read_text().replace(LISTING, "quick_lister"))
    (folder / "scrapy.cfg").write_bytes((ROOT / "scrapy.cfg").read_bytes())
    (folder / "quick_lister.py").write_text(LISTER)
    return folder


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, plan: Path, quick: Path) -> Iterator[EggNode]:
    # without a warm process, which each start after a kill would have to warm again
    environ = {"DISCOVERYBOT_CRASH_PLAN": str(plan), "NODE_FORK": "false", "PYTHONPATH": str(quick)}
    node = new_node(tmp_path_factory.mktemp("home"), **environ)
    node.folder = quick
    try:
        yield node.start()
    finally:
        node.clean_up()


@contextmanager
def killed_at(node: EggNode, plan: Path, point: str) -> Iterator[None]:
    """The request made inside gets no answer; afterwards the node has been started again."""
    (plan / point).touch()
    with suppress(httpx2.TransportError):
        yield
    assert node.process is not None
    assert node.process.wait(60) == -signal.SIGKILL
    node.start()


def stored(node: EggNode) -> dict[str, bytes]:
    """Every egg there is, staged ones too."""
    eggs = node.home / "node/eggs"
    return {str(path.relative_to(eggs)): path.read_bytes() for path in eggs.rglob("*.egg")}


def is_listed(node: EggNode) -> bool:
    """Whether the node has looked at the egg that it has, so that no crash point is passed by that later."""
    egg = node.home / "node/eggs/shop/1.egg"
    listing = egg.with_suffix(".spiders.json")
    if not egg.exists():
        return True
    stamp = egg.stat()
    return listing.exists() and json.loads(listing.read_bytes())["egg"] == [stamp.st_size, stamp.st_mtime_ns]


@pytest.mark.parametrize(
    ("point", "counts"),
    first_in_short(
        [
            ("stage_version.before", False),
            ("stage_version.after", False),
            ("add_version.before", False),
            ("add_version.after", True),
            ("discard_version.before", True),
            ("discard_version.after", True),
            ("write_listing.before", True),
            ("write_listing.after", True),
        ],
        4,
    ),
)
def test_a_deployment_is_made_wholly_or_not_at_all(node: EggNode, plan: Path, point: str, *, counts: bool) -> None:
    before, new = stored(node), teller(point)
    with killed_at(node, plan, f"node.{point}"):
        node.deploy("shop", "1", new)
    node.wait_for(lambda: not [*(node.home / "node/eggs").glob(".incoming*")])
    assert stored(node) == ({"shop/1.egg": new} if counts else before)
    node.wait_for(lambda: [info["name"] for info in node.catalog("shop")] == ["teller"] * len(stored(node)))
    node.wait_for(lambda: is_listed(node))
    # it answers once it is past the point after the listing, too
    node.client.get("/daemonstatus.json")


@pytest.mark.parametrize("side", first_in_short(["before", "after"]))
def test_an_egg_whose_unpacking_is_killed_is_refused_and_can_be_deployed_again(
    node: EggNode, plan: Path, side: str
) -> None:
    (plan / f"node.unpack.{side}").touch()
    answer = node.deploy("cut", "1", teller(side))
    assert (answer["status"], "signal 9" in answer["message"]) == ("error", True)
    assert node.deploy("cut", "1", teller(side))["status"] == "ok"
    assert node.ended(node.run("teller", project="cut")).items == [{"version": side}]


@pytest.mark.parametrize("side", first_in_short(["before", "after"]))
def test_what_is_not_removed_when_scrapyd_is_killed_is_removed_when_it_is_back(
    node: EggNode, plan: Path, side: str
) -> None:
    assert node.deploy("short", "1", teller("short-lived"))["status"] == "ok"
    unpacked = node.home / "node/unpacked"
    before = {path.name for path in unpacked.iterdir()}
    with killed_at(node, plan, f"node.take_away.{side}"):
        node.ask("delproject", project="short")
    node.wait_for(lambda: len([*unpacked.iterdir()]) == len(before) - 1)


@in_full("other kills here")
def test_a_deployment_that_nobody_was_told_of_is_told_with_the_next(node: EggNode, plan: Path) -> None:
    home = node.home / "node"
    (home / CLOCK).touch()  # as a tailer does
    try:
        for side in ("before", "after"):
            with killed_at(node, plan, f"node.tell_deployment.{side}"):
                node.deploy("told", side, teller(side))
            told = read_record(home / DEPLOYED, Deployments) or Deployments()
            assert [one.version for one in told.deployments] == ([] if side == "before" else ["after"])
        with ThreadPoolExecutor(1) as thread:
            answer = thread.submit(node.deploy, "told", "then", teller("then"))
            numbers = node.wait_for(
                lambda: (told := read_record(home / DEPLOYED, Deployments)) and len(told.deployments) == 2 and told
            ).deployments
            assert [(one.number, one.version) for one in numbers] == [(1, "after"), (2, "then")]
            assert not answer.done()
            (home / NOTED).write_text(NotedDeployment(number=2).model_dump_json())
            assert answer.result(20)["status"] == "ok"
    finally:
        for name in (CLOCK, DEPLOYED, NOTED):
            (home / name).unlink(missing_ok=True)


def test_half_an_upload_is_no_egg_and_spoils_none(tmp_path: Path) -> None:
    old = tmp_path / "shop/1.egg"
    old.parent.mkdir()
    old.write_bytes(b"the old one")
    upload = subprocess.run([sys.executable, "-c", KILLED_UPLOAD, str(tmp_path)], check=False)
    assert upload.returncode == -signal.SIGKILL
    assert old.read_bytes() == b"the old one"
    assert [*tmp_path.glob("*/*")] == [old]


@in_full("other kills here")
def test_a_removal_can_be_repeated(node: EggNode, plan: Path) -> None:
    for side in ("before", "after"):
        assert node.deploy("removed", "1", teller("1"))["status"] == "ok"
        with killed_at(node, plan, f"node.delete_version.{side}"):
            node.ask("delversion", project="removed", version="1")
        assert node.ask("delversion", project="removed", version="1")["status"] == (
            "ok" if side == "before" else "error"
        )
        node.wait_for(lambda: node.catalog("removed") == [])


@in_full("other kills here")
def test_a_spider_killed_at_its_very_start_is_reported(node: EggNode, plan: Path) -> None:
    assert node.deploy("started", "1", teller("1"))["status"] == "ok"
    for side in ("before", "after"):
        (plan / f"spider.enter.{side}").touch()
        assert node.ended(node.run("teller", project="started")).exit["signal"] == signal.SIGKILL


@in_full("other kills here")
def test_what_a_crawl_runs_is_kept_no_longer_if_scrapyd_is_killed_before_its_start(node: EggNode, plan: Path) -> None:
    unpacked = node.home / "node/unpacked"
    before = {path.name for path in unpacked.iterdir()}
    for side in ("before", "after"):
        assert node.deploy("noted", "1", teller(f"noted {side}"))["status"] == "ok"
        with killed_at(node, plan, f"node.note_code.{side}"):
            node.run("teller", project="noted")
        assert node.ask("delproject", project="noted")["status"] == "ok"
        node.wait_for(lambda: {path.name for path in unpacked.iterdir()} == before)


def test_a_nearly_full_disk_takes_no_egg_and_no_new_attempt_but_those_it_has(tmp_path: Path) -> None:
    full = new_node(tmp_path / "full", NODE_MIN_FREE_BYTES=str(1 << 60))
    try:
        full.start()
        spec = full.spec("seo")
        deployed = full.deploy("full", "1", teller("1"))
        assert (deployed["status"], deployed["fault"]) == ("error", "node")
        assert "nearly full" in deployed["message"]
        answer = full.post(spec)
        assert answer["status"] == "error"
        assert "the disk of this node is nearly full" in answer["message"]
        known = full.outbox / f"{spec['job_id']}-1"
        known.mkdir()
        (known / "spec.json").write_text("{}")
        assert full.post(spec)["status"] == "ok"
        full.exit_of(known)
    finally:
        full.clean_up()
