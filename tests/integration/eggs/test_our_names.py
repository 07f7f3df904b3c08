"""Projects whose packages are called as ours run beside ours."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from eggs import egg, source
from forms import first_in_short

from crawler.node.renamed import renamed_runtime

from .conftest import EggNode

SPIDER = """
import os, sys
import scrapy
from {package}.items import WORD

class Named(scrapy.Spider):
    name = "named"

    async def start(self):
        minder = open(f"/proc/{{os.getppid()}}/stat").read()
        zygote = open(f"/proc/{{minder.rpartition(')')[2].split()[1]}}/cmdline").read().split("\\0")
        yield {{"word": WORD, "module": __name__, "forked": "discoverybot_crawler.node.zygote" in zygote}}
"""
#: Its own modules are called as some of ours, too.
MODULES = ("addon", "settings", "spiders", "node", "contract", "process", "clock")


def project(package: str) -> bytes:
    others = dict.fromkeys(MODULES, "NAME = 'of the project'\n")
    others |= {"items": f"from {package}.addon import NAME\nWORD = '{package}: ' + NAME\n"}
    own = {"settings": f"SPIDER_MODULES = ['{package}.spiders']\n", "spiders": SPIDER.format(package=package)}
    return egg(source(package, **{**others, **own}))


@pytest.mark.parametrize("package", first_in_short(["crawler", "gateway", "embedded", "celery_app"]))
def test_a_project_may_call_a_package_as_one_of_ours(node: EggNode, package: str) -> None:
    answer = node.deploy(f"own-{package}", "1", project(package))
    assert (answer["status"], answer.get("spiders")) == ("ok", 1), answer
    crawl = node.ended(node.run("named", project=f"own-{package}", version="1", start_urls=[]))
    assert crawl.exit["exit_code"] == 0, crawl.log
    (item,) = crawl.items
    assert (item["word"], item["module"]) == (f"{package}: of the project", f"{package}.spiders")


def test_crawls_of_such_projects_are_forked_too(node: EggNode) -> None:
    node.deploy("own-warm", "1", project("crawler"))

    def is_forked() -> bool:
        crawl = node.ended(node.run("named", project="own-warm", version="1", start_urls=[]))
        return bool(crawl.items[0]["forked"])

    node.wait_for(is_forked)


def test_our_part_of_a_crawl_can_be_imported_under_other_names_alone(node: EggNode, tmp_path: Path) -> None:
    """Of every module that a crawl may load, none imports another by the name that it has with us."""
    (tmp_path / ".runtime").mkdir()
    folder = renamed_runtime(tmp_path)
    names = [".".join(path.relative_to(folder).with_suffix("").parts) for path in sorted(folder.rglob("*.py"))]
    modules = [name.removesuffix(".__init__") for name in names]
    code = f"import importlib, sys\nfor name in {modules}: importlib.import_module(name)\n"
    code += "print(sorted(name for name in sys.modules if name.split('.')[0] in {'crawler', 'gateway'}))"
    command, env = [sys.executable, "-P", "-c", code], {"PYTHONPATH": str(folder)}
    said = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert (said.stdout.strip(), len(modules) > 40) == ("[]", True), said.stderr
