"""All kinds of writes to MongoDB in the platform's source, and which of them a thread is about to send.

A kind is a function that is marked with `@state_change`, together with a call of the driver that it makes, either
itself or in a private function of its module.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from pymongo import monitoring
from unit.house.state_changes import MONGO_WRITES, FunctionNode, crash_point

ROOT = Path(__file__).parents[2]
_COMMANDS = frozenset({"insert", "update", "delete", "findAndModify"})


class Call(NamedTuple):
    """A place where a writing method of the driver is called."""

    path: str
    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.path}:{self.first}"


class Kind(NamedTuple):
    #: The name that is given to `@state_change`.
    name: str
    call: Call

    def __str__(self) -> str:
        return f"{self.name} at {self.call}"


class _Function(NamedTuple):
    name: str
    mark: str | None
    calls: list[Call]
    #: Other functions that it calls, by the last part of their names.
    others: set[str]


class Module:
    def __init__(self, path: Path) -> None:
        self.path = path.relative_to(ROOT).as_posix()
        self.functions = list(self._functions(ast.parse(path.read_text(encoding="utf-8")), ""))

    def kinds(self) -> Iterator[Kind]:
        for function in self.functions:
            if function.mark is not None:
                yield from (Kind(function.mark, call) for call in self._calls(function, set()))

    def mark(self, function: str) -> str | None:
        """The name of the mark of a function (dotted name) or of the function around it."""
        outer = function.split(".<locals>", maxsplit=1)[0]
        return next((one.mark for one in self.functions if one.name == outer), None)

    def call(self, line: int) -> Call | None:
        return next((call for one in self.functions for call in one.calls if call.first <= line <= call.last), None)

    def _calls(self, function: _Function, seen: set[str]) -> Iterator[Call]:
        yield from function.calls
        for other in self.functions:
            last = other.name.rpartition(".")[2]
            if last in function.others - seen and last.startswith("_") and other.mark is None:
                yield from self._calls(other, seen | {last})

    def _functions(self, node: ast.AST, scope: str) -> Iterator[_Function]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, FunctionNode):
                yield self._function(child, f"{scope}{child.name}")
            elif isinstance(child, ast.ClassDef):
                yield from self._functions(child, f"{scope}{child.name}.")

    def _function(self, node: FunctionNode, name: str) -> _Function:
        asked = [one for one in ast.walk(node) if isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute)]
        calls, others = [], set()
        for one in asked:
            assert isinstance(one.func, ast.Attribute)
            others.add(one.func.attr)
            if one.func.attr in MONGO_WRITES:
                calls.append(Call(self.path, one.lineno, one.end_lineno or one.lineno))
        return _Function(name, crash_point(node), calls, others)


@cache
def modules() -> dict[str, Module]:
    """The modules of `gateway`, by path."""
    found = (Module(path) for path in sorted((ROOT / "gateway").rglob("*.py")))
    return {module.path: module for module in found}


def every_kind() -> set[Kind]:
    return {kind for module in modules().values() for kind in module.kinds()}


def kind_under_way() -> Kind | None:
    """The kind of the write that this thread is about to send; `None` if it is not one of the platform's."""
    frame: FrameType | None = sys._getframe(1)
    call: Call | None = None
    while frame is not None:
        module = _module_of(frame.f_code.co_filename)
        if module is not None:
            # if a helper elsewhere calls the driver, the line in the marked function counts
            call = module.call(frame.f_lineno) or call
            if call is not None and (mark := module.mark(frame.f_code.co_qualname)) is not None:
                return Kind(mark, call)
        frame = frame.f_back
    return None


@cache
def _module_of(filename: str) -> Module | None:
    path = Path(filename)
    return modules().get(path.relative_to(ROOT).as_posix()) if path.is_relative_to(ROOT) else None


def kind_of(event: monitoring.CommandStartedEvent) -> Kind | None:
    """The kind of a write that this thread is about to send; `None` if it is not one of the platform's."""
    return kind_under_way() if event.command_name in _COMMANDS else None


class Watch(monitoring.CommandListener):
    """Watches all clients that are made after its registration (`pymongo.monitoring.register`)."""

    def __init__(self) -> None:
        modules()  # read now, because it takes longer than a write may take
        #: By the request's id.
        self.under_way: dict[int, Kind] = {}

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        if (kind := kind_of(event)) is not None:
            self.under_way[event.request_id] = kind

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        pass

    def failed(self, event: monitoring.CommandFailedEvent) -> None:
        pass
