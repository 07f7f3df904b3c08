"""An export that several processes write, one after another."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gateway.exports.export import ExportOrder, ExportPlaces, ExportWhat
from gateway.exports.export_writer import SUCCESS, Exported, ExportedRun, ExportSource, ExportWriter
from gateway.files.store import FilesPlace
from gateway.items.table_files import TableSpace

MOMENT = datetime(2027, 6, 1, 9, 30, tzinfo=UTC)
ROWS = 2000


class Rows:
    run = ExportedRun("6" * 32, MOMENT, 7, {"new": ROWS})

    def rows(self, what: ExportWhat) -> Iterator[dict[str, Any]]:
        return ({"n": number, "text": "x" * 100} for number in range(ROWS))


class StoppingRows(Rows):
    """Many megabytes of rows; then the source hangs."""

    def rows(self, what: ExportWhat) -> Iterator[dict[str, Any]]:
        for number in range(2000):
            yield {"n": number, "text": "x" * 10_000}
        sys.stdout.write("in the middle\n")
        sys.stdout.flush()
        threading.Event().wait(60)


def export(folder: Path, form: str = "parquet", source: ExportSource | None = None) -> Exported:
    writer = ExportWriter(
        ExportPlaces((folder.as_uri(),)), FilesPlace(""), TableSpace(folder.parent / "space", 1 << 30), lambda: MOMENT
    )
    order = ExportOrder.model_validate({"to": "out", "format": form})
    return writer.write("ann", order, source or Rows())


def check_no_success_is_early(folder: Path) -> None:
    """Where there is a `_SUCCESS`, all files that it lists are there, in their full size."""
    for found in folder.rglob(SUCCESS):
        said = Exported.model_validate_json(found.read_bytes())
        assert [(found.parent / one.name).stat().st_size for one in said.files] == [one.size for one in said.files]


def stop_in_the_middle(folder: str) -> None:
    export(Path(folder), "jsonl", StoppingRows())


def tell(folder: str) -> None:
    check_no_success_is_early(Path(folder))
    export(Path(folder))
