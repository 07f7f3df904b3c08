"""Firecrawl's own clients, as they come from PyPI and npm, at our door: they find no difference."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest
from machine import find_program
from sites.server import Reply, Site, html, links
from stack import ROOT, Stack, running_stack, wait_until

# what it needs is 80 MB, and it takes a minute, so no part of `make test`
pytestmark = [
    pytest.mark.stack,
    pytest.mark.skipif("FIRECRAWL" not in os.environ, reason="`make firecrawl` brings the clients"),
]

HERE, TOOLS = ROOT / "tests/firecrawl", ROOT / ".tools/firecrawl"
PAGES = 200
NODE = ("scrapyd", "tailer")


class Platform(NamedTuple):
    stack: Stack
    key: str
    site: Site

    def command(self, *program: str | Path) -> list[str]:
        return [*map(str, program), self.stack.url, self.key, self.site.url]


def page(number: int) -> str:
    children = "".join(f"<a href='/docs/{n}'>{n}</a> " for n in (2 * number + 1, 2 * number + 2) if n < PAGES)
    menu = "<nav><a href='/docs/'>Docs</a></nav>"
    return html(f"{menu}<main><h1>Page {number}</h1>{children}</main>", f"Page {number}")


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    pages: dict[str, str | Reply] = {f"/docs/{number}": page(number) for number in range(PAGES)}
    pages |= {"/docs/": links("/docs/0", "/private/"), "/docs/hidden": html("only a sitemap knows it")}
    with Site(pages, robots="User-agent: *\nDisallow: /private/") as site:
        named = f"<urlset><url><loc>{site.url}/docs/hidden</loc></url></urlset>"
        site.pages["/sitemap.xml"] = Reply(named, content_type="application/xml")
        with running_stack(tmp_path_factory.mktemp("firecrawl") / "home") as stack:
            program = Path(sys.executable).with_name("discoverybot")
            made = subprocess.run(
                [program, "keys", "create", "--user", "anne", "--scope", "crawl"],
                env=stack.environment(), capture_output=True, text=True, check=True, cwd=ROOT,
            )  # fmt: skip
            key = next(word for word in made.stdout.split() if word.startswith("db_"))
            yield Platform(stack, key, site)


def passed(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def test_the_python_client(platform: Platform) -> None:
    assert passed(platform.command(TOOLS / "bin/python", HERE / "client.py")) == "all passed\n"


@pytest.mark.parametrize(
    ("option", "kind"), [("--no-experimental-websocket", "undefined"), ("--experimental-websocket", "function")]
)
def test_the_javascript_client(platform: Platform, option: str, kind: str) -> None:
    node = find_program("node")
    said = passed([*platform.command(node, option, HERE / "client.mjs"), str(TOOLS / "javascript")])
    assert said == f"all passed {kind}\n"


def kill_node(stack: Stack) -> None:
    """All that runs on it: Scrapyd, the warm process, spiders, the tailer."""
    pids = stack.ready["pids"]
    roots = [psutil.Process(pids[name]) for name in NODE]
    for one in (*roots, *(child for root in roots for child in root.children(recursive=True))):
        with suppress(psutil.NoSuchProcess):
            one.send_signal(signal.SIGKILL)
    for name in NODE:
        stack.wait_for_another(name, pids[name])


def test_a_crawl_through_kills_of_all_that_does_it_loses_nothing(platform: Platform) -> None:
    stack, command = platform.stack, platform.command(TOOLS / "bin/python", HERE / "client.py")
    platform.site.delay = 0.1
    with subprocess.Popen([*command, "kills"], stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        assert len(client.stdout.readline().strip()) == 32
        begun = len(platform.site.access_log)
        for count, victim in ((30, "node"), (60, "gateway"), (90, "worker"), (120, "node")):
            wait_until(lambda count=count: len(platform.site.access_log) > begun + count, what=f"{count} pages")
            if victim == "node":
                kill_node(stack)
            else:
                pid = stack.ready["pids"][victim]
                stack.kill(victim)
                stack.wait_for_another(victim, pid)
        assert client.stdout.read() == f"completed {PAGES + 2} {PAGES + 2}\n"
