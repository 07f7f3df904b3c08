"""`discoverybot alive`: the health check of containers whose process listens on no port."""

from __future__ import annotations

import socket
from contextlib import closing
from enum import StrEnum
from typing import Annotated

import typer
from pymongo.errors import PyMongoError

from gateway.cli.api import ApiError
from gateway.cli.console import out
from gateway.cli.exit_code import ExitCode
from gateway.container import Container
from gateway.domain.node_place import is_taken, read_place
from gateway.settings import Settings
from gateway.storage.heartbeats import BEAT, DEAD_AFTER, WORKER, HeartbeatStore
from gateway.storage.nodes import NodeStore


class Kind(StrEnum):
    """Who can be asked after."""

    WORKER = "worker"
    BEAT = "beat"
    TAILER = "tailer"


def alive(kind: Annotated[Kind, typer.Argument(help="Which of this host's processes.")]) -> None:
    """Exit code 0 if this host's worker, beat or tailer has given a sign of life lately. Asks MongoDB itself."""
    with closing(Container(Settings.load())) as parts:
        try:
            silent = _silent_nodes(parts) if kind is Kind.TAILER else _silent_process(parts, kind)
        except PyMongoError as error:
            raise ApiError(f"MongoDB cannot be asked ({type(error).__name__})", ExitCode.ERROR) from None
    if silent:
        raise ApiError(f"no sign of life of {', '.join(silent)}", ExitCode.ERROR)
    out.print(f"{kind}: alive")


def _silent_process(parts: Container, kind: Kind) -> list[str]:
    prefix = f"{WORKER if kind is Kind.WORKER else BEAT}:{socket.gethostname()}:"
    signs = parts[HeartbeatStore].all(prefix)
    now = parts.clock()
    return [] if any(now - sign.at < DEAD_AFTER for sign in signs) else [prefix.rstrip(":")]


def _silent_nodes(parts: Container) -> list[str]:
    """Those of this host's nodes for which no tailer speaks."""
    now, nodes = parts.clock(), parts[NodeStore]
    known = ((name, nodes.get(name)) for name in _names(parts.settings))
    return [name for name, node in known if node is None or not node.is_alive(now, parts.dead_after)]


def _names(settings: Settings) -> list[str]:
    if settings.nodes_dir is None:
        return [settings.node_name]
    places = (read_place(home) for home in sorted(settings.nodes_dir.glob("*/")) if is_taken(home))
    return [place.name for place in places if place is not None]
