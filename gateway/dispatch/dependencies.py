"""The libraries that a version requires besides Scrapy: puts the list into its egg, and asks nodes how their
installation has gone.
"""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Literal, NamedTuple

from attrs import define
from packaging.version import InvalidVersion, Version
from pydantic import BaseModel, ValidationError

from gateway.clock import Clock, utc_now
from gateway.contract.crawl import MAX_REQUIREMENTS, REQUIREMENTS, Egg
from gateway.contract.reasons import Reason, reason_of
from gateway.errors import ConflictError, InvalidRequestError, NodeError, VersionNotFoundError
from gateway.nodes.scrapyd import ScrapydClient, why_not_taken
from gateway.nodes.store import Node, NodeStore
from gateway.projects.eggs import EggStore
from gateway.stores.mongo import mongo_errors

#: How many nodes are asked at the same time.
_AT_ONCE = 8


def put_requirements(egg: Path, requirements: bytes) -> None:
    """Add the requirements to the egg as a file, so that they are stored, delivered and replaced together with it.

    Raises `InvalidRequestError` if `egg` is not an egg or already has requirements, or if these are too large or not
    text.
    """
    if len(requirements) > MAX_REQUIREMENTS:
        raise InvalidRequestError("requirements", f"is larger than {MAX_REQUIREMENTS >> 20} MiB")
    if not zipfile.is_zipfile(egg):  # "a" would append an archive to any other file
        raise not_an_egg("it is not a ZIP file")
    try:
        requirements.decode()
    except UnicodeDecodeError:
        raise InvalidRequestError("requirements", "is not UTF-8 text") from None
    try:
        with zipfile.ZipFile(egg) as archive:  # "a" would add a second archive to an unreadable one
            if REQUIREMENTS in archive.namelist():
                raise InvalidRequestError("requirements", f"come with the egg already ({REQUIREMENTS})")
        with zipfile.ZipFile(egg, "a") as archive:
            # `ZipInfo` has a fixed time: so the same egg and requirements give the same file, and nodes that have it
            # need not unpack it again
            archive.writestr(zipfile.ZipInfo(REQUIREMENTS), requirements, zipfile.ZIP_DEFLATED)
    except (zipfile.BadZipFile, RuntimeError, ValueError, OverflowError, struct.error) as error:
        raise not_an_egg(f"the ZIP file cannot be read ({error})") from None


def not_an_egg(why: str) -> InvalidRequestError:
    """The error for an uploaded file that is not an egg."""
    detail = {"field": "egg", "reason": Reason.EGG_UNREADABLE}
    return InvalidRequestError("egg", f"is not an egg: {why}", detail=detail)


class _Said(BaseModel):
    """A node's answer."""

    state: Literal["none", "building", "ready", "failed"]
    message: str | None = None
    reason: str | None = None
    packages: tuple[str, ...] = ()
    log: str = ""
    #: Distributions that are not declared, and that a lenient node has added.
    added: tuple[str, ...] = ()
    #: The day (ISO) whose newest versions a lenient node has installed; empty if it has installed today's.
    as_of: str = ""
    #: Packages that are newer than their pinned versions, because these cannot be built.
    raised: tuple[str, ...] = ()
    #: Declared packages of which no version can be built on the node.
    left_out: tuple[str, ...] = ()


class NodeDependencies(NamedTuple):
    """How the installation of a version's requirements has gone on one node."""

    node: str
    #: `none` (the version has no requirements), `building`, `ready`, `failed`; `unknown` if the node does not answer,
    #: or if its answer cannot be read.
    state: str
    #: Why the installation failed, or why the state is unknown.
    message: str | None = None
    #: The same as a code.
    reason: Reason | None = None
    #: The installed packages, as `name==version`.
    packages: tuple[str, ...] = ()
    log: str = ""
    #: Sentences for the user: known vulnerabilities of installed packages, and what the node has changed so that the
    #: version runs.
    warnings: tuple[str, ...] = ()


#: Packages with a vulnerability that concerns crawls: the first version without it, and the advisory.
_MENDED = {"scrapy": (Version("2.17"), "GHSA-76g3-c3x4-crvx, downloads by s3://, which crawls here cannot make")}


def _warnings(said: _Said) -> Iterator[str]:
    if said.added:
        yield f"not declared, and added: {', '.join(said.added)} (declare it, in requirements.txt or pyproject.toml)"
    if said.raised:
        yield f"newer than pinned, because the pinned versions cannot be built: {', '.join(said.raised)}"
    if said.left_out:
        yield f"declared, but left out, because the node cannot build it: {', '.join(said.left_out)}"
    if said.as_of:
        yield f"it runs with the versions of {said.as_of}, because it does not run with today's"
    for package in said.packages:
        name, _, version = package.partition("==")
        with suppress(KeyError, InvalidVersion):
            mended, advisory = _MENDED[name.lower()]
            if Version(version) < mended:
                yield f"{name} {version} has a known vulnerability ({advisory}): pin {mended} or later"


@define(eq=False, repr=False, slots=False, kw_only=True)
class Dependencies:
    """Asks the living nodes how they have installed a version's requirements."""

    _nodes: NodeStore
    _eggs: EggStore
    _scrapyd: ScrapydClient
    _dead_after: timedelta
    _clock: Clock = utc_now

    def of(self, project: str, version: str) -> list[NodeDependencies]:
        """How the installation has gone on every living node. This also works for a version that nodes have refused:
        it is not stored, but nodes keep its log for a while.

        Raises `ConflictError` if there is no living node, `VersionNotFoundError`, `UnavailableError`.
        """
        egg = Egg(project, version)
        with mongo_errors():
            now = self._clock()
            nodes = [node for node in self._nodes.all(attempts=False) if node.is_alive(now, self._dead_after)]
            kept = self._eggs.get(egg)
        if not nodes:
            raise ConflictError("no crawl node is alive that could be asked")
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="dependencies-of") as threads:
            answers = list(threads.map(lambda node: self._ask(node, egg), nodes))
        is_kept = kept is not None and kept.content is not None
        if not is_kept and all(answer.state in {"none", "unknown"} for answer in answers):
            raise VersionNotFoundError(project, version)
        return answers

    def _ask(self, node: Node, egg: Egg) -> NodeDependencies:
        try:
            said = self._scrapyd.dependencies(node.url, egg)
        except NodeError as error:
            return NodeDependencies(node.id, "unknown", error.message, why_not_taken(error))
        try:
            answer = _Said.model_validate(said)
        except ValidationError:
            return NodeDependencies(node.id, "unknown", "its answer has the format of another release")
        reason = reason_of(answer.reason)
        warnings = tuple(_warnings(answer))
        return NodeDependencies(node.id, answer.state, answer.message, reason, answer.packages, answer.log, warnings)
