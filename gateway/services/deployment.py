"""Puts a project's egg on every living crawl node, and tells what each of them said."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple, Self

import structlog

from gateway.domain.clock import Clock, utc_now
from gateway.domain.errors import ConflictError, InvalidRequestError, NodeError, NodeRefusedError, NodeShutError
from gateway.domain.job import DEFAULT_PROJECT
from gateway.services.scrapyd import ScrapydClient
from gateway.services.spider_catalog import project_name
from gateway.storage.client import truth_store_errors
from gateway.storage.nodes import Node, NodeStore

log = structlog.get_logger()

#: Nodes that are sent the egg at once.
_AT_ONCE = 4


class NodeAnswer(NamedTuple):
    node: str
    accepted: bool
    #: In the egg; 0 where it was not taken.
    spiders: int = 0
    #: Why it was not taken.
    message: str | None = None
    #: The node has looked at the egg and said no.
    refused: bool = False

    @classmethod
    def failed(cls, node: str, error: NodeError) -> Self:
        refused = isinstance(error, NodeRefusedError) and not isinstance(error, NodeShutError)
        return cls(node, accepted=False, message=error.message, refused=refused)


class Deployment:
    def __init__(
        self, *, nodes: NodeStore, scrapyd: ScrapydClient, dead_after: timedelta, clock: Clock = utc_now
    ) -> None:
        self._nodes = nodes
        self._scrapyd = scrapyd
        self._dead_after = dead_after
        self._clock = clock

    def deploy(self, project: str, version: str, egg: Path) -> list[NodeAnswer]:
        """Every node's answer, all of which took it. Doing it again is safe: a version is replaced.

        Raises `InvalidRequestError` for what is no egg, or one that all nodes refuse; `NodeError`, whose detail has
        the answers, if some did not take it; `ConflictError` when there is no node, `UnavailableError`.
        """
        check_egg(project, egg)
        nodes = self._living()
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="deploy-to") as threads:
            answers = list(threads.map(lambda node: self._send(node, project, version, egg), nodes))
        for answer in answers:
            log.info("egg_deployed", project=project, version=version, **answer._asdict())
        _require_all(answers)
        return answers

    def _living(self) -> list[Node]:
        with truth_store_errors():
            now = self._clock()
            nodes = [node for node in self._nodes.all() if node.is_alive(now, self._dead_after)]
        if not nodes:
            raise ConflictError("no crawl node is alive that could take it")
        return nodes

    def _send(self, node: Node, project: str, version: str, egg: Path) -> NodeAnswer:
        try:
            spiders = self._scrapyd.add_version(node.url, project, version, egg)
        except NodeError as error:
            return NodeAnswer.failed(node.id, error)
        return NodeAnswer(node.id, accepted=True, spiders=spiders)


def check_egg(project: str, egg: Path) -> None:
    """Raises `InvalidRequestError` for what no node has to be asked about."""
    if project_name(project) == DEFAULT_PROJECT:
        raise InvalidRequestError("project", f"{project!r} is our own, which has no egg: deploy under another name")
    if not zipfile.is_zipfile(egg):
        raise InvalidRequestError("egg", "is not an egg: it is no ZIP file")


def _require_all(answers: Sequence[NodeAnswer]) -> None:
    failed = [answer for answer in answers if not answer.accepted]
    if not failed:
        return
    detail = {"field": "egg", "nodes": [answer._asdict() for answer in answers]}
    reasons = "; ".join(dict.fromkeys(answer.message or "no reason given" for answer in failed))
    if all(answer.refused for answer in answers):
        raise InvalidRequestError("egg", reasons, detail=detail)
    taken = len(answers) - len(failed)
    raise NodeError(f"deployed on {taken} of {len(answers)} nodes: {reasons}", detail=detail)
