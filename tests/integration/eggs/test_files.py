"""Where the files of a project go that writes them as Scrapy's documentation shows it."""

from __future__ import annotations

import json

import pytest
from eggs import egg, source
from sites.server import Site

from .conftest import Crawl, EggNode

SETTINGS = """
SPIDER_MODULES = ['gallery.spiders']
ITEM_PIPELINES = {'scrapy.pipelines.files.FilesPipeline': 1}
FILES_STORE = '/srv/gallery/downloads'
FEEDS = {'file:///srv/export/%(name)s.json': {'format': 'json'}, '../lines.jsonl': {'format': 'jsonlines'}}
"""
SPIDER = """
import scrapy

class Gallery(scrapy.Spider):
    name = "gallery"

    def parse(self, response):
        yield {"file_urls": [response.urljoin("/a"), response.urljoin("/b")]}
        with open("shot.png", "wb") as shot:
            shot.write(b"png")
"""
UNSET = SETTINGS.replace("FILES_STORE", "NO_STORE").replace("gallery.spiders", "unset.spiders")


@pytest.fixture(scope="module")
def crawl(node: EggNode, site: Site) -> Crawl:
    answer = node.deploy("gallery", "1.0", egg(source("gallery", settings=SETTINGS, spiders=SPIDER)))
    assert answer["status"] == "ok", answer
    ended = node.ended(node.run("gallery", project="gallery", start_urls=[site.url]))
    assert ended.exit["report"]["finish_reason"] == "finished", ended.log
    return ended


def test_places_on_the_nodes_disk_are_in_the_attempts_folder(crawl: Crawl) -> None:
    (item,) = crawl.items
    for one in item["files"]:
        assert (crawl.folder / "files/srv/gallery/downloads" / one["path"]).is_file()
    assert json.loads((crawl.folder / "files/srv/export/gallery.json").read_text()) == [item]
    assert json.loads((crawl.folder / "files/lines.jsonl").read_text()) == item
    assert (crawl.folder / "files/shot.png").read_bytes() == b"png"


def test_the_log_says_where_they_are(crawl: Crawl) -> None:
    assert "/srv/gallery/downloads is srv/gallery/downloads in this attempt's files" in crawl.log


def test_a_pipeline_works_though_the_project_names_no_place(node: EggNode, site: Site) -> None:
    node.deploy("unset", "1.0", egg(source("unset", settings=UNSET, spiders=SPIDER)))
    ended = node.ended(node.run("gallery", project="unset", start_urls=[site.url]))
    (item,) = ended.items
    for one in item["files"]:
        assert (ended.folder / "files/files" / one["path"]).is_file()


READS = """
from pathlib import Path

import scrapy

WORDS = open("words.txt").read()

class Reads(scrapy.Spider):
    name = "reads"

    def parse(self, response):
        yield {"words": WORDS, "again": Path("data/words.txt").read_text()}
        with open("items.jsonl", "a") as items:
            items.write("new")
        yield {"items": open("items.jsonl").read()}
"""


def test_a_project_reads_its_own_files_by_their_names_and_writes_anew(node: EggNode, site: Site) -> None:
    files = {"words.txt": "one", "data/words.txt": "two", "items.jsonl": "old"}
    answer = node.deploy("reads", "1.0", egg({**source("reads", spiders=READS), **files}))
    assert answer["status"] == "ok", answer
    ended = node.ended(node.run("reads", project="reads", start_urls=[site.url]))
    assert ended.items == [{"words": "one", "again": "two"}, {"items": "new"}], ended.log
    assert {path.name for path in (ended.folder / "files").iterdir()} == {"items.jsonl", "scrapy.cfg"}


LATE = """
import atexit, threading, time
from pathlib import Path

import scrapy

def upload():
    time.sleep(1)
    Path("uploaded").touch()

class Late(scrapy.Spider):
    name = "late"

    def parse(self, response):
        atexit.register(Path("flushed").touch)
        threading.Thread(target=upload).start()
        if response.url.endswith("/a"):
            threading.Thread(target=time.sleep, args=[600], name="endless").start()
        yield {}
"""


def test_threads_and_exit_functions_of_a_project_end_as_without_us_but_in_time(node: EggNode, site: Site) -> None:
    answer = node.deploy("late", "1.0", egg(source("late", spiders=LATE)))
    assert answer["status"] == "ok", answer
    ended = node.ended(node.run("late", project="late", start_urls=[site.url]))
    assert ended.exit["exit_code"] == 0, ended.log
    assert {"flushed", "uploaded"} <= {path.name for path in (ended.folder / "files").iterdir()}
    endless = node.ended(node.run("late", project="late", start_urls=[f"{site.url}/a"]))
    assert endless.exit["exit_code"] == 0, endless.log
    assert "leaves behind threads that have not ended: endless" in endless.log
