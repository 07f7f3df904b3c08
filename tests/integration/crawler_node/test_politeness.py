"""Crawls that a node forks are held as those that it starts, and show nobody what they were given."""

from __future__ import annotations

from pathlib import Path

import psutil
from node import ROOT, Node, wait_for
from sites.server import Site
from stores import valkey_server

SECRETS = ("k3y", "c00kie")


def commands_of(node: Node) -> list[str]:
    """As `ps` shows them."""
    assert node.process is not None
    return [" ".join(process.cmdline()) for process in psutil.Process(node.process.pid).children(recursive=True)]


def test_forked_crawls_share_a_rate_and_keep_what_they_were_given_to_themselves(tmp_path: Path) -> None:
    with valkey_server(tmp_path / "valkey") as valkey, Site() as site:
        allowed = {"CRAWL_ALLOW_NETWORKS": "127.0.0.0/8", "RATE_LIMIT_REDIS_URL": valkey}
        node = Node(tmp_path / "home", ROOT, PYTHONPATH="", **allowed)
        try:
            node.start()
            fetch = {"headers": {"X-Key": "k3y"}, "cookies": {"session": "c00kie"}, "concurrency": 4}
            limit = {"site": "here", "site_rate_limit": "40/s", "fetch": fetch}
            folders = [node.run("seo", start_urls=[f"{site.url}/tree/900/{number}"], **limit) for number in (1, 2)]
            wait_for(lambda: len(site.access_log) > 100)
            commands = commands_of(node)
            assert sum("-m crawler.node.zygote crawler" in line for line in commands) == 5, (
                "it and two that it forked, each with its minder"
            )
            for folder in folders:
                assert (folder / "spec.json").stat().st_mode & 0o077 == 0
                node.cancel(folder)
                assert node.exit_of(folder)["stopped_by"] == "cancel"
            moments = sorted(visit.at for visit in site.access_log)
            # each at its own pace would be twice as fast; the first may have come late
            assert len(moments) - 1 <= 40 * (moments[-1] - moments[0] + 0.5)
            assert {visit.headers["X-Key"] for visit in site.access_log} == {"k3y"}
            logs = [node.log(), *((folder / "crawl.log").read_text() for folder in folders)]
        finally:
            node.clean_up()
    assert not [secret for secret in SECRETS for text in (*commands, *logs) if secret in text]
