"""What this node can run, told to everybody who asks for crawls."""

from __future__ import annotations

from pathlib import Path

import structlog
from pydantic import TypeAdapter

from gateway.domain.node_files import CATALOG, HostileFileError, SpiderInfo, read_file
from gateway.domain.room import Egg
from gateway.storage.spiders import SpiderStore

log = structlog.get_logger()
_INFOS = TypeAdapter(list[SpiderInfo])


class Catalog:
    """The file that Scrapyd writes; for one thread."""

    def __init__(self, node_dir: Path) -> None:
        self._path = node_dir / CATALOG
        self._content: bytes | None = None
        self._infos: list[SpiderInfo] | None = None

    def spiders(self) -> list[SpiderInfo] | None:
        """As of this moment, the same list for as long as it says the same; `None` before there is one."""
        try:
            content = read_file(self._path)
        except FileNotFoundError:
            return self._infos
        except HostileFileError as error:
            content = str(error).encode()  # no catalogue either
        if content != self._content:
            self._content = content
            try:
                self._infos = _INFOS.validate_json(content)
            except ValueError as error:
                # the last one that could be read still holds
                log.warning("catalog_unreadable", path=str(self._path), error=str(error))
        return self._infos


class CatalogPublisher:
    def __init__(self, store: SpiderStore, node: str, node_dir: Path) -> None:
        self._store = store
        self._node = node
        self._catalog = Catalog(node_dir)
        self._published: list[SpiderInfo] | None = None

    def eggs(self) -> list[Egg]:
        """What was deployed on this node, by the catalogue of this moment."""
        infos = self._catalog.spiders() or ()
        return sorted({Egg(info.project, info.version) for info in infos if info.version is not None})

    def publish(self) -> None:
        """Publish the catalogue if it is not the one published last. Raises PyMongo's errors."""
        infos = self._catalog.spiders()
        if infos is not None and infos is not self._published:
            self._store.publish(self._node, infos)
            self._published = infos

    def forget(self) -> None:
        """What was published may be gone."""
        self._published = None
