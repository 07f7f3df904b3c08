"""A crawl imports the module of its spider, and not all of its project's."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
from eggs import egg, source
from forms import in_full

from .conftest import EggNode

#: Tells which modules of its project are there.
TELLS = """
import sys
import scrapy
from {package}.spiders import REGISTRY

class Told(scrapy.Spider):
    name = "{name}"

    async def start(self):
        modules = sorted(name for name in sys.modules if name.startswith("{package}.spiders."))
        yield {{"modules": modules, "registry": sorted(REGISTRY)}}

REGISTRY["{name}"] = Told
"""
#: In one module when it is listed, and in the other one when it is crawled.
MOVING = """
import sys
import scrapy
LISTING = any("crawler.node.listing" in word for word in sys.orig_argv)

class Moving(scrapy.Spider):
    name = "moving" if LISTING == {here} else "hidden-{here}"

    async def start(self):
        yield {{"found": __name__}}
"""
BASE = """
import scrapy

class Base(scrapy.Spider):
    async def start(self):
        yield {"ran": self.name}
"""
#: Says of the process that lists it what it was forked from, what lies in its folder, where it finds modules, and
#: what all others see of it.
TELLING = """
import json, os, sys
from pathlib import Path
import scrapy

def of(pid, what):
    return Path("/proc", str(pid), what).read_text()

PARENT = of(os.getppid(), "stat").rpartition(")")[2].split()[1]

class Telling(scrapy.Spider):
    __doc__ = json.dumps([int(PARENT), os.listdir(), os.getcwd(), sys.path, of("self", "cmdline"), __file__])
    name = "telling"
"""
SPIDERS, MODULES = 5000, 1000
#: Seconds.
FIRST, FOUR = 2.0, 6.0


def project(package: str, settings: str = "") -> bytes:
    names = ("a", "b", "c")
    spiders = {f"{package}/spiders/{name}.py": TELLS.format(package=package, name=name) for name in names}
    files = source(package, settings=f"SPIDER_MODULES = ['{package}.spiders']\n{settings}") | spiders
    return egg({**files, f"{package}/spiders/__init__.py": "REGISTRY = {}\n"})


def test_an_egg_is_listed_by_a_fork_in_an_empty_folder_and_finds_nothing_of_scrapyds(node: EggNode) -> None:
    assert node.catalog("default")  # what it is forked from is warm
    assert node.deploy("telling", "1.0", egg(source("telling", spiders=TELLING)))["status"] == "ok"
    (info,) = node.catalog("telling")
    parent, names, folder, path, seen, file = json.loads(info["description"])
    assert not any(part in seen for part in Path(file).parts if len(part) > 20), "others could read the egg"
    assert psutil.Process(parent).cmdline()[-2:] == ["crawler.node.zygote", "crawler.node.runner"]
    assert names == []
    assert folder not in path
    # where it is installed from may come later
    assert path[0] != str(node.folder)


def told(node: EggNode, package: str) -> dict[str, list[str]]:
    crawl = node.ended(node.run("b", project=package))
    assert crawl.exit["exit_code"] == 0, crawl.log
    (item,) = crawl.items
    return item


def test_only_the_module_of_the_spider_is_imported(node: EggNode) -> None:
    assert node.deploy("apart", "1", project("apart"))["spiders"] == 3
    assert told(node, "apart") == {"modules": ["apart.spiders.b"], "registry": ["b"]}
    modules = {info["name"]: info["module"] for info in node.catalog("apart")}
    assert modules == {name: f"apart.spiders.{name}" for name in ("a", "b", "c")}


def test_a_project_whose_modules_need_one_another_says_so(node: EggNode) -> None:
    assert node.deploy("together", "1", project("together", "IMPORT_ALL_SPIDERS = True\n"))["spiders"] == 3
    every = ["a", "b", "c"]
    assert told(node, "together") == {"modules": [f"together.spiders.{name}" for name in every], "registry": every}


def test_a_spider_that_is_not_where_it_was_is_looked_for_everywhere(node: EggNode) -> None:
    files = {"moving/spiders/__init__.py": ""} | {
        f"moving/spiders/{name}.py": MOVING.format(here=here) for name, here in (("first", True), ("then", False))
    }
    assert node.deploy("moving", "1", egg(source("moving") | files))["spiders"] == 2
    crawl = node.ended(node.run("moving", project="moving"))
    assert crawl.items == [{"found": "moving.spiders.then"}], crawl.log


def many() -> bytes:
    """A project of five thousand spiders, in a thousand modules."""
    spider = "class S{n}(Base):\n    name = 's{n}'\n"
    files = source("many", base=BASE) | {"many/spiders/__init__.py": ""}
    for module in range(MODULES):
        numbers = range(module, SPIDERS, MODULES)
        text = "".join(spider.format(n=number) for number in numbers)
        files[f"many/spiders/m{module}.py"] = f"from many.base import Base\n{text}"
    return egg(files)


def first_line(node: EggNode, spider: str) -> tuple[Path, float]:
    began = time.monotonic()
    attempt = node.run(spider, project="many")
    log = attempt / "crawl.log"
    node.wait_for(lambda: log.exists() and "Spider opened" in log.read_text(), 30)
    return attempt, time.monotonic() - began


@in_full("the one module that is imported, above")
def test_of_five_thousand_spiders_one_starts_at_once_and_four_do(node: EggNode) -> None:
    assert node.deploy("many", "1", many())["spiders"] == SPIDERS
    attempt, seconds = first_line(node, "s4321")
    assert seconds <= FIRST
    assert node.ended(attempt).items == [{"ran": "s4321"}]
    with ThreadPoolExecutor(4) as clients:
        four = [*clients.map(lambda number: first_line(node, f"s{number}"), range(0, SPIDERS, SPIDERS // 4))]
    assert max(seconds for _, seconds in four) <= FOUR
    for attempt, _ in four:
        node.ended(attempt)
