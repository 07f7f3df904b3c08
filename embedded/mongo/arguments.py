"""The fields of a command: each is read by name and type, and unknown fields are refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

from embedded.mongo.errors import Code, MongoError, not_implemented
from embedded.mongo.paths import Document

_T = TypeVar("_T")

#: Fields that drivers may send with any command, and that a single machine without sessions can ignore.
_ALWAYS_ALLOWED = frozenset(
    {"$db", "lsid", "$readPreference", "$clusterTime", "readConcern", "writeConcern", "comment", "maxTimeMS"}
)
_TYPE_NAMES = {dict: "object", list: "array", str: "string", bool: "bool", int: "int"}


class CommandArguments:
    """The fields of one command, or of one of its statements. `command`: its name for errors."""

    def __init__(self, command: str, fields: Document) -> None:
        self._command = command
        self._fields = fields

    @property
    def db(self) -> str:
        return str(self._fields["$db"])

    def allow(self, *names: str) -> None:
        """Refuse all other fields. Raises `NotImplemented` if one of them has a value that is not empty or false."""
        for name, value in self._fields.items():
            if value and name not in names and name not in _ALWAYS_ALLOWED and name != self._command:
                raise not_implemented(f"the field '{name}' of {self._command}")

    def required(self, name: str, kind: type[_T]) -> _T:
        """The field. Raises `IDLFailedToParse` if it is missing, `TypeMismatch` if it has another type."""
        if self._fields.get(name) is None:
            raise MongoError(
                Code.IDLFailedToParse, f"BSON field '{self._command}.{name}' is missing but a required field"
            )
        return self._checked(name, kind)

    def optional(self, name: str, kind: type[_T], default: _T) -> _T:
        """The field, or `default`; a null counts as absent."""
        return default if self._fields.get(name) is None else self._checked(name, kind)

    def _checked(self, name: str, kind: type[_T]) -> _T:
        value = self._fields[name]
        if isinstance(value, kind) and not (kind is int and isinstance(value, bool)):
            return value
        raise MongoError(
            Code.TypeMismatch,
            f"BSON field '{self._command}.{name}' is the wrong type '{type(value).__name__}', "
            f"expected type '{_TYPE_NAMES.get(kind, kind.__name__)}'",
        )

    def any(self, name: str) -> Any:
        return self._fields.get(name)

    def flag(self, name: str, *, default: bool = False) -> bool:
        """The field as a boolean. Numbers are accepted as well, like in MongoDB's `safeBool`."""
        value = self._fields.get(name, default)
        if not isinstance(value, (bool, int, float)):
            raise MongoError(
                Code.TypeMismatch,
                f"BSON field '{self._command}.{name}' is the wrong type '{type(value).__name__}', "
                "expected type 'bool'",
            )
        return bool(value)

    def count(self, name: str, default: int = 0) -> int:
        """The field as a whole number that is not negative. 5.0 is accepted as 5."""
        value = self._fields.get(name, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value % 1 != 0:
            raise MongoError(
                Code.TypeMismatch, f"BSON field '{self._command}.{name}' must be a whole number, not {value!r}"
            )
        if value < 0:
            raise MongoError(Code.BadValue, f"BSON field '{name}' value must be >= 0, actual value '{int(value)}'")
        return int(value)

    def statements(self, name: str) -> Iterator[CommandArguments]:
        """The entries of a write command, each with arguments of its own."""
        for statement in self.required(name, list):
            if not isinstance(statement, dict):
                raise MongoError(Code.TypeMismatch, f"'{self._command}.{name}' must hold objects")
            yield CommandArguments(f"{self._command}.{name}", statement)
