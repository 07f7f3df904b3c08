"""Keeps the eggs on this node and the eggs in MongoDB the same, no matter how an egg was deployed."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import structlog

from gateway.contract.crawl import Egg
from gateway.contract.outbox import DEPLOYED, NOTED, HostileFileError, open_file, write_atomically
from gateway.contract.records import Deployments, NotedDeployment, SpiderInfo, read_record
from gateway.crash_points import state_change
from gateway.errors import ConflictError
from gateway.nodes.store import NodeStore
from gateway.projects.eggs import (
    EggCopies,
    EggCopy,
    EggOnNode,
    EggStore,
    EggTooLargeError,
    KeptEgg,
    Standing,
    is_file_name,
    standing,
)
from gateway.projects.versions import Releases
from gateway.stores.mongo import is_passing

log = structlog.get_logger()

#: Seconds between two rounds.
EVERY = 2.0
#: Seconds between two searches for eggs that were deployed on this node. It is short, because the person who deploys
#: waits for the answer.
SOON = 0.1
#: An egg is read only when its file is this many seconds old, because Scrapyd's catalogue describes it a moment
#: later.
SETTLE = 1.0
#: Seconds for which an egg is left alone after it could not be shipped.
LEFT_ALONE = 60.0
#: How often storing an egg is tried: another node, or the gateway, may deploy the same version at the same time.
_TRIES = 5


class EggShipper(threading.Thread):
    """Ships eggs in a thread of its own: tens of megabytes must not delay the heartbeat."""

    def __init__(
        self,
        eggs: EggStore,
        copies: EggCopies,
        releases: Releases,
        nodes: NodeStore,
        *,
        node: str,
        folder: Path,
        spiders: Callable[[], list[SpiderInfo] | None],
        is_ours: Callable[[], bool] = lambda: True,
    ) -> None:
        """`folder`: where Scrapyd stores eggs, beside its files about deployments. `spiders`: returns the spiders in
        Scrapyd's catalogue. `is_ours`: whether the node's name belongs to this machine; if not, nothing is reported.
        """
        super().__init__(name="ship eggs", daemon=True)
        self._eggs = eggs
        self._copies = copies
        self._releases = releases
        self._nodes = nodes
        self._node = node
        self._folder = folder
        self._spiders = spiders
        self._is_ours = is_ours
        self._hashed: dict[Egg, tuple[tuple[int, ...], EggOnNode]] = {}
        #: The eggs in the catalogue at the last round; `None` before the first round.
        self._named: set[Egg] | None = None
        self._too_large: set[str] = set()
        #: The eggs that could not be shipped, and until when they are left alone (monotonic).
        self._failing: dict[Egg, float] = {}
        self._stopping = threading.Event()

    def run(self) -> None:
        is_well, next_at = True, time.monotonic() + EVERY
        while not self._stopping.wait(SOON if is_well else EVERY):
            try:
                if self._is_ours():
                    self.note_deployments()
                    if time.monotonic() >= next_at:
                        next_at = time.monotonic() + EVERY
                        self.look()
                is_well = True
            except Exception as error:  # noqa: BLE001 - after any failure the next round may succeed
                if is_well:
                    log.warning("eggs_not_shipped", error=str(error), kind=type(error).__name__)
                is_well = False

    def stop(self) -> None:
        self._stopping.set()

    def note_deployments(self) -> None:
        """Report the eggs that were deployed on this node with Scrapyd's own tools to the platform. The person who
        deployed waits for this. Raises PyMongo's errors and `OSError`.
        """
        home = self._folder.parent
        if (told := read_record(home / DEPLOYED, Deployments)) is None:
            return
        noted = read_record(home / NOTED, NotedDeployment)
        new = [one for one in told.deployments if noted is None or one.number > noted.number]
        if not new:
            return
        infos = _by_egg(self._spiders() or [])
        for one in new:
            egg = Egg(one.project, one.version)
            if is_file_name(egg) and (found := self._on_node(egg, settled=True)):
                # an egg that cannot be stored is tried again by `look`
                with self._apart(egg):
                    self._deployed(egg, found, infos.get(egg, []))
            _note(home, one.number)

    def _deployed(self, egg: Egg, found: EggOnNode, spiders: list[SpiderInfo]) -> None:
        """Store this egg and release it. It replaces a stored one, because it was deployed later."""
        for _ in range(_TRIES):
            kept = self._eggs.get(egg)
            if kept is None or kept.content is None or kept.content.sha256 != found.sha256:
                if not self._ship(egg, kept, spiders):
                    continue
            elif spiders:
                self._eggs.describe(egg, kept.content, spiders)
            # also for an egg that is too large to be stored, or that was stored already
            self._releases.repeat(egg, found.sha256)
            self._copies.agree(self._node, egg, found.sha256)
            self._nodes.took_egg(self._node, egg)
            return
        raise ConflictError(f"{egg.project} {egg.version} is being deployed over and over")

    def look(self) -> None:
        """Ship the eggs that were deployed on this node, and mark outdated ones. Raises PyMongo's
        errors, `OSError`.
        """
        infos = _by_egg(self._spiders() or [])
        here = {egg: found for egg in infos if (found := self._on_node(egg)) is not None}
        removed = {egg for egg in (self._named or set()) - set(infos) if not self._path(egg).exists()}
        if not infos and self._named == set():
            return
        copies, kept = self._copies.of_node(self._node), self._eggs.find({*here, *removed})
        for egg in removed:
            self._removed(egg, copies.get(egg), kept.get(egg))
        self._named = set(infos)
        # in the order of deployment, so that the last one becomes the latest version
        for egg, found in sorted(here.items(), key=lambda one: one[1].deployed_at):
            if self._failing.get(egg, 0.0) > time.monotonic():
                continue
            with self._apart(egg):
                self._settle(egg, found, kept.get(egg), copies.get(egg), infos[egg])
        for egg, copy in copies.items():
            if copy.has is not None and not self._path(egg).exists():
                self._copies.gone(self._node, egg)

    @contextmanager
    def _apart(self, egg: Egg) -> Iterator[None]:
        """Log an error of one egg, so that it does not stop the others, and leave the egg alone for a while, because
        each try may store its bytes again. Raises only errors which say that MongoDB is away or slow.
        """
        try:
            yield
        except Exception as error:
            if is_passing(error):
                raise
            self._failing[egg] = time.monotonic() + LEFT_ALONE
            log.exception("egg_not_shipped", project=egg.project, version=egg.version)
        else:
            self._failing.pop(egg, None)

    def _settle(
        self, egg: Egg, found: EggOnNode, kept: KeptEgg | None, copy: EggCopy | None, spiders: list[SpiderInfo]
    ) -> None:
        match standing(found, kept, copy.known if copy else ()):
            case Standing.AGREED:
                self._agree(egg, found, copy)
                if kept and kept.content and not kept.described:
                    self._eggs.describe(egg, kept.content, spiders)
            case Standing.NEWER:
                self._ship(egg, kept, spiders)
            case Standing.REPLACED | Standing.DELETED:
                if copy is None or not copy.outdated or copy.has != found.sha256:
                    self._copies.mark_outdated(self._node, egg, found.sha256)

    def _agree(self, egg: Egg, found: EggOnNode, copy: EggCopy | None) -> None:
        settled = copy is not None and copy.has == found.sha256 and copy.known == [found.sha256] and not copy.outdated
        if not settled or (copy and copy.sha256):
            self._copies.agree(self._node, egg, found.sha256)

    def _ship(self, egg: Egg, kept: KeptEgg | None, spiders: list[SpiderInfo]) -> bool:
        """Store the egg. Returns false if another process has deployed this version since `kept` was read."""
        path = self._path(egg)
        try:
            content = self._eggs.write(path)
        except EggTooLargeError as error:
            if str(path) not in self._too_large:
                self._too_large.add(str(path))
                log.error("egg_not_kept", project=egg.project, version=egg.version, error=str(error))  # noqa: TRY400 - no traceback
            return True
        if not self._releases.release(egg, content, kept, spiders):
            # another process was faster; the next round compares again
            self._eggs.discard(content)
            return False
        self._copies.agree(self._node, egg, content.sha256)
        log.info("egg_kept", project=egg.project, version=egg.version, size=content.size, sha256=content.sha256)
        return True

    def _removed(self, egg: Egg, copy: EggCopy | None, kept: KeptEgg | None) -> None:
        """Handle an egg that was removed on this node with Scrapyd's own tools: if no other node has it, it is
        deleted from the platform.
        """
        if copy is None or copy.outdated or kept is None or kept.content is None:
            return
        if any(other.has for node, other in self._copies.of_egg(egg).items() if node != self._node):
            return
        log.info("egg_deleted", project=egg.project, version=egg.version)
        self._releases.delete(egg, kept)

    def _on_node(self, egg: Egg, *, settled: bool = False) -> EggOnNode | None:
        """The egg as it is on this node; `None` if there is none. `None` also for a file that has just arrived,
        unless `settled` is set, because the catalogue might still describe the file before it.
        """
        path = self._path(egg)
        try:
            found = path.lstat()
            # the stamp changes when the file is replaced
            stamp = (found.st_ino, found.st_size, found.st_mtime_ns)
            known = self._hashed.get(egg)
            if known is None or known[0] != stamp:
                if not settled and abs(time.time() - found.st_mtime) < SETTLE:
                    return None
                deployed_at = datetime.fromtimestamp(found.st_mtime, UTC)
                known = self._hashed[egg] = stamp, EggOnNode(_sha256(path), deployed_at)
        except (FileNotFoundError, HostileFileError):
            self._hashed.pop(egg, None)
            return None
        return known[1]

    def _path(self, egg: Egg) -> Path:
        return self._folder / egg.project / f"{egg.version}.egg"


@state_change("tailer.note_deployment")
def _note(home: Path, number: int) -> None:
    write_atomically(home / NOTED, NotedDeployment(number=number).model_dump_json().encode())


def _by_egg(infos: list[SpiderInfo]) -> dict[Egg, list[SpiderInfo]]:
    found: dict[Egg, list[SpiderInfo]] = {}
    for info in infos:
        if info.version is not None and is_file_name(egg := Egg(info.project, info.version)):
            found.setdefault(egg, []).append(info)
    return found


def _sha256(path: Path) -> str:
    with os.fdopen(open_file(path), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
