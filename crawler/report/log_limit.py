"""What a crawl may log: beyond it, nothing but how it ends. The launcher stops those who print instead."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Self

from scrapy import signals
from scrapy.exceptions import NotConfigured
from scrapy.utils.log import get_scrapy_root_handler

from crawler.setting_names import ATTEMPT_DIR, MAX_LOG_BYTES

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

logger = logging.getLogger(__name__)

#: Bytes below the limit that are kept for the end of the crawl, but no more than this share of it.
RESERVE = 512 << 10
RESERVE_SHARE = 0.25
#: Who tells how a crawl ends.
_EPILOGUE = frozenset({"scrapy.core.engine", "scrapy.statscollectors", __name__})


class LogLimit:
    """Extension that bounds Scrapy's log handler. It asks the file for its size, since not all of it is logged."""

    def __init__(self, limit: int) -> None:
        reserve = min(RESERVE, int(limit * RESERVE_SHARE))
        self._limit = limit - reserve
        self._longest = max(reserve // 2, 1000)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        limit = crawler.settings.getint(MAX_LOG_BYTES)
        if not limit or not crawler.settings.get(ATTEMPT_DIR):
            raise NotConfigured
        self = cls(limit)
        # not before: Scrapy makes a new handler once the extensions are there
        crawler.signals.connect(self.spider_opened, signals.spider_opened)
        return self

    def spider_opened(self) -> None:
        handler = get_scrapy_root_handler()
        if isinstance(handler, logging.StreamHandler):
            handler.setFormatter(_Cut(handler.formatter or logging.Formatter(), self._longest))
            handler.addFilter(_Filter(handler.stream.fileno(), self._limit))


class _Filter(logging.Filter):
    def __init__(self, file: int, limit: int) -> None:
        super().__init__()
        self._file = file
        self._limit = limit
        self._reached = False

    def filter(self, record: logging.LogRecord) -> bool:
        if not self._reached and os.fstat(self._file).st_size < self._limit:
            return True
        if not self._reached:
            self._reached = True
            logger.warning("Log limit reached: from here on there is only how the crawl ends (CRAWL_MAX_LOG_BYTES)")
        return record.name in _EPILOGUE and record.levelno >= logging.INFO


class _Cut(logging.Formatter):
    """The formatter it is given, but no record is longer than `longest` characters."""

    def __init__(self, inner: logging.Formatter, longest: int) -> None:
        super().__init__()
        self._inner = inner
        self._longest = longest

    def format(self, record: logging.LogRecord) -> str:
        text = self._inner.format(record)
        return text if len(text) <= self._longest else f"{text[: self._longest]}… ({len(text)} characters)"
