"""The catalog of projects, versions and spiders with their parameters, and checks whether a requested crawl
can run.
"""

from __future__ import annotations

import functools
import re
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple, NoReturn
from urllib.parse import urlsplit, urlunsplit

import orjson
from attrs import define, field
from jsonschema import FormatChecker
from jsonschema.exceptions import SchemaError, ValidationError
from pymongo.errors import ConnectionFailure, PyMongoError

from gateway.clock import Clock, utc_now
from gateway.contract.crawl import DEFAULT_PROJECT, CrawlSpec, FetchOptions
from gateway.contract.json_schema import BoundedSchema, compile_schema
from gateway.contract.param_formats import FORMATS, RESERVED_PARAMS
from gateway.contract.public_address import Network, ascii_host, check_url
from gateway.contract.records import SpiderInfo
from gateway.errors import ForbiddenAddressError, InvalidRequestError, ProjectNotFoundError, StartingError
from gateway.nodes.store import NodeStore
from gateway.projects.eggs import SpiderStore
from gateway.projects.environment import ProjectEnvironment
from gateway.projects.versions import ProjectVersions, VersionStore
from gateway.stores.mongo import mongo_errors

#: How many schemas' validators are kept in memory; each spider of each version has a schema.
_KEPT_VALIDATORS = 256
#: Maximum number of bytes of JSON of the schema that a spider declares for its parameters.
MAX_SCHEMA = 128 << 10
#: Maximum number of characters of a sent value, and of a whole message, that an error contains.
_SHOWN_VALUE = 100
_SHOWN_MESSAGE = 400
_URL = "http-url"


class ParameterCheck:
    """Checks parameters against schemas, including formats. URLs must also lead to allowed addresses."""

    def __init__(self, allowed_networks: Iterable[Network] = ()) -> None:
        self._allowed = tuple(allowed_networks)
        self._formats = FormatChecker(formats=())
        for name in FORMATS:
            on_text = functools.partial(self._check_text, name)
            self._formats.checks(name, raises=(ValueError, InvalidRequestError))(on_text)
        self._schema = functools.lru_cache(_KEPT_VALIDATORS)(self._build)

    def check(self, params: dict[str, Any], schema: dict[str, Any]) -> None:
        """Raises `InvalidRequestError`, or `ForbiddenAddressError` for a URL. Both name the field.

        It stops at the first fault: a hostile sender could make a search for all faults take very long.
        """
        try:
            error = self._schema(orjson.dumps(schema)).first_error(params)
        except (SchemaError, RecursionError) as broken:
            raise InvalidRequestError("spider", "the schema of its parameters cannot be used") from broken
        if error is not None:
            _refuse(_culprit(error), sorted(schema.get("properties", {})))

    def _build(self, schema: bytes) -> BoundedSchema:
        """The compiled schema. To check that it is a valid schema takes about a second per 64 KB."""
        if len(schema) > MAX_SCHEMA:
            raise SchemaError("it is too large")
        return compile_schema(orjson.loads(schema), self._formats)

    def _check_text(self, name: str, value: object) -> bool:
        # formats apply only to strings; the schema's `type` refuses other values if they are not allowed
        if isinstance(value, str):
            FORMATS[name](value)
            if name == _URL:
                check_url("", value, self._allowed)
        return True


def _culprit(error: ValidationError) -> ValidationError:
    """The fault to report if a schema has alternatives for a value.

    "Is not valid under any of the given schemas" does not help a client. So this reports a fault by the alternative
    that the client meant: the one whose type fits the value, and whose tag fits, if objects have a constant as a tag.
    """
    while error.context:
        branches: dict[Any, list[ValidationError]] = defaultdict(list)
        for inner in error.context:
            branches[inner.schema_path[0]].append(inner)
        meant = [faults for faults in branches.values() if not any(_is_other_kind(fault) for fault in faults)]
        if not meant:
            return _no_alternative(error)
        error = min(meant, key=len)[0]
    return error


def _is_other_kind(fault: ValidationError) -> bool:
    return (fault.validator == "type" and not fault.path) or (fault.validator == "const" and len(fault.path) == 1)


def _no_alternative(error: ValidationError) -> ValidationError:
    """One error for all alternatives. It names their tags, or, if they have none, their types."""
    faults = [fault for fault in error.context or () if _is_other_kind(fault)]
    tagged = [fault for fault in faults if fault.validator == "const"]
    chosen = (tagged or faults)[0]
    names = dict.fromkeys(str(name) for fault in tagged or faults for name in _names(fault.validator_value))
    if not tagged:
        names.pop("null", None)
    words = "one of" if tagged else "of type"
    chosen.message = f"{_shown(chosen.instance)} is not {words} {', '.join(repr(name) for name in names)}"
    return chosen


def _names(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _refuse(error: ValidationError, known: list[str]) -> NoReturn:
    path = ["params", *(str(part) for part in error.absolute_path)]
    message = _message(error)
    sent: Any = error.instance
    if error.validator == "additionalProperties" and isinstance(error.schema, dict):
        known = sorted(error.schema.get("properties", {}))
        path += sorted(set(sent) - set(known))[:1]
        message = f"there is no such parameter; there is {', '.join(known)}" if known else "takes no parameters"
    elif error.validator == "required":
        path += [name for name in _names(error.validator_value) if name not in sent][:1]
        message = "is required"
    field = ".".join(path)
    kind = ForbiddenAddressError if isinstance(error.cause, ForbiddenAddressError) else InvalidRequestError
    raise kind(field, message, detail={"field": field, "known": known})


def _message(error: ValidationError) -> str:
    if isinstance(error.cause, InvalidRequestError):
        return error.cause.problem
    message = str(error.cause) if error.cause else error.message.replace(repr(error.instance), _shown(error.instance))
    return message if len(message) <= _SHOWN_MESSAGE else f"{message[:_SHOWN_MESSAGE]}…"


def _shown(value: Any) -> str:
    text = repr(value)
    if len(text) <= _SHOWN_VALUE:
        return text
    return "the object" if isinstance(value, dict) else "the list" if isinstance(value, list) else f"{text[:60]}…"


# --- projects, their versions and their spiders

#: Seconds after which everything is read again, even if nothing was deployed: nodes of release 0.2.0 and older do not
#: increase the revision when they publish their spiders.
_REFRESH_SECONDS = 30.0
#: Before a spider is called unknown, the list is read again if it is older than this many seconds, because such a
#: node may have published the spider. It is not 0: otherwise each request for a wrong name would read everything.
_REFUSAL_MAX_AGE = 2.0
#: How many names a refusal lists.
_MOST_NAMES = 50


def project_name(name: str | None) -> str:
    """The stored name of a project. The default project is called `discoverybot` in the API, but `default` in Scrapyd
    and scrapy.cfg, and here.
    """
    return DEFAULT_PROJECT if not name or name.lower() in {"discoverybot", DEFAULT_PROJECT} else name


class Project(NamedTuple):
    """One project. The default project has no versions."""

    name: str
    #: The version that runs if a crawl names none.
    latest: str | None
    #: The version to which a rollback leads; `None` if there is none.
    previous: str | None
    #: In the order of their deployment.
    versions: tuple[str, ...]


class _Listing:
    """All projects and spiders at one moment, by name. Each project has exactly one latest version, whatever its
    nodes report.
    """

    def __init__(self, infos: Sequence[SpiderInfo] = (), known: Mapping[str, ProjectVersions] | None = None) -> None:
        self._known = known or {}
        versions: defaultdict[str, set[str]] = defaultdict(set)
        for info in infos:
            versions[info.project].update([info.version] if info.version else ())
        self._projects = {name: self._project(name, there) for name, there in versions.items()}
        self.infos = [self._with_latest(info) for info in infos]
        self._by_key = {(info.project, info.version, info.name): info for info in self.infos}
        self._by_name: defaultdict[str, list[SpiderInfo]] = defaultdict(list)
        for info in self.infos:
            self._by_name[info.name].append(info)

    def _project(self, name: str, there: Iterable[str]) -> Project:
        known = self.remembered(name)
        versions = known.order(there)
        return Project(name, known.latest(versions), known.previous(versions), tuple(versions))

    def _with_latest(self, info: SpiderInfo) -> SpiderInfo:
        is_latest = info.version is None or info.version == self._projects[info.project].latest
        return info if info.latest == is_latest else info.model_copy(update={"latest": is_latest})

    def remembered(self, project: str) -> ProjectVersions:
        return self._known.get(project) or ProjectVersions(project)

    @property
    def has_ours(self) -> bool:
        return DEFAULT_PROJECT in self._projects

    @property
    def projects(self) -> list[Project]:
        """By name."""
        return [self._projects[name] for name in sorted(self._projects)]

    def project(self, name: str) -> Project | None:
        """The project with this name, or else the first one whose name differs only in case."""
        alike = (one for one in sorted(self._projects) if one.lower() == name.lower())
        return self._projects.get(name if name in self._projects else next(alike, name))

    def find(self, spec: CrawlSpec) -> SpiderInfo | None:
        """The spider that a pinned `spec` would run."""
        return self._by_key.get((spec.project, spec.version, spec.spider))

    def having(self, spider: str, version: str | None = None) -> list[str]:
        """The projects that have the spider in this version; without a `version`, in their latest version."""
        found = self._by_name.get(spider, ())
        return sorted(
            {info.project for info in found if (_match(version, (info.version or "",)) if version else info.latest)}
        )

    def names(self, project: str, version: str | None) -> list[str]:
        return sorted(name for of, its, name in self._by_key if (of, its) == (project, version))


@define(eq=False, repr=False, slots=False)
class SpiderCatalog:
    """All projects, versions and spiders that can be run. It is cached, and read again after each deployment."""

    _store: SpiderStore
    _versions: VersionStore
    _allowed_networks: Sequence[Network] = ()
    _monotonic: Callable[[], float] = time.monotonic
    _parameters: ParameterCheck = field(init=False)
    _lock: threading.Lock = field(init=False, factory=threading.Lock)
    _read_at: float = field(init=False, default=float("-inf"))
    _listing: _Listing = field(init=False, factory=_Listing)
    #: The revision for which the listing was read.
    _revision: int = field(init=False, default=-1)
    _failed_at: float = field(init=False, default=float("-inf"))

    def __attrs_post_init__(self) -> None:
        self._parameters = ParameterCheck(self._allowed_networks)

    def _at_most(self, max_age: float) -> _Listing:
        """A listing that is at most `max_age` seconds old.

        If a caller waits while another one reads, and the read fails, both fail. Otherwise all waiting callers would
        try one after the other, and each would have to wait until it fails.
        """
        asked_at = self._monotonic()
        with self._lock:
            if self._monotonic() - self._read_at > max_age:
                if self._failed_at > asked_at:
                    raise ConnectionFailure("the spiders could not be read")
                self._listing = self._read()
                # until a node has published the default project's spiders, read again for each request
                self._read_at = self._monotonic() if self._listing.has_ours else float("-inf")
            return self._listing

    def _current(self) -> _Listing:
        """A listing that contains all deployments that were answered before this call. Raises PyMongo's errors."""
        revision = self._versions.revision()
        with self._lock:
            if self._revision != revision:
                self._read_at = float("-inf")
        return self._at_most(_REFRESH_SECONDS)

    def _read(self) -> _Listing:
        try:
            # read the revision first: then after a deployment during this read, the next call reads again
            revision = self._versions.revision()
            listing = _Listing(self._store.all(), self._versions.all())
        except PyMongoError:
            self._failed_at = self._monotonic()
            raise
        self._revision = revision
        return listing

    def select(
        self, *, project: str | None = None, version: str | None = None, name: str | None = None
    ) -> list[SpiderInfo]:
        """The spiders of this project and version with this name. An argument that is `None` does not restrict."""
        return [
            info
            for info in self._current().infos
            if (project is None or info.project.lower() == project.lower())
            and (version is None or _match(version, (info.version or "",)))
            and (name is None or info.name == name)
        ]

    def projects(self) -> list[Project]:
        """All projects, by name."""
        return self._current().projects

    def project(self, name: str) -> Project:
        """The project with this name. Raises `ProjectNotFoundError`, `StartingError`, `UnavailableError`."""
        try:
            with mongo_errors():
                return self._find_project(project_name(name))[0]
        except InvalidRequestError:
            raise ProjectNotFoundError(name) from None

    def has_own(self, spider: str) -> bool:
        """Whether the default project has the spider, as far as is known without asking MongoDB."""
        return DEFAULT_PROJECT in self._listing.having(spider)

    def project_of(self, spider: str, version: str | None = None) -> str:
        """The project for a request that names none: the default project if it has the spider, otherwise the only
        project that has the spider in this version (without a `version`, in its latest).

        Raises `InvalidRequestError`, which names the projects if several have the spider, and all spiders if none has
        it; `StartingError`, `UnavailableError`.
        """
        with mongo_errors():
            found = self._current().having(spider, version) or self._fresh().having(spider, version)
            # if only the version is missing, a later check refuses the version
            found = found or self._listing.having(spider)
            if not found:
                raise self._unknown_anywhere(spider)
        if DEFAULT_PROJECT in found:
            return DEFAULT_PROJECT
        if len(found) > 1:
            detail = {"field": "project", "known": found}
            message = f"several projects have a spider {spider!r}: name one of {', '.join(found)}"
            raise InvalidRequestError("project", message, detail=detail)
        return found[0]

    def _fresh(self) -> _Listing:
        return self._at_most(_REFUSAL_MAX_AGE)

    def _unknown_anywhere(self, spider: str) -> InvalidRequestError:
        self._require_published(self._listing)
        infos = [info for info in self._listing.infos if info.latest]
        own = {info.name for info in infos if info.project == DEFAULT_PROJECT}
        # the default project's spiders first, because there may be thousands of others
        return _unknown("spider", spider, [*sorted(own), *sorted({info.name for info in infos} - own)])

    def pin(self, spec: CrawlSpec) -> CrawlSpec:
        """`spec` with the correct spelling of its project, and with the exact version to run. So all attempts run the
        same code, and after a new deployment the same request counts as a different one.

        The default project has no versions, so nothing is looked up for it. Raises `InvalidRequestError`, which names
        the field and lists what exists, and `UnavailableError`.
        """
        if spec.project == DEFAULT_PROJECT:
            if spec.version is not None:
                raise InvalidRequestError("version", "the platform's own project has no versions: leave it out")
            return spec
        with mongo_errors():
            project, remembered = self._find_project(spec.project)
            version = _match(spec.version, project.versions) if spec.version else project.latest
            if version is None:
                raise _unknown("version", str(spec.version), project.versions, f" of project {project.name!r}")
            replaced = remembered.replaced_times(version)
        return spec.model_copy(update={"project": project.name, "version": version, "replaced": replaced})

    def check(self, spec: CrawlSpec) -> None:
        """Check that the spider of a pinned `spec` exists and accepts its parameters and start URLs.

        Raises `InvalidRequestError`, which names the field and lists what exists, `ForbiddenAddressError`, and
        `StartingError`.
        """
        info = self.require(spec)
        _check_expectations(spec)
        _check_start(spec, info)
        if info.params_schema is None or info.project != DEFAULT_PROJECT:
            _check_free_form(spec.params, info)
        if info.params_schema is not None:
            self._parameters.check(spec.params, info.params_schema)
        _check_domains(spec.start_urls, info)

    def require(self, spec: CrawlSpec) -> SpiderInfo:
        """The spider that a pinned `spec` would run. Raises `InvalidRequestError` as `check` does."""
        info = self._at_most(_REFRESH_SECONDS).find(spec) or self._fresh().find(spec)
        if info is None:
            raise self._refusal(spec)
        return info

    def _find_project(self, name: str) -> tuple[Project, ProjectVersions]:
        for read in (self._current, self._fresh):
            listing = read()
            if found := listing.project(name):
                return found, listing.remembered(found.name)
        self._require_published(listing)
        raise _unknown("project", name, [one.name for one in listing.projects])

    def _require_published(self, listing: _Listing) -> None:
        """Raises `StartingError` if no node has published its spiders yet, so that no spider is called
        unknown then.
        """
        # the spiders of the default project come only from nodes; those of stored eggs are known without nodes
        if not listing.has_ours and not self._store.nodes():
            raise StartingError

    def _refusal(self, spec: CrawlSpec) -> InvalidRequestError:
        listing = self._listing
        self._require_published(listing)
        project = listing.project(spec.project)
        if project is None and listing.infos:
            return _unknown("project", spec.project, [one.name for one in listing.projects])
        versions = project.versions if project else ()
        where = "" if spec.project == DEFAULT_PROJECT else f" of project {spec.project!r}"
        if spec.version and spec.version not in versions:
            return _unknown("version", spec.version, sorted(versions), where)
        where += f", version {spec.version!r}" if spec.version else ""
        return _unknown("spider", spec.spider, listing.names(spec.project, spec.version), where)


def _match(version: str, versions: Iterable[str]) -> str | None:
    """The version among `versions` that is meant. Nodes replace characters that are not allowed in file
    names by `_`.
    """
    spellings = (version, re.sub(r"[^A-Za-z0-9_.+-]", "_", version))
    return next((one for one in spellings if one in versions), None)


def _unknown(field: str, name: str, known: Iterable[str], where: str = "") -> InvalidRequestError:
    names = list(known)[:_MOST_NAMES]
    hint = f"there is {', '.join(names)}" if names else "there is none"
    message = f"unknown {field} {name!r}{where}; {hint}"
    return InvalidRequestError(field, message, detail={"field": field, "known": names})


def _check_domains(urls: Iterable[str], info: SpiderInfo) -> None:
    """Refuse URLs outside the spider's domains: it would fetch them, but silently drop all links on these pages."""
    # some spiders' domains are URLs or have a port: Scrapy ignores them
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
    """The host of the URL and its parent domains: `a.b.c`, `b.c`, `c`."""
    name = ascii_host((urlsplit(url).hostname or "").rstrip(".")).lower()
    while name:
        yield name
        name = name.partition(".")[2]


def _check_expectations(spec: CrawlSpec) -> None:
    least = spec.expect.min_items if spec.expect else None
    if least is not None and spec.max_items is not None and least > spec.max_items:
        raise InvalidRequestError("expect.min_items", f"must not be above max_items, which is {spec.max_items}")


def _check_start(spec: CrawlSpec, info: SpiderInfo) -> None:
    if spec.start_urls:
        return
    if info.needs_urls:
        raise InvalidRequestError("start_urls", f"spider {info.name!r} has none of its own: name at least one")
    if spec.fetch and (spec.fetch.headers or spec.fetch.cookies):
        where = "fetch.headers" if spec.fetch.headers else "fetch.cookies"
        raise InvalidRequestError(where, "is only sent to the hosts of the request's start_urls: name at least one")


def _check_free_form(params: dict[str, Any], info: SpiderInfo) -> None:
    declared = (info.params_schema or {}).get("properties", {})
    for name, value in params.items():
        if name not in info.arguments and (name in RESERVED_PARAMS or name.startswith("_")):
            raise InvalidRequestError(f"params.{name}", "this name is taken by Scrapy, the spider or the platform")
        if name not in declared and not isinstance(value, str):
            raise InvalidRequestError(f"params.{name}", "a deployed spider's parameters are strings")


# --- refuses fetch options that cannot be met, as far as this is known before the crawl

PROXY = "fetch.proxy"


def check_fetch(options: FetchOptions | None, allowed: Iterable[Network] = (), *, renders: bool = False) -> None:
    """Raises `InvalidRequestError` for options that cannot be met, `ForbiddenAddressError` for a proxy that crawls
    may not reach. `renders`: the crawl uses a browser.
    """
    if options is None or options.proxy is None:
        return
    if renders:
        raise InvalidRequestError(PROXY, "a crawl that renders pages cannot use a proxy: its browser would ignore it")
    parts = urlsplit(options.proxy)
    # remove the proxy's password, because an error message would contain it
    check_url(PROXY, urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])), allowed)


# --- whether a crawl could be run, and may reach the addresses that the request names


@define(eq=False, repr=False, slots=False)
class WorkCheck:
    """Checks requested crawls. Each method raises `InvalidRequestError` or `ForbiddenAddressError`, which name the
    field.
    """

    _catalog: SpiderCatalog
    _nodes: NodeStore
    _environment: ProjectEnvironment
    _dead_after: timedelta
    _allowed_networks: Sequence[Network] = ()
    _webhook_networks: Sequence[Network] = ()
    _clock: Clock = utc_now

    def addresses(self, spec: CrawlSpec, webhooks: Iterable[str]) -> None:
        for check in self.address_checks(spec, webhooks):
            check()

    def address_checks(self, spec: CrawlSpec, webhooks: Iterable[str]) -> Iterator[Callable[[], None]]:
        """One check for each address that the request names."""
        for index, url in enumerate(spec.start_urls):
            yield functools.partial(check_url, f"start_urls.{index}", url, self._allowed_networks)
        yield functools.partial(check_fetch, spec.fetch, self._allowed_networks, renders=spec.renders)
        for url in webhooks:
            yield functools.partial(check_url, "webhook_url", url, self._webhook_networks, "WEBHOOK_ALLOW_NETWORKS")

    def pin(self, spec: CrawlSpec) -> CrawlSpec:
        """`spec` with the exact version that would run now."""
        return self._catalog.pin(spec)

    def means(self, pinned: CrawlSpec) -> None:
        """Check that the spider accepts the parameters, that a node could run the crawl, and that its settings and
        variables are allowed.
        """
        self._catalog.check(pinned)
        self._browser(pinned)
        self._environment.check(pinned)

    def still_means(self, spec: CrawlSpec) -> None:
        """As `means`, for the crawl of a job that has run before: it only needs its version, and perhaps a
        browser.
        """
        self._catalog.require(spec)
        self._browser(spec)

    def _browser(self, spec: CrawlSpec) -> None:
        """Check that a living node has a browser, if the crawl needs one."""
        if not spec.renders:
            return
        now = self._clock()
        if not any(
            node.max_render_slots and node.is_alive(now, self._dead_after) for node in self._nodes.all(attempts=False)
        ):
            raise InvalidRequestError(
                "params.render",
                "no crawl node renders pages: on one, install discoverybot[render] and a Chromium (or set "
                "CHROMIUM_PATH), and start it again",
            )


def unpinned(spec: CrawlSpec, pinned: CrawlSpec) -> CrawlSpec:
    """The spec for repeated runs: each run uses the version that is the latest then, unless the request named one."""
    return pinned.model_copy(update={"version": pinned.version if spec.version else None, "replaced": None})
