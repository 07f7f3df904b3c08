"""Hands URLs and parameters to a spider, whichever arguments its constructor takes."""

from __future__ import annotations

import inspect
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from crawler.scrapy_versions import forgets_start_requests
from gateway.contract.param_formats import RESERVED_PARAMS, SCRAPYS_PARAMS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping

    from scrapy import Spider

# named after the module that the process runs
logger = logging.getLogger("crawler.node.runner")


class SpiderArguments(NamedTuple):
    #: For the constructor.
    given: dict[str, Any]
    #: Arguments that the constructor does not take, to be set as attributes once the spider is built.
    left: dict[str, Any]


class _Taken(NamedTuple):
    """The arguments that a constructor takes, including those of base classes to which it passes the rest."""

    by_name: frozenset[str]
    #: Whether all of these constructors also take any other name.
    takes_any: bool

    def takes(self, name: str) -> bool:
        return self.takes_any or name in self.by_name


_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def _taken(spider: type[Spider], method: str) -> _Taken:
    names: set[str] = set()
    for cls in spider.__mro__:
        function = vars(cls).get(method)
        if function is None:
            continue
        parameters = inspect.signature(getattr(function, "__func__", function)).parameters.values()
        names.update(parameter.name for parameter in parameters if parameter.kind in _BY_NAME)
        if not any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
            return _Taken(frozenset(names - {"self", "cls", "crawler"}), takes_any=False)
    return _Taken(frozenset(names), takes_any=True)


def for_constructor(spider: type[Spider], arguments: Mapping[str, Any]) -> SpiderArguments:
    """Divide the arguments into those that `from_crawler` and the constructors take, and the rest. A constructor
    without `**kwargs` would raise an error for others.
    """
    ways = _taken(spider, "from_crawler"), _taken(spider, "__init__")
    given = {name: value for name, value in arguments.items() if all(way.takes(name) for way in ways)}
    return SpiderArguments(given, {name: value for name, value in arguments.items() if name not in given})


def named_arguments(spider: type[Spider]) -> set[str]:
    """The arguments that the spider's constructors, or those of its base classes, take by name. Such a name never
    reaches Scrapy's constructor, which makes attributes of all it gets, so even a reserved name does no harm.
    """
    ways = _taken(spider, "from_crawler"), _taken(spider, "__init__")
    names = {name for way in ways for name in way.by_name if all(other.takes(name) for other in ways)}
    return {name for name in names - SCRAPYS_PARAMS if not name.startswith("_")}


def replaced(spider: type[Spider], names: Iterable[str]) -> set[str]:
    """Those of `names` that would, set as attributes, replace a method of the spider or a reserved name."""
    taken = named_arguments(spider)
    return {name for name in names if name not in taken and (_is_reserved(name) or _does(spider, name))}


def _is_reserved(name: str) -> bool:
    return name in RESERVED_PARAMS or name.startswith("_")


def _does(spider: type[Spider], name: str) -> bool:
    """Whether the spider has a method, a property or another descriptor of this name."""
    own = inspect.getattr_static(spider, name, None)
    return callable(own) or hasattr(own, "__get__")


def complete(spider: Spider, arguments: SpiderArguments) -> None:
    """Set the arguments that the constructor did not take. Start URLs that the constructor has set itself stay."""
    for name, value in arguments.left.items():
        if name != "start_urls":
            _set(spider, name, value)
    start_urls = {**arguments.given, **arguments.left}.get("start_urls")
    if start_urls and not vars(spider).get("start_urls"):
        _set(spider, "start_urls", start_urls)
    if forgets_start_requests(type(spider)):
        _start_as_before(spider)


def _set(spider: Spider, name: str, value: Any) -> None:
    with suppress(AttributeError):  # the spider has a property of this name that cannot be set
        setattr(spider, name, value)


def _start_as_before(spider: Any) -> None:
    """Make the spider start with its `start_requests()`. Current Scrapy ignores that method, and would crawl the
    start URLs instead.
    """

    async def start() -> AsyncIterator[Any]:
        for request in spider.start_requests():
            yield request

    logger.info("%s has start_requests() and no start(): it is called as Scrapy used to", type(spider).__name__)
    spider.start = start
