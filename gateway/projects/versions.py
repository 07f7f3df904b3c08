"""Which version of each project is the latest: the one that was deployed last, or to which somebody has gone back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from attrs import define
from packaging.version import InvalidVersion, Version
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

#: Versions of one project that are remembered; those of longer ago are in the order of their names.
_REMEMBERED = 1000
#: Rounds in which two deployments may change the same project.
_MAX_ROUNDS = 20


class ProjectVersions(NamedTuple):
    """What is remembered of one project's versions."""

    project: str
    #: In the order in which they were deployed.
    deployed: tuple[str, ...] = ()
    #: The last one is the latest; going back takes it away.
    history: tuple[str, ...] = ()
    #: Versions that were deployed with several contents, and how often another one has come.
    replaced: tuple[tuple[str, int], ...] = ()
    rev: int = 0

    def order(self, versions: Iterable[str]) -> list[str]:
        """Sorts them by their deployment, the first one first; versions from before this was noted come by name."""
        places = {version: place for place, version in enumerate(self.deployed)}
        return sorted(oldest_first(versions), key=lambda version: places.get(version, -1))

    def latest(self, versions: Iterable[str]) -> str | None:
        """The latest one of those that are there."""
        return next(reversed(self._history(versions)), None)

    def previous(self, versions: Iterable[str]) -> str | None:
        """The one of those that are there to which one would go back."""
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
        """Going back forgets what was the latest since: the next step back leads to what was before."""
        if version not in self.history:
            return self._replace(history=_moved(version, self.history))
        return self._replace(history=self.history[: self.history.index(version) + 1])

    def without(self, version: str) -> ProjectVersions:
        return self._replace(deployed=_other(version, self.deployed), history=_other(version, self.history))


def _other(version: str, versions: Iterable[str]) -> tuple[str, ...]:
    return tuple(one for one in versions if one != version)


def _moved(version: str, versions: Iterable[str]) -> tuple[str, ...]:
    return (*_other(version, versions), version)[-_REMEMBERED:]


def oldest_first(versions: Iterable[str]) -> list[str]:
    """By their names, as Scrapyd sorts them: 1.10 comes after 1.9."""
    # by text first: 1.0 and 1.0.0 are equal, and shall not change places from one answer to the next
    by_name = sorted(versions)
    try:
        return sorted(by_name, key=Version)
    except InvalidVersion:
        return by_name


class VersionStore:
    """Every change also increases the `Revision`."""

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
        """Replace what is remembered of the project by what `decide` makes of it. Raises what `decide` raises, and
        `ConflictError`.
        """
        for _ in range(_MAX_ROUNDS):
            known = self._documents.optional(self._projects.find_one({"_id": project}))
            changed = decide(known or self._of_before(project))
            if self._write(changed, known):
                self._revision.increase()
                return changed
        raise ConflictError(f"versions of {project!r} are being deployed over and over; ask again")

    def _write(self, changed: ProjectVersions, known: ProjectVersions | None) -> bool:
        document: Document = {
            "deployed": list(changed.deployed),
            "history": list(changed.history),
            "replaced": [list(one) for one in changed.replaced],
            "rev": changed.rev + 1,
            "changed_at": self._clock(),
        }
        # an upsert that meets another revision under this id is refused
        query = {"_id": changed.project, "rev": known.rev if known else 0}
        try:
            result = self._projects.replace_one(query, document, upsert=known is None)
        except DuplicateKeyError:
            return False
        return bool(result.matched_count or result.upserted_id)

    def _of_before(self, project: str) -> ProjectVersions:
        """A project whose versions were deployed before this was noted: the highest name was the latest."""
        # what lies between is every `_id` that begins with the project and a slash
        query = {"_id": {"$gt": f"{project}/", "$lt": f"{project}0"}, "content": {"$ne": None}}
        versions = oldest_first(found["version"] for found in self._eggs.find(query, {"version": 1}))
        return ProjectVersions(project, tuple(versions), tuple(versions))


def _read(document: Document) -> ProjectVersions:
    deployed, history = tuple(document["deployed"]), tuple(document["history"])
    replaced = tuple((version, times) for version, times in document["replaced"])
    return ProjectVersions(document["_id"], deployed, history, replaced, document["rev"])


# --- releases: what a deployment changes, no matter who made it: the kept egg, the nodes that lack it, the latest


@define(eq=False, repr=False, slots=False)
class Releases:
    """Once a method has returned, the next crawl that is asked for goes by it, in every process and on every node."""

    _eggs: EggStore
    _copies: EggCopies
    _versions: VersionStore

    def release(self, egg: Egg, content: Content, before: KeptEgg | None, spiders: Sequence[SpiderInfo] = ()) -> bool:
        """Make this the version's content, and the version the latest, unless the version has changed since `before`
        was read; whether it was done.
        """
        if not self._eggs.put(egg, content, before, spiders):
            return False
        self._deployed(egg, content.sha256, other_content=before is not None)
        if before and before.content:
            self._eggs.discard(before.content)
        return True

    def repeat(self, egg: Egg, sha256: str) -> None:
        """The kept egg was deployed again, or whoever deployed it died before all was written."""
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
        """Make the one of the `known` versions the latest that was it before. Raises `ConflictError`."""

        def decide(versions: ProjectVersions) -> ProjectVersions:
            before = versions.previous(known)
            if before is None:
                raise ConflictError(f"no version of {project!r} was the latest before {versions.latest(known)!r}")
            return versions.with_latest(before)

        return self._versions.change(project, decide)
