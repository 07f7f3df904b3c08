"""Which calls count as going back up the house."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from bench.crossed_modules import HANDED_IN, is_up

ROOT = Path(__file__).parents[3]


def imports(module: str) -> set[str]:
    """The modules that a module names in its import statements, also those for types alone."""
    tree = ast.parse((ROOT / module.replace(".", "/")).with_suffix(".py").read_text(encoding="utf-8"))
    froms = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
    return {
        name for node in froms for name in (node.module or "", *(f"{node.module}.{one.name}" for one in node.names))
    }


@pytest.mark.parametrize(("caller", "called"), sorted(HANDED_IN))
def test_a_room_does_not_know_what_was_handed_in(caller: str, called: str) -> None:
    assert is_up(caller, called)
    assert (ROOT / called.replace(".", "/")).with_suffix(".py").is_file()
    assert called not in imports(caller)


def test_the_way_up_is_that_of_the_import_rules() -> None:
    assert is_up("gateway.stores.documents", "gateway.jobs.queue")
    assert is_up("gateway.jobs.submission", "gateway.dispatch.dispatcher")
    assert not is_up("gateway.dispatch.dispatcher", "gateway.jobs.submission")
    assert not is_up("gateway.web.routes.crawl", "gateway.web.guard")
    assert not is_up("gateway.jobs.submission", "gateway.container")
