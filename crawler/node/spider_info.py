"""What is told of a spider without running it."""

from __future__ import annotations

import dis
import inspect
from typing import Any

from scrapy import Spider
from scrapy.addons import AddonManager
from scrapy.spiderloader import get_spider_loader

from crawler.node.project_names import OWN_PROJECT
from crawler.node.project_settings import project_settings
from gateway.contract.outbox import SpiderInfo


def spider_infos(project: str, version: str | None) -> list[SpiderInfo]:
    """The spiders of the project that is on `sys.path`, as its own settings and add-ons have them loaded.

    Raises whatever its modules raise.
    """
    settings = project_settings()
    AddonManager.load_pre_crawler_settings(settings)
    loader = get_spider_loader(settings)
    known = _of_ours if project == OWN_PROJECT else _of_an_egg
    return [
        # by the name under which the loader finds it
        SpiderInfo(project=project, version=version, name=str(name), **known(loader.load(name)))
        for name in sorted(loader.list())
    ]


def _of_ours(spider: type[Spider]) -> dict[str, Any]:
    params = getattr(spider, "Params", None)
    return {
        "description": _first_line(inspect.getdoc(spider)),
        "params_schema": params.model_json_schema() if params else None,
    }


def _of_an_egg(spider: type[Spider]) -> dict[str, Any]:
    return {
        "description": _first_line(spider.__doc__),  # not an inherited one: Scrapy's says nothing of this spider
        "allowed_domains": _domains(getattr(spider, "allowed_domains", None)),
        "own_start": _has_own_start(spider),
    }


def _first_line(text: str | None) -> str:
    return next(iter(inspect.cleandoc(text or "").splitlines()), "")


def _domains(domains: Any) -> list[str]:
    """What is made when the spider is built cannot be known; then nothing is said."""
    if isinstance(domains, str):
        return [domains]
    return [str(one) for one in domains if one] if isinstance(domains, list | tuple | set | frozenset) else []


def _has_own_start(spider: type[Spider]) -> bool:
    """Whether it says itself where it starts: in a method of its own, or by what its constructor sets."""
    if spider.start is not Spider.start or hasattr(spider, "start_requests"):
        return True
    return any(_sets_start_urls(vars(cls).get("__init__")) for cls in spider.__mro__ if cls is not Spider)


def _sets_start_urls(constructor: Any) -> bool:
    code = getattr(inspect.unwrap(constructor), "__code__", None) if constructor else None
    return code is not None and any(
        step.opname == "STORE_ATTR" and step.argval == "start_urls" for step in dis.get_instructions(code)
    )
