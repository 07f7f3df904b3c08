"""Writing exports: `<to>/<what>/<start of the run>-<run>/<what>.<format>`, and `_SUCCESS` beside it.

All names follow from the run, so if a file is written again, after a crash or because another worker had begun, it
is replaced by the same file. A reader who waits for `_SUCCESS` never sees half an export.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import islice
from typing import NamedTuple, Protocol

from attrs import define, field
from pydantic import BaseModel, Field, ValidationError

from gateway.clock import Clock
from gateway.crash_points import state_change
from gateway.errors import FileNotStoredError
from gateway.exports.export import ExportOrder, ExportPlaces, ExportWhat
from gateway.files.store import FileBytes, FilesPlace
from gateway.items.columns import Columns
from gateway.items.formats import CsvFormat, JsonLinesFormat, Row
from gateway.items.table_files import BATCH, TABLES, TableSpace, TableSpool, write_table

SUCCESS = "_SUCCESS"
#: The folder of incomplete files. Tools that read folders skip names with an underscore, and no pattern for Parquet
#: or CSV fits the names of files in there.
_TEMPORARY = "_temporary"
#: Bytes that are read of a table at a time.
_PIECE = 1 << 20


class ExportedRun(NamedTuple):
    """The run that is exported."""

    #: The id of its job.
    id: str
    began_at: datetime
    #: The number of the dataset's last change, after the run.
    seq: int | None = None
    #: The run's counts: how many items are new, changed, removed, and so on.
    counts: Mapping[str, int] = {}


class ExportSource(Protocol):
    """The run and its rows that an export writes."""

    @property
    def run(self) -> ExportedRun: ...

    def rows(self, what: ExportWhat) -> Iterable[Row]:
        """All rows, in the same order each time. They are read once, and need not fit into memory."""
        ...


class ExportedFile(BaseModel):
    #: Beside `_SUCCESS`.
    name: str
    size: int
    sha256: str


class Exported(BaseModel):
    """The content of `_SUCCESS`."""

    run: str
    began_at: datetime
    seq: int | None
    what: ExportWhat
    format: str
    rows: int
    counts: dict[str, int] = Field(default_factory=dict)
    files: list[ExportedFile]
    written_at: datetime


@define(eq=False, repr=False, slots=False)
class ExportWriter:
    """Raises `FileStoreAwayError` if a place cannot be reached or refuses, and what `TableFile` raises."""

    _places: ExportPlaces
    #: How S3 is reached; its URL does not count.
    _access: FilesPlace
    _space: TableSpace
    _clock: Clock

    def write(self, user_id: str, order: ExportOrder, source: ExportSource) -> Exported:
        """Write the export, unless it was written before. Returns its `_SUCCESS`. Raises `ExportPlaceError`."""
        store = FileBytes(self._access._replace(url=self._places.url(user_id, order.to)))
        run = source.run
        names = _names(order, run)
        if (found := self._found(store, names, order)) is not None:
            return found
        with _content(order.format, source.rows(order.what), self._space) as content:
            self._put(store, names.unfinished, content)
            self._move(store, names.unfinished, names.file)
        done = Exported(
            run=run.id,
            began_at=run.began_at,
            seq=run.seq,
            what=order.what,
            format=order.format,
            rows=content.rows,
            counts=dict(run.counts),
            files=[ExportedFile(name=names.name, size=content.size, sha256=content.hash.hexdigest())],
            written_at=self._clock(),
        )
        self._succeed(store, names.success, done)
        self._clear(store, names.temporary)
        return done

    def _found(self, store: FileBytes, names: _Names, order: ExportOrder) -> Exported | None:
        try:
            done = Exported.model_validate_json(store.whole(names.success))
        except (FileNotStoredError, ValidationError):
            return None
        if done.format != order.format:
            return None
        # the worker that wrote it may have died before this
        self._clear(store, names.temporary)
        return done

    @state_change("exports.put")
    def _put(self, store: FileBytes, name: str, content: _Content) -> None:
        store.put(name, content)

    @state_change("exports.move")
    def _move(self, store: FileBytes, name: str, to: str) -> None:
        store.move(name, to)

    @state_change("exports.succeed")
    def _succeed(self, store: FileBytes, name: str, done: Exported) -> None:
        store.put(name, [done.model_dump_json(indent=1).encode() + b"\n"])

    @state_change("exports.clear")
    def _clear(self, store: FileBytes, folder: str) -> None:
        store.remove(folder)


class _Names(NamedTuple):
    #: The file's name, and its path below the place.
    name: str
    file: str
    success: str
    #: The folder of the file while it is written, and its path.
    temporary: str
    unfinished: str


def _names(order: ExportOrder, run: ExportedRun) -> _Names:
    name = f"{order.what}.{order.format}"
    folder = f"{order.what}/{run.began_at.astimezone(UTC):%Y%m%dT%H%M%SZ}-{run.id}"
    temporary = f"{_TEMPORARY}/{folder}/"
    # each try has a name of its own, because an earlier try that was taken for dead may still be writing
    unfinished = f"{temporary}{secrets.token_hex(4)}-{name}.part"
    return _Names(name, f"{folder}/{name}", f"{folder}/{SUCCESS}", temporary, unfinished)


# --- the rows as bytes


class _Counted(Protocol):
    @property
    def rows(self) -> int: ...


@define(eq=False, repr=False, slots=False)
class _Content:
    """The bytes of a file, and what there was of it once it has been read to its end."""

    _pieces: Iterable[bytes]
    _counted: _Counted
    size: int = field(init=False, default=0)

    def __attrs_post_init__(self) -> None:
        self.hash = hashlib.sha256()

    @property
    def rows(self) -> int:
        return self._counted.rows

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._pieces:
            self.hash.update(piece)
            self.size += len(piece)
            yield piece


@contextmanager
def _content(form: str, rows: Iterable[Row], space: TableSpace) -> Iterator[_Content]:
    if form in TABLES:
        with write_table(form, rows, space) as table:
            yield _Content(iter(lambda: table.read(_PIECE), b""), table)
    elif form == "csv":
        with _spooled(rows, space) as (spool, columns):
            yield _Content(_csv(spool, columns), spool)
    else:
        lines = _Lines(rows)
        yield _Content(lines, lines)


def _batches(rows: Iterable[Row]) -> Iterator[list[Row]]:
    rest = iter(rows)
    while batch := list(islice(rest, BATCH)):
        yield batch


@define(eq=False, repr=False, slots=False)
class _Lines:
    _source: Iterable[Row]
    rows: int = field(init=False, default=0)

    def __iter__(self) -> Iterator[bytes]:
        encoder = JsonLinesFormat()
        for batch in _batches(self._source):
            self.rows += len(batch)
            yield encoder.encode(batch)


@contextmanager
def _spooled(rows: Iterable[Row], space: TableSpace) -> Iterator[tuple[TableSpool, Columns]]:
    """The rows on disk, and the columns of all of them, not only of the first hundred."""
    spool, columns = TableSpool(space.folder, space.most_bytes), Columns()
    try:
        for batch in _batches(rows):
            for row in batch:
                columns.add(row)
            spool.add(batch)
        yield spool, columns
    finally:
        spool.close()


def _csv(spool: TableSpool, columns: Columns) -> Iterator[bytes]:
    encoder = CsvFormat(columns.names)
    for batch in spool.batches():
        yield encoder.encode(batch)
    yield encoder.end(None)
