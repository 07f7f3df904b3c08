"""What can be asked for: projects, their versions, their spiders, and whether a crawl suits the one it names."""

from __future__ import annotations

import re
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from packaging.version import InvalidVersion, Version
from pymongo.errors import ConnectionFailure, PyMongoError

from gateway.domain.errors import InvalidRequestError, StartingError
from gateway.domain.job import DEFAULT_PROJECT, CrawlSpec
from gateway.domain.node_files import SpiderInfo
from gateway.domain.param_formats import RESERVED_PARAMS
from gateway.domain.public_address import Network, ascii_host
from gateway.services.parameter_check import ParameterCheck
from gateway.storage.client import truth_store_errors
from gateway.storage.spiders import SpiderStore

#: Our own project's name to the world; Scrapyd and scrapy.cfg call it `default`.
PROJECT_ALIASES = {"discoverybot": DEFAULT_PROJECT, DEFAULT_PROJECT: DEFAULT_PROJECT}
_REFRESH_SECONDS = 2.0
#: Ours change with a release of the platform alone.
_OURS_SECONDS = 30.0
#: What has just been deployed must not be called unknown; a client that asks for nonsense must not cost a query each.
_REFUSAL_MAX_AGE = 0.2
#: Names in one refusal.
_MOST_NAMES = 50


def project_name(name: str | None) -> str:
    if not name:
        return DEFAULT_PROJECT
    return PROJECT_ALIASES.get(name.lower(), name)


class Project(NamedTuple):
    """One deployed project. Our own has no versions."""

    name: str
    #: What a crawl that names no version gets.
    latest: str | None
    versions: tuple[str, ...]


class SpiderCatalog:
    def __init__(
        self,
        store: SpiderStore,
        allowed_networks: Iterable[Network] = (),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._parameters = ParameterCheck(allowed_networks)
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._read_at = float("-inf")
        self._infos: list[SpiderInfo] = []
        self._failed_at = float("-inf")

    def all(self, *, max_age: float = _REFRESH_SECONDS) -> list[SpiderInfo]:
        """Every known spider of every version, as of at most `max_age` seconds ago; one version is each project's
        latest, whatever nodes that missed a deployment say.

        Whoever waited for another's read that failed is told so too: one after the other, each would wait as long.
        """
        asked_at = self._monotonic()
        with self._lock:
            if self._monotonic() - self._read_at > max_age:
                if self._failed_at > asked_at:
                    raise ConnectionFailure("the spiders could not be read")
                self._infos = self._read()
                # until a node has published ours, each request may be the first that it can be told from
                self._read_at = self._monotonic() if _has_ours(self._infos) else float("-inf")
            return self._infos

    def _read(self) -> list[SpiderInfo]:
        try:
            return _with_one_latest(self._store.all())
        except PyMongoError:
            self._failed_at = self._monotonic()
            raise

    def select(
        self, *, project: str | None = None, version: str | None = None, name: str | None = None
    ) -> list[SpiderInfo]:
        """Those that fit."""
        return [
            info
            for info in self.all()
            if (project is None or info.project.lower() == project.lower())
            and (version is None or _is_version(info, version))
            and (name is None or info.name == name)
        ]

    def projects(self) -> list[Project]:
        """By name."""
        infos = self.all()
        return [_project(name, infos) for name in sorted({info.project for info in infos})]

    def pin(self, spec: CrawlSpec) -> CrawlSpec:
        """`spec` with its project's name as it is spelled there, and with the very version that will be run: every
        attempt runs the same code, and the same request after a new deployment is another one.

        Our own project has no versions: nothing is looked up. Raises `InvalidRequestError` that names the field and
        lists what exists, `UnavailableError`.
        """
        if spec.project == DEFAULT_PROJECT:
            if spec.version is not None:
                raise InvalidRequestError("version", "our own project has none: leave it out")
            return spec
        with truth_store_errors():
            project = self._find_project(spec.project)
            version = _match(spec.version, project.versions) if spec.version else project.latest
            if version is None:
                raise _unknown("version", str(spec.version), project.versions, f" of project {project.name!r}")
        return spec.model_copy(update={"project": project.name, "version": version})

    def check(self, spec: CrawlSpec) -> None:
        """Whether the spider of a pinned `spec` exists and takes these parameters and start URLs.

        Raises `InvalidRequestError` that names the field and lists what exists, `ForbiddenAddressError`,
        `StartingError`.
        """
        info = self.require(spec)
        if info.params_schema is None:
            _check_free_form(spec.params)
        else:
            self._parameters.check(spec.params, info.params_schema)
        _check_domains(spec.start_urls, info)

    def require(self, spec: CrawlSpec) -> SpiderInfo:
        """What a pinned `spec` would run. Raises `InvalidRequestError` as `check` does."""
        max_age = _OURS_SECONDS if spec.project == DEFAULT_PROJECT else _REFRESH_SECONDS
        info = _find(spec, self.all(max_age=max_age)) or _find(spec, self.all(max_age=_REFUSAL_MAX_AGE))
        if info is None:
            raise self._refusal(spec)
        return info

    def _find_project(self, name: str) -> Project:
        for max_age in (_REFRESH_SECONDS, _REFUSAL_MAX_AGE):
            infos = self.all(max_age=max_age)
            names = {info.project for info in infos}
            alike = [one for one in sorted(names) if one.lower() == name.lower()]
            if alike:
                return _project(name if name in names else alike[0], infos)
        self._require_published(infos)
        raise _unknown("project", name, names)

    def _require_published(self, infos: Iterable[SpiderInfo]) -> None:
        """Nothing is unknown before there was a node to tell. Raises `StartingError`."""
        # spiders of our own project are nowhere but on nodes; those of kept eggs may be known before there are any
        if not _has_ours(infos) and not self._store.nodes():
            raise StartingError

    def _refusal(self, spec: CrawlSpec) -> InvalidRequestError:
        infos = self._infos
        self._require_published(infos)
        of_project = [info for info in infos if info.project == spec.project]
        if infos and not of_project:
            return _unknown("project", spec.project, {info.project for info in infos})
        versions = {info.version for info in of_project if info.version}
        where = "" if spec.project == DEFAULT_PROJECT else f" of project {spec.project!r}"
        if spec.version and spec.version not in versions:
            return _unknown("version", spec.version, versions, where)
        where += f", version {spec.version!r}" if spec.version else ""
        known = {info.name for info in of_project if info.version == spec.version}
        return _unknown("spider", spec.spider, known, where)


def _has_ours(infos: Iterable[SpiderInfo]) -> bool:
    return any(info.project == DEFAULT_PROJECT for info in infos)


def _with_one_latest(infos: list[SpiderInfo]) -> list[SpiderInfo]:
    versions: defaultdict[str, set[str]] = defaultdict(set)
    for info in infos:
        if info.version:
            versions[info.project].add(info.version)
    latest = {project: _oldest_first(known)[-1] for project, known in versions.items()}
    return [
        info.model_copy(update={"latest": info.version == latest[info.project]}) if info.project in latest else info
        for info in infos
    ]


def _oldest_first(versions: Iterable[str]) -> list[str]:
    """As every node's Scrapyd sorts them, because it is a node that says which one is the latest."""
    # by name first: 1.0 and 1.0.0 are equal, and shall not change places from one answer to the next
    by_name = sorted(versions)
    try:
        return sorted(by_name, key=Version)
    except InvalidVersion:
        return by_name


def _project(name: str, infos: Iterable[SpiderInfo]) -> Project:
    mine = [info for info in infos if info.project == name]
    versions = _oldest_first({info.version for info in mine if info.version})
    latest = next((info.version for info in mine if info.latest and info.version), None)
    return Project(name, latest or (versions[-1] if versions else None), tuple(versions))


def _match(version: str, versions: Iterable[str]) -> str | None:
    """A node keeps what no file should be called as `_`."""
    spellings = (version, re.sub(r"[^A-Za-z0-9_.+-]", "_", version))
    return next((one for one in spellings if one in versions), None)


def _is_version(info: SpiderInfo, version: str) -> bool:
    return _match(version, (info.version or "",)) is not None


def _find(spec: CrawlSpec, infos: list[SpiderInfo]) -> SpiderInfo | None:
    wanted = (spec.project, spec.version, spec.spider)
    return next((info for info in infos if (info.project, info.version, info.name) == wanted), None)


def _unknown(field: str, name: str, known: Iterable[str], where: str = "") -> InvalidRequestError:
    names = sorted(known)[:_MOST_NAMES]
    hint = f"there is {', '.join(names)}" if names else "there is none"
    return InvalidRequestError(
        field, f"unknown {field} {name!r}{where}; {hint}", detail={"field": field, "known": names}
    )


def _check_domains(urls: Iterable[str], info: SpiderInfo) -> None:
    """The spider would fetch what lies elsewhere, and then drop every link on it without a word."""
    # Scrapy leaves out addresses and ports, which some write there
    domains = {ascii_host(domain.lower()) for domain in info.allowed_domains if not set(domain) & set("/:")}
    if not domains:
        return
    for index, url in enumerate(urls):
        if domains.isdisjoint(_host_and_parents(url)):
            field = f"start_urls.{index}"
            detail = {"field": field, "known": info.allowed_domains}
            message = f"spider {info.name!r} keeps to {', '.join(info.allowed_domains[:_MOST_NAMES])}"
            raise InvalidRequestError(field, message, detail=detail)


def _host_and_parents(url: str) -> Iterator[str]:
    """`a.b.c`, `b.c`, `c`."""
    name = ascii_host((urlsplit(url).hostname or "").rstrip(".")).lower()
    while name:
        yield name
        name = name.partition(".")[2]


def _check_free_form(params: dict[str, Any]) -> None:
    for name, value in params.items():
        if name in RESERVED_PARAMS or name.startswith("_"):
            raise InvalidRequestError(f"params.{name}", "this name is taken by Scrapy, the spider or the platform")
        if not isinstance(value, str):
            raise InvalidRequestError(f"params.{name}", "a deployed spider's parameters are strings")
