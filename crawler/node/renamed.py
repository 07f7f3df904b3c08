"""Copies of our packages under other names, for projects that have packages with our names, mostly `crawler`.

A process can have only one module of a name. So in the processes of such projects our packages are called
`discoverybot_crawler` and `discoverybot_gateway`. These are copies of our files in which imports and dotted names in
strings have the new prefix; nothing else differs.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import NamedTuple

import crawler
import gateway
from crawler.node.projects import RENAMED, RUNTIME
from gateway.contract.outbox import remove_tree

#: The modules at which the processes of a project begin.
_ROOTS = ("crawler.node.listing", "crawler.node.runner", "crawler.node.zygote")
_OURS = {package.__name__: Path(package.__path__[0]) for package in (crawler, gateway)}


@cache
def renamed_runtime(venvs: Path) -> Path:
    """The folder with the renamed copies, below the folder of all virtual environments. It is made if it is missing.
    Raises `OSError`.
    """
    copies = {module.place: module.text for module in _modules()}
    digest = hashlib.sha256(repr(sorted(copies.items())).encode()).hexdigest()[:16]
    folder = venvs / f"{RUNTIME}-{digest}"
    if not folder.is_dir():
        new = Path(mkdtemp(prefix=".incoming-", dir=venvs))
        for place, text in copies.items():
            path = new / place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
        # with the modes of the original: the users of projects, if there are any, must be able to read the copy
        for path in new.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)
        new.chmod((venvs / RUNTIME).stat().st_mode & 0o777)
        try:
            new.rename(folder)
        except OSError:  # another Scrapyd of this folder was quicker
            remove_tree(new)
            if not folder.is_dir():
                raise
    return folder


class _Module(NamedTuple):
    #: Path of the copy, relative to the folder of all copies.
    place: Path
    text: str


def _modules() -> Iterator[_Module]:
    """All modules that can be reached from the roots, and the packages that they are in."""
    waiting, seen = [*_ROOTS], set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen or (path := _file(name)) is None:
            continue
        seen.add(name)
        source = path.read_text("utf-8")
        found = [*_mentioned(ast.parse(source))]
        waiting += [name.rpartition(".")[0], *(one.name for one in found)]
        package = name.partition(".")[0]
        place = Path(f"{RENAMED}{package}", path.relative_to(_OURS[package]))
        yield _Module(place, _put_in(source, sorted(one.at for one in found if one.at)))


def _file(name: str) -> Path | None:
    package, _, rest = name.partition(".")
    if package not in _OURS:
        return None
    path = _OURS[package].joinpath(*filter(None, rest.split(".")))
    places = (path / "__init__.py", path.with_suffix(".py"))
    return next((place for place in places if place.is_file()), None)


class _Mention(NamedTuple):
    """A place in the source that names one of our modules, or something in one."""

    name: str
    #: Line and column (in bytes) at which the prefix is inserted.
    at: tuple[int, int] | None = None


def _mentioned(tree: ast.Module) -> Iterator[_Mention]:
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module)) if _is_ours(module):
                yield _Mention(module, (node.lineno, node.col_offset + len("from ")))
                yield from (_Mention(f"{module}.{one.name}") for one in node.names)
            case ast.Constant(value=str(text)) if _is_ours(text) and "." in text and text.isascii():
                if all(map(str.isidentifier, text.split("."))):
                    yield _Mention(text, (node.lineno, node.col_offset + 1))
                    yield _Mention(text.rpartition(".")[0])


def _is_ours(name: str) -> bool:
    return name.partition(".")[0] in _OURS


def _put_in(source: str, places: list[tuple[int, int]]) -> str:
    lines = source.splitlines(keepends=True)
    for line, column in reversed(places):
        text = lines[line - 1].encode()
        lines[line - 1] = (text[:column] + RENAMED.encode() + text[column:]).decode()
    return "".join(lines)
