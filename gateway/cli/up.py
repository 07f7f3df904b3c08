"""`discoverybot up` and `demo`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import typer
from rich.table import Table

from embedded.stack.scratch import UP_COMMAND, ScratchError, running, scratch_stack
from embedded.stack.up import UpOptions
from embedded.stack.up import up as run_stack
from gateway.cli.api import Api, ApiError, ExitCode, of_status
from gateway.cli.explain import summary
from gateway.cli.join import use_what_was_joined
from gateway.cli.options import flag, option, taking
from gateway.cli.terminal import counted, out, program
from gateway.cli.watching import TerminalLog
from gateway.settings import Settings


@taking(
    flag("verbose", "Print the log of every process, too.", "--verbose", "-v"),
    flag("quiet", "Do not print a line for each process that is ready.", "--quiet", "-q"),
    flag("free_ports", "Let the system choose every port."),
    option(
        "only",
        "Run only this process here; repeatable: redis, mongo, scrapyd, tailer, worker, beat, gateway.",
        kind=list[str],
        default=None,
    ),
    option("ready_file", "When all is healthy, write its addresses to this file as JSON.", kind=Path),
)
def up(*, verbose: bool, quiet: bool, free_ports: bool, only: list[str] | None, ready_file: Path | None) -> None:
    """Run the whole platform here, or a part of it, until Ctrl-C. Exit code: 1 it never got ready, 2 refused."""
    node = use_what_was_joined()
    options = UpOptions(quiet, verbose, free_ports, tuple(only or node), ready_file, program())
    raise typer.Exit(run_stack(Settings.load(), options))


# --- `discoverybot demo`: the whole platform on a site of its own

#: With `-P` nothing is imported from the folder that the user is in, which may have packages of our names.
_SITE = (sys.executable, "-P", "-m", "crawler.demo_site", "--port", "0")
_FIRST_SERVER_ERROR = 500
SERVER_ERROR, BROKEN_LINK = "server error", "broken link"
NO_TITLE, NO_DESCRIPTION, REDIRECT = "no title", "no description", "redirect"
_RANK = (SERVER_ERROR, BROKEN_LINK, NO_TITLE, NO_DESCRIPTION, REDIRECT)
_STYLES = {SERVER_ERROR: "bold red", BROKEN_LINK: "red", REDIRECT: "dim"}
#: A level that no line of the demo's log has.
_NO_LINE = "CRITICAL"
#: The site has broken pages: a crawl that finds them is a good one.
_GOOD = frozenset({ExitCode.OK, ExitCode.PARTIAL})


class PageFinding(NamedTuple):
    kind: str
    page: str
    detail: str = ""


@taking(flag("verbose", "Print the log of the crawl.", "--verbose", "-v"))
def demo(*, verbose: bool) -> None:
    """Start a scratch platform, crawl a small bundled site, show what is wrong with the site, remove everything."""
    out.print("Starting a scratch platform: free ports, a temporary folder, nothing of it stays.", style="bold")
    try:
        with (
            scratch_stack(UP_COMMAND, {"CRAWL_ALLOW_NETWORKS": "127.0.0.0/8"}) as stack,
            running(_SITE) as site,
        ):
            code, found = _crawl(Api(stack.gateway_url), _site_url(site), level=None if verbose else _NO_LINE)
    except ScratchError as error:
        raise ApiError(str(error), ExitCode.ERROR) from None
    if code in _GOOD:
        out.print(findings_table(found))
        out.print(f"Now your own: `{program()} up`, then `{program()} crawl https://…`", style="bold", soft_wrap=True)
    raise typer.Exit(ExitCode.OK if code in _GOOD else code)


def _site_url(site: subprocess.Popen[str]) -> str:
    """The site's URL, which is at the end of the first line that it prints."""
    words = site.stdout.readline().split() if site.stdout else []
    url = next((word for word in words if word.startswith("http://")), None)
    if url is None:
        raise ScratchError("the demo site did not start")
    return url


def _crawl(api: Api, url: str, level: str | None) -> tuple[ExitCode, list[PageFinding]]:
    out.print(f"Crawling {url} with the spider `seo`.", style="bold")
    receipt = api.submit({"user_id": "demo", "spider": "seo", "start_urls": [url], "max_retries": 0})
    end = TerminalLog(out).show(api.follow(receipt["job_id"], level=level))
    end = end or api.get(f"/jobs/{receipt['job_id']}/status")
    out.print(summary(end), soft_wrap=True)
    pieces = api.download(f"/jobs/{receipt['job_id']}/items", format="jsonl")
    items = [json.loads(line) for line in b"".join(pieces).splitlines()]
    return of_status(end["status"]), findings(items)


def findings(items: list[dict[str, Any]]) -> list[PageFinding]:
    """What is wrong with a site according to the items of `seo`; the worst first."""
    found = [finding for item in items for finding in _OF_TYPE[item["type"]](item)]
    return sorted(found, key=lambda finding: (_RANK.index(finding.kind), finding.page))


def _of_link(link: dict[str, Any]) -> Iterator[PageFinding]:
    kind = SERVER_ERROR if (link["status"] or 0) >= _FIRST_SERVER_ERROR else BROKEN_LINK
    yield PageFinding(kind, link["page"] or "", f"{_path(link['url'])} ({link['status'] or link['error']})")


def _of_page(page: dict[str, Any]) -> Iterator[PageFinding]:
    if not page["title"]:
        yield PageFinding(NO_TITLE, page["url"])
    if not page["description"]:
        yield PageFinding(NO_DESCRIPTION, page["url"])
    if page["redirects"]:
        yield PageFinding(REDIRECT, page["url"], "from " + ", ".join(_path(hop["url"]) for hop in page["redirects"]))


_OF_TYPE: dict[str, Callable[[dict[str, Any]], Iterator[PageFinding]]] = {"broken_link": _of_link, "page": _of_page}


def findings_table(found: list[PageFinding]) -> Table:
    """The findings in the given order, with pages by their path."""
    table = Table(title=counted(len(found), "finding"), title_justify="left", header_style="bold")
    for name in ("Finding", "Page", "Detail"):
        table.add_column(name, overflow="fold")
    for kind, page, detail in found:
        table.add_row(kind, _path(page), detail, style=_STYLES.get(kind, "yellow"))
    return table


def _path(url: str) -> str:
    parts = urlsplit(url)
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
