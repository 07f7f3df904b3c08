"""Puts together what brings eggs to nodes."""

from __future__ import annotations

from typing import NamedTuple

from pymongo.database import Database

from gateway.domain.clock import Clock
from gateway.storage.client import Document
from gateway.storage.egg_copies import EggCopies
from gateway.storage.egg_needs import EggNeeds
from gateway.storage.eggs import EggStore
from gateway.storage.nodes import NodeStore


class EggStores(NamedTuple):
    """What both who sees the need and who brings the egg look at; by the names they take them by."""

    eggs: EggStore
    copies: EggCopies
    needs: EggNeeds
    nodes: NodeStore
    clock: Clock


def egg_stores(database: Database[Document], nodes: NodeStore, clock: Clock) -> EggStores:
    return EggStores(
        eggs=EggStore(database, clock),
        copies=EggCopies(database, clock),
        needs=EggNeeds(database, clock),
        nodes=nodes,
        clock=clock,
    )
