"""Which spiders each deployed egg has, written down beside it: an egg is imported once, not at every start."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel

from crawler.node.eggs import EggStorage
from gateway.contract.outbox import SpiderInfo, read_file, write_atomically
from gateway.crash_points import state_change

#: Raised when more is told of a spider, so that every egg is looked at again.
_FORMAT = 1
#: Bytes; twice what a listing may say (`crawler.node.command`).
MAX_LISTING = 16 << 20


class _Record(BaseModel):
    """The file beside the egg."""

    format: int
    #: Size and time of change (ns) of the egg that was listed.
    egg: tuple[int, int]
    spiders: list[SpiderInfo]


class EggListings:
    def __init__(self, storage: EggStorage) -> None:
        self._storage = storage
        self._records: dict[Path, _Record] = {}

    def get(self, project: str, version: str) -> list[SpiderInfo] | None:
        """The spiders of the egg as it is now; `None` if it has not been listed."""
        path = self._storage.listing_path(project, version)
        record = self._records.get(path) or _read(path)
        if record is None or (record.format, record.egg) != (_FORMAT, self._stamp(project, version)):
            return None
        self._records[path] = record
        return record.spiders

    @state_change("node.write_listing")
    def keep(self, project: str, version: str, spiders: list[SpiderInfo]) -> None:
        """Write down what the egg has that is stored now. Raises `OSError`."""
        stamp = self._stamp(project, version)
        if stamp is None:
            return
        path = self._storage.listing_path(project, version)
        self._records[path] = _Record(format=_FORMAT, egg=stamp, spiders=spiders)
        write_atomically(path, self._records[path].model_dump_json().encode())

    def _stamp(self, project: str, version: str) -> tuple[int, int] | None:
        try:
            found = self._storage.path(project, version).lstat()
        except FileNotFoundError:
            return None
        return found.st_size, found.st_mtime_ns


def _read(path: Path) -> _Record | None:
    try:
        return _Record.model_validate_json(read_file(path, MAX_LISTING))
    except (OSError, ValueError):
        return None
