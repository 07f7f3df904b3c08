"""How URLs and parameters reach a spider, whatever its constructor takes."""

from __future__ import annotations

import inspect
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from scrapy import Spider

from gateway.contract.param_formats import RESERVED_PARAMS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Iterable, Mapping

logger = logging.getLogger(__name__)


class Arguments(NamedTuple):
    #: For the constructor.
    given: dict[str, Any]
    #: What it does not take, to be set as attributes once the spider is built.
    left: dict[str, Any]


def for_constructor(spider: type[Spider], arguments: Mapping[str, Any]) -> Arguments:
    """Only what `from_crawler` and every constructor on the way to Scrapy's takes: a strict one would raise."""
    taken = [names for names in (_taken(spider, "from_crawler"), _taken(spider, "__init__")) if names is not None]
    given = {name: value for name, value in arguments.items() if all(name in names for names in taken)}
    return Arguments(given, {name: value for name, value in arguments.items() if name not in given})


def replaced(spider: type[Spider], names: Iterable[str]) -> set[str]:
    """Those of them that would take the place of what the spider does, or may do."""
    return {name for name in names if name in RESERVED_PARAMS or name.startswith("_") or _does(spider, name)}


def _does(spider: type[Spider], name: str) -> bool:
    """Whether it is a method, a property or their like; one that a constructor names is for the asking."""
    own = inspect.getattr_static(spider, name, None)
    if not callable(own) and not hasattr(own, "__get__"):
        return False
    constructors = (vars(cls).get(method) for cls in spider.__mro__ for method in ("from_crawler", "__init__"))
    return not any(
        name in inspect.signature(getattr(one, "__func__", one)).parameters for one in constructors if one is not None
    )


def complete(spider: Spider, arguments: Arguments) -> None:
    """Set what the constructor did not take. Start URLs that the constructor has made itself stay."""
    for name, value in arguments.left.items():
        if name != "start_urls":
            _set(spider, name, value)
    start_urls = {**arguments.given, **arguments.left}["start_urls"]
    if not vars(spider).get("start_urls"):
        _set(spider, "start_urls", start_urls)
    if type(spider).start is Spider.start and hasattr(spider, "start_requests"):
        _start_as_before(spider)


def _set(spider: Spider, name: str, value: Any) -> None:
    with suppress(AttributeError):  # a property of the spider's
        setattr(spider, name, value)


def _taken(spider: type[Spider], method: str) -> Collection[str] | None:
    """Names that it takes; `None` if it takes any."""
    names: set[str] = set()
    for cls in spider.__mro__:
        function = vars(cls).get(method)
        if function is None:
            continue
        parameters = inspect.signature(getattr(function, "__func__", function)).parameters.values()
        names.update(parameter.name for parameter in parameters if parameter.kind in _BY_NAME)
        if not any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
            return names - {"self", "cls", "crawler"}
    return None


_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def _start_as_before(spider: Any) -> None:
    """Scrapy has stopped calling `start_requests()`; a spider that has nothing else would crawl something else."""

    async def start() -> AsyncIterator[Any]:
        for request in spider.start_requests():
            yield request

    logger.info("%s has start_requests() and no start(): it is called as Scrapy used to", type(spider).__name__)
    spider.start = start
