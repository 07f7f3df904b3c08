"""The base class of the objects in answers (`answers` has their classes), lines of logs, and events of streams."""

from __future__ import annotations

import json
from collections.abc import Iterator, KeysView, Mapping
from contextlib import suppress
from datetime import date, datetime
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    NamedTuple,
    Self,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

if TYPE_CHECKING:
    # Python knows defaults from 3.13 on, and type checkers know this module without its package
    from typing_extensions import TypeVar

    Name = TypeVar("Name", bound=str, default=str)
    Data = TypeVar("Data", default=dict[str, Any])
else:
    from typing import TypeVar

    Name, Data = TypeVar("Name"), TypeVar("Data")


class Record:
    """One JSON object: its fields as attributes. Fields that the answer lacks are `None`, times are `datetime`s,
    and inner objects are records, too. `record["field"]` and `raw` have the JSON values, also of fields that this
    release does not know; `"field" in record` and `list(record)` say which there are, and `dict(record)` has all.
    """

    #: The fields that identify an object: objects are equal if these are. Without any, if all of their values are.
    _names: ClassVar[tuple[str, ...]] = ()
    #: Further fields that `repr` shows; without both, it shows all.
    _shows: ClassVar[tuple[str, ...]] = ()

    #: Objects of a class and of its subclasses are equal, and look alike, if the class has a name for all of them.
    _called: ClassVar[str] = ""

    #: The type of each field, set on first use.
    _fields: ClassVar[dict[str, Any]]

    def __init__(self, data: Mapping[str, Any]) -> None:
        self._data = dict(data)

    @property
    def raw(self) -> dict[str, Any]:
        """The object as parsed JSON."""
        return self._data

    if not TYPE_CHECKING:  # for a type checker, misspelt names would have a type, too

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(name)
            kinds = self._kinds()
            if name not in self._data and name not in kinds:
                raise AttributeError(f"{type(self).__name__} has no {name!r}")
            return _read(kinds.get(name, Any), self._data.get(name))

    def __getitem__(self, name: str) -> Any:
        return self._data[name]

    def __contains__(self, name: object) -> bool:
        return name in self._data

    def __iter__(self) -> Iterator[str]:
        return iter(self._data)

    def keys(self) -> KeysView[str]:
        """The fields that there are, so that `dict(record)` has all of them, with their JSON values."""
        return self._data.keys()

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._kinds(), *self._data})

    def __eq__(self, other: object) -> bool:
        if not (isinstance(other, Record) and other._kind() == self._kind()):
            return NotImplemented
        return self._named() == other._named() if self._names else self._data == other._data

    def __hash__(self) -> int:
        values = self._named() if self._names else (json.dumps(self._data, sort_keys=True, default=str),)
        return hash((self._kind(), *values))

    def __repr__(self) -> str:
        shown = [f"{name}={self._data.get(name)!r}" for name in self._shows]
        what = [*map(repr, self._named()), *shown] or [repr(self._data)]
        return f"{self._called or type(self).__name__}({', '.join(what)})"

    @classmethod
    def _kind(cls) -> str | type[Record]:
        return cls._called or cls

    @classmethod
    def _kinds(cls) -> dict[str, Any]:
        if "_fields" not in vars(cls):
            cls._fields = {name: kind for name, kind in get_type_hints(cls).items() if not name.startswith("_")}
        return cls._fields

    def _named(self) -> tuple[Any, ...]:
        return tuple(self._data.get(name) for name in self._names)


def _read(kind: Any, value: Any) -> Any:
    """The value, converted to its type; unchanged if it does not fit the type."""
    choices = get_args(kind)
    if get_origin(kind) in {Union, UnionType}:
        kind = next((one for one in choices if one is not NoneType), Any)
        choices = get_args(kind)
    if isinstance(value, list) and get_origin(kind) is list:
        return [_read(choices[0], one) for one in value]
    if isinstance(value, dict) and get_origin(kind) is dict:
        return {name: _read(choices[1], one) for name, one in value.items()}
    if isinstance(kind, type):
        if isinstance(value, str) and issubclass(kind, date):
            with suppress(ValueError):
                return kind.fromisoformat(value)
        if isinstance(value, dict) and issubclass(kind, Record):
            return kind(value)
    return value


#: Statuses of jobs that have ended.
FINAL = frozenset({"finished", "partial", "error", "cancelled"})


#: The fields of a job that was just made.
NEW_JOB: dict[str, Any] = {
    "status": "pending",
    "attempt": 0,
    "requested_pages": 0,
    "completed_pages": 0,
    "items_count": 0,
    "errors_count": 0,
    "pages_per_s": 0.0,
    "dead": False,
    "kind": "job",
}


class LogLine(NamedTuple):
    """A line of a log, or a notice that lines are no longer kept (`is_gap`): then `msg` says which ones."""

    msg: str
    level: str
    #: Follow again after this line: `job.follow(after=line.id)`.
    id: str
    ts: datetime | None = None
    logger: str | None = None
    #: Whether this is a continuation of the line before, such as a line of a traceback.
    cont: bool = False
    is_gap: bool = False

    @classmethod
    def of(cls, event: Event[Any, Any]) -> Self:
        data = event.data
        if event.name == "gap":
            return cls(f"lines from {data['from']} to {data['to']} are not kept", "WARNING", event.id, is_gap=True)
        ts = datetime.fromisoformat(data["ts"]) if data.get("ts") else None
        return cls(data["msg"], data["level"], event.id, ts, data.get("logger"), bool(data.get("cont")))

    def __str__(self) -> str:
        return self.msg if self.cont or self.ts is None else f"{self.ts:%H:%M:%S} {self.level:<8} {self.msg}"


class Event(NamedTuple, Generic[Name, Data]):
    """An event of a stream: `log`, `status`, `progress`, `gap`, `end`; or `change` of a dataset. Where a method says
    which events there are (`JobEvent`), its `name` tells type checkers what its `data` has.
    """

    name: Name
    #: Pass the id as `after` to continue the stream after this event.
    id: str
    data: Data
