"""What a node reports of its slots and its disk, and how it frees space."""

from __future__ import annotations

import os
from pathlib import Path

import orjson
from conftest import TailingNode
from stores import StoreProcess
from tailer_node import Node, eventually

from gateway.clock import utc_now
from gateway.contract.crawl import Egg
from gateway.contract.outbox import BROWSER, CATALOG, PROTOCOLS, write_atomically
from gateway.contract.records import SpiderInfo
from gateway.nodes.store import Node as NodeDocument

#: More bytes than any disk has.
ALL_BYTES = str(1 << 60)


def said(node: Node) -> NodeDocument | None:
    return node.nodes.get(node.name)


def test_a_heartbeat_tells_of_the_browser_and_of_deployed_projects(node: Node) -> None:
    eventually(lambda: said(node))
    first = said(node)
    assert first is not None
    assert (first.max_render_slots, first.eggs, first.disk_full) == (0, [], False)
    # without a word of its Scrapyd the node speaks the protocol of 0.1.0
    assert first.protocols == {1}
    browser = {"chromium": "/usr/bin/chromium", "protocols": [*PROTOCOLS, 99]}
    write_atomically(node.node_dir / BROWSER, orjson.dumps(browser))
    infos = [SpiderInfo(project="default", name="seo"), SpiderInfo(project="a.b$", version="1.0", name="offers")]
    write_atomically(node.node_dir / CATALOG, orjson.dumps([info.model_dump() for info in infos]))
    eventually(lambda: (found := said(node)) and found.max_render_slots == 2 and found.eggs == [Egg("a.b$", "1.0")])
    eventually(lambda: (found := said(node)) and found.protocols == PROTOCOLS)
    eventually(lambda: all(info in node.spiders.all() for info in infos))
    # a node that was forgotten while it was away publishes its spiders anew
    node.spiders.publish(node.name, [])
    found = said(node)
    assert found is not None
    eventually(lambda: node.nodes.forget(said(node) or found) or infos[1] in node.spiders.all())
    write_atomically(node.node_dir / BROWSER, b"[")
    eventually(lambda: (found := said(node)) and found.max_render_slots == 0)


def test_a_full_disk_is_told_and_cleared_of_what_is_shipped_and_of_nothing_else(
    tmp_path: Path, tailing_node: TailingNode, mongo: StoreProcess, valkey: StoreProcess
) -> None:
    with tailing_node(tmp_path, mongo, valkey, NODE_MIN_FREE_BYTES=ALL_BYTES) as node:
        relaunchable = node.crawl(not_after=utc_now())
        running, done = node.crawl(), node.crawl()
        for crawl in (done, relaunchable):
            crawl.log_line("all there is")
        log = done.log_file
        done.end()
        relaunchable.end()
        eventually(lambda: not done.folder.exists())
        assert node.stored_log(done) == log
        node.ended(relaunchable)
        eventually(lambda: (found := said(node)) and found.disk_full)
        eventually(lambda: (found := said(node)) and found.present == [str(running.id)])
        assert running.folder.exists()
        assert relaunchable.folder.exists()
        running.die()


def test_old_logs_of_scrapyds_own_jobs_are_removed_but_not_those_that_are_written(
    tmp_path: Path, tailing_node: TailingNode, mongo: StoreProcess, valkey: StoreProcess
) -> None:
    folder = tmp_path / "node" / "logs" / "shop" / "offers"
    folder.mkdir(parents=True)
    old, silent, young = (folder / f"{name}.log" for name in ("old", "silent", "young"))
    link = folder / "link.log"
    link.symlink_to(young)
    for path in (old, silent, young):
        path.write_text("plain\n")
    for path in (old, silent):
        os.utime(path, (0, 0))
    with silent.open("a"), tailing_node(tmp_path, mongo, valkey):
        eventually(lambda: not old.exists())
        assert silent.exists()
    assert young.exists()
    assert link.is_symlink()
