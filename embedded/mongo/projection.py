"""Projections: which fields of a document are returned, for `find` and `findAndModify`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from embedded.mongo.errors import Code, MongoError, not_implemented
from embedded.mongo.paths import Document

Projection = Callable[[Document], Document]
#: Fields to keep or to drop, by name. The value is a dict for the fields inside, or a number of elements of an array.
Tree = dict[str, Any]


def compile_projection(fields: Document) -> Projection:
    """A projection that keeps `_id` and the fields with 1, or all fields except those with 0; without fields, all of
    them. `$slice` keeps the first elements of an array, and is allowed only together with fields with 1.
    """
    slices = {name: size for name, operand in fields.items() if (size := _slice(name, operand))}
    keep_id = bool(fields.get("_id", True))
    others = {name: bool(flag) for name, flag in fields.items() if name != "_id"}
    if len(set(others.values())) > 1:
        _refuse_mixture(others)
    if slices and len(slices) == len(others):
        raise not_implemented("$slice without fields to include")
    if not fields:
        return lambda document: document
    including = next(iter(others.values())) if others else keep_id
    tree = _tree({**others, **slices})
    if including:
        if keep_id:
            tree["_id"] = True
        return lambda document: _include(document, tree)
    if not keep_id:
        tree["_id"] = True
    return lambda document: _exclude(document, tree)


def _slice(name: str, operand: Any) -> int:
    """How many elements of an array to keep; 0: all."""
    if isinstance(operand, (bool, int, float)):
        return 0
    size = operand.get("$slice") if isinstance(operand, dict) and len(operand) == 1 else None
    if isinstance(size, bool) or not isinstance(size, int) or size <= 0:
        raise not_implemented(f"the projection of '{name}' by {operand!r}")
    return size


def _refuse_mixture(flags: dict[str, bool]) -> None:
    first, *rest = flags.items()
    name = next(name for name, flag in rest if flag != first[1])
    if first[1]:
        raise MongoError(Code.Location31254, f"Cannot do exclusion on field {name} in inclusion projection")
    raise MongoError(Code.Location31253, f"Cannot do inclusion on field {name} in exclusion projection")


def _tree(names: Mapping[str, int]) -> Tree:
    tree: Tree = {}
    for name, kept in names.items():
        *parents, last = name.split(".")
        if last == "$":
            raise not_implemented("the positional projection")
        below = tree
        for parent in parents:
            below = below.setdefault(parent, {})
            if not isinstance(below, dict):
                raise MongoError(Code.Location31249, f"Path collision at {name}")
        if last in below:
            raise MongoError(Code.Location31249, f"Path collision at {name}")
        below[last] = True if isinstance(kept, bool) else kept
    return tree


def _include(value: Document, tree: Tree) -> Document:
    kept: Document = {}
    for name, item in value.items():
        below = tree.get(name)
        if below is True:
            kept[name] = item
        elif isinstance(below, int):
            kept[name] = item[:below] if isinstance(item, list) else item
        elif below is not None and isinstance(item, dict):
            kept[name] = _include(item, below)
        elif below is not None and isinstance(item, list):
            kept[name] = _include_elements(item, below)
    return kept


def _include_elements(array: list[Any], tree: Tree) -> list[Any]:
    """Keep the fields in each document of an array. Scalars are left out, because they have no fields."""
    return [
        _include(element, tree) if isinstance(element, dict) else _include_elements(element, tree)
        for element in array
        if isinstance(element, (dict, list))
    ]


def _exclude(value: Any, tree: Tree) -> Any:
    if isinstance(value, list):
        return [_exclude(element, tree) for element in value]
    if not isinstance(value, dict):
        return value
    return {
        name: item if below is None else _exclude(item, below)
        for name, item in value.items()
        if (below := tree.get(name)) is not True
    }
