"""What this node can run, told to everybody who asks for crawls."""

from __future__ import annotations

from pathlib import Path

import structlog
from pydantic import TypeAdapter

from gateway.domain.node_files import CATALOG, SpiderInfo
from gateway.domain.room import Egg
from gateway.storage.spiders import SpiderStore

log = structlog.get_logger()
_INFOS = TypeAdapter(list[SpiderInfo])


class CatalogPublisher:
    def __init__(self, store: SpiderStore, node: str, node_dir: Path) -> None:
        self._store = store
        self._node = node
        self._path = node_dir / CATALOG
        self._content: bytes | None = None
        self._infos: list[SpiderInfo] | None = None
        self._published: list[SpiderInfo] | None = None

    def eggs(self) -> list[Egg]:
        """What was deployed on this node, by the catalogue of this moment."""
        self._read()
        return sorted({Egg(info.project, info.version) for info in self._infos or () if info.version is not None})

    def publish(self) -> None:
        """Publish the catalogue if it is not the one published last. Raises PyMongo's errors."""
        self._read()
        if self._infos is not None and self._infos is not self._published:
            self._store.publish(self._node, self._infos)
            self._published = self._infos

    def forget(self) -> None:
        """What was published may be gone."""
        self._published = None

    def _read(self) -> None:
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return
        if content == self._content:
            return
        self._content = content
        try:
            self._infos = _INFOS.validate_json(content)
        except ValueError as error:
            # the last one that could be read still holds
            log.warning("catalog_unreadable", path=str(self._path), error=str(error))
