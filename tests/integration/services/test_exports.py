"""Exports into a folder and into S3."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import duckdb
import obstore
import openpyxl
import pytest
from obstore.store import S3Store
from s3 import BUCKET, KEY, SECRET, s3_server
from stores import StoreProcess

from gateway.errors import ExportPlaceError, FileStoreAwayError, TooManyRowsError
from gateway.exports.export import ExportOrder, ExportPlaces, ExportWhat
from gateway.exports.export_writer import ExportedRun, ExportWriter
from gateway.files.store import FilesPlace
from gateway.items.table_files import TABLES, TableSpace

MOMENT = datetime(2027, 6, 1, 9, 30, tzinfo=UTC)
COUNT = 1200
RUN = f"snapshot/20270601T093000Z-{'5' * 32}"


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreProcess]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def writer(tmp_path: Path) -> ExportWriter:
    places = ExportPlaces(((tmp_path / "out").as_uri(), f"s3://{BUCKET}/exports"))
    return ExportWriter(places, FilesPlace(""), TableSpace(tmp_path / "space", 1 << 30), lambda: MOMENT)


class ManyRows:
    """The last row has a field that no other one has."""

    run = ExportedRun("5" * 32, MOMENT)

    def rows(self, what: ExportWhat) -> Iterator[dict[str, Any]]:
        assert what is ExportWhat.SNAPSHOT
        yield from ({"n": n, "url": f"https://e/{n}", "day": "2027-06-01"} for n in range(COUNT))
        yield {"late": "=1+1"}


@pytest.fixture
def source() -> ManyRows:
    return ManyRows()


def order(form: str, to: str = "prices") -> ExportOrder:
    return ExportOrder.model_validate({"to": to, "format": form})


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("form", ["jsonl", "csv", "xlsx", "parquet"])
def test_an_export_is_a_file_and_its_success(
    form: str, writer: ExportWriter, source: ManyRows, tmp_path: Path
) -> None:
    done = writer.write("ann", order(form), source)
    folder = tmp_path / "out/prices"
    assert files(folder) == {f"{RUN}/snapshot.{form}", f"{RUN}/_SUCCESS"}
    data = (folder / RUN / f"snapshot.{form}").read_bytes()
    said = json.loads((folder / RUN / "_SUCCESS").read_text())
    assert said == json.loads(done.model_dump_json())
    assert (said["run"], said["rows"], said["seq"], said["format"]) == ("5" * 32, COUNT + 1, None, form)
    assert said["files"] == [
        {"name": f"snapshot.{form}", "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    ]
    assert not list((tmp_path / "space").glob("*"))
    assert not (folder / "_temporary").exists()
    assert rows_in(form, folder / RUN / f"snapshot.{form}") == COUNT + 1


def rows_in(form: str, file: Path) -> int:
    if form == "jsonl":
        return len([json.loads(line) for line in file.read_text().splitlines()])
    if form == "csv":
        rows = list(csv.DictReader(io.StringIO(file.read_text(), newline="")))
        # a field of the last row has a column, too
        assert rows[-1]["late"] == "'=1+1"
        return len(rows)
    if form == "xlsx":
        with closing(openpyxl.load_workbook(file, read_only=True)) as book:
            return len(list(book.active.iter_rows())) - 1  # type: ignore[union-attr]  # there is a sheet
    found = duckdb.sql(f"select count(*), sum(n), max(day) from '{file.parents[1]}/**/*.parquet'").fetchall()
    assert found == [(COUNT + 1, sum(range(COUNT)), MOMENT.date())]
    return COUNT + 1


def test_it_is_written_once(writer: ExportWriter, source: ManyRows, tmp_path: Path) -> None:
    done = writer.write("ann", order("csv"), source)
    file = tmp_path / "out/prices" / RUN / "snapshot.csv"
    written = file.stat().st_mtime_ns
    assert writer.write("ann", order("csv"), source) == done
    assert file.stat().st_mtime_ns == written
    file.with_name("_SUCCESS").write_text("{torn")
    assert writer.write("ann", order("csv"), source) == done


def test_a_try_takes_no_file_of_another_one_for_its_own(
    writer: ExportWriter, source: ManyRows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Fewer(ManyRows):
        def rows(self, what: ExportWhat) -> Iterator[dict[str, Any]]:
            return islice(super().rows(what), 5)

    move = writer._move

    def die(*_: object) -> None:
        raise OSError("killed")

    def overtaken(*names: Any) -> None:
        """Meanwhile another try writes its file, too, and is killed before it moves the file."""
        monkeypatch.setattr(writer, "_move", die)
        with pytest.raises(OSError, match="killed"):
            writer.write("ann", order("jsonl"), Fewer())
        move(*names)

    monkeypatch.setattr(writer, "_move", overtaken)
    done = writer.write("ann", order("jsonl"), source)
    data = (tmp_path / "out/prices" / RUN / "snapshot.jsonl").read_bytes()
    assert done.files[0].sha256 == hashlib.sha256(data).hexdigest()
    assert files(tmp_path / "out/prices") == {f"{RUN}/snapshot.jsonl", f"{RUN}/_SUCCESS"}


def test_a_run_tells_its_counts_and_its_place_in_the_dataset(writer: ExportWriter, source: ManyRows) -> None:
    class OfDataset:
        run = ExportedRun("5" * 32, MOMENT, 42, {"new": 2})

        def rows(self, what: ExportWhat) -> list[dict[str, Any]]:
            assert what is ExportWhat.CHANGES
            return [{"n": 1}, {"n": 2}]

    wanted = ExportOrder.model_validate({"to": "x", "format": "jsonl", "what": "changes"})
    done = writer.write("ann", wanted, OfDataset())
    assert (done.seq, done.counts, done.rows, done.files[0].name) == (42, {"new": 2}, 2, "changes.jsonl")


@pytest.fixture
def bucket(s3: StoreProcess, writer: ExportWriter, monkeypatch: pytest.MonkeyPatch) -> S3Store:
    """A bucket that `writer` can write to. The credentials come from the environment."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    writer._access = FilesPlace("", str(s3), "us-east-1")
    return S3Store(
        BUCKET, endpoint=str(s3), region="us-east-1", access_key_id=KEY, secret_access_key=SECRET,
        client_options={"allow_http": True},
    )  # fmt: skip


class Large:
    """Rows of twelve megabytes, so that the upload has several parts."""

    run = ExportedRun("7" * 32, MOMENT)

    def rows(self, what: ExportWhat) -> Iterator[dict[str, Any]]:
        # random, so that it cannot be compressed
        return ({"n": number, "text": os.urandom(5000).hex()} for number in range(1200))


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
def test_a_large_file_is_whole(form: str, writer: ExportWriter, bucket: S3Store, tmp_path: Path) -> None:
    here = writer.write("ann", order(form), Large())
    file = next((tmp_path / "out").rglob(f"*.{form}"))
    assert (here.rows, here.files[0].size) == (1200, file.stat().st_size)
    assert hashlib.sha256(file.read_bytes()).hexdigest() == here.files[0].sha256
    there = writer.write("ann", order(form, f"s3://{BUCKET}/exports/large-{form}"), Large())
    place = f"exports/large-{form}/{RUN.replace('5' * 32, '7' * 32)}/snapshot.{form}"
    data = bytes(obstore.get(bucket, place).bytes())
    assert (len(data), hashlib.sha256(data).hexdigest()) == (there.files[0].size, there.files[0].sha256)


def test_a_bucket_gets_the_same(writer: ExportWriter, source: ManyRows, bucket: S3Store) -> None:
    place = f"s3://{BUCKET}/exports/lake"
    done = writer.write("ann", order("parquet", place), source)
    assert writer.write("ann", order("parquet", place), source) == done
    found = {one["path"]: one["size"] for page in obstore.list(bucket, prefix="exports/lake") for one in page}
    assert set(found) == {f"exports/lake/{RUN}/snapshot.parquet", f"exports/lake/{RUN}/_SUCCESS"}
    assert found[f"exports/lake/{RUN}/snapshot.parquet"] == done.files[0].size
    data = bytes(obstore.get(bucket, f"exports/lake/{RUN}/snapshot.parquet").bytes())
    assert hashlib.sha256(data).hexdigest() == done.files[0].sha256


def test_what_cannot_be_written_leaves_no_success(
    writer: ExportWriter, source: ManyRows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ExportPlaceError):
        writer.write("ann", order("csv", "s3://elsewhere/x"), source)
    with monkeypatch.context() as few:
        few.setitem(TABLES, "xlsx", TABLES["xlsx"]._replace(most_rows=10))
        with pytest.raises(TooManyRowsError):
            writer.write("ann", order("xlsx"), source)
    (tmp_path / "out").mkdir(exist_ok=True)
    (tmp_path / "out/blocked").write_text("a file")
    with pytest.raises(FileStoreAwayError):
        writer.write("ann", order("csv", "blocked"), source)
    assert files(tmp_path / "out") == {"blocked"}
