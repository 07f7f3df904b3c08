"""Deploys a project's egg to all live nodes, returns their answers, and stores the egg for nodes that are added
later.
"""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple, Self

import structlog
from attrs import define

from gateway.clock import Clock, utc_now
from gateway.contract.crawl import DEFAULT_PROJECT, Egg
from gateway.contract.reasons import Reason
from gateway.contract.records import SpiderInfo
from gateway.dispatch.dependencies import not_an_egg
from gateway.dispatch.egg_delivery import DeployFailures, EggNeeds, EggRefusal
from gateway.errors import (
    ConflictError,
    InvalidRequestError,
    NodeError,
    StillInstallingError,
    VersionNotFoundError,
)
from gateway.jobs.messages import EventPublisher
from gateway.nodes.scrapyd import ScrapydClient, why_not_taken
from gateway.nodes.store import Node, NodeStore
from gateway.projects.catalog import project_name
from gateway.projects.eggs import Content, EggCopies, EggStore
from gateway.projects.versions import Releases
from gateway.stores.mongo import mongo_errors

log = structlog.get_logger()

#: How many nodes are sent the egg at the same time.
_AT_ONCE = 4
#: How often storing the egg is tried: another request may deploy the same version between our read and our write.
_TRIES = 5


class NodeAnswer(NamedTuple):
    """A node's answer to a deployment."""

    node: str
    accepted: bool
    #: How many spiders the egg has; 0 if the node did not accept it.
    spiders: int = 0
    #: Why the node did not accept the egg, in words and as a code; older nodes give no code.
    message: str | None = None
    reason: Reason | None = None
    #: Whether the node has read the egg and refused it.
    refused: bool = False
    #: Whether the node is still installing the egg's requirements.
    installing: bool = False
    #: What the node reports about each spider.
    infos: tuple[SpiderInfo, ...] = ()

    @classmethod
    def failed(cls, node: str, error: NodeError) -> Self:
        return cls(
            node,
            accepted=False,
            message=error.message,
            reason=why_not_taken(error),
            refused=not error.is_nodes_fault,
            installing=isinstance(error, StillInstallingError),
        )

    def shown(self) -> dict[str, Any]:
        """The fields that the API and the log show."""
        return {name: value for name, value in self._asdict().items() if name not in {"infos", "installing"}}


@define(eq=False, repr=False, slots=False, kw_only=True)
class Deployment:
    """Deploys eggs to all living nodes."""

    _nodes: NodeStore
    _eggs: EggStore
    _copies: EggCopies
    _releases: Releases
    _scrapyd: ScrapydClient
    _failures: DeployFailures
    _dead_after: timedelta
    _clock: Clock = utc_now

    def deploy(self, project: str, version: str, egg: Path, wait: float | None = None) -> list[NodeAnswer]:
        """Send the egg to every live node, and return their answers. The version becomes the project's latest once
        the first node accepts it; nodes that cannot be reached get the egg later. Repeating a deployment is safe.

        Each node may spend `wait` seconds on installing the egg's requirements. A node that needs longer says so in
        its answer. Without `wait` each node uses its own limit, and it is an error if none has accepted the egg by
        then.

        Raises `InvalidRequestError` if `egg` is not an egg, or if all nodes refuse it; `NodeError`, with the answers
        in its detail, if some nodes refuse it or no node could be reached; `ConflictError` if there is no live node,
        or if another egg was deployed as this version at the same moment; `UnavailableError`.
        """
        check_egg(project, egg)
        nodes = self._living()
        with mongo_errors():
            answers = self._deploy(Egg(project, version), egg, nodes, wait)
        for answer in answers:
            log.info("egg_deployed", project=project, version=version, **answer.shown())
        if wait is None or not are_installing(answers):
            _require_taken(answers)
        return answers

    def _living(self) -> list[Node]:
        with mongo_errors():
            now = self._clock()
            nodes = [node for node in self._nodes.all(attempts=False) if node.is_alive(now, self._dead_after)]
        if not nodes:
            raise ConflictError("no crawl node is alive that could take it")
        return nodes

    def _deploy(self, egg: Egg, path: Path, nodes: list[Node], wait: float | None) -> list[NodeAnswer]:
        content = self._eggs.write(path)
        counts = False
        try:
            with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="deploy-to") as threads:
                asked = [threads.submit(self._send, node, egg, path, wait) for node in nodes]
                taken = next((told for done in as_completed(asked) if (told := done.result()).accepted), None)
                counts = taken is not None and self._keep(egg, content, taken.infos)
                answers = [one.result() for one in asked]
            for answer in answers:
                if answer.accepted:
                    self._copies.agree(answer.node, egg, content.sha256)
                    self._nodes.took_egg(answer.node, egg)
                elif answer.refused:
                    said = answer.message or "no reason given"
                    self._failures.refused(EggRefusal(egg, content.sha256, answer.node, said, answer.reason))
            return answers
        finally:
            if not counts:
                self._eggs.discard(content)

    def _keep(self, egg: Egg, content: Content, spiders: Sequence[SpiderInfo] = ()) -> bool:
        """Store this content as the version. Returns false if the version already has the same content."""
        for _ in range(_TRIES):
            before = self._eggs.get(egg)
            if before and before.content and before.content.sha256 == content.sha256:
                if spiders and not before.described:
                    self._eggs.describe(egg, before.content, spiders)
                self._releases.repeat(egg, content.sha256)
                return False
            if self._releases.release(egg, content, before, spiders):
                return True
        raise ConflictError("another egg is being deployed as this version")

    def _send(self, node: Node, egg: Egg, path: Path, wait: float | None) -> NodeAnswer:
        try:
            taken = self._scrapyd.add_version(node.url, egg.project, egg.version, path, wait)
        except NodeError as error:
            return NodeAnswer.failed(node.id, error)
        return NodeAnswer(node.id, accepted=True, spiders=taken.spiders, infos=taken.infos)


def check_egg(project: str, egg: Path) -> None:
    """Raises `InvalidRequestError` for errors that can be found without asking a node."""
    if project_name(project) == DEFAULT_PROJECT:
        raise InvalidRequestError("project", f"{project!r} is the platform's own project: deploy under another name")
    if not zipfile.is_zipfile(egg):
        raise not_an_egg("it is not a ZIP file")


def are_installing(answers: Sequence[NodeAnswer]) -> bool:
    """Whether some nodes are still installing, and none has refused the egg."""
    return any(answer.installing for answer in answers) and not any(answer.refused for answer in answers)


def _require_taken(answers: Sequence[NodeAnswer]) -> None:
    taken = sum(answer.accepted for answer in answers)
    failed = [answer for answer in answers if not answer.accepted]
    if taken and not any(answer.refused for answer in failed):
        return
    detail = {"field": "egg", "nodes": [answer.shown() for answer in answers]}
    reasons = "; ".join(dict.fromkeys(answer.message or "no reason given" for answer in failed))
    if all(answer.refused for answer in answers):
        raise InvalidRequestError("egg", reasons, detail=detail)
    raise NodeError(f"deployed on {taken} of {len(answers)} nodes: {reasons}", detail=detail)


# --- deletes a version of a project everywhere

#: How many waiting jobs get a message about the deletion.
_MOST_UPDATED = 200


class NodeRemoval(NamedTuple):
    """Whether a version could be removed from a node."""

    node: str
    #: Whether the version is gone from the node.
    removed: bool
    #: Why the node still has the version; it is removed once the node can be reached.
    message: str | None = None


@define(eq=False, repr=False, slots=False, kw_only=True)
class Undeployment:
    """Deletes versions from MongoDB and from all nodes."""

    _nodes: NodeStore
    _eggs: EggStore
    _releases: Releases
    _needs: EggNeeds
    _scrapyd: ScrapydClient
    _publisher: EventPublisher
    _dead_after: timedelta
    _clock: Clock = utc_now

    def delete(self, project: str, version: str) -> list[NodeRemoval]:
        """Delete the version from MongoDB first, so that no worker delivers it again, and then from the nodes.
        Returns the result for each node that had it.

        Raises `InvalidRequestError` for the default project, `VersionNotFoundError`, `UnavailableError`.
        """
        if project_name(project) == DEFAULT_PROJECT:
            raise InvalidRequestError("project", f"{project!r} is the platform's own project, which has no egg")
        egg = Egg(project, version)
        with mongo_errors():
            kept = self._eggs.get(egg)
            nodes = self._nodes.all(attempts=False)
            # a version that was deleted before may still be on a dead node
            if kept.content is None if kept else not any(egg in node.eggs for node in nodes):
                raise VersionNotFoundError(project, version)
            self._releases.delete(egg, kept)
            for job in self._needs.tell(egg, f"version {version!r} of {project!r} was deleted", _MOST_UPDATED):
                self._publisher.status(job)
            now = self._clock()
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="delete-from") as threads:
            answers = threads.map(lambda node: self._remove(node, egg, now), nodes)
            removals = [answer for answer in answers if answer is not None]
        log.info("version_deleted", project=project, version=version, nodes=[each._asdict() for each in removals])
        return removals

    def _remove(self, node: Node, egg: Egg, now: datetime) -> NodeRemoval | None:
        """Delete the version from this node. Returns `None` if the node did not have it."""
        # ask a live node in any case: it may not have reported yet that it has the version
        had_it = egg in node.eggs
        if not node.is_alive(now, self._dead_after):
            left = NodeRemoval(
                node.id, removed=False, message="the node is dead; the version is removed when it is back"
            )
            return left if had_it else None
        try:
            self._scrapyd.delete_version(node.url, egg.project, egg.version)
        except NodeError as error:
            why = error.message if error.is_nodes_fault else None
            return NodeRemoval(node.id, removed=why is None, message=why) if had_it else None
        return NodeRemoval(node.id, removed=True)
