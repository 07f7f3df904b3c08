"""Makes the reference of the Python client, docs/reference/python-client.md, from the blocking client itself."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, ForwardRef

import discoverybot_client
from discoverybot_client import answers, errors, events, params

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "docs/reference/python-client.md"
HEAD = """# The Python client, class by class

How it is used is said in [Use it from Python](../how-to/use-from-python.md). This page is made from the package
`discoverybot-client` itself by `make blocking-client`. Each class here that has methods is there for asyncio, too,
by a name with `Async` in front (`AsyncClient`, `AsyncJob`): its methods are to be awaited, and its loops are
`async for`. Arguments after a `*` are passed by name.

Lists are loops over all of their pages; `limit` is how many entries come at most. `timeout` is for a whole call with
its retries, and each page is a call. Any method that calls the gateway may raise an `ApiError`, a
`GatewayUnreachableError` or a `NoGatewayError`; what else it raises is said with it.
"""
INTRODUCTIONS = {
    "Objects": "What the client returns, with methods. Each has the fields of the record that it names.",
    "Collections": "What there are of one kind: attributes of a client.",
    "Answers": "A field that an answer lacks is `None`. `raw` is the answer as it came.",
    "Events and calls": "What `data` of an `Event` has, and what `verify` returns: types for type checkers, in "
    "`discoverybot_client.events`. At run time they are dictionaries as they came, with times as text, and a later "
    "release may send others. `JobEvent` and `ManyJobsEvent` are the events of a stream, and `Call` is any call.",
    "Errors": "All of them are a `DiscoveryBotError`.",
    "Arguments": "What `**fields` and the like stand for. At run time the client refuses none of them: the gateway "
    "says what it does not know.",
}


def made() -> str:
    """The text of the page."""
    names = [name for name in discoverybot_client.__all__ if not name.startswith(("Async", "__"))]
    public = [getattr(discoverybot_client, name) for name in names]
    bound = [one for one in public if inspect.isclass(one) and "._sync." in one.__module__]
    collections = [one for one in bound if one.__mro__[1].__name__ == "Resource"]
    objects = [one for one in bound if one not in collections and one is not discoverybot_client.Client]
    records = [one for one in vars(answers).values() if _is_of(one, answers)]
    others = [one for one in public if one not in bound and one not in records and not _is_error(one)]
    sections = {
        "The client": [discoverybot_client.Client],
        "Objects": objects,
        "Collections": collections,
        "Answers": [*others, *records],
        "Events and calls": [one for one in vars(events).values() if _is_of(one, events)],
        "Errors": [one for one in public if _is_error(one)],
        "Arguments": [one for one in vars(params).values() if _is_of(one, params)],
    }
    return "\n".join(line for part in (HEAD.splitlines(), _sections(sections)) for line in part).rstrip() + "\n"


def _is_of(one: Any, module: ModuleType) -> bool:
    return inspect.isclass(one) and one.__module__ == module.__name__


def _is_error(one: Any) -> bool:
    return inspect.isclass(one) and issubclass(one, errors.DiscoveryBotError)


def _sections(sections: dict[str, list[Any]]) -> Iterator[str]:
    for title, members in sections.items():
        yield f"\n## {title}"
        yield from [f"\n{INTRODUCTIONS[title]}"] if title in INTRODUCTIONS else []
        for member in members:
            yield f"\n### {member.__name__}\n"
            yield from _class(member) if inspect.isclass(member) else _function("", member)


def _class(member: type) -> Iterator[str]:
    doc = inspect.cleandoc(member.__doc__ or "")
    parent = member.__mro__[1].__name__
    bases = {base.__name__ for base in member.__mro__ if base.__module__ == answers.__name__}
    is_error = issubclass(member, errors.DiscoveryBotError)
    yield doc + (f" A `{parent}`." if is_error and parent != "Exception" else "")
    yield from (f"\nFields: [{base}](#{base.lower()})." for base in sorted(bases - {member.__name__}))
    if member is discoverybot_client.Client or member is discoverybot_client.Retries:
        yield f"\n```python\n{member.__name__}{_signature(member)}\n```"
    if lines := [*_fields(member), *_methods(member)]:
        yield ""
        yield from lines


def _fields(member: type) -> Iterator[str]:
    told = _told(member.__module__)
    for name, kind in inspect.get_annotations(member).items():
        if not name.startswith("_"):
            doc = told.get((member.__name__, name), "")
            yield f"- `{name}: {_written(kind)}`" + (f": {doc}" if doc else "")


def _methods(member: type) -> Iterator[str]:
    for name, method in vars(member).items():
        if name.startswith("_"):
            continue
        if isinstance(method, property) and method.fget:
            yield f"- `{name}: {inspect.signature(method.fget).return_annotation}`: {_doc(method)}"
        elif inspect.isfunction(method):
            yield from _function("- ", method)


def _function(mark: str, function: Any) -> Iterator[str]:
    yield f"{mark}`{function.__name__}{_signature(function)}`: {_doc(function)}{_arguments(function)}"


class _Plain(str):
    """An annotation without quotation marks."""

    __slots__ = ()
    __repr__ = str.__str__


def _signature(function: Any) -> str:
    signature = inspect.signature(function)
    kept = [one for name, one in signature.parameters.items() if name != "self"]
    plain = [one.replace(annotation=_Plain(_kind(one))) for one in kept]
    given = signature.return_annotation
    returned = given if given is inspect.Signature.empty else _Plain(given)
    return str(signature.replace(parameters=plain, return_annotation=returned)).removesuffix(" -> None")


def _written(kind: Any) -> str:
    """An annotation as it is written in the source: a `TypedDict` and a `NamedTuple` wrap theirs."""
    return kind.__forward_arg__ if isinstance(kind, ForwardRef) else str(kind)


def _kind(parameter: inspect.Parameter) -> str:
    kind = _written(parameter.annotation)
    return kind[len("Unpack[") : -1] if kind.startswith("Unpack[") else kind


def _arguments(function: Any) -> str:
    """Where the arguments are that are passed on."""
    every = inspect.signature(function).parameters.values()
    named = [_kind(one) for one in every if str(one.annotation).startswith("Unpack[")]
    return "".join(f" See [{name}](#{name.lower()})." for name in named)


def _doc(member: Any) -> str:
    return " ".join((member.__doc__ or "").split())


@cache
def _told(module: str) -> dict[tuple[str, str], str]:
    """What is said below each field, by class and field."""
    tree = ast.parse(Path(sys.modules[module].__file__ or "").read_text(encoding="utf-8"))
    found = {}
    for one in tree.body:
        for field, after in zip(one.body, one.body[1:], strict=False) if isinstance(one, ast.ClassDef) else ():
            match field, after:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    found[one.name, name] = " ".join(text.split())
    return found


if __name__ == "__main__":
    TARGET.write_text(made(), encoding="utf-8")
