"""A project of one's own: deployed, and crawled with at once, in the version that was deployed last."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import warm
from eggs import egg, source
from forms import in_full
from nodes import ExtraNode, nodes_beside
from sites.server import Site, links
from stack import Stack, running_stack

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
#: It knows where to start, and says of which deployment it is.
TELLER = """
import scrapy

class Teller(scrapy.Spider):
    name = "NAME"
    start_urls = ["SITE"]

    def parse(self, response):
        yield {"told": "WORD"}
"""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running_stack(tmp_path_factory.mktemp("stack") / "home") as stack:
        yield stack


@pytest.fixture(scope="module")
def second(stack: Stack) -> Iterator[ExtraNode]:
    with nodes_beside(stack, "second") as (node,):
        yield node


def command(stack: Stack, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = warm.run("gateway.cli.main", *words, "--url", stack.url, env=os.environ)
    assert done.returncode == code, done.stderr
    return done


def write(folder: Path, version: str) -> None:
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("VERSION", version))


def deploy(stack: Stack, folder: Path, version: str) -> str:
    write(folder, version)
    return command(stack, "deploy", str(folder), "--version", version).stdout


def teller(site: Site, word: str, name: str = "teller") -> bytes:
    text = TELLER.replace("SITE", f"{site.url}/").replace("WORD", word).replace("NAME", name)
    return egg(source("telling", spiders=text))


def add_version(stack: Stack, url: str, version: str, content: bytes, project: str = "telling") -> dict[str, Any]:
    """As `scrapyd-deploy` does it, on one node."""
    answer: dict[str, Any] = httpx2.post(
        f"{url}/addversion.json",
        data={"project": project, "version": version},
        files={"egg": ("project.egg", content)},
        auth=(stack.ready["scrapyd_username"], stack.ready["scrapyd_password"]),
        timeout=90,
        trust_env=False,
    ).json()
    return answer


def crawl(stack: Stack, **fields: Any) -> str:
    """The id of a crawl that names no start URLs."""
    body = {"user_id": "tester", "max_retries": 0, **fields}
    answer = stack.http.post(f"{stack.url}/crawl", json=body)
    assert answer.status_code == httpx2.codes.OK, answer.text
    return str(answer.json()["job_id"])


def told(stack: Stack, job_ids: list[str]) -> list[Any]:
    """What the crawls have found, each once."""
    for job_id in job_ids:
        assert stack.wait_final(job_id, timeout=120)["status"] == "finished", stack.log(job_id).decode()
    return [[item["told"] for item in stack.items(job_id)] for job_id in job_ids]


def test_a_project_of_ones_own_is_deployed_and_its_newest_version_run(
    stack: Stack, site: Site, tmp_path: Path
) -> None:
    fields = {"project": "shop", "spider": "offers", "params": {"category": "shoes"}}
    jobs = {}
    for version in ("1.9", "1.10", "1.2"):
        assert f"Shop {version}: 1 spider\n" in deploy(stack, tmp_path, version)
        jobs[version] = stack.crawl(f"{site.url}/tree/1", **fields)
    expected = {"name": "Shop", "latest": "1.2", "previous": "1.10", "versions": ["1.9", "1.10", "1.2"]}
    assert stack.http.get(f"{stack.url}/spiders?project=shop").json()["projects"] == [expected]
    assert "1.9 1.10 1.2*" in command(stack, "projects").stdout
    assert command(stack, "projects", "rollback", "Shop").stdout == "Shop: 1.10 is the latest\n"
    assert stack.crawl(f"{site.url}/tree/1", **fields) == jobs["1.10"]
    assert stack.crawl(f"{site.url}/tree/1", **fields, version="1.9") == jobs["1.9"]
    for version, job_id in jobs.items():
        assert stack.wait_final(job_id, timeout=90)["status"] == "finished"
        assert stack.items(job_id) == [{"greeting": "hello", "category": "shoes", "version": version}]
        assert stack.status(job_id)["version"] == version


@in_full("the first deployment above, and each order of deliveries in services/test_egg_delivery.py")
def test_the_very_next_crawl_runs_what_was_deployed_no_matter_how(
    stack: Stack, second: ExtraNode, site: Site, tmp_path: Path
) -> None:
    """Also the same version with another content, on a node that still has the former one."""
    site.pages |= {"/": links()}
    jobs, words = [], []
    for number in range(6):
        word = f"word-{number}"
        # by the gateway, on one node, on the other; the version stays the same twice each
        version, way = f"{(9 - number) // 2}", number % 3
        if way == 0:
            query = {"version": version}
            answer = stack.http.post(
                f"{stack.url}/projects/telling/versions", params=query, content=teller(site, word), timeout=90
            )
            assert answer.status_code == httpx2.codes.OK, answer.text
        else:
            url = stack.ready["scrapyd_url"] if way == 1 else second.url
            assert add_version(stack, url, version, teller(site, word))["status"] == "ok"
        # enough for both nodes; the first is the very request of the deployment before
        jobs += [crawl(stack, project="telling", spider="teller", ignore_cache=copy > 0) for copy in range(4)]
        words += [[word]] * 4
        assert told(stack, jobs[-4:]) == words[-4:], f"after deployment {number}"


def test_a_spider_with_urls_of_its_own_needs_neither_urls_nor_a_project(stack: Stack, site: Site) -> None:
    site.pages |= {"/": links()}
    for project in ("alone", "shared"):
        url = stack.ready["scrapyd_url"]
        names = ("hermit", "twin") if project == "alone" else ("twin",)
        text = TELLER.replace("SITE", f"{site.url}/").replace("WORD", project)
        spiders = "".join(text.replace("NAME", name).replace("Teller", name.title()) for name in names)
        content = egg(source(f"{project}_telling", spiders=spiders))
        assert add_version(stack, url, "1.0", content, project)["status"] == "ok"
    by_name = crawl(stack, spider="hermit")
    done = command(stack, "crawl", "--project", "alone", "hermit", "--user", "else", "--json")
    assert '"status": "finished"' in done.stdout
    assert told(stack, [by_name]) == [["alone"]]
    several = stack.http.post(f"{stack.url}/crawl", json={"user_id": "tester", "spider": "twin"})
    assert several.status_code == httpx2.codes.UNPROCESSABLE_CONTENT
    assert several.json()["error"]["detail"] == {"field": "project", "known": ["alone", "shared"]}
    needs = stack.http.post(f"{stack.url}/crawl", json={"user_id": "tester", "spider": "seo"})
    assert needs.json()["error"]["detail"]["field"] == "start_urls"


@in_full("the refusals of a node in eggs/test_refusals.py")
def test_what_cannot_be_imported_is_refused_once_with_the_place_and_the_mend(
    stack: Stack, second: ExtraNode, tmp_path: Path
) -> None:
    write(tmp_path, "1")
    spiders = tmp_path / "shop/spiders.py"
    spiders.write_text(f"import dateparser_of_nowhere\n{spiders.read_text()}")
    refused = command(stack, "deploy", str(tmp_path), "--project", "broken", code=2)
    assert refused.stderr.count("dateparser_of_nowhere'") == 1
    assert "(shop/spiders.py, line 1)" in refused.stderr
    assert "requirements" in refused.stderr
    for text, mend in (("class Offers(:\n", ""), ("from scrapy import Gone\n", "It is not in scrapy ")):
        spiders.write_text(text)
        refused = command(stack, "deploy", str(tmp_path), "--project", "broken", code=2)
        assert refused.stderr.count("(shop/spiders.py, line 1)") == 1
        assert mend in refused.stderr
