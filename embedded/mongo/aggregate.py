"""Pipelines: each stage turns a flow of documents into another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from embedded.mongo.collection import sort_documents
from embedded.mongo.errors import Code, MongoError, not_implemented
from embedded.mongo.expression import Expression, compile_expression
from embedded.mongo.group import compile_group
from embedded.mongo.match import compile_filter
from embedded.mongo.paths import MISSING, Document
from embedded.mongo.plan import Sort
from embedded.mongo.project import flag_projection, is_flag

#: Documents; `None` where others may work in between.
Flow = Iterator[Document | None]
Stage = Callable[[Flow], Flow]


def compile_pipeline(pipeline: list[Any]) -> list[tuple[str, Any, Stage]]:
    """Each stage's name, operand and working. Raises for what is no stage."""
    stages = []
    for stage in pipeline:
        if not isinstance(stage, dict):
            raise MongoError(Code.TypeMismatch, "Each element of the 'pipeline' array must be an object")
        if len(stage) != 1:
            raise MongoError(
                Code.Location40323, "A pipeline stage specification object must contain exactly one field."
            )
        name, operand = next(iter(stage.items()))
        if name not in STAGES:
            raise MongoError(Code.Location40324, f"Unrecognized pipeline stage name: '{name}'")
        stages.append((name, operand, STAGES[name](operand)))
    return stages


def _match(operand: Any) -> Stage:
    if not isinstance(operand, dict):
        raise MongoError(Code.Location15959, "the match filter must be an expression in an object")
    matches = compile_filter(operand)
    return lambda flow: (document for document in flow if document is None or matches(document))


def _group(operand: Any) -> Stage:
    new_group = compile_group(operand)

    def run(flow: Flow) -> Flow:
        groups = new_group()
        for document in flow:
            if document is None:
                yield None
            else:
                groups.add(document)
        yield from groups.results()

    return run


def checked_sort(operand: Any) -> Sort:
    """Field and 1 or -1, most significant first."""
    if not isinstance(operand, dict):
        raise MongoError(Code.TypeMismatch, "Expected field sort to be of type object")
    for name, direction in operand.items():
        if isinstance(direction, bool) or direction not in (1, -1):
            raise MongoError(
                Code.Location15975, "$sort key ordering must be 1 (for ascending) or -1 (for descending)"
            )
        if name.startswith("$"):
            raise MongoError(Code.Location16410, f"FieldPath field names may not start with '$'. '{name}'")
    return [(name, int(direction)) for name, direction in operand.items()]


def _sort(operand: Any) -> Stage:
    sort = checked_sort(operand)
    if not sort:
        raise MongoError(Code.Location15976, "$sort stage must have at least one sort key")

    def run(flow: Flow) -> Flow:
        documents: list[Document] = []
        for document in flow:
            if document is None:
                yield None
            else:
                documents.append(document)
        sort_documents(documents, sort)
        yield from documents

    return run


def _checked_count(operand: Any, least: int, refusal: MongoError) -> int:
    if (
        isinstance(operand, bool)
        or not isinstance(operand, (int, float))
        or operand != int(operand)
        or operand < least
    ):
        raise refusal
    return int(operand)


def _skip(operand: Any) -> Stage:
    count = _checked_count(operand, 0, MongoError(Code.Location15956, "Argument to $skip cannot be negative"))

    def run(flow: Flow) -> Flow:
        passed = 0
        for document in flow:
            passed += document is not None
            if document is None or passed > count:
                yield document

    return run


def _limit(operand: Any) -> Stage:
    count = _checked_count(operand, 1, MongoError(Code.Location15958, "the limit must be positive"))

    def run(flow: Flow) -> Flow:
        passed = 0
        for document in flow:
            yield document
            passed += document is not None
            if passed == count:
                return

    return run


def _count(operand: Any) -> Stage:
    if not isinstance(operand, str) or not operand or operand.startswith("$") or "." in operand:
        raise MongoError(Code.Location40156, "the count field must be a non-empty string without '$' and '.'")

    def run(flow: Flow) -> Flow:
        total = 0
        for document in flow:
            if document is None:
                yield None
            else:
                total += 1
        if total:
            yield {operand: total}

    return run


def _project(operand: Any) -> Stage:
    if not isinstance(operand, dict) or not operand:
        raise MongoError(
            Code.Location51272, "Invalid $project :: projection specification must have at least one field"
        )
    flags = {name: flag for name, flag in operand.items() if is_flag(flag)}
    computed = {name: compile_expression(item) for name, item in operand.items() if not is_flag(item)}
    if any("." in name for name in computed):
        raise not_implemented("a computed field with a dotted name")
    if computed and any(name != "_id" and not flag for name, flag in flags.items()):
        raise MongoError(Code.Location31254, "Cannot do exclusion in inclusion projection")
    # a computed field makes it an inclusion, of `_id` at least
    chosen = flag_projection({"_id": 1, **flags}) if not computed else _including(flags)
    return lambda flow: (
        None if document is None else {**chosen(document), **_computed(document, computed)} for document in flow
    )


def _including(flags: Document) -> Callable[[Document], Document]:
    if any(name != "_id" for name in flags):
        return flag_projection(flags)
    return flag_projection({"_id": 1}) if flags.get("_id", True) else lambda _document: {}


def _computed(document: Document, fields: dict[str, Expression]) -> Document:
    values = ((name, evaluate(document)) for name, evaluate in fields.items())
    return {name: value for name, value in values if value is not MISSING}


#: The stages of `aggregate`.
STAGES: Mapping[str, Callable[[Any], Stage]] = {
    "$match": _match,
    "$group": _group,
    "$sort": _sort,
    "$skip": _skip,
    "$limit": _limit,
    "$count": _count,
    "$project": _project,
}
