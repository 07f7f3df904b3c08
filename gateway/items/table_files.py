"""Rows as XLSX or Parquet: formats in which the columns and their types come before the first row.

The rows are stored on disk while the types are learned, and the file is written from there. Only one batch of rows is
in memory. `TableFile` works in short steps, for callers that share a thread; `write_table` does everything at once.
"""

from __future__ import annotations

import errno
import json
import math
import struct
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, date
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, Protocol

import orjson
import xlsxwriter
import zstandard
from attrs import define, field
from xlsxwriter.format import Format

from gateway.contract.outbox import remove_tree
from gateway.errors import ExtraMissingError, NoRoomError, TableTooLargeError, TooManyRowsError
from gateway.items.columns import ColumnKind, Columns, Type, as_date, as_datetime, as_text, reader
from gateway.items.formats import FORMULA, Row, picked

if TYPE_CHECKING:
    import pyarrow as pa

#: Rows that are spooled and written at a time.
BATCH = 500


# --- the rows on disk


class TableSpool:
    """Rows on disk, in a file without a name: the system removes it when the process ends."""

    #: The header of each batch: whether `orjson` has written it, and its size.
    _HEAD = struct.Struct(">?I")

    def __init__(self, folder: Path, most_bytes: int) -> None:
        """`most_bytes`: the limit of the rows as JSON. On disk they are compressed, so they take less. Raises
        `OSError`.
        """
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - `close` does
        self._most = most_bytes
        self._pack = zstandard.ZstdCompressor(level=1)
        self._unpack = zstandard.ZstdDecompressor()
        self.rows = 0
        #: Bytes of JSON.
        self.size = 0

    def add(self, rows: Sequence[Row]) -> None:
        """Raises `TableTooLargeError`, `OSError`."""
        try:
            data, is_plain = orjson.dumps(rows, default=str), True
        except TypeError:
            # integers beyond 64 bits, half surrogate pairs: orjson can neither write nor read these
            data, is_plain = json.dumps(rows, default=str, separators=(",", ":")).encode(), False
        self.rows += len(rows)
        self.size += len(data)
        if self.size > self._most:
            raise TableTooLargeError(self._most)
        packed = self._pack.compress(data)
        self._file.write(self._HEAD.pack(is_plain, len(packed)))
        self._file.write(packed)

    def batches(self) -> Iterator[list[Row]]:
        """All rows, from the first one. Afterwards no rows can be added."""
        self._file.seek(0)
        while head := self._file.read(self._HEAD.size):
            is_plain, size = self._HEAD.unpack(head)
            data = self._unpack.decompress(self._file.read(size))
            yield orjson.loads(data) if is_plain else json.loads(data)

    def close(self) -> None:
        self._file.close()


# --- the writers of tables


class TableWriter(Protocol):
    """Writes a file: rows in batches, then its end by `close`. Without `close`, the file is incomplete."""

    def write(self, rows: Sequence[Row]) -> None: ...

    def close(self) -> None: ...


#: Maximum number of rows of a sheet of Excel, without the row with the names of the columns.
XLSX_ROWS = 1_048_575
#: A cell holds this many UTF-16 units. Longer text is cut, and ends with `CUT`.
_CELL = 32_767
CUT = "… [cut]"
#: Excel rounds integers from this one on.
_DIGITS = 10**15
#: The first day that all spreadsheet programs count in the same way.
_FIRST_DAY = date(1900, 3, 1)
#: All cells: Excel must not mark numbers that are stored as text.
_ALL_CELLS = "A1:XFD1048576"


class XlsxWriter:
    """One sheet, with the names of the columns in its first row. Text is text: no formula, no link."""

    def __init__(self, file: BinaryIO, columns: Columns, folder: Path) -> None:
        """`folder` is for temporary files. Everything in it can be removed afterwards."""
        options = {
            "constant_memory": True,
            "tmpdir": str(folder),
            "strings_to_formulas": False,
            "strings_to_urls": False,
            "strings_to_numbers": False,
            "use_zip64": True,
        }
        self._book = xlsxwriter.Workbook(file, options)
        self._sheet = self._book.add_worksheet("Items")
        self._sheet.freeze_panes(1, 0)
        self._sheet.ignore_errors({"number_stored_as_text": _ALL_CELLS})
        #: With this format, text that looks like a formula stays text even when a user edits the cell.
        self._quoted = self._book.add_format({"quote_prefix": True})
        self._day = self._book.add_format({"num_format": "yyyy-mm-dd"})
        self._moment = self._book.add_format({"num_format": "yyyy-mm-dd hh:mm:ss"})
        self._columns = list(columns)
        self._row = 0
        bold = self._book.add_format({"bold": True})
        for place, (name, _) in enumerate(self._columns):
            self._text(place, name, bold)

    def write(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self._row += 1
            for place, (name, column) in enumerate(self._columns):
                if (value := row.get(name)) is not None:
                    self._cell(place, value, column)

    def close(self) -> None:
        self._book.close()

    def _cell(self, place: int, value: Any, column: Type) -> None:
        if isinstance(value, bool):
            self._sheet.write_boolean(self._row, place, value)
        elif _is_exact(value):
            self._sheet.write_number(self._row, place, value)
        elif column.kind in _MOMENTS and not column.is_list:
            self._date(place, value, column.kind)
        else:
            self._text(place, as_text(value))

    def _date(self, place: int, value: Any, kind: ColumnKind) -> None:
        moment = as_date(value) if kind is ColumnKind.DATE else as_datetime(value)
        if kind is ColumnKind.INSTANT:
            # Excel knows no time zones
            moment = as_datetime(value).astimezone(UTC).replace(tzinfo=None)
        if (moment.year, moment.month) < (_FIRST_DAY.year, _FIRST_DAY.month):
            self._text(place, as_text(value))
            return
        self._sheet.write_datetime(self._row, place, moment, self._day if kind is ColumnKind.DATE else self._moment)

    def _text(self, place: int, text: str, style: Format | None = None) -> None:
        shown = _cut(text)
        self._sheet.write_string(self._row, place, shown, style or (self._quoted if FORMULA.match(shown) else None))


_MOMENTS = {ColumnKind.DATE, ColumnKind.DATETIME, ColumnKind.INSTANT}


def _is_exact(value: Any) -> bool:
    """Whether Excel can show this number as it is."""
    if isinstance(value, int):
        return abs(value) < _DIGITS
    return isinstance(value, float) and math.isfinite(value)


def _cut(text: str) -> str:
    """The text cut to the length of a cell, without half surrogate pairs, which UTF-8 cannot hold."""
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode()
    if len(text) <= _CELL // 2:
        return text
    units = text.encode("utf-16-le")
    if len(units) <= 2 * _CELL:
        return text
    return units[: 2 * (_CELL - len(CUT))].decode("utf-16-le", "ignore") + CUT


#: Bytes and rows of a row group. Readers load a row group as a whole, or skip it.
_GROUP_BYTES = 8 << 20
_GROUP_ROWS = 100_000


class ParquetWriter:
    """Row groups, compressed with Zstandard. Lists of plain values are lists; other nested values are JSON text."""

    def __init__(self, file: BinaryIO, columns: Columns) -> None:
        """Raises `ExtraMissingError`."""
        require_format("parquet")
        import pyarrow as pa  # noqa: PLC0415 - an extra
        import pyarrow.parquet as pq  # noqa: PLC0415 - the same

        self._pa = pa
        self._columns = list(columns)
        types = [(_clean(name), _arrow_type(pa, column)) for name, column in self._columns]
        # DuckDB and others refuse a file without a column
        self._schema = pa.schema(types or [("_raw", pa.string())])
        self._writer = pq.ParquetWriter(file, self._schema, compression="zstd")
        self._batches: list[pa.RecordBatch] = []

    def write(self, rows: Sequence[Row]) -> None:
        arrays = [
            self._array([row.get(name) for row in rows], column, self._schema.field(place).type)
            for place, (name, column) in enumerate(self._columns)
        ] or [self._pa.nulls(len(rows), self._pa.string())]
        self._batches.append(self._pa.record_batch(arrays, schema=self._schema))
        size, count = sum(batch.nbytes for batch in self._batches), sum(batch.num_rows for batch in self._batches)
        if size >= _GROUP_BYTES or count >= _GROUP_ROWS:
            self._write_group()

    def close(self) -> None:
        self._write_group()
        self._writer.close()

    def _write_group(self) -> None:
        if self._batches:
            table = self._pa.Table.from_batches(self._batches, self._schema)
            self._writer.write_table(table, row_group_size=_GROUP_ROWS)
            self._batches = []

    def _array(self, values: list[Any], column: Type, kind: pa.DataType) -> pa.Array:
        if read := reader(column):
            values = [None if value is None else read(value) for value in values]
        try:
            return self._pa.array(values, kind)
        except UnicodeEncodeError:
            return self._pa.array([_clean(value) for value in values], kind)


def _clean(value: Any) -> Any:
    """Text without half surrogate pairs, which UTF-8 cannot hold."""
    if isinstance(value, list):
        return [_clean(one) for one in value]
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def _arrow_type(pa: Any, column: Type) -> pa.DataType:
    plain = {
        ColumnKind.BOOLEAN: pa.bool_(),
        ColumnKind.INTEGER: pa.int64(),
        ColumnKind.LONG: pa.int64(),
        ColumnKind.NUMBER: pa.float64(),
        ColumnKind.DATE: pa.date32(),
        ColumnKind.DATETIME: pa.timestamp("us"),
        ColumnKind.INSTANT: pa.timestamp("us", tz="UTC"),
    }
    found = plain.get(column.kind, pa.string())
    return pa.list_(found) if column.is_list else found


# --- files of both formats


class TableFormat(NamedTuple):
    media_type: str
    extension: str
    #: The largest number of rows; `None` if there is no limit.
    most_rows: int | None = None
    #: The module that is needed to write this format, and the extra that installs it.
    module: str = ""
    extra: str = ""


TABLES = {
    "xlsx": TableFormat(
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", "xlsx", most_rows=XLSX_ROWS
    ),
    "parquet": TableFormat("application/vnd.apache.parquet", "parquet", module="pyarrow", extra="parquet"),
}


def is_installed(form: str) -> bool:
    """Whether the module that writes this format is there."""
    table = TABLES.get(form)
    return table is None or not table.module or find_spec(table.module) is not None


def require_format(form: str, field: str = "format") -> None:
    """Raises `ExtraMissingError` if the module that writes this format is not installed."""
    if not is_installed(form):
        raise ExtraMissingError(field, form.capitalize(), TABLES[form].extra)


def table_writer(form: str, file: BinaryIO, columns: Columns, folder: Path) -> TableWriter:
    return XlsxWriter(file, columns, folder) if form == "xlsx" else ParquetWriter(file, columns)


#: The prefix of temporary folders. A folder that is older than this many seconds was left by a killed process.
_PARTS = "table-"
_OLD = 24 * 3600


class TableSpace(NamedTuple):
    """The folder in which tables are made, and the limit for one table."""

    folder: Path
    #: The rows of a table may have at most this many bytes as JSON.
    most_bytes: int

    def remove_leftovers(self) -> None:
        """Remove temporary folders that killed processes have left: those too old to be in use."""
        for found in self.folder.glob(f"{_PARTS}*"):
            with suppress(OSError):
                if time.time() - found.stat().st_mtime > _OLD:
                    remove_tree(found)


@define(eq=False, repr=False, slots=False)
class TableFile:
    """A table that is made step by step: `add` all rows, `write` until it returns False, then `read`. `close` removes
    the files.

    All methods raise `NoRoomError` if the disk is full; `add` also `TooManyRowsError`, `TooManyColumnsError` and
    `TableTooLargeError`.
    """

    _form: str
    _space: TableSpace
    #: The columns; if empty, all fields of the rows.
    _fields: Sequence[str] = ()
    #: Bytes of the file, once it is written.
    size: int = field(init=False, default=0)
    _writer: TableWriter | None = field(init=False, default=None)

    def __attrs_post_init__(self) -> None:
        require_format(self._form)
        self.format = TABLES[self._form]
        self.columns = Columns(self._fields)
        with self._room():
            self._spool = TableSpool(self._space.folder, self._space.most_bytes)
            self._file = tempfile.TemporaryFile(dir=self._space.folder)  # noqa: SIM115 - `close` does
            self._parts = tempfile.TemporaryDirectory(dir=self._space.folder, prefix=_PARTS)
        self._batches = self._spool.batches()

    @property
    def rows(self) -> int:
        return self._spool.rows

    def add(self, rows: Sequence[Row]) -> None:
        self.require_rows(self.rows + len(rows))
        found = [picked(row, self._fields) for row in rows]
        for row in found:
            self.columns.add(row)
        with self._room():
            self._spool.add(found)

    def require_rows(self, count: int) -> None:
        """Raises `TooManyRowsError` if the format cannot hold so many rows."""
        if self.format.most_rows is not None and count > self.format.most_rows:
            raise TooManyRowsError(self.format.most_rows)

    def write(self) -> bool:
        """Write the next rows. Returns whether there is more to do."""
        with self._room():
            if self._writer is None:
                self._writer = table_writer(self._form, self._file, self.columns, Path(self._parts.name))
            if (rows := next(self._batches, None)) is not None:
                self._writer.write(rows)
                return True
            self._writer.close()
            self._spool.close()
            self.size = self._file.seek(0, 2)
            self._file.seek(0)
            return False

    def read(self, size: int) -> bytes:
        """The next bytes of the file that was written."""
        return self._file.read(size)

    def close(self) -> None:
        self._spool.close()
        self._file.close()
        self._parts.cleanup()

    @contextmanager
    def _room(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
                raise
            raise NoRoomError(str(self._space.folder)) from error


@contextmanager
def write_table(form: str, rows: Iterable[Row], space: TableSpace, fields: Sequence[str] = ()) -> Iterator[TableFile]:
    """The file with all these rows, ready to be read. Raises the errors of `TableFile`."""
    table = TableFile(form, space, fields)
    try:
        batch = list[Row]()
        for row in rows:
            batch.append(row)
            if len(batch) >= BATCH:
                table.add(batch)
                batch = []
        table.add(batch)
        while table.write():
            pass
        yield table
    finally:
        table.close()
