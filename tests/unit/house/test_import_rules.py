"""import-linter reads the import statements; here we look at what importing really loads."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from typing import NamedTuple

import pytest
from unit.house.sources import ROOT

# Imports one package or module after the other, and all below it, but what is run (`__main__`), and prints what is
# loaded by then. Those of the second argument do not see each other.
_LOAD_ALL = """
import gc, importlib, os, pkgutil, sys
gc.disable()  # there is no garbage, and looking for it takes a fifth of the time

def load(name):
    package = importlib.import_module(name)
    for module in pkgutil.walk_packages(getattr(package, "__path__", []), package.__name__ + "."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    print(name, *sys.modules, flush=True)

one_after_the_other, each_alone = (argument.split() for argument in sys.argv[1:])
for name in one_after_the_other:
    load(name)
for name in each_alone:
    if os.fork() == 0:
        load(name)
        os._exit(0)
    if os.wait()[1]:
        sys.exit(f"{name} cannot be imported")
"""
_DRIVERS = ("pymongo", "bson", "redis", "httpx2", "kombu")
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

#: What a process imports one after the other, then what forks of it import. To begin anew for each costs as much as
#: all. A package comes after those that may load no more than it may itself: what they have loaded is counted as its
#: own.
_PROCESSES = (
    (("gateway.contract", *_MODELS, "gateway.stores", *_ROOMS), _DOORS[:-1]),
    (("gateway.cli",), ()),
    ((*(f"crawler.node.{process}" for process in ("keeper", "place", "listing", "zygote")), "crawler"), ()),
    (("embedded",), ()),
)


@pytest.mark.parametrize("rule", RULES, ids=[rule.package for rule in RULES])
def test_importing_it_loads_nothing_it_may_not_know(rule: Rule) -> None:
    loaded = _loaded_by(rule.package)
    assert rule.package in loaded
    assert not [module for module in loaded if _is_below(module, rule.never_loads)]


def test_a_forbidden_import_would_be_seen() -> None:
    assert [module for module in _loaded_by("gateway.stores") if _is_below(module, ("pymongo",))]


def _loaded_by(package: str) -> tuple[str, ...]:
    (process,) = (process for process in _PROCESSES if package in (*process[0], *process[1]))
    return _loaded(process)[package]


@cache
def _loaded(process: tuple[tuple[str, ...], tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _LOAD_ALL, *(" ".join(names) for names in process)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = (line.split() for line in done.stdout.splitlines())
    return {package: tuple(modules) for package, *modules in lines}


def _is_below(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)
