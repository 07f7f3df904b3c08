"""Which node is brought which egg, and what follows if the node does not take it."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from conftest import DEAD_AFTER, Platform
from eggs import teller
from jobs import make_job

from gateway.contract.crawl import CrawlSpec, Egg, Expect
from gateway.contract.outbox import PROTOCOLS
from gateway.contract.reasons import Reason
from gateway.dispatch.egg_delivery import BATCH, EggDelivery, EggNeeds, EggWatch
from gateway.errors import NodeUnreachableError
from gateway.jobs.job import Job
from gateway.jobs.messages import EventPublisher
from gateway.projects.eggs import EggCopies, EggStore

EGG = Egg("shop", "1.0")


class Eggs:
    """The platform, and its parts that bring eggs to nodes."""

    def __init__(self, platform: Platform, folder: Path) -> None:
        self.platform, self.folder = platform, folder
        database, clock = platform.database, platform.clock
        self.eggs, self.copies = EggStore(database, clock), EggCopies(database, clock)
        stores: dict[str, Any] = {
            "eggs": self.eggs, "copies": self.copies, "needs": EggNeeds(database, clock), "nodes": platform.nodes,
            "clock": clock,
        }  # fmt: skip
        self.delivery = EggDelivery(
            **stores,
            scrapyd=platform.scrapyd,
            publisher=EventPublisher(platform.redis),
            failures=platform.deployments(),
        )
        self.watch = EggWatch(
            **stores, projects=platform.projects, dead_after=DEAD_AFTER, monotonic=platform.monotonic
        )

    def keep(self, text: str = "one") -> None:
        file = self.folder / "shop.egg"
        file.write_bytes(teller(text, "shop"))
        assert self.eggs.put(EGG, self.eggs.write(file), self.eggs.get(EGG))

    def node(
        self, name: str, *, slots: int, eggs: tuple[Egg, ...] = (), protocols: Collection[int] = PROTOCOLS
    ) -> None:
        now = self.platform.clock()
        self.platform.nodes.heartbeat(
            name, url=self.platform.double.url, max_slots=slots, alive=(), present=(),
            beating_since=now - timedelta(hours=1), eggs=eggs, protocols=protocols,
        )  # fmt: skip

    def job(self, *, expect: Expect | None = None, **fields: Any) -> Job:
        addresses = ("http://site.example/",)
        spec = CrawlSpec(project="shop", version="1.0", spider="teller", start_urls=addresses, expect=expect)
        job = make_job(spec=spec, **fields)
        self.platform.jobs.insert(job)
        return job

    def wanted(self) -> list[str]:
        """The nodes to which this look wants the egg to be brought."""
        self.platform.ahead += timedelta(seconds=3)
        found = list(self.watch.wanted(self.delivery.may_have))
        assert all(one.egg == EGG for one in found)
        return [one.node for one in found]

    def sent(self) -> list[str]:
        return [path for path, _ in self.platform.double.requests]


@pytest.fixture
def eggs(platform: Platform, tmp_path: Path) -> Eggs:
    return Eggs(platform, tmp_path)


def test_the_node_with_most_room_is_brought_what_a_crawl_waits_for(eggs: Eggs) -> None:
    eggs.keep()
    eggs.node("small", slots=1)
    eggs.node("large", slots=3)
    assert eggs.wanted() == []
    eggs.job()
    assert eggs.wanted() == ["large"]
    eggs.delivery.bring("large", EGG)
    assert eggs.sent() == ["/addversion.json"]
    eggs.delivery.bring("large", EGG)
    assert eggs.sent() == ["/addversion.json"]
    eggs.node("large", slots=3, eggs=(EGG,))
    assert eggs.wanted() == []


def test_a_node_with_room_is_brought_what_only_a_full_one_has(eggs: Eggs) -> None:
    eggs.keep()
    eggs.node("full", slots=0, eggs=(EGG,))
    eggs.node("idle", slots=1)
    eggs.job()
    assert eggs.wanted() == ["idle"]


@pytest.mark.parametrize("is_given", [False, True])
def test_a_node_that_speaks_the_protocol_of_a_crawl_is_brought_what_only_an_older_one_has(
    eggs: Eggs, *, is_given: bool
) -> None:
    eggs.keep()
    eggs.node("n1", slots=9, eggs=(EGG,), protocols={1})
    eggs.node("n2", slots=9, protocols={1})
    eggs.node("n3", slots=1)
    if is_given:
        eggs.platform.environment.set("shop", "API_KEY", "x", secret=True)
        eggs.job()
    else:
        eggs.job(expect=Expect(min_items=1))
    assert eggs.wanted() == ["n3"]
    eggs.node("n3", slots=1, eggs=(EGG,))
    assert (eggs.wanted(), eggs.platform.dispatch.fill()) == ([], 1)


def test_nothing_is_brought_that_was_deleted_or_never_kept(eggs: Eggs) -> None:
    eggs.node("idle", slots=1)
    eggs.job()
    assert eggs.wanted() == []
    eggs.keep()
    eggs.eggs.delete(EGG)
    assert eggs.wanted() == []


def test_any_number_of_versions_that_cannot_be_brought_keep_no_other_from_being(eggs: Eggs) -> None:
    eggs.node("idle", slots=1)
    for number in range(BATCH + 5):
        spec = CrawlSpec(project="lost", version=f"{number}", spider="teller", start_urls=("http://site.example/",))
        eggs.platform.jobs.insert(make_job(spec=spec))
    eggs.keep()
    eggs.job()
    assert eggs.wanted() == ["idle"]


def test_a_node_that_refuses_is_left_alone_for_longer_each_time_and_another_is_tried(eggs: Eggs) -> None:
    eggs.keep()
    eggs.node("small", slots=1)
    eggs.node("large", slots=3)
    job = eggs.job()
    eggs.platform.endpoints.make("root", "http://a.example/", of_all_users=True)
    eggs.platform.double.mode = "refuse"
    eggs.delivery.bring("large", EGG)
    waiting = eggs.platform.jobs.get(job.id)
    assert waiting.message == "node large did not accept the egg: no such spider"
    assert waiting.reason is Reason.SPIDER_MISSING
    eggs.platform.ahead += timedelta(seconds=21)
    eggs.node("large", slots=3)
    eggs.node("small", slots=1)
    eggs.delivery.bring("large", EGG)
    assert len(eggs.sent()) == 1
    assert eggs.wanted() == ["small"]
    eggs.platform.ahead += timedelta(seconds=60)
    eggs.delivery.bring("large", EGG)
    assert len(eggs.sent()) == 2
    again = eggs.copies.of_egg(EGG)["large"]
    assert again.failures == 2
    made, _ = eggs.platform.deliveries.page([], 9, None)
    assert [one.type for one in made] == ["deploy.failed"]
    assert again.not_before is not None
    assert again.not_before > eggs.platform.clock() + timedelta(seconds=100)


def test_another_egg_under_the_version_is_sent_at_once(eggs: Eggs) -> None:
    eggs.keep()
    eggs.node("picky", slots=1)
    eggs.platform.double.mode = "refuse"
    eggs.delivery.bring("picky", EGG)
    eggs.keep("another")
    eggs.delivery.bring("picky", EGG)
    assert len(eggs.sent()) == 2


def test_what_is_damaged_is_not_sent_and_no_longer_kept(eggs: Eggs) -> None:
    eggs.keep()
    eggs.node("n1", slots=1)
    job = eggs.job()
    eggs.platform.database["egg_chunks"].update_many({}, {"$set": {"data": b"something else"}})
    eggs.delivery.bring("n1", EGG)
    assert eggs.sent() == []
    assert eggs.eggs.get(EGG) is None
    assert "damaged" in (eggs.platform.jobs.get(job.id).message or "")


def test_what_is_outdated_is_replaced_and_what_was_deleted_removed(eggs: Eggs) -> None:
    eggs.keep()
    eggs.node("n1", slots=1, eggs=(EGG,))
    eggs.copies.mark_outdated("n1", EGG, "former")
    assert eggs.wanted() == ["n1"]
    eggs.delivery.bring("n1", EGG)
    eggs.platform.ahead += timedelta(minutes=2)
    eggs.eggs.delete(EGG)
    eggs.delivery.bring("n1", EGG)
    assert eggs.sent() == ["/addversion.json", "/delversion.json"]


def test_no_answer_is_read_that_would_keep_everything_else_waiting(eggs: Eggs) -> None:
    eggs.keep()
    double, scrapyd = eggs.platform.double, eggs.platform.scrapyd
    double.mode = "values"
    with pytest.raises(NodeUnreachableError, match="more than 400000 values"):
        scrapyd.add_version(double.url, *EGG, eggs.folder / "shop.egg")
    with pytest.raises(NodeUnreachableError, match="longer than 16 KiB"):
        scrapyd.question(double.url).result()
