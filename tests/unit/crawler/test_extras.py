"""What a crawl does without the packages that it can do without."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import Enum
from typing import Any
from uuid import UUID

import pytest

from crawler import extras
from crawler.node.projects import PROJECTS_PYTHON
from crawler.report.progress import encode
from tests.support.bare_python import BARE


class Colour(Enum):
    RED = "red"


@dataclass
class Price:
    amount: float
    seen: Any = None


ITEMS: list[Any] = [
    {"title": "Grüße \u2028", "n": [1, 2.5, None, True], "nested": {"a": ({"b": 1},)}},
    {1: "int", 1.5: "float", None: "none", False: "bool", date(2027, 1, 2): "date", Colour.RED: "enum"},
    {"nan": float("nan"), "inf": [float("inf")]},
    {"at": datetime(2027, 1, 2, 3, 4, 5, 678000, tzinfo=UTC), "day": date(2027, 1, 2), "colour": Colour.RED},
    {"id": UUID(int=1), "price": Price(1.5, {"x"}), "bytes": b"\xff", "set": {1}, "odd": 1j},
    {"half": "\ud800", "huge": 1 << 70},
    Price(2.5),
]


@pytest.mark.parametrize("item", ITEMS)
def test_an_item_is_the_same_json_without_orjson(item: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with_orjson = json.loads(encode(item))
    monkeypatch.setattr(extras, "_orjson", None)
    line = encode(item)
    assert json.loads(line) == with_orjson
    assert b"\n" not in line


def test_what_cannot_be_a_key_is_refused_with_and_without_orjson(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TypeError):
        extras.dumps({(1, 2): 3})
    monkeypatch.setattr(extras, "_orjson", None)
    with pytest.raises(TypeError):
        extras.dumps({(1, 2): 3})


def test_the_part_of_a_crawl_that_runs_in_a_projects_python_needs_nothing_but_scrapy() -> None:
    """In an interpreter that can import nothing but the standard library, Scrapy with what that needs, and us."""
    modules = [
        *(
            "addon",
            "closing",
            "project_guard",
            "frontier.resumable_scheduler",
            "net.egress",
            "net.fetch_options",
            "pace.pacing",
        ),
        *("pace.robots", "report.progress", "report.requests", "node.runner", "node.zygote", "node.listing"),
    ]
    imports = "; ".join(f"import crawler.{module}" for module in modules)
    code = f"{imports}; from crawler import extras; assert not extras.has('orjson'); crawler.node.runner.preload()"
    done = subprocess.run(
        [sys.executable, BARE, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, PROJECTS_PYTHON: "1"},
    )
    assert (done.returncode, done.stderr) == (0, "")
