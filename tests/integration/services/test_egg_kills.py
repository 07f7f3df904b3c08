"""An egg's whole life, with whoever deals with it killed wherever he writes: the next one finishes what he left."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from eggs import teller
from jobs import make_job
from killed import killed_everywhere
from node_double import NodeDouble, node_double
from pymongo.database import Database
from stores import embedded_mongo

from gateway.clock import utc_now
from gateway.contract.crawl import CrawlSpec
from gateway.jobs.store import JobStore
from gateway.nodes.store import NodeStore
from gateway.stores.indexes import ensure_indexes
from gateway.stores.mongo import Document, connect

POINTS = (
    *("eggs.write", "eggs.put", "eggs.describe", "eggs.delete", "eggs.discard", "eggs.lose", "eggs.sweep"),
    *("egg_copies.agree", "egg_copies.mark_outdated", "egg_copies.gone", "egg_copies.begin", "egg_copies.brought"),
    *("egg_copies.failed", "egg_copies.forget", "egg_copies.outdate", "egg_needs.tell", "versions.change"),
)


@pytest.fixture
def refusing() -> Iterator[NodeDouble]:
    with node_double() as double:
        double.mode = "refuse"
        yield double


def prepare(database: Database[Document], double: NodeDouble, refusing: NodeDouble) -> None:
    ensure_indexes(database)
    nodes, since = NodeStore(database), utc_now() - timedelta(hours=1)
    for name, node in (("n1", double), ("n2", refusing)):
        nodes.heartbeat(name, url=node.url, max_slots=1, alive=[], present=[], beating_since=since)
    spec = CrawlSpec(project="shop", version="1.0", spider="teller", start_urls=("http://site.example/",))
    JobStore(database).insert(make_job(spec=spec))


def test_whoever_is_killed_in_between_the_egg_comes_and_goes_as_it_should(
    tmp_path: Path, redis_url: str, double: NodeDouble, refusing: NodeDouble
) -> None:
    eggs = tmp_path / "node/eggs/shop"
    eggs.mkdir(parents=True)
    for name in ("first", "second"):
        (tmp_path / name).write_bytes(teller(name, "shop"))
    with embedded_mongo(tmp_path / "mongo") as uri:
        database: Any = connect(uri)
        prepare(database, double, refusing)
        story = "from egg_life import live as tell"
        killed_everywhere(tmp_path, POINTS, story, uri, redis_url, str(tmp_path), beside=__file__)
        assert database["egg_chunks"].count_documents({}) == 0
        assert database["egg_copies"].count_documents({}) == 0
        assert [document["content"] for document in database["eggs"].find()] == [None]
        database.client.close()
