"""A million items as Parquet, and fewer as XLSX: memory above that of the idle process, and items per second.

Each is made in a process of its own, because peak memory can only be measured for a whole process.
"""

from __future__ import annotations

import multiprocessing
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from bson import Int64

from bench.effort import Effort
from bench.table import Row
from gateway.items.table_files import TableSpace, write_table

#: Target: most MiB above rest, for a fold and so for other readers of the same items.
WANTED = 60
_MIB = 1 << 20


def run(effort: Effort) -> list[Row]:
    counts = {"parquet": effort.of(2_000, 1_000_000), "xlsx": effort.of(1_000, 100_000, 1_000_000)}
    rows = []
    for form, count in counts.items():
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            memory, speed = pool.submit(_make, form, count).result()
        print(f"{speed:10.0f} items/s  {count:,} items as {form}", file=sys.stderr)
        rows.append(
            Row(f"{count:,} items as {form}: memory above rest", "MiB", memory, WANTED, "what was asked for",
                memory / WANTED, "<= 1")
        )  # fmt: skip
    return rows


def _make(form: str, count: int) -> tuple[float, float]:
    """MiB above rest, and items per second of this process's time."""
    with tempfile.TemporaryDirectory() as folder:
        space = TableSpace(Path(folder), 8 << 30)
        # so that imports and thread pools count as memory at rest
        with write_table(form, _items(1000), space):
            pass
        rest, began = most_memory(), time.process_time()
        with write_table(form, _items(count), space) as table:
            assert table.rows == count
        return (most_memory() - rest) / _MIB, count / (time.process_time() - began)


def most_memory() -> int:
    """The peak of resident bytes, from Linux. `getrusage` would include the time before the process's `exec`."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024


def _items(count: int) -> Iterator[dict[str, Any]]:
    for number in range(count):
        yield {
            "url": f"https://shop.invalid/products/{number}",
            "title": f"Product {number * 2654435761 % 2**32:08x} in its {number % 7}th edition",
            "price": number % 9973 / 100,
            # as MongoDB has it: an integer beyond 32 bits
            "ean": Int64(4_000_000_000_000 + number),
            "stock": number % 90,
            "in_stock": bool(number % 90),
            "seen_at": f"2026-11-{number % 28 + 1:02}T08:30:00+00:00",
            "tags": ["new", f"shelf-{number % 50}"],
            "seller": {"name": f"seller {number % 300}", "rating": number % 50 / 10},
            "text": f"{number:x} " * 30,
        }
