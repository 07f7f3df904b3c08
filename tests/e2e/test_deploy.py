"""A project of one's own: deployed, found, crawled, its latest version chosen."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from sites.server import Site
from stack import ROOT, Stack, wait_until

pytestmark = [pytest.mark.stack]

FILES = {
    "scrapy.cfg": "[settings]\ndefault = shop.settings\n\n[deploy]\nproject = Shop\n",
    "words.py": "GREETING = 'hello'\n",
    "shop/__init__.py": "",
    "shop/settings.py": "SPIDER_MODULES = ['shop.spiders']\n",
    "shop/spiders.py": """
import scrapy
from words import GREETING


class Offers(scrapy.Spider):
    name = "offers"

    def __init__(self, category="all", **more):
        super().__init__(**more)
        self.category = category

    def parse(self, response):
        yield {"greeting": GREETING, "category": self.category, "version": "VERSION"}
""",
}


def deploy(stack: Stack, folder: Path, version: str) -> str:
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("VERSION", version))
    command = [sys.executable, "-m", "gateway.cli.main", "deploy", str(folder), "--version", version]
    done = subprocess.run(
        [*command, "--url", stack.url], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_project_of_ones_own_is_deployed_and_its_newest_version_run(
    stack: Stack, site: Site, tmp_path: Path
) -> None:
    assert "Shop 1.9: 1 spider\n" in deploy(stack, tmp_path, "1.9")
    deploy(stack, tmp_path, "1.10")
    expected = [{"name": "Shop", "latest": "1.10", "versions": ["1.9", "1.10"]}]
    url = f"{stack.url}/spiders?project=shop"
    wait_until(lambda: stack.http.get(url).json()["projects"] == expected, what="the new version")
    fields = {"project": "shop", "spider": "offers", "params": {"category": "shoes"}}
    newest = stack.crawl(f"{site.url}/tree/1", **fields)
    older = stack.crawl(f"{site.url}/tree/1", **fields, version="1.9")
    for job_id, version in ((newest, "1.10"), (older, "1.9")):
        assert stack.wait_final(job_id)["status"] == "finished"
        assert stack.items(job_id) == [{"greeting": "hello", "category": "shoes", "version": version}]
        assert stack.status(job_id)["version"] == version
