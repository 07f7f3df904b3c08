"""Eggs are put on a node and taken away, in several ways. What this does to the kept eggs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from relay import MongoRelay, Refuse
from stores import StoreProcess

from gateway.clock import utc_now
from gateway.contract.crawl import Egg
from gateway.contract.outbox import DEPLOYED, NOTED
from gateway.contract.records import Deployments, NotedDeployment, SpiderInfo, read_record
from gateway.nodes.store import NodeStore
from gateway.projects.catalog import SpiderCatalog
from gateway.projects.eggs import MAX_EGG, EggCopies, EggStore, SpiderStore
from gateway.projects.versions import Releases, VersionStore
from gateway.stores.mongo import Document, connect
from gateway.tailer.eggs import EggShipper

EGG = Egg("shop", "1.0")


class Shelf:
    """A node's eggs, which the test puts there and takes away as Scrapyd does."""

    def __init__(self, database: Any, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder / name
        #: Spiders of other eggs.
        self.others: list[SpiderInfo] = []
        self.eggs, self.copies = EggStore(database), EggCopies(database)
        releases = Releases(self.eggs, self.copies, VersionStore(database))
        self.shipper = EggShipper(
            self.eggs, self.copies, releases, NodeStore(database), node=name, folder=self.folder, spiders=self.catalog
        )

    @property
    def file(self) -> Path:
        return self.folder / "shop/1.0.egg"

    def catalog(self) -> list[SpiderInfo]:
        own = [SpiderInfo(project="default", name="seo"), *self.others]
        return [*own, SpiderInfo(project="shop", version="1.0", name="offers")] if self.file.exists() else own

    def put(self, content: bytes, *, hours_ago: float = 0.01) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.file.with_suffix(".new")
        temporary.write_bytes(content)
        at = temporary.stat().st_mtime - hours_ago * 3600
        os.utime(temporary, (at, at))
        temporary.replace(self.file)

    def told(self, content: bytes, number: int) -> None:
        """Deploy the egg as Scrapyd's own tools do, which wait until the platform has noted it."""
        self.put(content, hours_ago=0)
        told = Deployments(deployments=[NotedDeployment(number=number, project="shop", version="1.0")])
        (self.folder.parent / DEPLOYED).write_text(told.model_dump_json())
        self.shipper.note_deployments()
        noted = read_record(self.folder.parent / NOTED, NotedDeployment)
        assert noted is not None
        assert noted.number == number

    def look(self) -> bool:
        """Have the shipper look. Returns whether the node's egg is outdated after that."""
        self.shipper.look()
        return bool(self.copies.of_node(self.name).get(EGG, None) and self.copies.of_node(self.name)[EGG].outdated)

    def kept(self) -> bytes | None:
        found = self.eggs.get(EGG)
        return b"".join(self.eggs.read(found.content)) if found and found.content else None


@pytest.fixture
def database(mongo: StoreProcess) -> Iterator[Any]:
    database = connect(str(mongo).replace("/discoverybot", "/shelves"))
    database.client.drop_database("shelves")
    yield database
    database.client.close()


@pytest.fixture
def one(database: Any, tmp_path: Path) -> Shelf:
    return Shelf(database, "one", tmp_path)


@pytest.fixture
def two(database: Any, tmp_path: Path) -> Shelf:
    return Shelf(database, "two", tmp_path)


def test_what_is_deployed_on_a_node_is_kept_with_its_spiders(one: Shelf, database: Any) -> None:
    one.put(b"first")
    assert not one.look()
    assert one.kept() == b"first"
    assert SpiderCatalog(SpiderStore(database), VersionStore(database)).projects() == [
        ("shop", "1.0", None, ("1.0",))
    ]
    written = database["eggs"].find_one()
    one.look()
    assert database["eggs"].find_one() == written


def test_what_is_deployed_on_a_node_counts_before_whoever_deployed_it_is_answered(
    one: Shelf, two: Shelf, database: Any
) -> None:
    catalog, versions = SpiderCatalog(SpiderStore(database), VersionStore(database)), VersionStore(database)
    NodeStore(database).heartbeat("one", url="http://n", max_slots=1, alive=(), present=(), beating_since=utc_now())
    two.put(b"first")
    two.look()
    assert [info.name for info in catalog.select(project="shop")] == ["offers"]
    versions.change("shop", lambda known: known.with_deployed("2.0"))
    for number, content in enumerate((b"second", b"first", b"first"), 1):
        revision = versions.revision()
        one.told(content, number)
        assert one.kept() == content
        assert versions.revision() > revision
        assert versions.get("shop").latest(["1.0", "2.0"]) == "1.0"
        # after the third deployment both nodes have the same egg
        assert one.copies.outdated(["one", "two"]) == ([("two", EGG)] if number < 3 else [])
        two.put(content)
        assert not two.look()
    node = NodeStore(database).get("one")
    assert node is not None
    assert node.eggs == [EGG]


def test_a_deployment_of_what_is_gone_is_noted_and_changes_nothing(one: Shelf, database: Any) -> None:
    told = Deployments(deployments=[NotedDeployment(number=3, project="../up", version="1.0")])
    one.folder.mkdir()
    (one.folder.parent / DEPLOYED).write_text(told.model_dump_json())
    one.shipper.note_deployments()
    assert read_record(one.folder.parent / NOTED, NotedDeployment) == NotedDeployment(number=3)
    assert database["project_versions"].count_documents({}) == database["eggs"].count_documents({}) == 0


def test_a_large_egg_is_kept_whole_and_one_that_is_too_large_is_not(one: Shelf, database: Any) -> None:
    large = os.urandom(9 << 20)
    one.put(large)
    one.look()
    assert one.kept() == large
    assert database["egg_chunks"].count_documents({}) == 3
    one.put(b"")
    os.truncate(one.file, MAX_EGG + 1)
    one.look()
    assert one.kept() == large


def test_spiders_for_whose_descriptions_no_document_has_room_are_in_nobodys_way(one: Shelf, database: Any) -> None:
    huge = SpiderInfo(project="shop", version="1.0", name="offers", params_schema={"description": "x" * (17 << 20)})
    small = SpiderInfo(project="zoo", version="1.0", name="tickets")
    SpiderStore(database).publish("one", [huge, small])
    assert [info.name for info in SpiderStore(database).all()] == ["tickets"]
    one.put(b"first")
    (one.folder / "zoo").mkdir()
    shutil.copy2(one.file, one.folder / "zoo/1.0.egg")
    one.others = [huge, small]
    one.told(b"first", 1)
    one.look()
    assert one.kept() == b"first"
    assert one.eggs.get(Egg("zoo", "1.0"))


def test_an_egg_that_the_database_refuses_is_in_nobodys_way(one: Shelf, mongo: StoreProcess, tmp_path: Path) -> None:
    def fault(command: dict[str, Any]) -> Refuse | None:
        is_refused = command.get("update") == "eggs" and "shop" in str(command["updates"])
        return Refuse({"ok": 0.0, "code": 2, "errmsg": "as told"}) if is_refused else None

    one.put(b"first")
    (one.folder / "zoo").mkdir()
    shutil.copy2(one.file, one.folder / "zoo/1.0.egg")
    with MongoRelay.before(mongo).running() as relay:
        relay.fault = fault
        database = connect(relay.url(mongo).replace("/discoverybot", "/shelves"))
        other = Shelf(database, "one", tmp_path)
        other.others = [SpiderInfo(project="zoo", version="1.0", name="tickets")]
        for number in (1, 2):
            other.told(b"first", number)
            other.look()
        assert other.eggs.get(EGG) is None
        assert other.eggs.get(Egg("zoo", "1.0"))
        # each try stores its bytes anew
        assert database["egg_chunks"].count_documents({}) == 3
        database.client.close()


def test_what_was_deployed_last_counts_for_all_nodes(one: Shelf, two: Shelf, database: Any) -> None:
    for shelf in (one, two):
        shelf.put(b"first")
        assert not shelf.look()
    two.put(b"second")
    assert not two.look()
    assert two.kept() == b"second"
    assert one.look()
    one.put(b"second")
    assert not one.look()
    assert one.kept() == b"second"
    assert database["egg_chunks"].count_documents({}) == 1


def test_two_who_deploy_at_the_same_moment_agree_in_the_end(one: Shelf, two: Shelf) -> None:
    one.put(b"of one")
    two.put(b"of two", hours_ago=-0.01)
    outdated = [shelf.look() for _ in range(2) for shelf in (one, two)]
    assert outdated == [False, False, True, False]
    assert one.kept() == b"of two"


def test_what_was_deleted_does_not_come_back_from_a_node_but_may_be_deployed_again(one: Shelf) -> None:
    one.put(b"first")
    one.look()
    one.eggs.delete(EGG)
    assert one.look()
    assert one.kept() is None
    one.file.unlink()
    assert not one.look()
    one.put(b"first", hours_ago=-0.01)
    assert not one.look()
    assert one.kept() == b"first"


def test_a_node_of_which_nothing_is_known_brings_nothing_old_back(one: Shelf, two: Shelf) -> None:
    two.put(b"second")
    two.look()
    one.put(b"first", hours_ago=24)
    assert one.look()
    assert one.kept() == b"second"


def test_what_is_removed_from_the_last_node_by_hand_is_deleted(one: Shelf, two: Shelf) -> None:
    for shelf in (one, two):
        shelf.put(b"first")
        shelf.look()
    one.file.unlink()
    one.look()
    assert one.kept() == b"first"
    two.file.unlink()
    two.look()
    assert one.kept() is None


def test_an_empty_disk_deletes_nothing(one: Shelf, database: Document, tmp_path: Path) -> None:
    one.put(b"first")
    one.look()
    one.file.unlink()
    started_again = Shelf(database, "one", tmp_path)
    started_again.look()
    assert started_again.kept() == b"first"
    assert started_again.copies.of_node("one") == {}
