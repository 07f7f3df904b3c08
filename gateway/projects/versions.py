"""The versions of projects. The latest version is the one that was deployed or activated last."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from attrs import define
from packaging.version import InvalidVersion, Version
from pymongo import ASCENDING
from pymongo.database import Database
from pymongo.errors import DuplicateKeyError

from gateway.clock import Clock, utc_now
from gateway.contract.crawl import Egg
from gateway.contract.records import SpiderInfo
from gateway.crash_points import state_change
from gateway.errors import ConflictError, VersionNotFoundError
from gateway.projects.eggs import REVISION, Content, EggCopies, EggStore, KeptEgg, Revision
from gateway.stores.documents import Documents
from gateway.stores.mongo import Document

#: For how many versions of a project the order of deployment is remembered. Older versions are ordered by name.
_REMEMBERED = 1000
#: How often a change is tried while other deployments change the same project.
_MAX_ROUNDS = 20


class ProjectVersions(NamedTuple):
    """The record of one project's versions."""

    project: str
    #: In the order of their deployment.
    deployed: tuple[str, ...] = ()
    #: The versions that became the latest, in this order. The last one is the latest now; a rollback removes it.
    history: tuple[str, ...] = ()
    #: Versions that were deployed again with another content, and how often.
    replaced: tuple[tuple[str, int], ...] = ()
    rev: int = 0
    changed_at: datetime | None = None
    #: Whether a new latest version, or a new content of it, is still to be announced.
    untold: bool = False

    def order(self, versions: Iterable[str]) -> list[str]:
        """The versions in the order of their deployment. Versions whose deployment is not recorded come first,
        ordered by name.
        """
        places = {version: place for place, version in enumerate(self.deployed)}
        return sorted(oldest_first(versions), key=lambda version: places.get(version, -1))

    def latest(self, versions: Iterable[str]) -> str | None:
        """The latest of the existing `versions`; `None` if there are none."""
        return next(reversed(self._history(versions)), None)

    def previous(self, versions: Iterable[str]) -> str | None:
        """The version among the existing `versions` to which a rollback leads; `None` if there is none."""
        return next(iter(self._history(versions)[-2:-1]), None)

    def _history(self, versions: Iterable[str]) -> list[str]:
        ordered = self.order(versions)
        return [version for version in self.history if version in ordered] or ordered

    def replaced_times(self, version: str) -> int | None:
        return dict(self.replaced).get(version)

    def with_deployed(self, version: str, *, other_content: bool = False) -> ProjectVersions:
        replaced = dict(self.replaced)
        if other_content:
            replaced[version] = replaced.get(version, 0) + 1
        return self._replace(
            deployed=_moved(version, self.deployed),
            history=_moved(version, self.history),
            replaced=tuple(replaced.items())[-_REMEMBERED:],
        )

    def with_latest(self, version: str) -> ProjectVersions:
        """Make the version the latest. If it was the latest before, the versions that became the latest after it are
        removed from the history, so that the next rollback leads to the version before it.
        """
        if version not in self.history:
            return self._replace(history=_moved(version, self.history))
        return self._replace(history=self.history[: self.history.index(version) + 1])

    def without(self, version: str) -> ProjectVersions:
        return self._replace(deployed=_other(version, self.deployed), history=_other(version, self.history))

    @property
    def live(self) -> tuple[str, int] | None:
        """The latest version, and how often its content was replaced."""
        return next(((version, self.replaced_times(version) or 0) for version in self.history[-1:]), None)


def _other(version: str, versions: Iterable[str]) -> tuple[str, ...]:
    return tuple(one for one in versions if one != version)


def _moved(version: str, versions: Iterable[str]) -> tuple[str, ...]:
    return (*_other(version, versions), version)[-_REMEMBERED:]


def oldest_first(versions: Iterable[str]) -> list[str]:
    """The versions sorted by name, as Scrapyd sorts them: 1.10 comes after 1.9."""
    # sort by text first: 1.0 and 1.0.0 are equal as versions, and their order must always be the same
    by_name = sorted(versions)
    try:
        return sorted(by_name, key=Version)
    except InvalidVersion:
        return by_name


class VersionStore:
    """The collection `project_versions`. Every change also increases the `Revision`."""

    def __init__(self, database: Database[Document], clock: Clock = utc_now) -> None:
        self._projects = database["project_versions"]
        self._documents = Documents(self._projects, _read)
        self._revision = Revision(database)
        self._eggs = database["eggs"]
        self._clock = clock

    def revision(self) -> int:
        return self._revision.number()

    def all(self) -> dict[str, ProjectVersions]:
        found = self._documents.many(self._projects.find({"_id": {"$ne": REVISION}}))
        return {one.project: one for one in found}

    def get(self, project: str) -> ProjectVersions:
        found = self._documents.optional(self._projects.find_one({"_id": project}))
        return found or ProjectVersions(project)

    @state_change("versions.change")
    def change(self, project: str, decide: Callable[[ProjectVersions], ProjectVersions]) -> ProjectVersions:
        """Replace the project's record by what `decide` returns for it. `decide` may be called several times. Raises
        what `decide` raises, and `ConflictError`.
        """
        for _ in range(_MAX_ROUNDS):
            known = self._documents.optional(self._projects.find_one({"_id": project}))
            changed = decide(known or self._of_before(project))
            if self._write(changed, known):
                self._revision.increase()
                return changed
        raise ConflictError(f"the versions of {project!r} keep changing; ask again")

    def _write(self, changed: ProjectVersions, known: ProjectVersions | None) -> bool:
        document: Document = {
            "deployed": list(changed.deployed),
            "history": list(changed.history),
            "replaced": [list(one) for one in changed.replaced],
            "rev": changed.rev + 1,
            "changed_at": self._clock(),
        }
        before = known or ProjectVersions(changed.project)
        if changed.live and (before.untold or changed.live != before.live):
            document["untold"] = True
        # if another revision is stored, the upsert is refused as a duplicate
        query = {"_id": changed.project, "rev": known.rev if known else 0}
        try:
            result = self._projects.replace_one(query, document, upsert=known is None)
        except DuplicateKeyError:
            return False
        return bool(result.matched_count or result.upserted_id)

    def untold(self, limit: int) -> list[ProjectVersions]:
        """Projects with a new latest version, or a new content of it, that is not announced yet."""
        return self._documents.find({"untold": True}, limit, [("_id", ASCENDING)])

    @state_change("versions.told")
    def told(self, known: ProjectVersions) -> None:
        """Record that this revision is announced. Does nothing if there was another change since."""
        self._projects.update_one({"_id": known.project, "rev": known.rev}, {"$unset": {"untold": ""}})

    def _of_before(self, project: str) -> ProjectVersions:
        """The record for a project of an older release, which recorded no deployments: the highest name is the
        latest.
        """
        # these are all ids that begin with the project and a slash, because `0` follows `/` in ASCII
        query = {"_id": {"$gt": f"{project}/", "$lt": f"{project}0"}, "content": {"$ne": None}}
        versions = oldest_first(found["version"] for found in self._eggs.find(query, {"version": 1}))
        return ProjectVersions(project, tuple(versions), tuple(versions))


def _read(document: Document) -> ProjectVersions:
    deployed, history = tuple(document["deployed"]), tuple(document["history"])
    replaced = tuple((version, times) for version, times in document["replaced"])
    changed_at, untold = document.get("changed_at"), bool(document.get("untold"))
    return ProjectVersions(document["_id"], deployed, history, replaced, document["rev"], changed_at, untold)


# --- releases: everything that a deployment changes: the stored egg, the nodes' copies, and the latest version


@define(eq=False, repr=False, slots=False)
class Releases:
    """Deploys and removes versions. As soon as a method has returned, it takes effect for the next crawl, in all
    processes and on all nodes.
    """

    _eggs: EggStore
    _copies: EggCopies
    _versions: VersionStore

    def release(self, egg: Egg, content: Content, before: KeptEgg | None, spiders: Sequence[SpiderInfo] = ()) -> bool:
        """Make this the version's content, and the version the latest, unless the version has changed since `before`
        was read. Returns whether it was done.
        """
        if not self._eggs.put(egg, content, before, spiders):
            return False
        self._deployed(egg, content.sha256, other_content=before is not None)
        if before and before.content:
            self._eggs.discard(before.content)
        return True

    def repeat(self, egg: Egg, sha256: str) -> None:
        """Record that the stored egg was deployed again. This also completes a deployment whose process has died."""
        self._deployed(egg, sha256, other_content=False)

    def _deployed(self, egg: Egg, sha256: str, *, other_content: bool) -> None:
        self._copies.outdate(egg, sha256)
        self._versions.change(
            egg.project, lambda known: known.with_deployed(egg.version, other_content=other_content)
        )

    def delete(self, egg: Egg, kept: KeptEgg | None) -> None:
        self._eggs.delete(egg)
        self._versions.change(egg.project, lambda known: known.without(egg.version))
        if kept and kept.content:
            self._eggs.discard(kept.content)

    def activate(self, egg: Egg, known: Sequence[str]) -> ProjectVersions:
        """Make this one of the `known` versions the latest. Raises `VersionNotFoundError`, `ConflictError`."""
        if egg.version not in known:
            raise VersionNotFoundError(*egg)
        return self._versions.change(egg.project, lambda versions: versions.with_latest(egg.version))

    def roll_back(self, project: str, known: Sequence[str]) -> ProjectVersions:
        """Make the previous version the latest. `known` are the existing versions. Raises `ConflictError` if there is
        no previous version.
        """

        def decide(versions: ProjectVersions) -> ProjectVersions:
            before = versions.previous(known)
            if before is None:
                raise ConflictError(f"no version of {project!r} was the latest before {versions.latest(known)!r}")
            return versions.with_latest(before)

        return self._versions.change(project, decide)
