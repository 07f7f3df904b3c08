"""import-linter reads the import statements; here we look at what importing really loads."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from typing import NamedTuple

import pytest
from unit.house.sources import ROOT

# Imports the package or module, and all below it, but what is run (`__main__`), and prints what is loaded then.
_LOAD_ALL = """
import gc, importlib, pkgutil, sys
gc.disable()  # there is no garbage, and looking for it takes a fifth of the time
package = importlib.import_module(sys.argv[1])
for module in pkgutil.walk_packages(getattr(package, "__path__", []), package.__name__ + "."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
print("\\n".join(sys.modules))
"""
_DRIVERS = ("pymongo", "bson", "redis", "httpx", "kombu")
_FRAMEWORKS = ("fastapi", "starlette", "uvicorn", "celery", "scrapy", "scrapyd", "twisted")
# not all of twisted: structlog loads a part of it wherever it is installed
_CRAWLING = ("scrapy", "scrapyd", "twisted.web", "twisted.internet.reactor", "crawler")
_DOORS = ("gateway.web", "gateway.worker", "gateway.tailer", "gateway.cli")


class Rule(NamedTuple):
    package: str
    never_loads: tuple[str, ...]


_STORES = tuple(f"gateway.stores.{store}" for store in ("mongo", "documents", "indexes", "broker"))
#: Lowest first.
_ROOMS = tuple(
    f"gateway.{room}"
    for room in (
        *("nodes", "projects", "jobs", "logs", "items", "dispatch", "schedules", "sites"),
        *("access", "signals", "retention", "status"),
    )
)
#: What things are; not how they are kept.
_MODELS = (
    *("gateway.nodes.node", "gateway.jobs.job", "gateway.jobs.outcome", "gateway.schedules.schedule"),
    *("gateway.schedules.next_run", "gateway.sites.site", "gateway.access.keys"),
)

RULES = [
    *(Rule(package, (*_DRIVERS, *_FRAMEWORKS, "gateway.settings")) for package in ("gateway.contract", *_MODELS)),
    Rule("gateway.stores", (*_CRAWLING, *_DOORS, "fastapi", "starlette", "uvicorn", "gateway.settings")),
    *(Rule(room, (*_CRAWLING, *_DOORS, "fastapi", "gateway.settings")) for room in _ROOMS),
    Rule("gateway.web", (*_CRAWLING, *(door for door in _DOORS if door != "gateway.web"))),
    Rule("gateway.worker", (*_CRAWLING, "fastapi", *(door for door in _DOORS if door != "gateway.worker"))),
    Rule("gateway.tailer", (*_CRAWLING, "fastapi", *(door for door in _DOORS if door != "gateway.tailer"))),
    Rule("gateway.cli", (*_CRAWLING, "fastapi", "celery", *(door for door in _DOORS if door != "gateway.cli"))),
    Rule("crawler", (*_DOORS, *_ROOMS, *_STORES, "embedded", "pymongo", "fastapi", "celery")),
    # one holds root's rights, one judges eggs before it imports them, and forks share all that the zygote has
    *(
        Rule(f"crawler.node.{process}", ("scrapy", "scrapyd", "twisted"))
        for process in ("keeper", "place", "listing")
    ),
    Rule("crawler.node.zygote", ("scrapy", "scrapyd", "twisted.internet.reactor")),
    Rule("embedded", (*_CRAWLING, *_DOORS, *_ROOMS, *_STORES, "fastapi", "celery")),
]


@pytest.mark.parametrize("rule", RULES, ids=[rule.package for rule in RULES])
def test_importing_it_loads_nothing_it_may_not_know(rule: Rule) -> None:
    loaded = _loaded_by(rule.package)
    assert rule.package in loaded
    assert not [module for module in loaded if _is_below(module, rule.never_loads)]


def test_a_forbidden_import_would_be_seen() -> None:
    assert [module for module in _loaded_by("gateway.stores") if _is_below(module, ("pymongo",))]


@cache
def _loaded_by(package: str) -> tuple[str, ...]:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _LOAD_ALL, package],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return tuple(done.stdout.splitlines())


def _is_below(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)
