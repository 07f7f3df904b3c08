"""Ways in which Scrapy used to build and call a project's components, and does no more."""

from __future__ import annotations

import logging
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from functools import wraps
from inspect import isasyncgenfunction
from types import ModuleType
from typing import Any

# named after the module that the process runs
logger = logging.getLogger("crawler.node.runner")


def bring_back() -> None:
    """Let this process build components as before. Nothing else of them is changed."""
    with suppress(ImportError):  # a Scrapy that cannot be imported is reported where it is needed
        _bring_back()


def _bring_back() -> None:
    import scrapy.utils.misc  # noqa: PLC0415 - the process of a listing has not imported it yet

    theirs = getattr(scrapy.utils.misc, "build_from_crawler", None)
    if scrapy.version_info < (2, 14) or theirs is None:
        return

    @wraps(theirs)
    def build_from_crawler(objcls: Any, crawler: Any, /, *args: Any, **kwargs: Any) -> Any:
        if hasattr(objcls, "from_crawler") or not hasattr(objcls, "from_settings"):
            made = theirs(objcls, crawler, *args, **kwargs)
        else:
            logger.info("%s has from_settings() and no from_crawler(): it is called as Scrapy used to", objcls)
            made = objcls.from_settings(crawler.settings, *args, **kwargs)
        _complete(made)
        return made

    # others have imported it by its name
    for module in [*sys.modules.values()]:
        if isinstance(module, ModuleType) and vars(module).get("build_from_crawler") is theirs:
            vars(module)["build_from_crawler"] = build_from_crawler


def _complete(made: Any) -> None:
    """Give a spider middleware whose output is not asynchronous a method for the asynchronous output that Scrapy
    asks all of them for since 2.16.
    """
    theirs = getattr(made, "process_spider_output", None)
    if theirs is None or isasyncgenfunction(theirs) or hasattr(made, "process_spider_output_async"):
        return

    @wraps(theirs)
    async def process_spider_output_async(response: Any, result: AsyncIterator[Any], **spider: Any) -> Any:
        found: list[Any] = []
        failed: list[Exception] = []
        try:
            async for one in result:
                found.append(one)  # noqa: PERF401 - what was found before an error is kept
        except Exception as error:  # noqa: BLE001 - it is raised below, at its place
            failed.append(error)
        for one in theirs(response=response, result=_again(found, failed), **spider):
            yield one

    with suppress(AttributeError):  # it cannot have another attribute: then Scrapy says what it lacks
        made.process_spider_output_async = process_spider_output_async
        logger.info("%s.process_spider_output() gets at once all that a callback yields", type(made).__name__)


def _again(found: list[Any], failed: list[Exception]) -> Iterator[Any]:
    yield from found
    for error in failed:
        raise error
