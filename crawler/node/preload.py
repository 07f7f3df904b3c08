"""Importing, in the zygote, what a crawl of our own project would import."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from typing import Any

from scrapy.settings import BaseSettings
from scrapy.utils.misc import load_object, walk_modules_iter

#: Imported only in the course of a crawl, or only when a setting of the node asks for it.
_LATER = (
    "asyncio",
    "crawler.http_cache",
    "encodings.charmap",
    "encodings.idna",
    "encodings.utf_8_sig",
    "gateway.stores.rate_limit",
    "resource",
    "tldextract",
    "trafilatura",
    "twisted.internet.asyncioreactor",
    "twisted.web.client",
)
_OBJECT = re.compile(r"(scrapy|crawler)(\.\w+)+\.[A-Z]\w*")
#: Components that every project on a node is without. (Two others are imported to be told from the rest.)
_NOT_USED = re.compile(r"\.(ftp|s3|h2)\b|FTP|S3|GCS")


def import_everything(settings: BaseSettings) -> None:
    for name in _LATER:
        importlib.import_module(name)
    for module in settings.getlist("SPIDER_MODULES"):
        for found in walk_modules_iter(module):
            # what a spider's module would import in the course of a crawl
            for name in getattr(found, "PRELOAD", ()):
                importlib.import_module(name)
    for path in set(_paths(settings.copy_to_dict())):
        load_object(path)


def _paths(value: Any) -> Iterator[str]:
    """The names of classes anywhere in the settings: spider middlewares, pipelines, the scheduler's queues."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _paths(key)
            yield from _paths(inner)
    elif isinstance(value, str) and _OBJECT.fullmatch(value) and not _NOT_USED.search(value):
        yield value
