"""What this node can run, told to everybody who asks for crawls."""

from __future__ import annotations

from pathlib import Path

import structlog
from pydantic import TypeAdapter

from gateway.domain.node_files import CATALOG, SpiderInfo
from gateway.storage.spiders import SpiderStore

log = structlog.get_logger()
_INFOS = TypeAdapter(list[SpiderInfo])


class CatalogPublisher:
    def __init__(self, store: SpiderStore, node: str, node_dir: Path) -> None:
        self._store = store
        self._node = node
        self._path = node_dir / CATALOG
        self._published: bytes | None = None

    def publish(self) -> None:
        """Publish the catalogue if it is not the one published last. Raises PyMongo's errors."""
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return
        if content == self._published:
            return
        try:
            infos = _INFOS.validate_json(content)
        except ValueError as error:
            log.warning("catalog_unreadable", path=str(self._path), error=str(error))
        else:
            self._store.publish(self._node, infos)
        self._published = content
