"""Whatever files a spider writes arrive in the file store, and no other files do."""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import pytest
from machine import small_disk
from stores import StoreProcess
from tailer_node import Crawl, Node, eventually

from gateway.contract.records import FilesKept
from gateway.files.store import FileBytes, FileRecord, FilesPlace, FileStore
from gateway.tailer.outbox import load_checkpoint

TailingNode = Callable[..., AbstractContextManager[Node]]
LIMITS = {"FILES_MAX_COUNT": "12", "FILES_MAX_FILE_BYTES": "6000000", "FILES_MAX_BYTES": "7000000"}
RIGHT_TO_LEFT = "gnp\N{RIGHT-TO-LEFT OVERRIDE}exe.png"


@pytest.fixture(scope="module")
def node(
    tmp_path_factory: pytest.TempPathFactory, tailing_node: TailingNode, mongo: StoreProcess, valkey: StoreProcess
) -> Iterator[Node]:
    home = tmp_path_factory.mktemp("home")
    with tailing_node(home, mongo, valkey, FILES_URL=f"file://{home}/kept", **LIMITS) as running:
        yield running


@pytest.fixture(scope="module")
def store(node: Node) -> FileStore:
    return FileStore(node._database, FileBytes(FilesPlace(f"file://{node.home}/kept")))


def write(crawl: Crawl, **contents: bytes) -> Path:
    """Write files into the folder in which the spider works. `__` in a name stands for `/`."""
    folder = crawl.folder / "files"
    folder.mkdir(exist_ok=True)
    for name, content in contents.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def kept(node: Node, crawl: Crawl) -> FilesKept | None:
    """The job's record of its files, once the attempt has ended and the files are stored."""
    node.ended(crawl)

    def look() -> list[FilesKept | None]:
        found = node.jobs.get(crawl.id.job_id).attempts["1"].exit
        assert found is not None
        return [] if found.files is not None and found.files.pending else [found.files]

    return eventually(look)[0]


def listed(store: FileStore, crawl: Crawl) -> dict[str, FileRecord]:
    records, _ = store.page(crawl.id.job_id, None, None, 1000)
    return {record.name: record for record in records}


def content(store: FileStore, record: FileRecord) -> bytes:
    return store.read(record, 0, record.size)


def test_files_are_listed_and_stored_when_their_job_has_ended(node: Node, store: FileStore) -> None:
    crawl = node.crawl()
    large = os.urandom(5_500_000)
    folder = write(crawl, images__full__a=b"\xff\xd8 picture", empty=b"", large=large)
    (folder / "items.csv").write_text("url\n")
    # these are not stored: a file of the platform, a cache, and an unfinished file
    write(crawl, **{"scrapy.cfg": b"[settings]", ".scrapy__cache__page": b"cached", "feed__.part": b"half"})
    crawl.end()
    said = kept(node, crawl)
    assert said is not None
    assert (said.count, said.refused_count, said.pending) == (4, 0, False)
    found = listed(store, crawl)
    assert list(found) == ["empty", "images/full/a", "items.csv", "large"]
    assert {name: content(store, record) for name, record in found.items()} == {
        "empty": b"", "images/full/a": b"\xff\xd8 picture", "items.csv": b"url\n", "large": large,
    }  # fmt: skip
    assert found["large"].sha256 == hashlib.sha256(large).hexdigest()
    assert found["items.csv"].type == "text/csv"
    # the file has its own name in the store, for people who look into it with other tools
    assert (node.home / "kept" / crawl.id.job_id / "1" / "images/full/a").read_bytes() == b"\xff\xd8 picture"


def test_nothing_is_stored_before_the_attempt_has_ended(node: Node, store: FileStore) -> None:
    crawl = node.crawl()
    write(crawl, **{"feed.jsonl": b"{}\n"})
    crawl.log_line("whatever")
    eventually(lambda: node.stored_log(crawl))
    assert listed(store, crawl) == {}
    write(crawl, **{"feed.jsonl": b"{}\n{}\n"})
    crawl.end(exit_code=None, signal=9)
    assert kept(node, crawl) is not None
    assert content(store, listed(store, crawl)["feed.jsonl"]) == b"{}\n{}\n"


@pytest.mark.parametrize("names", [[], ["scrapy.cfg", ".scrapy__cache", "images__.part"]])
def test_a_crawl_without_files_says_nothing_of_them(node: Node, names: list[str]) -> None:
    crawl = node.crawl()
    if names:
        write(crawl, **dict.fromkeys(names, b"none of the spider's"))
    crawl.end()
    assert kept(node, crawl) is None


def test_hostile_names_are_just_names(node: Node, store: FileStore) -> None:
    crawl = node.crawl()
    names = [RIGHT_TO_LEFT, "a\nb: c", "~", "%2e%2e", "-rf *", 'quote".html', "\N{COMBINING ACUTE ACCENT}", "x" * 255]
    folder = write(crawl)
    for number, name in enumerate(names):
        (folder / name).write_bytes(str(number).encode())
    crawl.end()
    said = kept(node, crawl)
    assert said is not None
    assert (said.count, said.refused_count) == (len(names), 0)
    assert {name: content(store, record) for name, record in listed(store, crawl).items()} == {
        name: str(number).encode() for number, name in enumerate(names)
    }


def test_what_is_no_file_of_the_spiders_is_refused_by_name(node: Node, store: FileStore) -> None:
    crawl = node.crawl()
    folder = write(crawl, good=b"good")
    (folder / "link").symlink_to("/etc/hostname")
    (folder / "folder-link").symlink_to("/etc")
    (folder / "good-link").symlink_to("good")
    os.mkfifo(folder / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        before = Path.cwd()
        os.chdir(folder)
        try:
            server.bind("socket")
        finally:
            os.chdir(before)
    (folder / os.fsdecode(b"caf\xe9")).write_bytes(b"latin-1")
    deep = folder
    for _ in range(40):
        deep /= "d"
        deep.mkdir()
    crawl.end()
    said = kept(node, crawl)
    assert said is not None
    assert list(listed(store, crawl)) == ["good"]
    reasons = {one["name"][:20]: one["reason"] for one in said.refused}
    assert reasons == {
        "link": "it is a link", "folder-link": "it is a link", "good-link": "it is a link", "fifo": "it is a FIFO",
        "socket": "it is a socket", "caf\N{REPLACEMENT CHARACTER}": "its name is no UTF-8",
        "d/d/d/d/d/d/d/d/d/d/": "it is too deep in folders",
    }  # fmt: skip
    assert said.refused_count == len(reasons)


@pytest.mark.parametrize("name", ["files", "folder above"])
def test_a_link_in_the_place_of_a_folder_leads_nowhere(
    node: Node, store: FileStore, tmp_path: Path, name: str
) -> None:
    crawl = node.crawl()
    (tmp_path / "secret").write_bytes(b"secret")
    if name == "files":
        (crawl.folder / "files").symlink_to(tmp_path)
    else:
        (write(crawl) / "inside").symlink_to(tmp_path)
    crawl.end()
    assert kept(node, crawl) is not None
    assert listed(store, crawl) == {}


def test_too_large_and_too_many_files_are_not_stored_and_said_in_the_job(node: Node, store: FileStore) -> None:
    crawl = node.crawl()
    folder = write(crawl, a=b"x" * 5_000_000, b=b"x" * 3_000_000)
    with (folder / "sparse").open("wb") as sparse:
        sparse.truncate(1 << 40)
    for number in range(20):
        (folder / f"many-{number:02}").write_bytes(b"1")
    crawl.end()
    said = kept(node, crawl)
    assert said is not None
    assert list(listed(store, crawl)) == ["a", *(f"many-{number:02}" for number in range(11))]
    assert (said.count, said.bytes, said.refused_count) == (12, 5_000_011, 11)
    assert said.refused[0] == {
        "name": "b", "reason": "all files together would have more than 7000000 bytes (FILES_MAX_BYTES)",
    }  # fmt: skip
    reasons = {one["name"]: one["reason"] for one in said.refused}
    assert "FILES_MAX_COUNT" in reasons["many-11"]
    assert "FILES_MAX_FILE_BYTES" in reasons["sparse"]


def test_a_folder_without_an_end_holds_up_nobody(node: Node, store: FileStore) -> None:
    crawl = node.crawl()
    folder = write(crawl)
    for number in range(200):
        (folder / f"{number:03}").write_bytes(b"1")
    crawl.end()
    said = kept(node, crawl)
    assert said is not None
    assert len(listed(store, crawl)) == said.count == 12
    notice = "there are more than 48 entries; the rest was not looked at"
    assert said.refused[0] == {"name": "files", "reason": notice}
    assert said.refused_count < 48


def test_files_of_a_job_that_was_deleted_meanwhile_are_removed(node: Node, store: FileStore) -> None:
    crawl = node.crawl(recorded=False)
    write(crawl, a=b"a")
    crawl.end()
    kept_in = node.home / "kept" / crawl.id.job_id
    eventually(lambda: load_checkpoint(crawl.folder).acknowledged)
    eventually(lambda: not listed(store, crawl) and not kept_in.exists())


def test_on_a_full_disk_that_the_store_shares_files_are_given_up_for_others_to_go_on(
    tmp_path: Path, tailing_node: TailingNode, mongo: StoreProcess, valkey: StoreProcess
) -> None:
    home, few = tmp_path / "home", {"NODE_MIN_FREE_INODES": "50", "NODE_MIN_FREE_BYTES": "0"}
    home.mkdir()
    with (
        small_disk(home, "64m,nr_inodes=300"),
        tailing_node(home, mongo, valkey, FILES_URL=f"file://{home}/kept", **few) as node,
    ):
        before, crawl = node.crawl(), node.crawl()
        before.end()
        node.ended(before)
        folder = write(crawl)
        with suppress(OSError):
            for number in range(300):
                (folder / f"{number:03}").touch()
        # make room for the report, which the launcher would have reserved
        for number in range(3):
            (folder / f"{number:03}").unlink()
        crawl.end()
        said = kept(node, crawl)
        assert said is not None
        assert said.refused_count
        assert "was full" in said.refused[0]["reason"]
