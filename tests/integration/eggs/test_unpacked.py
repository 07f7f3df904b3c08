"""Eggs lie unpacked: what works there as if it were installed, how long it stays, and what deploying costs."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest
from eggs import egg, source, teller
from forms import in_full

from gateway.contract.outbox import is_locked

from .conftest import EggNode, new_node
from .test_versions import waits

PROBE = """
import importlib.metadata, pathlib
import scrapy
import acme.base, acme.shop_ext

class Probe(scrapy.Spider):
    name = "probe"

    async def start(self):
        here = pathlib.Path(__file__)
        yield {
            "both parts of a namespace package": [acme.base.WHERE, acme.shop_ext.WHERE],
            "data": (here.parent / "data" / "words.txt").read_text(),
            "version": importlib.metadata.version("My-Shop"),
            "commands": [point.load() for point in importlib.metadata.entry_points(group="shop.commands")],
            "lies": str(here.parents[1]),
        }
"""
FAST_C = """
#include <Python.h>
static PyObject *answer(PyObject *self, PyObject *none) { return PyLong_FromLong(42); }
static PyMethodDef methods[] = {{"answer", answer, METH_NOARGS, ""}, {0}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "fast", "", -1, methods};
PyMODINIT_FUNC PyInit_fast(void) { return PyModule_Create(&module); }
"""
FAST = """
import scrapy
from quick import fast

class Fast(scrapy.Spider):
    name = "fast"

    async def start(self):
        yield {"answer": fast.answer()}
"""
#: Makes Scrapyd a process that has once been large, and no other.
LARGE_SCRAPYD = """
import sys
if any(word.endswith("/scrapyd") for word in sys.orig_argv):
    del [b"x" * (400 << 20)][0]
"""
FRUGAL = """
import scrapy

class Frugal(scrapy.Spider):
    name = "frugal"
    custom_settings = {"MEMUSAGE_LIMIT_MB": 300}

    async def start(self):
        import asyncio
        await asyncio.sleep(1)
        yield {"got": "so far"}
"""


def unpacked(node: EggNode) -> set[str]:
    return {path.name for path in (node.home / "node/unpacked").iterdir() if not path.name.startswith(".")}


def test_namespace_packages_metadata_and_data_work_as_if_they_were_installed(tmp_path: Path) -> None:
    installed = tmp_path / "site/acme/base"
    installed.mkdir(parents=True)
    (installed / "__init__.py").write_text("WHERE = 'installed'\n")
    files = source("shop", spiders=PROBE) | {
        "acme/shop_ext/__init__.py": "WHERE = 'in the egg'\n",
        "shop/data/words.txt": "one two",
        "EGG-INFO/PKG-INFO": "Metadata-Version: 2.1\nName: My-Shop\nVersion: 3.2\n",
        "EGG-INFO/entry_points.txt": "[scrapy]\nsettings = shop.settings\n[shop.commands]\nx = acme.shop_ext:WHERE\n",
    }
    node = new_node(tmp_path / "home", PYTHONPATH=str(tmp_path / "site"))
    try:
        answer = node.start() and node.deploy("shop", "1", egg(files, ""))
        assert answer["status"] == "ok", answer
        crawl = node.ended(node.run("probe", project="shop"))
        assert crawl.exit["exit_code"] == 0, crawl.log
        (item,) = crawl.items
        assert Path(item.pop("lies")).parents[1] == node.home / "node/unpacked"
        assert item == {
            "both parts of a namespace package": ["installed", "in the egg"],
            "data": "one two",
            "version": "3.2",
            "commands": ["in the egg"],
        }
    finally:
        node.clean_up()


@in_full("what is unpacked above, and memory in crawler_node/test_limits.py")
def test_an_extension_in_c_is_imported(node: EggNode, tmp_path: Path) -> None:
    include, compiler = Path(sysconfig.get_path("include")), shutil.which("cc")
    if compiler is None or not (include / "Python.h").exists():
        pytest.skip("there is no C compiler, or Python came without its headers (python3-dev)")
    (tmp_path / "fast.c").write_text(FAST_C)
    library = tmp_path / "fast.so"
    flags = ["-shared", "-fPIC", *(["-undefined", "dynamic_lookup"] if sys.platform == "darwin" else [])]
    subprocess.run([compiler, *flags, f"-I{include}", "-o", library, tmp_path / "fast.c"], check=True)
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    content = egg({**source("quick", spiders=FAST), f"quick/fast{suffix}": library.read_bytes()})
    answer = node.deploy("quick", "1", content)
    assert answer["status"] == "ok", answer
    assert node.ended(node.run("fast", project="quick")).items == [{"answer": 42}]


def test_a_content_stays_while_a_version_has_it_or_a_crawl_uses_it(node: EggNode) -> None:
    before = unpacked(node)
    content = waits("used")
    for version in ("1", "2"):
        assert node.deploy("used", version, content)["status"] == "ok"
    (folder,) = unpacked(node) - before
    running = node.run("waits", project="used")
    node.wait_for((running / "ready").exists, 60)
    assert node.ask("delproject", project="used")["status"] == "ok"
    assert folder in unpacked(node)
    node.end(signal.SIGKILL)
    node.start()
    assert folder in unpacked(node), "the crawl has outlived its Scrapyd"
    (running / "go").touch()
    node.wait_for(lambda: not is_locked(running), 60)
    assert '"version":"used"' in (running / "items.jsonl").read_text().replace(" ", "")
    assert node.deploy("other", "1", teller("1"))["status"] == "ok"
    assert node.ask("delproject", project="other")["status"] == "ok"
    assert unpacked(node) == before


def test_a_refused_egg_leaves_nothing_unpacked(node: EggNode) -> None:
    before = unpacked(node)
    assert node.deploy("bad", "1", egg(source("bad", spiders="import nothing_of_the_kind\n")))["status"] == "error"
    assert unpacked(node) == before


@in_full("what is unpacked above, and memory in crawler_node/test_limits.py")
def test_eggs_of_an_older_node_are_unpacked_before_anything_of_theirs_runs(tmp_path: Path) -> None:
    node = new_node(tmp_path / "home", NODE_SLOTS="1")
    try:
        node.start()
        assert node.deploy("older", "1", waits("older"))["status"] == "ok"
        running, waiting = (node.run("waits", project="older") for _ in range(2))
        node.wait_for((running / "ready").exists, 60)
        node.end(signal.SIGKILL)
        (running / "go").touch()
        node.wait_for(lambda: not is_locked(running), 60)
        shutil.rmtree(node.home / "node/unpacked")
        (node.home / "node/eggs/older/1.spiders.json").unlink()
        (waiting / "go").touch()
        node.start()
        assert node.ended(waiting).items == [{"version": "older"}]
    finally:
        node.clean_up()


@pytest.fixture
def large(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[EggNode]:
    (tmp_path / "site").mkdir()
    (tmp_path / "site/sitecustomize.py").write_text(LARGE_SCRAPYD)
    node = new_node(tmp_path / "home", PYTHONPATH=str(tmp_path / "site"), NODE_FORK=request.param)
    try:
        yield node.start()
    finally:
        node.clean_up()


@in_full("what is unpacked above, and memory in crawler_node/test_limits.py")
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere no process inherits a peak")
@pytest.mark.parametrize("large", ["true", "false"], ids=["forked", "started"], indirect=True)
def test_a_crawl_s_peak_memory_is_its_own_however_large_scrapyd_has_been(large: EggNode) -> None:
    assert large.deploy("frugal", "1", egg(source("frugal", spiders=FRUGAL)))["status"] == "ok"
    assert peak(large) > 400 << 20
    crawl = large.ended(large.run("frugal", project="frugal"))
    assert crawl.exit["report"]["finish_reason"] == "finished", crawl.log
    assert crawl.items == [{"got": "so far"}]
    assert crawl.exit["peak_memory_bytes"] < 250 << 20


@in_full("what is unpacked above, and memory in crawler_node/test_limits.py")
@pytest.mark.skipif(sys.platform != "linux", reason="the peak of another process is Linux's to tell")
def test_an_egg_of_60_mib_is_never_in_scrapyd_s_memory(node: EggNode) -> None:
    assert node.deploy("light", "1", teller("light"))["status"] == "ok"
    before = peak(node)
    heavy = egg(
        {
            **source("heavy", spiders="import scrapy\nclass H(scrapy.Spider):\n    name = 'h'\n"),
            "heavy/words": os.urandom(60 << 20),
        }
    )
    answer = node.deploy("heavy", "1", heavy)
    assert answer["status"] == "ok", answer
    assert peak(node) - before < 20 << 20
    assert (node.home / "node/eggs/heavy/1.egg").read_bytes() == heavy


def test_a_request_that_is_too_large_is_refused(node: EggNode) -> None:
    large = "x" * (17 << 20)
    for body in ({"data": {"project": large}}, {"files": {"project": (None, large)}}):
        assert node.client.post("/schedule.json", **body).status_code == 413
    assert node.status()["status"] == "ok"


def test_other_services_take_forms_of_any_kind(node: EggNode) -> None:
    for body in ({"data": {"project": "nobody"}}, {"files": {"project": (None, "nobody")}}):
        answer = node.client.post("/delproject.json", **body).json()
        assert answer["message"] == "project 'nobody' not found"


def peak(node: EggNode) -> int:
    """Bytes that Scrapyd has had in memory at most."""
    assert node.process is not None
    status = Path(f"/proc/{node.process.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) << 10
