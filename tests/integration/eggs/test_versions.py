"""Many versions of one project: each crawl runs the one it was asked for, whatever happens to the others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from eggs import egg, source, teller
from forms import in_full

from .conftest import Crawl, EggNode

WAITS = """
import asyncio, pathlib
import scrapy

class Waits(scrapy.Spider):
    name = "waits"

    async def start(self):
        pathlib.Path("../ready").touch()
        while not pathlib.Path("../go").exists():
            await asyncio.sleep(0.02)
        from waits import later
        yield {"version": later.VERSION}
"""
SLOW = """
import pathlib, time
import scrapy

folder = pathlib.Path("FOLDER")
(folder / "began").touch()
while not (folder / "go").exists():
    time.sleep(0.02)

class Slow(scrapy.Spider):
    name = "slow"
"""
SETUP = """
from setuptools import setup
setup(
    name="teller",
    version="1.0",
    packages=["teller"],
    entry_points={"scrapy": ["settings = teller.settings"]},
)
"""


def waits(version: str) -> bytes:
    """A spider that imports a module of its project late."""
    return egg(source("waits", spiders=WAITS, later=f"VERSION = {version!r}\n"))


def told(crawl: Crawl) -> str:
    assert crawl.exit["exit_code"] == 0, crawl.log
    return str(crawl.items[0]["version"])


def versions(node: EggNode, project: str) -> dict[str, bool]:
    """By version, whether it is the newest, as the node tells the world."""
    return {info["version"]: info["latest"] for info in node.catalog(project)}


def test_the_newest_runs_unless_another_is_asked_for(node: EggNode) -> None:
    for version in ("1.2", "1.10", "1.9"):
        assert node.deploy("Many", version, teller(version)) | {"node_name": ""} == {
            "status": "ok", "project": "Many", "version": version, "spiders": 1, "node_name": "",
        }  # fmt: skip
    assert versions(node, "Many") == {"1.2": False, "1.9": False, "1.10": True}
    listed = node.client.get("/listversions.json", params={"project": "many"}).json()["versions"]
    assert listed == ["1.2", "1.9", "1.10"]
    pinned = [node.run("teller", project="many", version=version) for version in ("1.2", "1.9")]
    newest = node.run("teller", project="MANY")
    assert [told(node.ended(attempt)) for attempt in (*pinned, newest)] == ["1.2", "1.9", "1.10"]


def test_a_version_that_does_not_exist_is_refused(node: EggNode) -> None:
    assert node.deploy("single", "1", teller("1"))["status"] == "ok"
    answer = node.post(node.spec("teller", project="single", version="2"))
    assert answer["message"] == "version '2' not found"
    answer = node.post(node.spec("nobody", project="single"))
    assert answer["message"] == "spider 'nobody' not found"


def test_the_same_egg_again_changes_nothing_and_another_of_that_version_replaces_it(node: EggNode) -> None:
    for version in ("first", "first", "second"):
        assert node.deploy("again", "1", teller(version))["spiders"] == 1
        assert versions(node, "again") == {"1": True}
    assert told(node.ended(node.run("teller", project="again"))) == "second"


def test_what_is_found_in_an_egg_that_was_replaced_meanwhile_is_not_told_of_the_new_one(
    node: EggNode, tmp_path: Path
) -> None:
    assert node.deploy("raced", "1", teller("1"))["status"] == "ok"
    slow = egg(source("slow", spiders=SLOW.replace("FOLDER", str(tmp_path))))
    (node.home / "node/eggs/raced/1.egg").write_bytes(slow)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(node.client.get, "/listspiders.json", params={"project": "raced"}, timeout=60)
        node.wait_for((tmp_path / "began").exists)
        assert node.deploy("raced", "1", teller("new"))["status"] == "ok"
        (tmp_path / "go").touch()
        assert asked.result().json()["spiders"] == ["teller"]
    assert [info["name"] for info in node.catalog("raced")] == ["teller"]


def test_a_running_spider_keeps_its_version_when_it_is_replaced_or_deleted(node: EggNode) -> None:
    assert node.deploy("moving", "1", waits("old"))["status"] == "ok"
    running = [node.run("waits", project="moving", version="1") for _ in range(2)]
    for attempt in running:
        node.wait_for((attempt / "ready").exists)
    assert node.deploy("moving", "1", waits("new"))["status"] == "ok"
    (running[0] / "go").touch()
    assert told(node.ended(running[0])) == "old"
    assert node.ask("delversion", project="moving", version="1")["status"] == "ok"
    (running[1] / "go").touch()
    assert told(node.ended(running[1])) == "old"


def test_what_is_deleted_is_told_at_once_and_what_waited_for_it_says_why_it_failed(node: EggNode) -> None:
    for version in ("1", "2"):
        assert node.deploy("gone", version, teller(version))["status"] == "ok"
    assert node.ask("delversion", project="gone", version="2")["status"] == "ok"
    assert versions(node, "gone") == {"1": True}
    assert node.ask("delversion", project="gone", version="2")["message"] == "version '2' not found"
    assert node.ask("delproject", project="gone")["status"] == "ok"
    assert versions(node, "gone") == {}
    assert node.ask("delproject", project="gone")["message"] == "project 'gone' not found"
    for answer in (node.post(node.spec("teller", project="gone")), node.ask("cancel", project="gone", job="one")):
        assert (answer["message"], answer["reason"]) == ("project 'gone' not found", "project_missing")


def test_an_attempt_whose_version_was_deleted_while_it_waited_says_so(node: EggNode) -> None:
    for version in ("1", "2"):
        assert node.deploy("late", version, waits(version))["status"] == "ok"
    busy = [node.run("waits", project="late", version="2") for _ in range(3)]
    for attempt in busy:
        node.wait_for((attempt / "ready").exists)
    late = node.run("waits", project="late", version="1")
    assert node.ask("delversion", project="late", version="1")["status"] == "ok"
    for attempt in busy:
        (attempt / "go").touch()
    ended = node.ended(late)
    assert "project 'late' has no version '1' on this node" in ended.exit["refused"]
    assert ended.exit["fault"] == "job"


def test_after_a_restart_all_is_known_and_no_egg_is_imported_that_was(node: EggNode) -> None:
    for project in ("settled", "spoiled"):
        assert node.deploy(project, "1", teller("1"))["status"] == "ok"
    eggs = node.home / "node/eggs"
    known = json.loads((eggs / "settled/1.spiders.json").read_bytes())
    known["spiders"][0]["description"] = "as it was written down"
    (eggs / "settled/1.spiders.json").write_text(json.dumps(known))
    (eggs / "spoiled/1.spiders.json").write_text("nonsense")
    node.end()
    (node.home / "node/catalog.json").unlink()
    node.start()
    node.wait_for(lambda: node.catalog("spoiled"))
    described = [node.catalog(project)[0]["description"] for project in ("settled", "spoiled")]
    assert described == ["as it was written down", "Tells its version."]


@in_full("an egg of our own making above")
def test_an_egg_that_setuptools_has_built_runs(node: EggNode, tmp_path: Path) -> None:
    for name, text in source("teller", spiders="import scrapy\nclass T(scrapy.Spider):\n    name = 't'\n").items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "setup.py").write_text(SETUP)
    pytest.importorskip("setuptools")
    command = [sys.executable, "setup.py", "-q", "bdist_egg", "-d", "out"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, env={"PATH": os.environ["PATH"]})
    built = next((tmp_path / "out").glob("*.egg")).read_bytes()
    assert node.deploy("built", "1", built)["spiders"] == 1
    assert node.ended(node.run("t", project="built", start_urls=["http://127.0.0.1:9/"])).exit["exit_code"] == 0


def test_a_path_with_two_slashes_is_understood_as_scrapyd_client_sends_it(node: EggNode) -> None:
    answer = node.client.get(f"http://127.0.0.1:{node.port}//listprojects.json")
    assert "default" in answer.json()["projects"]
