"""Shared by all tests: `from sites.server import Site` works everywhere, and nothing leaks in from outside."""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import structlog

_TESTS = Path(__file__).parent
sys.path[:0] = [str(_TESTS / "support"), str(_TESTS)]
forms = importlib.import_module("forms")

for _name in ("MONGO_URI", "REDIS_URL", "BROKER_URL", "RABBITMQ_URL", "DISCOVERYBOT_HOME", "DISCOVERYBOT_URL"):
    os.environ.pop(_name, None)

# without byte code each worker would rewrite the asserts of all tests anew, and each process compile all of ours
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# a shell that started us in the background has it ignored, also by all that we start and interrupt
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# a machine that others share says nothing about how long an example takes, nor how long it takes to make some; and
# what passes here passes anywhere: others are tried where there is time
hypothesis.settings.register_profile(
    "shared",
    max_examples=forms.full_or_short(100, 30),
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
    derandomize=not forms.FULL,
)
hypothesis.settings.load_profile("shared")

# where a test does not configure logging a traceback comes with all its variables, which takes half a minute to draw
structlog.get_config()["processors"][-1].exception_formatter = structlog.dev.plain_traceback


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported for the tests stays, and nobody looks through it for garbage again and again."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        # Scrapy looks three times through its whole stack, and for each frame through all modules that there are: in
        # the midst of a collection half a second each time, at its beginning nothing
        importlib.import_module("scrapy.core.downloader.contextfactory")
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


#: Files that take long and stand at the end of the alphabet: begun last, they would run while other workers are idle.
_BEFORE_OTHERS = {_TESTS / "unit/house/test_import_rules.py"}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path not in _BEFORE_OTHERS)
    if not forms.FULL and (left := [item for item in items if item.get_closest_marker("full")]):
        config.hook.pytest_deselected(items=left)
        gone = set(left)
        items[:] = [item for item in items if item not in gone]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """Of `--dist loadfile`, one that keeps workers in their folders."""
    if config.getoption("dist") != "loadfile":
        return None
    return importlib.import_module("by_folder").FolderScheduling(config, log)


def pytest_make_parametrize_id(val: Any, argname: str) -> str | None:
    """Long bytes do not name a test: an egg holds the time it was packed, and all workers must collect the same."""
    return argname if isinstance(val, bytes) and len(val) > 100 else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With a test that failed comes what the platforms that it used wrote last."""
    report = yield
    if report.failed and (support := sys.modules.get("stack")):
        for name, value in getattr(item, "funcargs", {}).items():
            if isinstance(stack := getattr(value, "stack", value), support.Stack):
                report.sections.append((f"the last words of {name}", stack.last_words()))
    return report
