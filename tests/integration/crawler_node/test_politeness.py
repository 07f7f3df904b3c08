"""Crawls that a node forks are held as those that it starts, and show nobody what they were given."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
from eggs import egg as pack
from eggs import source
from http_message_signatures import HTTPMessageVerifier
from http_message_signatures.algorithms import ED25519
from node import ROOT, Node, wait_for
from sites.server import Reply, Site, html, links
from stores import valkey_server

from gateway.contract.bot_identity import BotIdentity

SECRETS = ("k3y", "c00kie")


def commands_of(node: Node) -> list[str]:
    """As `ps` shows them."""
    assert node.process is not None
    return [" ".join(process.cmdline()) for process in psutil.Process(node.process.pid).children(recursive=True)]


KEY = "MC4CAQAwBQYDK2VwBCIEIJ+DYvh6SEqVTm50DFtMDoQikTmiCqirVv9mWG9qfSnF"
CURIOUS = """
import os
import scrapy

class Curious(scrapy.Spider):
    name = "curious"

    def parse(self, response):
        yield {"environment": str(dict(os.environ))}
"""


def test_requests_of_our_own_spiders_are_signed_and_no_project_gets_the_key(tmp_path: Path) -> None:
    identity = {"WEB_BOT_AUTH_KEY": KEY, "WEB_BOT_AUTH_URL": "https://bots.example"}
    node = Node(tmp_path / "home", ROOT, PYTHONPATH="", CRAWL_ALLOW_NETWORKS="127.0.0.0/8", **identity)
    with Site({"/": links("/a"), "/a": Reply(status=302, headers={"Location": "/b"}), "/b": html("b")}) as site:
        try:
            node.start()
            ours = node.run("seo", start_urls=[site.url], depth=1)
            assert node.exit_of(ours)["report"]["progress"]["completed_pages"] == 2
            signed = list(site.access_log)
            site.access_log.clear()
            content = pack(source("curious", spiders=CURIOUS))
            form = {"data": {"project": "curious", "version": "1"}, "files": {"egg": ("curious.egg", content)}}
            assert node.client.post("/addversion.json", **form).json()["status"] == "ok"
            theirs = node.run("curious", project="curious", start_urls=[site.url])
            assert node.exit_of(theirs)["exit_code"] == 0
            unsigned = list(site.access_log)
            written = b"".join(path.read_bytes() for path in (*ours.rglob("*"), *theirs.rglob("*")) if path.is_file())
        finally:
            node.clean_up()
    assert {visit.path for visit in signed} == {"/", "/a", "/b", "/robots.txt"}
    own = BotIdentity("https://bots.example", KEY)
    keys: Any = SimpleNamespace(resolve_public_key={own.key_id: own.key.public_key()}.__getitem__)
    verifier = HTTPMessageVerifier(signature_algorithm=ED25519, key_resolver=keys)
    for visit in signed:
        verifier.verify(SimpleNamespace(method="GET", url=site.url + visit.path, headers=dict(visit.headers)))
    assert unsigned
    assert not [name for visit in unsigned for name in visit.headers if name.lower().startswith("signature")]
    assert KEY.encode() not in written


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
