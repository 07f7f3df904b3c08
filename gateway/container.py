"""Puts the parts of a process together, each when it is first asked for, and takes them apart at its end.

There is one for each process: gateway, worker, beat, tailer, CLI. `Container(settings)[Dispatch]` is its `Dispatch`.
A part is built from the annotations of its constructor. A parameter gets

- the part of that class, if the class is ours, or if an attribute below is marked as such a `part`;
- else the attribute of the same name, such as `clock` or `dead_after`;
- else its default. Without one it is an error.

So only what depends on a setting, stands for a protocol or must be closed is written down below. A process that needs
something else derives from `Container`. A test sets what it wants to be used, before it is: by name
(`parts.clock = …`) or by class (`parts[Dispatch] = …`).

Nothing is imported here that not every process needs: whoever asks for a class has imported it.
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
from gateway.settings import Settings
from gateway.stores.mongo import Document, ServerClock, connect

if TYPE_CHECKING:
    from celery import Celery
    from pymongo.database import Database
    from redis import Redis

    from gateway.clock import Clock
    from gateway.contract.node_list import NodeList
    from gateway.dispatch.fair_queue import FairQueue
    from gateway.jobs.admission import Quotas
    from gateway.jobs.messages import Waker
    from gateway.nodes.scrapyd import ScrapydClient
    from gateway.retention.retention import Keep
    from gateway.schedules.firing import TargetMarks
    from gateway.schedules.orders import OccurrenceOrders
    from gateway.signals.webhooks import Caller


class Closable(Protocol):
    def close(self) -> object: ...


Part = TypeVar("Part")
Opened = TypeVar("Opened", bound=Closable)

#: One for all, because building one part asks for others.
_LOCK = threading.RLock()


class value(Generic[Part]):  # noqa: N801 - a decorator, like functools.cached_property
    """An attribute of a container that is for parameters of its name.

    As `cached_property`, which from Python 3.12 on lets two threads build two: two pools of connections, say.
    """

    def __init__(self, build: Callable[[Any], Part]) -> None:
        self._build = build
        #: Its class, as it is annotated.
        self.kind = str(build.__annotations__["return"]).partition("[")[0]

    def __set_name__(self, _owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, _owner: type | None = None) -> Part:
        with _LOCK:
            # from here on Python finds it there, without asking us
            parts: dict[str, Part] = vars(instance)
            if self._name not in parts:
                parts[self._name] = self._build(instance)
            return parts[self._name]


class part(value[Part]):  # noqa: N801 - as above
    """An attribute that is for parameters of its class (of `Database[Document]` that is `Database`), of any name."""


class Builder:
    """How parts are found and built, whatever they are."""

    #: The attributes that are parts, by the names of their classes.
    _names: ClassVar[dict[str, str]] = {}

    def __init_subclass__(cls) -> None:
        cls._names = cls._names | {one.kind: name for name, one in vars(cls).items() if isinstance(one, part)}

    def __init__(self) -> None:
        self._parts: dict[type[Any], Any] = {}
        self._end = ExitStack()

    def __getitem__(self, kind: type[Part]) -> Part:
        """The part of this class: always the same, for all threads."""
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
        """Whether it is there already."""
        return kind in self._parts

    def build(self, kind: type[Part], **given: Any) -> Part:
        """A new one, from what is `given` and from parts. Raises `TypeError` where something is missing."""
        hints = _hints(kind)
        for name, parameter in signature(kind).parameters.items():
            if name not in given:
                self._add(given, kind, parameter, hints.get(name))
        return kind(**given)

    def _add(self, given: dict[str, Any], kind: type[Any], parameter: Parameter, hint: Any) -> None:
        name = parameter.name
        # `X | None` is an X here
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
        """To be closed at the end, after all that was opened later."""
        self._end.callback(made.close)
        return made

    def close(self) -> None:
        self._end.close()


def _hints(kind: type[Any]) -> dict[str, Any]:
    """Of the constructor's parameters."""
    if not attrs.has(kind):
        return get_type_hints(kind.__init__)
    # what attrs writes knows nothing of the module that it is written for
    own = {field.alias: field.type for field in attrs.fields(kind) if field.init}
    return get_type_hints(SimpleNamespace(__annotations__=own), vars(sys.modules[kind.__module__]))


class Container(Builder):
    """What all processes have in common. Nothing is connected before a part is used that needs it."""

    def __init__(self, settings: Settings | None = None) -> None:
        super().__init__()
        if settings is not None:
            self.settings = settings

    # --- by name: what is no class of ours

    @value
    def settings(self) -> Settings:
        """Raises `SettingsError`."""
        return Settings.load()

    @value
    def mongo_uri(self) -> str:
        return self.settings.mongo_uri

    @value
    def clock(self) -> Clock:
        """The one of all parts: MongoDB's time."""
        return self[ServerClock]

    @value
    def dead_after(self) -> timedelta:
        return timedelta(seconds=self.settings.node_dead_after)

    @value
    def node_dead_after(self) -> timedelta:
        return self.dead_after

    @value
    def allowed_networks(self) -> tuple[Network, ...]:
        return self.settings.allowed_networks

    @value
    def job_timeout(self) -> int:
        return self.settings.job_timeout

    # --- stores

    def connected(self, database: Database[Document]) -> Database[Document]:
        """To be closed at the end."""
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
        """What messages are sent through."""
        from gateway.jobs.messages import create_producer

        return create_producer(self.settings.broker_location, self.settings.queue_name)

    @part
    def waker(self) -> Waker:
        from gateway.jobs.messages import CeleryWaker

        return self.opened(CeleryWaker(self.celery))

    # --- nodes

    @part
    def node_list(self) -> NodeList:
        from gateway.contract.node_list import NodeList

        return NodeList(self.settings.scrapyd_url)

    @part
    def scrapyd(self) -> ScrapydClient:
        from gateway.nodes.scrapyd import ScrapydClient

        settings = self.settings
        return self.opened(ScrapydClient(settings.scrapyd_username, settings.scrapyd_password.get_secret_value()))

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
    def webhook_caller(self) -> Caller:
        from gateway.signals.webhook_caller import WebhookCaller

        return WebhookCaller(self.allowed_networks)

    @part
    def keep(self) -> Keep:
        from gateway.retention.retention import Keep

        return Keep(
            jobs=timedelta(days=self.settings.job_retention_days),
            items=timedelta(days=self.settings.item_retention_days),
            logs=timedelta(days=self.settings.log_retention_days),
            audit=timedelta(days=self.settings.audit_retention_days),
        )

    # --- schedules

    @part
    def occurrence_orders(self) -> OccurrenceOrders:
        """Of schedules of crawls, and of those of sites."""
        from gateway.schedules.orders import AllOrders, CrawlOrders, LatestVersions
        from gateway.sites.crawl import SiteOrders

        return AllOrders(self.build(LatestVersions, orders=CrawlOrders()), self[SiteOrders])

    @part
    def target_marks(self) -> TargetMarks:
        from gateway.sites.store import TargetStore

        return self[TargetStore]
