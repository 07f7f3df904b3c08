"""A dependency container. It builds the parts of a process, each when it is first used, and closes them at the end.

Each process (gateway, worker, beat, tailer, CLI) has one container. `Container(settings)[Dispatch]` is its
`Dispatch`. A part is built from the annotations of its constructor. A parameter gets

- the part of its class, if the class is ours, or if an attribute below is declared as a `part` of this class;
- otherwise the attribute with the same name, such as `clock` or `dead_after`;
- otherwise its default. If it has none, this is an error.

So only parts that depend on a setting, implement a protocol or must be closed are defined below. A process that needs
other parts derives a class from `Container`. A test replaces a part before it is used: by name (`parts.clock = …`)
or by class (`parts[Dispatch] = …`).

This module imports only classes that every process needs. Other classes are imported by the code that asks for them.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta
from inspect import Parameter, getattr_static, signature
from types import SimpleNamespace, UnionType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar, get_args, get_origin, get_type_hints

import attrs

from gateway.contract.public_address import Network
from gateway.errors import SecretsKeyError, SettingsError
from gateway.settings import Settings
from gateway.stores.mongo import Document, ServerClock, connect

if TYPE_CHECKING:
    from celery import Celery
    from pymongo.database import Database
    from redis import Redis

    from gateway.access.invitation import NodeVariables
    from gateway.clock import Clock
    from gateway.dispatch.egg_delivery import DeployFailures
    from gateway.dispatch.fair_queue import FairQueue
    from gateway.exports.export import ExportPlaces
    from gateway.files.store import FilesPlace
    from gateway.items.table_files import TableSpace
    from gateway.jobs.admission import Quotas
    from gateway.jobs.messages import EventPublisher, Waker
    from gateway.nodes.node import NodeList
    from gateway.nodes.scrapyd import ScrapydClient
    from gateway.projects.environment import SecretBox
    from gateway.retention.retention import Keep
    from gateway.schedules.firing import TargetMarks
    from gateway.schedules.orders import RunOrders
    from gateway.signals.delivering import OutgoingCaller


class Closable(Protocol):
    """An object that the container closes at its end."""

    def close(self) -> object: ...


Part = TypeVar("Part")
Opened = TypeVar("Opened", bound=Closable)

#: One reentrant lock for all parts, because building a part asks for other parts.
_LOCK = threading.RLock()


class value(Generic[Part]):  # noqa: N801 - a decorator, like functools.cached_property
    """An attribute of a container, for parameters with the same name.

    It works like `cached_property`, but with a lock: since Python 3.12, `cached_property` lets two threads build the
    value twice, and so open two connection pools.
    """

    def __init__(self, build: Callable[[Any], Part]) -> None:
        self._build = build
        #: The name of the value's class, as annotated.
        self.kind = str(build.__annotations__["return"]).partition("[")[0]

    def __set_name__(self, _owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, _owner: type | None = None) -> Part:
        with _LOCK:
            # once the value is in the instance's dictionary, Python finds it without calling this method
            parts: dict[str, Part] = vars(instance)
            if self._name not in parts:
                parts[self._name] = self._build(instance)
            return parts[self._name]


class part(value[Part]):  # noqa: N801 - as above
    """An attribute of a container, for parameters of its class (for `Database[Document]`: `Database`) with
    any name.
    """


class Builder:
    """Finds and builds parts of any class."""

    #: The attributes that are parts, by the names of their classes.
    _names: ClassVar[dict[str, str]] = {}

    def __init_subclass__(cls) -> None:
        cls._names = cls._names | {one.kind: name for name, one in vars(cls).items() if isinstance(one, part)}

    def __init__(self) -> None:
        self._parts: dict[type[Any], Any] = {}
        self._end = ExitStack()

    def __getitem__(self, kind: type[Part]) -> Part:
        """The part of this class. It is the same object for all threads."""
        if kind not in self._parts:
            with _LOCK:
                if kind not in self._parts:
                    name = self._names.get(kind.__name__)
                    self._parts[kind] = getattr(self, name) if name else self.build(kind)
        found: Part = self._parts[kind]
        return found

    def __setitem__(self, kind: type[Part], made: Part) -> None:
        self._parts[kind] = made
        if name := self._names.get(kind.__name__):
            setattr(self, name, made)

    def __contains__(self, kind: type[Any]) -> bool:
        """Whether a part of this class exists already."""
        return kind in self._parts

    def build(self, kind: type[Part], **given: Any) -> Part:
        """Build a new object from the `given` arguments and from parts. Raises `TypeError` if one is missing."""
        hints = _hints(kind)
        for name, parameter in signature(kind).parameters.items():
            if name not in given:
                self._add(given, kind, parameter, hints.get(name))
        return kind(**given)

    def _add(self, given: dict[str, Any], kind: type[Any], parameter: Parameter, hint: Any) -> None:
        name = parameter.name
        # `X | None` counts as X
        wanted = get_args(hint)[0] if isinstance(hint, UnionType) else get_origin(hint) or hint
        attribute = self._names.get(getattr(wanted, "__name__", ""))
        if attribute is not None:
            given[name] = getattr(self, attribute)
        elif isinstance(wanted, type) and wanted.__module__.startswith("gateway."):
            given[name] = self[wanted]
        elif isinstance(getattr_static(type(self), name, None), value):
            given[name] = getattr(self, name)
        elif parameter.default is Parameter.empty:
            raise TypeError(f"{kind.__name__}: nothing is known for {name}: {hint}")

    def opened(self, made: Opened) -> Opened:
        """Register `made` to be closed at the end, in reverse order, and return it."""
        self._end.callback(made.close)
        return made

    def close(self) -> None:
        self._end.close()


def _hints(kind: type[Any]) -> dict[str, Any]:
    """The types of the constructor's parameters, by name."""
    if not attrs.has(kind):
        return get_type_hints(kind.__init__)
    # constructors made by attrs do not have the module of the class, in which the names of types are looked up
    own = {field.alias: field.type for field in attrs.fields(kind) if field.init}
    known: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        known |= vars(sys.modules[base.__module__])
    return get_type_hints(SimpleNamespace(__annotations__=own), known)


class Container(Builder):
    """The parts that all processes share. A store is connected only when a part that needs it is used."""

    def __init__(self, settings: Settings | None = None) -> None:
        super().__init__()
        self._traces: Closable | None = None
        if settings is not None:
            self.settings = settings

    def start_traces(self, process: str) -> None:
        """Let the process make spans under this name, if traces are on. Must be called after the last fork."""
        if (endpoint := self.settings.otel_exporter_otlp_endpoint) is not None:
            from gateway.tracing import Tracing

            self[Tracing] = self._traces = Tracing(str(endpoint), f"discoverybot-{process}")

    def end_traces(self) -> None:
        """Send the remaining spans."""
        if self._traces is not None:
            self._traces.close()

    # --- values for parameters with these names, whose classes are not ours

    @value
    def settings(self) -> Settings:
        """The settings in the environment. Raises `SettingsError`."""
        return Settings.load()

    @value
    def mongo_uri(self) -> str:
        return self.settings.mongo_uri

    @value
    def clock(self) -> Clock:
        """The clock that all parts use: MongoDB's time."""
        return self[ServerClock]

    @value
    def dead_after(self) -> timedelta:
        return timedelta(seconds=self.settings.node_dead_after)

    @value
    def node_dead_after(self) -> timedelta:
        return self.dead_after

    @value
    def pause_limit(self) -> timedelta:
        return timedelta(days=self.settings.paused_job_days)

    @value
    def allowed_networks(self) -> tuple[Network, ...]:
        return self.settings.allowed_networks

    @value
    def webhook_networks(self) -> tuple[Network, ...]:
        return self.settings.webhook_networks

    @value
    def public_url(self) -> str:
        return self.settings.public_address

    @value
    def job_timeout(self) -> int:
        return self.settings.job_timeout

    @value
    def job_max_timeout(self) -> int:
        return self.settings.job_max_timeout

    # --- stores

    def connected(self, database: Database[Document]) -> Database[Document]:
        """Register the database's client to be closed at the end, and return the database."""
        self.opened(database.client)
        return database

    @part
    def database(self) -> Database[Document]:
        return self.connected(connect(self.mongo_uri))

    @part
    def redis(self) -> Redis:
        from gateway.stores.redis import connect as connect_redis

        return self.opened(connect_redis(self.settings.redis_location))

    @part
    def celery(self) -> Celery:
        """The Celery app with which messages are sent."""
        from gateway.jobs.messages import create_producer

        return create_producer(self.settings.broker_location, self.settings.queue_name)

    @part
    def waker(self) -> Waker:
        from gateway.jobs.messages import CeleryWaker

        return self.opened(CeleryWaker(self.celery))

    @part
    def deploy_failures(self) -> DeployFailures:
        from gateway.signals.deployments import DeploySignals

        return self[DeploySignals]

    @part
    def publisher(self) -> EventPublisher:
        from gateway.jobs.messages import EventPublisher

        return self.opened(EventPublisher(self.redis))

    # --- nodes

    @part
    def node_list(self) -> NodeList:
        from gateway.nodes.node import NodeList

        return NodeList(self.settings.scrapyd_url)

    @part
    def node_variables(self) -> NodeVariables:
        from gateway.access.invitation import NodeVariables, is_for_nodes

        settings = self.settings
        stores = {
            "MONGO_URI": self.mongo_uri,
            "REDIS_URL": settings.redis_location,
            "BROKER_URL": settings.broker_location,
        }
        told = {name: url for name, url in stores.items() if is_for_nodes(url)}
        of_files = {"FILES_ACCESS_KEY", "FILES_SECRET_KEY"} if settings.files_secret_key else frozenset[str]()
        common = {"queue_name", "scrapyd_username", "scrapyd_password", "files_url", "files_endpoint", "files_region"}
        shared = settings.model_dump(include=common)
        if settings.files_location.startswith("file:"):
            del shared["files_url"]
        return NodeVariables(
            {**told, **{name.upper(): text for name, value in shared.items() if (text := _plain(value))}},
            frozenset(stores.keys() - told.keys() | of_files),
            settings.files_location,
        )

    @part
    def scrapyd(self) -> ScrapydClient:
        from gateway.nodes.scrapyd import ScrapydClient

        settings = self.settings
        return self.opened(ScrapydClient(settings.scrapyd_username, settings.scrapyd_password.get_secret_value()))

    # --- files

    @part
    def files_place(self) -> FilesPlace:
        from gateway.files.store import FilesPlace

        settings = self.settings
        endpoint, secret_key = settings.files_endpoint, settings.files_secret_key
        return FilesPlace(
            settings.files_location,
            endpoint=str(endpoint).rstrip("/") if endpoint else None,
            region=settings.files_region,
            access_key=settings.files_access_key,
            secret_key=secret_key.get_secret_value() if secret_key else None,
        )

    @part
    def export_places(self) -> ExportPlaces:
        from gateway.exports.export import ExportPlaces

        return ExportPlaces(self.settings.export_to)

    @part
    def table_space(self) -> TableSpace:
        from gateway.items.table_files import TableSpace

        space = TableSpace(self.settings.tables_folder, self.settings.table_max_bytes)
        space.remove_leftovers()
        return space

    # --- projects

    @part
    def secret_box(self) -> SecretBox:
        from gateway.projects.environment import SecretBox

        return SecretBox(self._secrets_keys)

    def _secrets_keys(self) -> tuple[str, ...]:
        """The keys for secrets. They are read only when needed, because most installations have no secrets. Raises
        `SecretsKeyError`.
        """
        try:
            return self.settings.secrets_keys
        except SettingsError as error:
            raise SecretsKeyError(str(error)) from None

    # --- jobs

    @part
    def quotas(self) -> Quotas:
        from gateway.jobs.admission import Quotas

        return Quotas(
            queue=self.settings.crawl_queue_max,
            waiting=self.settings.crawl_user_waiting_max,
            schedules=self.settings.crawl_user_schedules_max,
            begun=self.settings.crawl_user_scheduled_per_minute,
        )

    @part
    def fair_queue(self) -> FairQueue:
        from gateway.dispatch.fair_queue import FairQueue

        return self.build(FairQueue, most=self.settings.crawl_user_running_max)

    @part
    def webhook_caller(self) -> OutgoingCaller:
        from gateway.signals.webhook_caller import WebhookCaller

        return WebhookCaller(self.webhook_networks)

    @part
    def keep(self) -> Keep:
        from gateway.retention.retention import Keep

        return Keep(
            jobs=timedelta(days=self.settings.job_retention_days),
            items=timedelta(days=self.settings.item_retention_days),
            logs=timedelta(days=self.settings.log_retention_days),
            audit=timedelta(days=self.settings.audit_retention_days),
            changes=timedelta(days=self.settings.change_retention_days),
            deliveries=timedelta(days=self.settings.delivery_retention_days),
        )

    # --- schedules

    @part
    def occurrence_orders(self) -> RunOrders:
        """Orders for schedules of crawls and for schedules of sites."""
        from gateway.schedules.orders import AllOrders
        from gateway.sites.crawl import SiteOrders

        return self.build(AllOrders, sites=self[SiteOrders])

    @part
    def target_marks(self) -> TargetMarks:
        from gateway.sites.store import TargetStore

        return self[TargetStore]


def _plain(value: Any) -> str:
    return str(value.get_secret_value() if hasattr(value, "get_secret_value") else value or "")
