"""The disk under the outbox: how much is free, and whether that is too little."""

from __future__ import annotations

import shutil
from pathlib import Path


class Disk:
    def __init__(self, path: Path, min_free_bytes: int) -> None:
        self._path = path
        self._min_free_bytes = min_free_bytes

    @property
    def free_bytes(self) -> int:
        """Raises `OSError`."""
        return shutil.disk_usage(self._path).free

    def is_full(self) -> bool:
        """Too full for new work. Raises `OSError`."""
        return self.free_bytes < self._min_free_bytes
