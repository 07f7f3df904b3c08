"""Finds the writes that change state, and those among them that no crash point surrounds.

A write is a call of a driver's writing method or of a file operation that others read a decision from. It is covered
when the function it stands in, or one around that, carries `@state_change("name")`, or when that function is private
and only covered functions of the same module call it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

MONGO_WRITES = frozenset(
    {
        *("insert_one", "insert_many", "update_one", "update_many", "replace_one", "delete_one", "delete_many"),
        *("find_one_and_update", "find_one_and_delete", "find_one_and_replace", "bulk_write"),
        *("change_one", "delete_of_jobs"),
    }
)
#: Commands, scripts and pipelines. Only where the receiver is a Redis client: `Event.set` is none.
REDIS_WRITES = frozenset(
    {
        *("set", "setex", "setnx", "getset", "incr", "incrby", "decr", "delete", "unlink", "rename"),
        *("expire", "pexpire", "persist", "hset", "hdel", "hincrby", "sadd", "srem", "zadd", "zrem"),
        *("lpush", "rpush", "lpop", "rpop", "xadd", "xdel", "xtrim", "publish", "eval", "evalsha", "execute"),
    }
)
REDIS_CLIENTS = frozenset({"redis", "client", "connection", "pipeline", "pipe", "batch"})
FILE_FUNCTIONS = frozenset({"write_exclusively", "write_atomically"})
FILE_METHODS = frozenset(
    {"link", "unlink", "rename", "renames", "rmtree", "rmdir", "hardlink_to", "write_bytes", "write_text"}
)
DECORATOR = "state_change"

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


class Write(NamedTuple):
    """One writing call; `function` is the dotted name of where it stands (`<module>` outside of any)."""

    function: str
    call: str
    line: int


class _Scope(NamedTuple):
    name: str
    covered: bool


def crash_point_names(source: str) -> list[str]:
    """The names given to `@state_change`, in order, repeats included."""
    if DECORATOR not in source:
        return []
    found = (crash_point(node) for node in ast.walk(ast.parse(source)) if isinstance(node, FunctionNode))
    return [name for name in found if name is not None]


def generators_with_crash_points(source: str) -> list[str]:
    """A generator's body runs after the call has returned, so its crash points would surround nothing."""
    if DECORATOR not in source:
        return []
    marked = (
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, FunctionNode) and crash_point(node) is not None
    )
    return [
        node.name for node in marked if any(isinstance(below, ast.Yield | ast.YieldFrom) for below in ast.walk(node))
    ]


def uncovered_writes(source: str, *, receivers_are_redis: bool = False) -> list[Write]:
    """Writes that no crash point surrounds. `receivers_are_redis`: in this module whatever is written to is Redis."""
    tree = ast.parse(source)
    scripts = _script_names(tree)
    writes: list[Write] = []
    callers: dict[str, set[_Scope]] = {}
    for call, scope in _calls(tree, _Scope("<module>", covered=False)):
        name = _called(call.func)
        callers.setdefault(name.rpartition(".")[2], set()).add(scope)
        if not scope.covered and (name in scripts or _is_write(call, name, redis=receivers_are_redis)):
            writes.append(Write(scope.name, name, call.lineno))
    return [write for write in writes if not _only_called_under_cover(write.function, callers, frozenset())]


def _only_called_under_cover(function: str, callers: dict[str, set[_Scope]], seen: frozenset[str]) -> bool:
    name = function.rpartition(".")[2]
    if not name.startswith("_") or name.startswith("__") or name in seen or name not in callers:
        return False
    return all(
        scope.covered or _only_called_under_cover(scope.name, callers, seen | {name}) for scope in callers[name]
    )


def _calls(node: ast.AST, scope: _Scope) -> Iterator[tuple[ast.Call, _Scope]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call):
            yield child, scope
        yield from _calls(child, _inner(child, scope))


def _inner(node: ast.AST, scope: _Scope) -> _Scope:
    if not isinstance(node, (FunctionNode, ast.ClassDef)):
        return scope
    name = node.name if scope.name == "<module>" else f"{scope.name}.{node.name}"
    marked = isinstance(node, FunctionNode) and crash_point(node) is not None
    return _Scope(name, scope.covered or marked)


def crash_point(function: FunctionNode) -> str | None:
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and _called(decorator.func).rpartition(".")[2] == DECORATOR:
            (argument,) = decorator.args
            assert isinstance(argument, ast.Constant), "a crash point's name is a literal, so that tests can list it"
            return str(argument.value)
    return None


def _script_names(tree: ast.AST) -> set[str]:
    """What `client.register_script(…)` was assigned to: calling it runs the script."""
    made = (
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and _called(node.value.func).endswith("register_script")
    )
    return {_called(target) for assignment in made for target in assignment.targets}


def _is_write(call: ast.Call, name: str, *, redis: bool) -> bool:
    receiver, _, method = name.rpartition(".")
    if method in MONGO_WRITES | FILE_FUNCTIONS | FILE_METHODS:
        return True
    if method == "replace":  # of a path: text is replaced by something, so with two arguments
        return receiver == "os" or (len(call.args) == 1 and not call.keywords)
    if method == "remove":  # of a file: lists and sets have one too
        return receiver == "os"
    if method == "open":
        return _opens_for_writing(call, receiver)
    return method in REDIS_WRITES and (redis or receiver.rpartition(".")[2].lstrip("_") in REDIS_CLIENTS)


def _opens_for_writing(call: ast.Call, receiver: str) -> bool:
    """Appending is how logs and spools grow, and decides nothing."""
    positional = call.args[:1] if receiver else call.args[1:2]
    modes = [*positional, *(keyword.value for keyword in call.keywords if keyword.arg == "mode")]
    return any(isinstance(mode, ast.Constant) and bool(set(str(mode.value)) & set("wx")) for mode in modes)


def _called(node: ast.expr) -> str:
    """`self._jobs.insert_one` as text; `?` for a part that is no name."""
    if isinstance(node, ast.Attribute):
        return f"{_called(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "?"
