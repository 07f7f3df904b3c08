"""XLSX and Parquet, read by what others read them with."""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import duckdb
import openpyxl
import pyarrow.parquet as pq
import pytest
from forms import full_or_short

from gateway.errors import ExtraMissingError, NoRoomError, TableTooLargeError, TooManyRowsError
from gateway.items import table_files
from gateway.items.table_files import CUT, TABLES, TableFile, TableSpace, write_table

ROWS: list[dict[str, Any]] = [
    {
        "url": "https://e/1", "n": 1, "price": 2, "ok": True, "day": "2026-11-27", "at": "2026-11-27T08:30:00+01:00",
        "tags": ["a", None], "seller": {"name": "x"}, "code": "007", "mixed": 1,
    },
    {"url": "é", "n": -2, "price": 2.5, "ok": None, "day": None, "mixed": "x", "late": None},
]  # fmt: skip


@pytest.fixture
def space(tmp_path: Path) -> TableSpace:
    return TableSpace(tmp_path / "space", 1 << 30)


def made(form: str, rows: list[Any], space: TableSpace, *fields: str) -> bytes:
    with write_table(form, rows, space, fields) as table:
        data = table.read(-1)
        assert (table.size, table.rows) == (len(data), len(rows))
    assert not list(space.folder.iterdir())
    return data


def sheet(data: bytes) -> list[list[Any]]:
    found = openpyxl.load_workbook(io.BytesIO(data)).active
    assert found is not None
    return [[cell.value for cell in row] for row in found.iter_rows()]


# --- XLSX


def test_a_sheet_keeps_types(space: TableSpace) -> None:
    head, first, second = sheet(made("xlsx", ROWS, space))
    assert head == [*ROWS[0], "late"]
    assert first == [
        *("https://e/1", 1, 2, True, datetime(2026, 11, 27), datetime(2026, 11, 27, 7, 30)),  # noqa: DTZ001 - Excel's
        *('["a",null]', '{"name":"x"}', "007", 1, None),
    ]
    assert second == ["é", -2, 2.5, None, None, None, None, None, None, "x", None]


def test_a_sheet_holds_no_live_formula_and_no_link(space: TableSpace) -> None:
    texts = ["=1+1", "=cmd|' /C calc'!A0", "+1-1", "@SUM(1)", "{=1}", "https://e/", "mailto:a@e", "internal:A1", "12"]
    data = made("xlsx", [{"=name": text} for text in texts], space)
    book = openpyxl.load_workbook(io.BytesIO(data))
    cells = [cell for row in book.active for cell in row]  # type: ignore[union-attr]  # there is a sheet
    assert [(cell.value, cell.data_type, cell.hyperlink) for cell in cells] == [
        (text, "s", None) for text in ("=name", *texts)
    ]
    assert [cell.quotePrefix for cell in cells[1:5]] == [True] * 4
    with ZipFile(io.BytesIO(data)) as parts:
        assert not [
            name for name in parts.namelist() if b"<f>" in parts.read(name) or b"hyperlink" in parts.read(name)
        ]


def test_what_a_cell_cannot_hold_is_cut_with_a_mark(space: TableSpace) -> None:
    full, long, pairs = "x" * 32_767, "x" * 32_768, "\U0001f600" * 20_000
    _, (first, second, third) = sheet(made("xlsx", [{"a": full, "b": long, "c": pairs}], space))
    assert first == full
    assert second == "x" * (32_767 - len(CUT)) + CUT
    assert third.endswith("\U0001f600" + CUT)
    assert len(third.encode("utf-16-le")) // 2 in {32_766, 32_767}


def test_what_excel_would_change_is_text(space: TableSpace) -> None:
    row = {
        "id": 1234567890123456,
        "big": 2**70,
        "old": "1899-12-31",
        "half": "\ud800",
        "nul": "a\x00b",
        "x": "_x0041_",
    }
    _, found = sheet(made("xlsx", [row], space))
    assert found[:4] == ["1234567890123456", str(2**70), "1899-12-31", "?"]
    with ZipFile(io.BytesIO(made("xlsx", [row], space))) as parts:
        text = parts.read("xl/worksheets/sheet1.xml")
    assert b"a_x0000_b" in text
    assert b"_x005F_x0041_" in text


def test_a_sheet_without_room_for_the_rows_is_refused(space: TableSpace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TABLES, "xlsx", TABLES["xlsx"]._replace(most_rows=2))
    assert len(sheet(made("xlsx", [{"a": 1}] * 2, space))) == 3
    with pytest.raises(TooManyRowsError, match=r"csv.*parquet") as refused:
        made("xlsx", [{"a": 1}] * 3, space)
    assert (refused.value.code, refused.value.detail) == ("too_many_rows", {"field": "format", "limit": 2})


# --- Parquet


def test_parquet_has_the_types_for_arrow_and_duckdb(space: TableSpace, tmp_path: Path) -> None:
    data = made("parquet", ROWS, space)
    first, second = pq.read_table(io.BytesIO(data)).to_pylist()
    assert first == {
        **ROWS[0], "day": date(2026, 11, 27), "at": datetime(2026, 11, 27, 7, 30, tzinfo=UTC),
        "seller": '{"name":"x"}', "mixed": "1", "late": None,
    }  # fmt: skip
    assert second["price"] == 2.5
    file = tmp_path / "found.parquet"
    file.write_bytes(data)
    described = duckdb.sql(f"describe select * from '{file}'").fetchall()
    assert {name: kind for name, kind, *_ in described} == {
        "url": "VARCHAR", "n": "BIGINT", "price": "DOUBLE", "ok": "BOOLEAN", "day": "DATE",
        "at": "TIMESTAMP WITH TIME ZONE", "tags": "VARCHAR[]", "seller": "VARCHAR", "code": "VARCHAR",
        "mixed": "VARCHAR", "late": "VARCHAR",
    }  # fmt: skip
    assert duckdb.sql(f"select sum(n), seller->>'name' from '{file}' where ok group by 2").fetchall() == [(1, "x")]


def test_as_many_rows_as_a_large_crawl_has_are_read_with_their_types(space: TableSpace, tmp_path: Path) -> None:
    count = full_or_short(1_000_000, 20_000)
    rows = ({"url": f"https://e/{n}", "ean": n << 32, "price": n / 4, "day": "2026-11-27"} for n in range(count))
    file = tmp_path / "found.parquet"
    with write_table("parquet", rows, space) as table, file.open("wb") as copy:
        while piece := table.read(1 << 20):
            copy.write(piece)
    found = duckdb.sql(f"select count(*), sum(ean >> 32), sum(price), max(day), max(typeof(ean)) from '{file}'")
    total = count * (count - 1) // 2
    assert found.fetchall() == [(count, total, total / 4, date(2026, 11, 27), "BIGINT")]
    if find_spec("pandas"):
        frame = pq.read_table(file).to_pandas()
        end = count - 1
        last = {"url": f"https://e/{end}", "ean": end << 32, "price": end / 4, "day": date(2026, 11, 27)}
        assert (len(frame), frame.iloc[-1].to_dict()) == (count, last)
        assert [str(frame[name].dtype) for name in ("ean", "price")] == ["int64", "float64"]


def test_what_differs_too_much_is_text_in_parquet_and_nothing_is_lost(space: TableSpace) -> None:
    values = [2**70, 1, "\ud800", True, 1.5, None]
    found = pq.read_table(io.BytesIO(made("parquet", [{"a": value} for value in values], space)))["a"].to_pylist()
    assert found == [str(2**70), "1", "?", "true", "1.5", None]
    nested = [{"k": [1]}, "text", 5, ["x"]]
    found = pq.read_table(io.BytesIO(made("parquet", [{"a": value} for value in nested], space)))["a"].to_pylist()
    assert [json.loads(text) for text in found] == nested


def test_rows_come_in_groups_and_in_their_order(space: TableSpace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_files, "_GROUP_ROWS", 1000)
    file = pq.ParquetFile(io.BytesIO(made("parquet", [{"n": number} for number in range(2_600)], space)))
    assert [file.metadata.row_group(place).num_rows for place in range(file.num_row_groups)] == [1000, 1000, 600]
    assert file.read()["n"].to_pylist() == [*range(2_600)]


@pytest.mark.parametrize("rows", [[], [{}], [{}, {"a": 1}]])
def test_no_rows_and_empty_rows_are_a_table_too(rows: list[Any], space: TableSpace, tmp_path: Path) -> None:
    file = tmp_path / "found.parquet"
    file.write_bytes(made("parquet", rows, space))
    assert duckdb.sql(f"select count(*) from '{file}'").fetchall() == [(len(rows),)]
    # a row without a cell is not in a sheet
    assert sheet(made("xlsx", rows, space)) == ([["a"], [None], [1]] if any(rows) else [])


def test_parquet_without_its_extra_is_refused_with_its_name(
    space: TableSpace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_files, "find_spec", lambda _: None)
    with pytest.raises(ExtraMissingError, match=r"discoverybot\[parquet\]") as refused:
        TableFile("parquet", space)
    assert (refused.value.code, refused.value.detail["extra"]) == ("extra_missing", "parquet")
    assert not space.folder.exists()


# --- both


@pytest.mark.parametrize("form", ["xlsx", "parquet"])
def test_only_the_named_fields_are_columns_in_their_order(form: str, space: TableSpace) -> None:
    data = made(form, ROWS, space, "seller.name", "n", "none")
    if form == "xlsx":
        assert sheet(data) == [["seller.name", "n", "none"], ["x", 1, None], [None, -2, None]]
    else:
        assert pq.read_table(io.BytesIO(data)).to_pylist() == [
            {"seller.name": "x", "n": 1, "none": None},
            {"seller.name": None, "n": -2, "none": None},
        ]


def test_a_table_takes_no_more_than_it_may(space: TableSpace) -> None:
    with pytest.raises(TableTooLargeError) as refused:
        made("parquet", [{"a": "x" * 1000}] * 2000, space._replace(most_bytes=1 << 20))
    assert (refused.value.code, list(space.folder.iterdir())) == ("table_too_large", [])


def test_a_full_disk_has_an_error_of_its_own(space: TableSpace) -> None:
    table = TableFile("parquet", space)
    with pytest.raises(NoRoomError), table._room():
        raise OSError(28, "No space left on device")
    table.close()
