"""The item spool: one JSON object a line, in the file as soon as it is scraped."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import orjson
from itemadapter import ItemAdapter

if TYPE_CHECKING:
    from pathlib import Path

#: Bytes set aside while the disk has room, so that a crawl that fills it can still say so in its report.
RESERVE_BYTES = 64 << 10
RESERVE = ".reserve"


class ItemSpool:
    """Appends to one file that nobody else writes to. Errors of the disk are raised as `OSError`."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._end = os.fstat(self._file).st_size
        self._reserve = path.with_name(RESERVE)
        with suppress(OSError):
            self._reserve.write_bytes(b"\0" * RESERVE_BYTES)

    def append(self, item: object) -> None:
        line = encode(item) + b"\n"
        try:
            written = os.write(self._file, line)
            while written < len(line):
                written += os.write(self._file, line[written:])
        except OSError:
            # half a line would swallow the next one; what is there is whole
            os.ftruncate(self._file, self._end)
            self._reserve.unlink(missing_ok=True)
            raise
        self._end += len(line)

    def close(self) -> None:
        os.close(self._file)
        self._reserve.unlink(missing_ok=True)


def encode(item: object) -> bytes:
    """Compact JSON on one line. Raises `TypeError` for what is no item in Scrapy's sense."""
    # orjson knows dicts, and asks `_plain` for what else is in them, which is much quicker than a copy
    data = item if type(item) is dict else ItemAdapter(item).asdict()
    try:
        return orjson.dumps(data, default=_plain, option=orjson.OPT_NON_STR_KEYS)
    except TypeError:
        # integers beyond 64 bits and lone surrogates are JSON, but not orjson's
        return json.dumps(data, default=_plain, separators=(",", ":")).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, set | frozenset):
        return list(value)
    return ItemAdapter(value).asdict() if ItemAdapter.is_item(value) else str(value)
