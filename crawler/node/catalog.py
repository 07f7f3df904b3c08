"""`catalog.json`: every spider that this node can run, for the tailer to publish."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import orjson

from gateway.contract.outbox import CATALOG, SpiderInfo, write_atomically
from gateway.crash_points import state_change


@state_change("node.catalog")
def write_catalog(node_dir: Path, infos: Iterable[SpiderInfo]) -> None:
    node_dir.mkdir(parents=True, exist_ok=True)
    content = [info.model_dump(mode="json") for info in infos]
    write_atomically(node_dir / CATALOG, orjson.dumps(content, option=orjson.OPT_INDENT_2))
