"""Puts together what deploys and deletes eggs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from gateway.services.announcer import Announcer
from gateway.services.deployment import Deployment
from gateway.services.scrapyd import ScrapydClient
from gateway.services.undeployment import Undeployment
from gateway.settings import Settings
from gateway.storage.egg_needs import EggNeeds
from gateway.storage.eggs import EggStore
from gateway.storage.nodes import NodeStore
from gateway.web.truth_store import TruthStore


@dataclass(frozen=True)
class Eggs:
    scrapyd: ScrapydClient
    deployment: Deployment
    undeployment: Undeployment


def wire_eggs(settings: Settings, truth: TruthStore, nodes: NodeStore, announcer: Announcer) -> Eggs:
    database, clock = truth.database, truth.clock
    scrapyd = ScrapydClient(settings.scrapyd_username, settings.scrapyd_password.get_secret_value())
    eggs = EggStore(database, clock)
    dead_after = timedelta(seconds=settings.node_dead_after)
    return Eggs(
        scrapyd=scrapyd,
        deployment=Deployment(nodes=nodes, eggs=eggs, scrapyd=scrapyd, dead_after=dead_after, clock=clock),
        undeployment=Undeployment(
            nodes=nodes,
            eggs=eggs,
            needs=EggNeeds(database, clock),
            scrapyd=scrapyd,
            announcer=announcer,
            dead_after=dead_after,
            clock=clock,
        ),
    )
