"""Names that Python and Scrapy have removed, for projects and libraries that have not been changed since then.

They had kept each of them for years as another name of the same object, so that object is what the code expects.
The names are found only where an attribute or an import would fail otherwise. What Scrapy had removed is in its
release notes, with what has taken its place.
"""

from __future__ import annotations

import base64
import collections
import collections.abc
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import FunctionType, ModuleType
from typing import Any
from warnings import warn

#: By module: what its former names stood for.
_FORMER: dict[ModuleType, dict[str, Any]] = {
    collections: {name: getattr(collections.abc, name) for name in collections.abc.__all__},
    base64: {"encodestring": base64.encodebytes, "decodestring": base64.decodebytes},
}
#: By module of Scrapy: its former names, and their names in the same module today.
_RENAMED = {
    "scrapy.linkextractors": {
        "FilteringLinkExtractor": "LinkExtractor",
        "HtmlParserLinkExtractor": "LinkExtractor",
        "RegexLinkExtractor": "LinkExtractor",
        "SgmlLinkExtractor": "LinkExtractor",
    },
    "scrapy.spiderloader": {"SpiderManager": "SpiderLoader"},
    "scrapy.spiders": {"BaseSpider": "Spider"},
    "scrapy.utils.iterators": {"xmliter": "xmliter_lxml"},
    "scrapy.utils.python": {
        "str_to_unicode": "to_unicode",
        "to_native_str": "to_unicode",
        "unicode_to_str": "to_bytes",
    },
}
#: Scrapy's former modules, and where each is today, with all that is in it. And a module that needs a compiler, with
#: the one of the same interface that needs none.
_MOVED = {
    "MySQLdb": "pymysql",
    "scrapy.command": "scrapy.commands",
    "scrapy.contrib": "scrapy.extensions",
    "scrapy.contrib.downloadermiddleware": "scrapy.downloadermiddlewares",
    "scrapy.contrib.exporter": "scrapy.exporters",
    "scrapy.contrib.linkextractors": "scrapy.linkextractors",
    "scrapy.contrib.loader": "scrapy.loader",
    "scrapy.contrib.loader.processor": "itemloaders.processors",
    "scrapy.contrib.pipeline": "scrapy.pipelines",
    "scrapy.contrib.spidermiddleware": "scrapy.spidermiddlewares",
    "scrapy.contrib.spiders": "scrapy.spiders",
    "scrapy.contrib_exp.iterators": "scrapy.utils.iterators",
    "scrapy.dupefilter": "scrapy.dupefilters",
    "scrapy.linkextractor": "scrapy.linkextractors",
    "scrapy.linkextractors.htmlparser": "scrapy.linkextractors",
    "scrapy.linkextractors.regex": "scrapy.linkextractors",
    "scrapy.linkextractors.sgml": "scrapy.linkextractors",
    "scrapy.loader.common": "itemloaders.common",
    "scrapy.loader.processors": "itemloaders.processors",
    "scrapy.spider": "scrapy.spiders",
    "scrapy.spidermanager": "scrapy.spiderloader",
    "scrapy.squeue": "scrapy.squeues",
    "scrapy.statscol": "scrapy.statscollectors",
    "scrapy.telnet": "scrapy.extensions.telnet",
    "scrapy.utils.decorator": "scrapy.utils.decorators",
    "scrapy.utils.http": "w3lib.http",
    "scrapy.utils.markup": "w3lib.html",
    "scrapy.xlib.pydispatch": "pydispatch",
    "scrapy.xlib.tx": "twisted.web.client",
}


def bring_back() -> None:
    """Let this process find the former names."""
    for module, names in _FORMER.items():
        _lend(module, names)
    with suppress(Exception):  # a Scrapy that cannot be imported is reported where it is needed
        _bring_back_scrapys()


def _bring_back_scrapys() -> None:
    import scrapy.utils.url  # noqa: PLC0415 - the process of a listing has not imported it yet
    import w3lib.url  # noqa: PLC0415 - as above

    # all of its functions had been there, too
    found = {name: one for name, one in vars(w3lib.url).items() if isinstance(one, FunctionType)}
    _lend(scrapy.utils.url, {name: one for name, one in found.items() if not name.startswith("_")})
    for name, today in _RENAMED.items():
        module = import_module(name)
        _lend(module, {former: getattr(module, now) for former, now in today.items()})
    # last, so that it is asked only for what is not there any more
    sys.meta_path.append(_FormerModules())


def _lend(module: ModuleType, names: Mapping[str, Any]) -> None:
    if "__getattr__" not in vars(module):  # a release that finds names itself knows better
        vars(module)["__getattr__"] = _finder(module.__name__, names)


def _finder(module: str, names: Mapping[str, Any]) -> Any:
    def find(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warn(f"{module}.{name} is there no more: it was {names[name]!r}", DeprecationWarning, stacklevel=2)
        return names[name]

    return find


# --- modules that are not there


class _FormerModules(MetaPathFinder, Loader):
    """Makes each former module when it is imported, with the names that its successor has."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002 - required by the interface
        target: ModuleType | None = None,  # noqa: ARG002 - as above
    ) -> ModuleSpec | None:
        if fullname in _REMADE or _is_there(_today(fullname)) or _has_former(fullname):
            # a package without a path: a submodule is looked for here, and not made twice under two names
            return ModuleSpec(fullname, self, is_package=True)
        return None

    def exec_module(self, module: ModuleType) -> None:
        name, today = module.__name__, _today(module.__name__)
        if make := _REMADE.get(name):
            warn(f"{name} is there no more", DeprecationWarning, stacklevel=2)
            vars(module).update(make())
        elif today is not None:
            warn(f"{name} is not there: {today} has taken its place", DeprecationWarning, stacklevel=2)
            found = import_module(today)
            public = [one for one in vars(found) if not one.startswith("_")]
            vars(module).update(
                __all__=getattr(found, "__all__", public), __getattr__=lambda one: getattr(found, one)
            )


def _today(name: str) -> str | None:
    """The name of a former module of today, or of one in a former package; `None` for all others."""
    package, rest = name, ""
    while package and package not in _MOVED:
        package, _, last = package.rpartition(".")
        rest = f".{last}{rest}"
    return f"{_MOVED[package]}{rest}" if package else None


def _is_there(module: str | None) -> bool:
    if module is None:
        return False
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # nor is its package
        return False


def _has_former(package: str) -> bool:
    return any(name.startswith(f"{package}.") for name in _MOVED)


def _conf() -> dict[str, Any]:
    from scrapy.utils.project import get_project_settings  # noqa: PLC0415 - only the project's code asks for it

    return {"settings": get_project_settings()}


def _log() -> dict[str, Any]:
    logger = logging.getLogger("scrapy.log")
    levels = {name: getattr(logging, name) for name in ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")}

    def msg(message: Any = None, _level: int = logging.INFO, **words: Any) -> None:
        level, text = words.pop("level", _level), words.pop("format", message)
        logger.log(level, text, *([words] if words else ()))

    def err(_stuff: Any = None, _why: Any = None, **words: Any) -> None:
        from scrapy.utils.log import failure_to_exc_info  # noqa: PLC0415 - as above
        from twisted.python.failure import Failure  # noqa: PLC0415 - as above

        given = words.pop("failure", _stuff)
        failure = given if isinstance(given, Failure) else Failure(given)  # type: ignore[no-untyped-call]  # Twisted's
        logger.error("%s", words.pop("why", _why) or failure.value, exc_info=failure_to_exc_info(failure))

    return {**levels, "msg": msg, "err": err}


def _reqser() -> dict[str, Any]:
    from scrapy import Request, Spider  # noqa: PLC0415 - as above
    from scrapy.utils.request import request_from_dict  # noqa: PLC0415 - as above

    def to_dict(request: Request, spider: Spider | None = None) -> dict[str, Any]:
        return request.to_dict(spider=spider)

    def from_dict(d: dict[str, Any], spider: Spider | None = None) -> Request:
        return request_from_dict(d, spider=spider)

    return {"request_to_dict": to_dict, "request_from_dict": from_dict}


#: Former modules whose names have successors that are called in another way.
_REMADE: dict[str, Callable[[], dict[str, Any]]] = {
    "scrapy.conf": _conf,
    "scrapy.log": _log,
    "scrapy.utils.reqser": _reqser,
}
