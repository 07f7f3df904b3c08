"""Public Scrapy projects, unchanged: which of them deploy on the laptop stack with default settings, list their
spiders and run, and what the refusals say.

`python -m bench real-projects [--from FOLDER] [NAME …]` prints a table of them on stderr. Without `--from` each is
fetched from GitHub. With it, FOLDER has a checkout of each, as OWNER+NAME.

A project runs if a crawl of one of its spiders begins: what only its site can answer is no matter of ours. Where none
does, and its readme asks for something (a login, a key, a Redis), it is tried once more with that.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import httpx2

from bench.effort import Effort
from bench.our_platform import Site, Stack, html, running_stack, valkey_server, wait_until
from bench.stock_scrapyd import write_project
from bench.table import Row
from gateway.contract.reasons import Reason

#: How many of the projects have to run.
WANTED = 25
#: How many spiders of a project are tried until one runs: many need arguments of their own.
TRIED = 5
#: Most seconds of a deployment with its installation (`--within`), and of a crawl.
DEPLOYED_WITHIN, ENDED_WITHIN = 900, 90


@dataclass(frozen=True)
class Asked:
    """What a project asks its user for before its spiders run."""

    #: Parameters of the crawl.
    params: dict[str, str] = field(default_factory=dict)
    #: Variables and settings of the project.
    env: dict[str, str] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    #: The setting with the URL of a Redis of its own.
    redis: str = ""

    def __str__(self) -> str:
        kinds = (("the parameter", self.params), ("the variable", self.env), ("the setting", self.settings))
        said = [f"{kind} {name} is given" for kind, names in kinds for name in names]
        return " and ".join([*said, *([f"{self.redis} names a Redis"] if self.redis else ())])


class Project(NamedTuple):
    #: Owner and name on GitHub.
    name: str
    commit: str
    #: The folder of its scrapy.cfg.
    folder: str = ""
    asks: Asked | None = None


PROJECTS = (
    # large ones
    Project("alltheplaces/alltheplaces", "0e866a2c1f584e84ffc261a32afc747d8e2a24ec"),
    Project("City-Bureau/city-scrapers", "292e3f20e2b0cf044e8571bd3acf9cd84249af30"),
    Project("open-contracting/kingfisher-collect", "bb7f5bd2c30e4c3ecfc155a7280feb50f714ca69"),
    Project("okfn-brasil/querido-diario", "87cfb90015f9643cffb6c01d5c47d38202f0c142", "querido_diario_raspadores"),
    Project("public-law/open-gov-crawlers", "87bdeaac38aae3f21c96e87331fb1636dc5ad424"),
    # with a lock, a Pipfile, a stack of Scrapy Cloud, Docker, Django
    Project("DadosAbertosDeFeira/maria-quiteria", "da00373f6bf22505ddcbedc25b26c93004165ff7"),
    Project(
        "scrapinghub/spidermon",
        "79b44cc9b3608c33b6d49c50694721eb3590782e",
        "examples/tutorial",
        asks=Asked(env={"SPIDERMON_SLACK_SENDER_TOKEN": "0" * 32}),
    ),
    Project("0-Defalt-0/animedb-scraper", "bdde4d7170e3a680361e83f15f7772c878ff9ca7"),
    Project(
        "zytedata/zyte-spider-templates-project",
        "e023a741f1253456f0751f044aa9996ff56d6ea2",
        asks=Asked(env={"ZYTE_API_KEY": "0" * 32}),
    ),
    Project("stummjr/scrapy_price_monitor", "23fadd3a043e9eeba5a3696f75216b3571db2749"),
    Project("scrapinghub/sample-projects", "fdff7a0be50041c30e059568aca0d81d1183ad53", "quotes_crawler"),
    Project("scrapinghub/testspiders", "c7008e50e320b43445e333db7387b29be8aa7cf9"),
    Project("istresearch/scrapy-cluster", "01861c2dca1563aab740417d315cc4ebf9b73f72", "crawler"),
    Project(
        "rmax/scrapy-redis",
        "d34e9af0b2e479327519f5f2b53dbc282e6ec5a8",
        "example-project",
        asks=Asked(redis="REDIS_URL"),
    ),
    Project("holgerd77/django-dynamic-scraper", "48943f6a9f911b7f410ce084f6d0ccc9af3a90cf", "example_project"),
    Project("TeamHG-Memex/undercrawler", "a693929d3b9d30c69eed1dc7aedc22e644cb76f5"),
    Project("code4romania/czl-scrape", "789341faa950f1511ff69bec840fbfb5998cf04e", "justitie"),
    Project("wellcometrust/reach", "1aa42c7d8aaf0a91d033af8448a33f37563b0365", "pipeline/reach-scraper"),
    Project("SpiderClub/haipproxy", "ab30ccf4b1d78e9304c27830006cc5800fe41bb3"),
    Project(
        "Aqua-Dream/Tieba_Spider",
        "25ffe2c6f5f2546db47d8cf46b64de117a45700d",
        # those that its own command takes from its config.json
        asks=Asked(
            settings={
                "TIEBA_NAME": "python",
                "BEGIN_PAGE": 1,
                "END_PAGE": 1,
                "MYSQL_DBNAME": "tieba",
                "MYSQL_HOST": "localhost",
                "MYSQL_PORT": 3306,
                "MYSQL_USER": "root",
                "MYSQL_PASSWD": "root",
            }
        ),
    ),
    Project("GSA/searchgov-spider", "b11066097e69c97b3ac7231d9e86d5116b5d3308", "search_gov_crawler"),
    # sites behind a login, a browser or a proxy
    Project("dataabc/weibo-search", "b4535b71d36ae61d13ab0083a18a152914f14ba7"),
    Project("jonbakerfish/TweetScraper", "739b604b811f96c260597e10bcd0427fdf315e49"),
    Project(
        "rugantio/fbcrawl",
        "bda7d6a7da49a57c8a0863b6679c013f74fdb4c1",
        asks=Asked(params={"email": "somebody@example.com", "password": "secret", "page": "example"}),
    ),
    Project("Python3WebSpider/ScrapySplashTest", "f568af46f6de1e5b5cfcb73d2fe38ed4cb7828df"),
    Project("Python3WebSpider/ScrapySeleniumTest", "824f2cee525928942a702459593649a6e92c51c4"),
    Project("harrywang/scrapy-selenium-demo", "02f01d6b5636b31dc3d937995cc7093be4d440cb"),
    Project("python-scrapy-playbook/amazon-python-scrapy-scraper", "fdbd825faf979513019071cb5b5e021c8af6fdec"),
    Project("python-scrapy-playbook/linkedin-python-scrapy-scraper", "e007e8326207ce8229f2f505cf3785855234862c"),
    # small ones, some of them old
    Project("scrapy/quotesbot", "16ec3f4176db67ca9132f7e4431d7823e5e28974"),
    Project("scrapy/booksbot", "959a7dcdcf34c12f446a20e6e7bbecf97697f0fd"),
    Project("harrywang/scrapy-tutorial", "1dde391b856491202eded192cd0384be38f01b43"),
    Project("scrapy/dirbot", "8e995447361ad83f6693d2e07d17d90912268ace"),
    Project("Python3WebSpider/ScrapyTutorial", "94ac9174501e0a56dfb9a88eb34f49a2f69bdde1"),
    Project("Python3WebSpider/ScrapyUniversal", "0e44064177e3460efdce5a82c8ab968883cbbab0"),
    Project("talhashraf/major-scrapy-spiders", "e532275716d84d639c4dcda0e5450de2cb17788b"),
    Project("LiuXingMing/SinaSpider", "dcb275ef77a8891fd21efab70e0e04d258de027a", "Sina_spider1"),
    Project("0xlearner/Carrefour_Scraper", "5990b47b7edab8f114969f9ea6204ec0a1f389b5"),
    Project("007gzs/china_admincode", "a01faff7f7239aa620db2f3174d7b7629a4d7181"),
    Project(
        "0xbhvn/mutual-fund-crisil-scrapy",
        "cabc67a91a3a58ee59a85203593bc1d1af44c465",
        # its pipeline writes to a PostgreSQL on the same machine
        asks=Asked(settings={"ITEM_PIPELINES": {}}),
    ),
)


#: Results that count neither way, by the code of the refusal.
NEITHER_WAY = {Reason.PYTHON_MISSING: "no Python", Reason.INDEX_UNREACHABLE: "no way"}
UNTRIED = frozenset(NEITHER_WAY.values())


class Tried(NamedTuple):
    project: Project
    #: `runs`; `runs given` what it asks for; `deployed` (no crawl of those of its spiders that were tried has begun);
    #: `refused`; and two that count neither way: `no Python` (it needs one that this machine lacks), and `no way`
    #: (this machine does not reach a place that the project's requirements name).
    result: str
    spiders: int
    #: What the platform says: why it was refused, or how the crawl ended.
    said: str

    def __str__(self) -> str:
        return f"{self.project.name:56} {self.result:10} {self.spiders:6}  {self.said}"


def run(effort: Effort) -> list[Row]:
    if effort is not Effort.SMOKE:
        return tried(PROJECTS, None)
    # a smoke test has no network
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "ours+plain"
        folder.mkdir()
        write_project(folder)
        return tried([Project("ours/plain", "")], Path(name))


def main(arguments: Sequence[str]) -> list[Row]:
    parser = argparse.ArgumentParser("python -m bench real-projects")
    parser.add_argument("--from", dest="folder", type=Path, help="of checkouts, each as OWNER+NAME")
    parser.add_argument(
        "--within", type=int, default=DEPLOYED_WITHIN, metavar="SECONDS", help="that a deployment may take"
    )
    parser.add_argument("only", nargs="*", metavar="NAME", help="owner and name, or a part of them")
    asked = parser.parse_args(arguments)
    chosen = [one for one in PROJECTS if not asked.only or any(part in one.name for part in asked.only)]
    return tried(chosen, asked.folder, asked.within)


def tried(projects: Sequence[Project], folder: Path | None, within: int = DEPLOYED_WITHIN) -> list[Row]:
    results: list[Tried] = []
    with (
        tempfile.TemporaryDirectory() as name,
        Site({"/": html("a page")}) as site,
        running_stack(Path(name) / "home") as stack,
    ):
        for project in projects:
            with checkout(project, folder) as source:
                results.append(result := try_out(stack, project, source, site, within))
            print(result, file=sys.stderr, flush=True)
    can = [one for one in results if one.result not in UNTRIED]
    wanted = min(WANTED, len(can))

    def row(what: str, *counted: str) -> Row:
        ours = sum(one.result in counted for one in can)
        said = f"public projects that {what}, of {len(can)} that can be tried"
        return Row(said, "projects", ours, wanted, "what was asked for", ours / max(1, wanted), ">= 1")

    return [
        row("deploy and run with default settings", "runs"),
        row("deploy and run, some with what they ask for", "runs", "runs given"),
    ]


@contextmanager
def checkout(project: Project, folder: Path | None) -> Iterator[Path]:
    """The folder of its scrapy.cfg."""
    if folder is not None:
        yield folder / project.name.replace("/", "+") / project.folder
        return
    with tempfile.TemporaryDirectory() as name:
        for step in (
            ("init", "--quiet"),
            # with its history, because the date of the last change matters
            ("fetch", "--quiet", "--filter=blob:none", f"https://github.com/{project.name}", project.commit),
            ("checkout", "--quiet", "FETCH_HEAD"),
        ):
            subprocess.run(("git", *step), cwd=name, check=True, timeout=DEPLOYED_WITHIN)
        yield Path(name) / project.folder


def try_out(stack: Stack, project: Project, source: Path, site: Site, within: int) -> Tried:
    name = project.name.partition("/")[2]
    command = (sys.executable, "-m", "gateway.cli.main", "deploy", str(source), "--project", name, "--json")
    try:
        deployed = subprocess.run(
            (*command, "--url", stack.url), capture_output=True, text=True, check=False, timeout=within
        )
    except subprocess.TimeoutExpired:
        return Tried(project, "refused", 0, f"what it depends on is still being installed after {within} s")
    if deployed.returncode:
        said = next(reversed(deployed.stderr.strip().splitlines()), "")
        nodes = json.loads(deployed.stdout)["nodes"] if deployed.stdout.strip() else []
        untried = next((NEITHER_WAY[node["reason"]] for node in nodes if node.get("reason") in NEITHER_WAY), None)
        return Tried(project, untried or "refused", 0, said)
    spiders = spiders_of(stack, name)
    has_begun, said = any_crawled(stack, spiders, site, Asked())
    if has_begun or project.asks is None:
        return Tried(project, "runs" if has_begun else "deployed", len(spiders), said)
    with given(stack, name, project.asks):
        has_begun, then = any_crawled(stack, spiders, site, project.asks)
    once = f"once {project.asks}: {then}; without: {said}"
    return Tried(project, "runs given" if has_begun else "deployed", len(spiders), once)


@contextmanager
def given(stack: Stack, project: str, asked: Asked) -> Iterator[None]:
    """The project with the variables, the settings and the Redis that it asks for."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as open_ones:
        settings = dict(asked.settings)
        if asked.redis:
            settings[asked.redis] = open_ones.enter_context(valkey_server(Path(name)))
        at = f"{stack.url}/projects/{project}"
        stack.http.put(f"{at}/settings", json={"settings": settings}).raise_for_status()
        for variable, value in asked.env.items():
            stack.http.put(f"{at}/env/{variable}", json={"value": value}).raise_for_status()
        yield


def any_crawled(stack: Stack, spiders: list[dict[str, Any]], site: Site, asked: Asked) -> tuple[bool, str]:
    """Whether a crawl of one of the first spiders has begun, and how the last one ended."""
    said = "it has no spiders"
    for spider in spiders[:TRIED]:
        has_begun, said = crawled(stack, spider, f"{site.url}/", asked.params)
        if has_begun:
            return True, said
    return False, said


def spiders_of(stack: Stack, project: str) -> list[dict[str, Any]]:
    """The spiders, first those that need no parameter."""

    def listed() -> list[dict[str, Any]]:
        answer = stack.http.get(f"{stack.url}/spiders", params={"project": project}).raise_for_status()
        found: list[dict[str, Any]] = answer.json()["spiders"]
        return found

    found = wait_until(listed, what="the list of its spiders")
    return sorted(found, key=lambda one: bool((one["params_schema"] or {}).get("required")))


def crawled(stack: Stack, spider: dict[str, Any], url: str, params: dict[str, str]) -> tuple[bool, str]:
    """Whether a crawl of the spider has begun, and how it ended. The URL is for spiders without one of their own:
    they take start URLs, or have a parameter `url`.
    """
    what = {"user_id": "bench", "project": spider["project"], "spider": spider["name"]}
    where: dict[str, Any] = {"start_urls": [url]} if spider["needs_urls"] else {}
    takes_url = "url" in {*(spider["params_schema"] or {}).get("properties", ()), *spider["arguments"]}
    where["params"] = {**params, **({"url": url} if takes_url else {})}
    limits = {"max_pages": 1, "timeout": ENDED_WITHIN // 2, "max_retries": 0}
    answer = stack.http.post(f"{stack.url}/crawl", json={**what, **where, **limits})
    if answer.status_code != httpx2.codes.OK:
        return False, answer.json()["error"]["message"]
    job_id = answer.json()["job_id"]
    ended = stack.wait_final(job_id, timeout=ENDED_WITHIN)
    has_begun = b"Spider opened" in stack.log(job_id) and ended["reason"] != Reason.BROKE_DOWN
    return has_begun, f"{spider['name']}: {ended['status']}, {ended['message']}"
