"""The commands of README and documentation run as they are printed, on a platform with nothing else on it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import eggs
import pytest
import warm
import yaml
from forms import first_in_short, in_full
from sites.job_board import JobBoard, job_board
from sites.server import html
from stack import ROOT, Stack, running_stack, wait_until

from crawler.demo_site.server import DemoServer

pytestmark = [pytest.mark.stack]

Example = Mapping[str, str | Callable[[], str]]
#: What is run of each page: all its commands but those under a comment `<!-- not run: why -->`.
PAGES = (
    "README.md",
    "docs/quickstart.md",
    "docs/tutorial.md",
    "docs/troubleshooting.md",
    "docs/how-to/add-a-job-board.md",
    "docs/how-to/crawl-every-morning.md",
    "docs/how-to/deploy-your-own-spiders.md",
    "docs/how-to/extract-data-with-rules.md",
    "docs/how-to/follow-what-changes.md",
    "docs/how-to/move-from-scrapy-cloud.md",
    "docs/how-to/move-from-scrapyd.md",
    "docs/how-to/use-from-agents.md",
    "docs/how-to/use-from-python.md",
    "docs/reference/audit.md",
    "docs/reference/cli.md",
    "docs/reference/environment.md",
    "docs/reference/http-api.md",
    "docs/reference/politeness.md",
    "docs/reference/runs.md",
    "docs/reference/spiders.md",
    "docs/reference/webhooks.md",
)
NOT_RUN = {
    "CONTRIBUTING.md": "they are what runs this",
    "docs/examples/README.md": "needs sites elsewhere; tests/e2e/test_examples.py has one",
    "docs/figures.md": "a measurement",
    "docs/reliability.md": "the fault tests, which run by themselves",
    "docs/how-to/crawl-javascript-pages.md": "needs a Chromium; tests/integration/crawler_render has all of it",
    "docs/how-to/run-on-a-server.md": "needs Docker; tests/unit/house/test_compose_file.py reads the file",
    "docs/how-to/use-a-generated-client.md": "needs generators; tests/e2e/test_generated_clients.py has all of it",
    "docs/how-to/use-from-typescript.md": "needs Node.js; tests/e2e/test_generated_clients.py has all of it",
    "docs/how-to/several-machines.md": "needs three machines; tests/e2e/test_several_machines.py has them",
    "docs/reference/datasets.md": "needs a dataset with runs; tests/integration/web/test_datasets.py",
    "docs/reference/dependencies.md": "needs an index of packages; tests/integration/eggs/test_venvs.py",
    "docs/reference/exports.md": "needs a dataset with exports; tests/integration/services/test_exports.py",
    "docs/reference/files.md": "needs a project that writes files; tests/e2e/test_eggs.py",
    "docs/reference/keys.md": "would close the platform to all other pages; tests/integration/web/test_keys.py",
    "docs/reference/quotas.md": "needs quotas; tests/integration/web/test_quotas.py",
}
ARTICLE = html(f"<article><h1>Gulls</h1><p>{'Nobody counts the gulls of the harbour. ' * 20}</p></article>")
BLOCK = re.compile(r"^(<!-- not run: [^\n]+ -->\n)?```(\w+)\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)
#: A file that a page shows: its name is in its first line, or in the command that follows.
PYTHON_FILE = re.compile(r"# (\S+\.py)\n")
WORKFLOW = re.compile(r"# \.github/workflows/\w+\.yml\n")
JSON_FILE = re.compile(r"(?:@|--file )(\w+\.json)")
#: What starts servers is left to the fixtures.
PRELUDE = r"""
make() { echo "make $*"; }
curl() { command curl --fail-with-body "$@"; }
scrapy() {
  command scrapy "$@"
  find . -name settings.py -exec sed -i 's/^DOWNLOAD_DELAY = 1/DOWNLOAD_DELAY = 0/' {} +
}
discoverybot() {
  if [ "$1" = up ]; then return; fi
  command discoverybot "$@"
}
"""
SPIDERS = """
import scrapy


class Offers(scrapy.Spider):
    name = "offers"
    start_urls = ["SITE"]

    def parse(self, response):
        yield {"url": response.url}


class Books(Offers):
    name = "books"
"""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running_stack(tmp_path_factory.mktemp("stack") / "home") as stack:
        yield stack


@pytest.fixture(scope="module")
def demo() -> Iterator[str]:
    with DemoServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server.url.rstrip("/")
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def board(stack: Stack) -> Iterator[JobBoard]:
    """Three sites of it are known by the names that the pages use."""
    with job_board(25) as board:
        board.pages["/tree/3/blog/"] = ARTICLE
        board.pages["/sitemap.xml"] = f"<urlset><url><loc>{board.url}/tree/3/1</loc></url></urlset>"
        record = {**board.record("", "json-ld", "next_link"), "min_pause_seconds": 0, "max_pause_seconds": 0}
        for name in ("myboard", "exampleboard"):
            stack.http.post(f"{stack.url}/sites", json={**record, "name": name}).raise_for_status()
        yield board


@pytest.fixture(scope="module")
def commands() -> Iterator[Path]:
    """`discoverybot`, at once: there are a hundred of it, each of which would take half a second to be imported."""
    with warm.command("discoverybot", "gateway.cli.main") as folder:
        yield folder


@pytest.fixture
def folder(tmp_path: Path, board: JobBoard) -> Path:
    """Where the commands are given: in a Scrapy project, with an egg and a site's record beside it."""
    project = eggs.source("shop", spiders=SPIDERS.replace("SITE", f"{board.url}/tree/3"))
    files = {
        **project,
        "scrapy.cfg": "[settings]\ndefault = shop.settings\n",
        "board.json": '{"interval_minutes": 90}',
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    (tmp_path / "shop.egg").write_bytes(eggs.egg(project))
    return tmp_path


@pytest.fixture
def example(stack: Stack, demo: str, board: JobBoard, folder: Path) -> Example:
    """What the pages name as examples, and what stands for it here; the first that fits counts."""
    site = f"{board.url}/tree/3"
    (node,) = stack.http.get(f"{stack.url}/nodes").json()["nodes"]
    # made for those pages alone that name it
    job = cache(lambda: _ended(stack, site))
    dead = cache(lambda: _ended(stack, f"{board.url}/status/500", max_retries=0))
    schedule = cache(lambda: _schedule(stack, site))
    return {
        "scrapy crawl seo": "SCRAPY_SETTINGS_MODULE=crawler.settings scrapy crawl seo",
        "https://jobs.example.com/search": f"{board.url}/search/json-ld/page_param",
        "https://jobs.example.com": board.url,
        "https://example.com": site,
        "https://books.toscrape.com": site,
        "http://127.0.0.1:8001": stack.url,
        "localhost:8001": stack.url.removeprefix("http://"),
        "http://127.0.0.1:8099": demo,
        ".venv/bin/python -m crawler.demo_site": ": demo",
        "python -m crawler.demo_site": ": demo",
        ".venv/bin/discoverybot": "discoverybot",
        "cd ~\n": "",
        "~/shop": str(folder),
        "sleep 5": "sleep 0.2",
        " --form requirements=@requirements.txt": "",
        "path/to/project": f"{folder} --project bookshop",
        "show n2": f"show {node['name']}",
        "drain n2": f"drain {node['name']}",
        "resume n2": f"resume {node['name']}",
        "resume NODE": f"resume {node['name']}",
        "requeue ID": lambda: f"requeue {dead()}",
        "requeue 5f0c…": lambda: f"requeue {dead()}",
        "jobs/ID": lambda: f"jobs/{job()}",
        "4f0c…": job,
        "0d4f5c6b7a8e4f1d9c2b3a4e5f607182": schedule,
        "schedules/ID": lambda: f"schedules/{schedule()}",
        " ID": lambda: f" {schedule()}",
    }


def _ended(stack: Stack, url: str, **fields: Any) -> str:
    job = stack.crawl(url, ignore_cache=True, **fields)
    stack.wait_final(job)
    return job


def _schedule(stack: Stack, site: str) -> str:
    """One that has had a run."""
    crawl = {"user_id": "me", "spider": "seo", "start_urls": [site], "interval": "@yearly", "ignore_cache": True}
    schedule: str = stack.http.post(f"{stack.url}/crawl", json=crawl).raise_for_status().json()["job_id"]
    run = stack.http.post(f"{stack.url}/schedules/{schedule}/run").raise_for_status().json()["job_id"]
    wait_until(lambda: stack.status(run)["status"] == "finished", what="the schedule's run")
    return schedule


def script(page: str, example: Example) -> str:
    """All commands of the page, one after the other; its files are written where it has come to."""
    text, lines, shown = (ROOT / page).read_text(encoding="utf-8"), [], ""
    for left_out, language, block in BLOCK.findall(text):
        if left_out:
            continue
        if language == "json":
            shown = block
        elif language == "python" and (name := PYTHON_FILE.match(block)):
            lines.append(_written(name[1], block))
        elif language == "sh":
            lines += [_written(name, shown) for name in JSON_FILE.findall(block) if shown]
            lines.append(block)
        elif language == "yaml" and WORKFLOW.match(block):
            lines += _steps(block)
        elif language == "console":
            lines += [line.removeprefix("$ ") for line in block.splitlines() if line.startswith("$ ")]
    pattern = re.compile("|".join(map(re.escape, example)))

    def stands_for(found: re.Match[str]) -> str:
        stand_in = example[found[0]]
        return stand_in if isinstance(stand_in, str) else stand_in()

    return pattern.sub(stands_for, "\n".join(lines))


def _steps(workflow: str) -> Iterator[str]:
    """What the workflow of a GitHub Action runs, but for the building of the egg, which is there."""
    (job,) = yaml.safe_load(workflow)["jobs"].values()
    assert {name.split("_")[0] for name in job["env"]} == {"DISCOVERYBOT"}
    assert all(step.keys() & {"uses", "run"} for step in job["steps"])
    for step in job["steps"]:
        if "run" in step and "--build-egg=shop.egg" not in step["run"]:
            yield f"(export GITHUB_SHA={'5f0c' * 10} DISCOVERYBOT_KEY=none\n{step['run']})"


def _written(name: str, text: str) -> str:
    return f"cat > {name} <<'END'\n{text}END\n"


Run = Callable[[str, Path], str]


@pytest.fixture
def run(stack: Stack, commands: Path) -> Run:
    """Run a script in a folder; what it prints."""
    places = (commands, Path(sys.executable).parent, os.environ["PATH"])
    environment = {
        **os.environ,
        "PATH": os.pathsep.join(map(str, places)),
        "DISCOVERYBOT_URL": stack.url,
        "DISCOVERYBOT_HOME": str(stack.home),
        "CRAWL_ALLOW_NETWORKS": "127.0.0.0/8",
        "COLUMNS": "200",
    }

    def run_script(text: str, folder: Path) -> str:
        shell = ["bash", "-euxo", "pipefail", "-c", PRELUDE + text]
        done = subprocess.run(
            shell, cwd=folder, env=environment, capture_output=True, text=True, timeout=400, check=False
        )
        assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return done.stdout

    return run_script


@pytest.mark.parametrize("page", first_in_short([page for page in PAGES if page != "docs/tutorial.md"], 2))
def test_the_commands_of_a_page_run_as_printed(page: str, run: Run, example: Example, folder: Path) -> None:
    run(script(page, example), folder)


@in_full("the first pages above")
def test_the_tutorial_leads_to_where_it_says(run: Run, example: Example, tmp_path: Path) -> None:
    told = run(script("docs/tutorial.md", example), tmp_path)
    project = tmp_path / "harbour"
    tried, cows = (_lines(project / name) for name in ("ships.jsonl", "cows.jsonl"))
    assert (len(tried), [ship["name"] for ship in cows]) == (5, ["The Little Anna"])
    headers = {
        name: (project / name).read_text("utf-8-sig").splitlines()[0]
        for name in ("ships.csv", "old.csv", "new.csv", "today.csv")
    }
    assert headers == {"ships.csv": "name,story", "old.csv": "name,story"} | dict.fromkeys(
        ("new.csv", "today.csv"), "url,name,story"
    )
    assert "harbour 1.1: 1 spider" in told


def _lines(file: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_every_page_with_commands_is_run_or_says_why_not() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    with_commands = {
        str(page.relative_to(ROOT))
        for page in pages
        for _, language, _ in BLOCK.findall(page.read_text(encoding="utf-8"))
        if language in {"sh", "console"}
    }
    assert with_commands == {*PAGES, *NOT_RUN}
