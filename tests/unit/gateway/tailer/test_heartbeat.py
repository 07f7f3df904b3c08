"""When a node's spiders are published."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import mongomock
import orjson
import pytest
from stack import wait_until

from gateway.clock import utc_now
from gateway.contract.outbox import CATALOG, write_atomically
from gateway.contract.records import SpiderInfo
from gateway.nodes.store import NodeStore
from gateway.projects.eggs import SpiderStore
from gateway.settings import Settings
from gateway.tailer import heartbeat


def test_the_first_catalogue_is_published_before_the_next_heartbeat_is_due(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "EVERY", 3600.0)
    database: Any = mongomock.MongoClient(tz_aware=True)["node"]
    settings = Settings(discoverybot_home=tmp_path, node_name="n1")
    settings.outbox.mkdir(parents=True)
    nodes, spiders = NodeStore(database), SpiderStore(database)
    publisher = heartbeat.CatalogPublisher(spiders, "n1", settings.node_dir)
    clock: Any = Mock(side_effect=utc_now)
    disk: Any = Mock(free_bytes=1 << 40, is_full=lambda: False)
    beats = heartbeat.Heartbeat(
        nodes, publisher, settings, disk, clock=clock, present=tuple, unshipped=int, troubles=tuple
    )
    beats.start()
    try:
        wait_until(lambda: nodes.get("n1"), what="the first heartbeat")
        info = SpiderInfo(project="default", name="seo", params_schema={})
        write_atomically(settings.node_dir / CATALOG, orjson.dumps([info.model_dump()]))
        wait_until(lambda: [one.name for one in spiders.all()] == ["seo"], what="the publication")
    finally:
        beats.stop()
        beats.join()
