"""What the house tests look at: the repository's own files, as text and as syntax trees."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("gateway", "crawler", "embedded")
#: Text that people read or machines run, besides Python.
TEXT_FILES = (
    "*.md",
    "docs/**/*.md",
    "Makefile",
    "Dockerfile",
    ".dockerignore",
    "docker-compose.yml",
    "deploy/**/*.yml",
    ".pre-commit-config.yaml",
    ".ci/*",
    ".github/**/*.yml",
    ".github/**/*.md",
    "*.cfg",
    "*.conf",
    "*.toml",
    "client/**/*.md",
    "client/*.toml",
    "client/typescript/*.ts",
)

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


class Function(NamedTuple):
    file: str
    name: str
    node: FunctionNode

    @property
    def lines(self) -> int:
        return (self.node.end_lineno or self.node.lineno) - self.node.lineno + 1

    def __str__(self) -> str:
        return f"{self.file}:{self.node.lineno} {self.name}"


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def python_files(*folders: str) -> list[Path]:
    """Every Python file of ours below the folders, or everywhere."""
    found = (
        path
        for folder in folders or (*PACKAGES, "bench", "client", "tests")
        for path in (ROOT / folder).rglob("*.py")
    )
    return sorted([*found, *([] if folders else ROOT.glob("*.py"))])


def text_files() -> list[Path]:
    return sorted({path for pattern in TEXT_FILES for path in ROOT.glob(pattern) if path.is_file()})


def markdown_files() -> list[Path]:
    return [path for path in text_files() if path.suffix == ".md"]


def functions(path: Path) -> Iterator[Function]:
    """Functions and methods at any depth, with their dotted names."""
    yield from _functions(relative(path), ast.parse(path.read_text(encoding="utf-8")), "")


def _functions(file: str, node: ast.AST, prefix: str) -> Iterator[Function]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            # most of a tree, and there is no function in it
            continue
        if isinstance(child, FunctionNode):
            yield Function(file, prefix + child.name, child)
        named = isinstance(child, (FunctionNode, ast.ClassDef))
        yield from _functions(file, child, f"{prefix}{child.name}." if named else prefix)
