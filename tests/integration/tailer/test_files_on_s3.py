"""Files on a real S3 server, which goes away; and a tailer that is killed while it ships them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import obstore
import pytest
from s3 import BUCKET, KEY, SECRET, s3_server, s3_settings
from stores import StoreProcess
from tailer_node import Crawl, Node, eventually

from gateway.contract.records import FilesKept
from gateway.errors import FileStoreAwayError
from gateway.files.store import FileBytes, FilesPlace, FileStore
from gateway.tailer.outbox import load_checkpoint

TailingNode = Callable[..., AbstractContextManager[Node]]
LARGE = os.urandom(11_000_000)


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreProcess]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("plan")


@pytest.fixture(scope="module")
def node(
    *,
    tmp_path_factory: pytest.TempPathFactory,
    tailing_node: TailingNode,
    mongo: StoreProcess,
    valkey: StoreProcess,
    s3: StoreProcess,
    plan: Path,
) -> Iterator[Node]:
    variables = {**s3_settings(s3), "DISCOVERYBOT_CRASH_PLAN": str(plan)}
    with tailing_node(tmp_path_factory.mktemp("home"), mongo, valkey, **variables) as running:
        yield running


@pytest.fixture(scope="module")
def bytes_there(s3: StoreProcess) -> FileBytes:
    return FileBytes(FilesPlace(f"s3://{BUCKET}/files", str(s3), "us-east-1", KEY, SECRET))


@pytest.fixture(scope="module")
def store(node: Node, bytes_there: FileBytes) -> FileStore:
    return FileStore(node._database, bytes_there)


def written(node: Node, count: int = 1) -> Crawl:
    """A crawl that has ended, with a large file and `count` small ones."""
    crawl = node.crawl()
    folder = crawl.folder / "files"
    folder.mkdir()
    (folder / "large").write_bytes(LARGE)
    for number in range(count):
        (folder / f"{number:03}.txt").write_text(f"file {number}")
    crawl.end()
    return crawl


def said(node: Node, crawl: Crawl) -> FilesKept:
    found = node.ended(crawl).attempts["1"].exit
    assert found is not None
    assert found.files is not None
    return found.files


def kept(node: Node, crawl: Crawl) -> FilesKept:
    """The job's record of its files, once all are stored."""
    eventually(lambda: not said(node, crawl).pending)
    return said(node, crawl)


def stored(store: FileStore, crawl: Crawl) -> dict[str, bytes]:
    records, following = store.page(crawl.id.job_id, None, None, 1000)
    assert following is None
    return {record.name: store.read(record, 0, record.size) for record in records}


def objects(bytes_there: FileBytes, crawl: Crawl) -> set[str]:
    """Names in the bucket, read without our own store."""
    with bytes_there._errors() as opened:
        pages = obstore.list(opened, prefix=f"{crawl.id.job_id}/1")
        return {Path(one["path"]).name for page in pages for one in page}


def unshipped(node: Node) -> tuple[int, int | None] | None:
    found = node.nodes.get(node.name)
    return found and (len(found.present), found.unshipped)


def expected(count: int) -> dict[str, bytes]:
    return {"large": LARGE, **{f"{number:03}.txt": f"file {number}".encode() for number in range(count)}}


def test_files_are_stored_read_in_parts_and_removed(node: Node, store: FileStore, bytes_there: FileBytes) -> None:
    crawl = written(node)
    assert kept(node, crawl).count == 2
    assert stored(store, crawl) == expected(1)
    record = store.find(crawl.id.job_id, None, "large")
    assert record is not None
    assert store.read(record, 6_000_000, 1000) == LARGE[6_000_000:6_001_000]
    store.delete(crawl.id.job_id)
    assert objects(bytes_there, crawl) == set()
    assert stored(store, crawl) == {}


def test_a_tailer_that_is_killed_while_it_ships_loses_and_doubles_nothing(
    node: Node, store: FileStore, bytes_there: FileBytes, plan: Path
) -> None:
    node.kill_tailer()
    crawl = written(node, 60)
    for point in ("files.put.before", "files.put.after", "files.note.before", "files.note.after"):
        (plan / point).touch()
        node.start_tailer()
        node.wait_for_tailer()
        assert len(objects(bytes_there, crawl)) < 61
    node.start_tailer()
    # now kill the tailer at a random moment
    for least in (20, 40):
        eventually(lambda least=least: len(objects(bytes_there, crawl)) >= least)
        node.kill_tailer()
        node.start_tailer()
    found = kept(node, crawl)
    size = sum(map(len, expected(60).values()))
    assert (found.count, found.bytes, found.refused_count) == (61, size, 0)
    assert stored(store, crawl) == expected(60)
    assert objects(bytes_there, crawl) == set(expected(60))
    node.kill_tailer()
    later = written(node)
    for point in ("jobs.record_files.before", "jobs.record_files.after"):
        (plan / point).touch()
        node.start_tailer()
        node.wait_for_tailer()
    node.start_tailer()
    assert said(node, later).count == 2


def test_a_job_ends_while_the_store_is_away_and_its_files_follow(
    node: Node, store: FileStore, s3: StoreProcess
) -> None:
    s3.kill()
    crawl = written(node)
    assert said(node, crawl).pending
    with pytest.raises(FileStoreAwayError, match="s3://crawls/files is not available"):
        store._data.read("any", 0, 1)
    # the attempt's folder outlasts a restart
    node.kill_tailer()
    node.start_tailer()
    later = written(node)
    assert said(node, later).pending
    # the ends of both are acknowledged, but files are still unshipped (an earlier crawl may have to be shipped anew)
    eventually(lambda: (found := unshipped(node)) and found[0] == 0 and (found[1] or 0) >= 2)
    s3.start()
    for one in (crawl, later):
        assert kept(node, one).count == 2
        assert stored(store, one) == expected(1)
    eventually(lambda: unshipped(node) == (0, 0))


def test_a_job_learns_of_its_files_though_the_tailer_that_told_its_end_was_killed(
    node: Node, store: FileStore, s3: StoreProcess, plan: Path
) -> None:
    s3.kill()
    (plan / "jobs.record_exit.after").touch()
    crawl = written(node)
    node.wait_for_tailer()
    assert said(node, crawl).pending
    assert not load_checkpoint(crawl.folder).acknowledged
    s3.start()
    node.start_tailer()
    assert kept(node, crawl).count == 2
    assert stored(store, crawl) == expected(1)
