"""A MongoDB that hangs: it is connected, and does not answer. Whoever follows a crawl must not notice."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path

import orjson
from stores import StoreProcess, embedded_mongo
from tailer_node import Crawl, Node, eventually

from gateway.clock import utc_now

TailingNode = Callable[..., AbstractContextManager[Node]]
#: Seconds for which MongoDB hangs; more than any of its answers takes.
FROZEN = 3.0


def is_shown(node: Node, crawl: Crawl) -> bool:
    """Whether the live stream has the crawl's whole log."""
    return (stream := node.stream(crawl)) != [] and stream[-1][1] == len(crawl.log_file)


def test_while_mongodb_is_frozen_every_line_is_shown_and_all_arrives_once_afterwards(
    tmp_path: Path, tailing_node: TailingNode, valkey: StoreProcess
) -> None:
    with embedded_mongo(tmp_path / "mongo") as mongo, tailing_node(tmp_path / "home", mongo, valkey) as node:
        lasting, late = node.crawl(), node.crawl(started=False, not_after=utc_now() + timedelta(minutes=1))
        lasting.log_line("before")
        eventually(lambda: node.stored_log(lasting) == lasting.log_file)
        lines = 0
        with mongo.frozen():
            late.start()
            thaw = time.monotonic() + FROZEN
            while time.monotonic() < thaw:
                for crawl in (lasting, late):
                    crawl.log_line(f"line {lines}")
                    crawl.item(orjson.dumps({"number": lines}) + b"\n")
                    eventually(lambda crawl=crawl: is_shown(node, crawl), timeout=FROZEN)
                lines += 1
            late.end()
        lasting.end()
        for crawl in (lasting, late):
            job = node.ended(crawl)
            assert job.started_at is not None
            assert node.stored_log(crawl) == crawl.log_file
            assert [item.data for item in node.stored_items(crawl)] == [{"number": number} for number in range(lines)]
            starts, ends, _ = zip(*node.stream(crawl), strict=True)
            assert starts == (0, *ends[:-1])
