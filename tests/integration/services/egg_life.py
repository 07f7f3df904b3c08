"""What can happen to one version: deployed, replaced, brought, refused, damaged, deleted, forgotten."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

from eggs import teller
from jobs import make_job
from pymongo.database import Database

from gateway.clock import utc_now
from gateway.contract.crawl import CrawlSpec, Egg
from gateway.contract.records import SpiderInfo
from gateway.dispatch.deployment import Deployment, Undeployment
from gateway.dispatch.egg_delivery import EggDelivery, EggNeeds, EggRefusal
from gateway.jobs.messages import EventPublisher
from gateway.jobs.store import JobStore
from gateway.nodes.scrapyd import ScrapydClient
from gateway.nodes.store import NodeStore
from gateway.projects.eggs import EggCopies, EggStore, KeptEgg
from gateway.projects.versions import Releases, VersionStore
from gateway.stores.indexes import ensure_indexes
from gateway.stores.mongo import Document, connect
from gateway.stores.redis import connect as connect_redis
from gateway.tailer.eggs import EggShipper

EGG = Egg("shop", "1.0")
ALIVE = timedelta(hours=1)
#: Takes long to make. It may be made before the processes are forked, because it has no connections yet.
SCRAPYD = ScrapydClient("discoverybot", "secret")


class ToldToNobody:
    def refused(self, refusal: EggRefusal) -> None: ...


class Life:
    def __init__(self, uri: str, redis_url: str, folder: Path) -> None:
        self.folder, self.database = folder, connect(uri)
        self.file = folder / "node/eggs/shop/1.0.egg"
        self.eggs, self.copies = EggStore(self.database), EggCopies(self.database)
        nodes, needs = NodeStore(self.database), EggNeeds(self.database)
        publisher = EventPublisher(connect_redis(redis_url))
        releases = Releases(self.eggs, self.copies, VersionStore(self.database))
        self.deployment = Deployment(
            nodes=nodes, eggs=self.eggs, copies=self.copies, releases=releases, scrapyd=SCRAPYD, dead_after=ALIVE,
            failures=ToldToNobody(),
        )  # fmt: skip
        self.undeployment = Undeployment(
            nodes=nodes,
            eggs=self.eggs,
            releases=releases,
            needs=needs,
            scrapyd=SCRAPYD,
            publisher=publisher,
            dead_after=ALIVE,
        )
        self.delivery = EggDelivery(
            eggs=self.eggs, copies=self.copies, needs=needs, nodes=nodes, scrapyd=SCRAPYD, publisher=publisher,
            failures=ToldToNobody(),
        )  # fmt: skip
        self.shipper = EggShipper(
            self.eggs, self.copies, releases, nodes, node="n1", folder=folder / "node/eggs",
            spiders=lambda: [SpiderInfo(project="shop", version="1.0", name="teller")] if self.file.exists() else [],
        )  # fmt: skip

    def arrives(self, name: str) -> None:
        """Put the egg on the node, as its own Scrapyd does, and have it noticed."""
        self.file.write_bytes((self.folder / name).read_bytes())
        os.utime(self.file, (1_000_000_000, 1_000_000_000))
        self.shipper.look()

    def deploy(self, name: str) -> None:
        """Keep the egg, as a deployment does before it brings it to nodes."""
        content = self.eggs.write(self.folder / name)
        if not self.deployment._keep(EGG, content):
            self.eggs.discard(content)

    def kept(self) -> KeptEgg:
        kept = self.eggs.get(EGG)
        assert kept is not None
        assert kept.content is not None
        return kept


def prepare(database: Database[Document], folder: Path, node_url: str, refusing_url: str) -> None:
    """Make two nodes, of which the second refuses, a job that needs the version, and two eggs of it."""
    ensure_indexes(database)
    nodes, since = NodeStore(database), utc_now() - timedelta(hours=1)
    for name, url in (("n1", node_url), ("n2", refusing_url)):
        nodes.heartbeat(name, url=url, max_slots=1, alive=[], present=[], beating_since=since)
    spec = CrawlSpec(project="shop", version="1.0", spider="teller", start_urls=("http://site.example/",))
    JobStore(database).insert(make_job(spec=spec))
    (folder / "node/eggs/shop").mkdir(parents=True)
    for name in ("first", "second"):
        (folder / name).write_bytes(teller(name, "shop"))


def check_it_is_gone(database: Database[Document]) -> None:
    assert database["egg_chunks"].count_documents({}) == 0
    assert database["egg_copies"].count_documents({}) == 0
    assert [document["content"] for document in database["eggs"].find()] == [None]


def live(uri: str, redis_url: str, folder: str) -> None:
    life = Life(uri, redis_url, Path(folder))
    # processes that were killed before this one hold no lease any more
    life.database["egg_copies"].update_many({}, {"$unset": {"leased_until": "", "not_before": ""}})
    life.deploy("first")
    life.arrives("first")
    life.deploy("second")
    # the node still has the first egg: whoever deployed the second one died before the node's copy was marked
    life.database["egg_copies"].update_many({}, {"$unset": {"outdated": ""}})
    life.arrives("first")
    assert life.copies.outdated(["n1"])
    life.delivery.bring("n1", EGG)
    life.arrives("second")
    life.delivery.bring("n2", EGG)
    assert life.copies.of_egg(EGG)["n2"].failures
    assert not life.copies.outdated(["n1", "n2"])
    damage(life)
    life.undeployment.delete(*EGG)
    life.file.unlink(missing_ok=True)
    life.shipper.look()
    life.copies.forget(["n1"])
    life.eggs.sweep(utc_now() + timedelta(days=1))
    life.database.client.close()


def damage(life: Life) -> None:
    """Damage the kept egg. This is noticed when the egg is to be brought to a node; the node that has it keeps it
    anew.
    """
    life.database["egg_chunks"].delete_many({})
    life.database["egg_copies"].update_many({"node": "n2"}, {"$unset": {"not_before": ""}})
    life.delivery.bring("n2", EGG)
    assert life.eggs.get(EGG) is None
    life.shipper.look()
    assert b"".join(life.eggs.read(life.kept().content or life.eggs.write(life.file)))
