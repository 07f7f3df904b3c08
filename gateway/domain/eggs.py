"""Deployed eggs: what is kept of them, and who is right where a node has another one than what is kept."""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from gateway.domain.room import Egg

#: Bytes; what the gateway takes, and the largest egg that is kept.
MAX_EGG = 64 << 20
#: What may stand for a project and a version in the name of a file.
_PROJECT = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_ .-]{0,98}[A-Za-z0-9_-])?")
_VERSION = re.compile(r"[A-Za-z0-9_+-][A-Za-z0-9_.+-]{0,99}")


class Content(NamedTuple):
    """The bytes of one upload."""

    #: Of its own for each upload, so that a reader of the old content never meets the new one.
    id: str
    #: Hexadecimal.
    sha256: str
    size: int


class KeptEgg(NamedTuple):
    """What MongoDB has of one version."""

    egg: Egg
    #: `None`: the version was deleted, and is not to come back from a node that missed it.
    content: Content | None
    #: When it was kept or deleted.
    changed_at: datetime
    #: Whether it is written down which spiders it has.
    described: bool = False


class EggOnNode(NamedTuple):
    """The file that a node runs for one version."""

    sha256: str
    #: By the node's clock.
    deployed_at: datetime


class Standing(StrEnum):
    """What becomes of an egg that a node has."""

    AGREED = "agreed"
    #: Deployed on this node, by Scrapyd's own tools: from now on it is what is kept.
    NEWER = "newer"
    #: The version was deployed anew while the node was away.
    REPLACED = "replaced"
    #: The version was deleted while the node was away.
    DELETED = "deleted"


def standing(on_node: EggOnNode, kept: KeptEgg | None, known: Collection[str]) -> Standing:
    """`known` are the SHA-256 of what is known to have been agreed on with this node, or brought to it: whatever else
    it has was deployed there since. Of a node of which nothing is known the file's age decides.
    """
    if kept is None:
        return Standing.NEWER
    if kept.content is not None and kept.content.sha256 == on_node.sha256:
        return Standing.AGREED
    is_old = on_node.sha256 in known if known else on_node.deployed_at < kept.changed_at
    if not is_old:
        return Standing.NEWER
    return Standing.DELETED if kept.content is None else Standing.REPLACED


def is_file_name(egg: Egg) -> bool:
    """Whether its project and version can be those of a file; `../../x` cannot."""
    return bool(_PROJECT.fullmatch(egg.project) and _VERSION.fullmatch(egg.version))
