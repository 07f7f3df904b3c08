"""What crawls need of Scrapy that is not public: written down, and missed before a crawl misses it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from scrapy.core.downloader import Downloader
from scrapy.core.engine import ExecutionEngine

from crawler import private_names
from crawler.scrapy_versions import UnknownScrapyError

CRAWLER = Path(private_names.__file__).parent
#: Of Python, or asked for only where an old Scrapy has them.
OTHERS = {"_getframe", "_needs_backout"}


def test_todays_scrapy_has_all_of_them() -> None:
    private_names.refuse_without_private_names()


@pytest.mark.parametrize("cls", [Downloader, ExecutionEngine])
def test_one_that_is_gone_is_named(monkeypatch: pytest.MonkeyPatch, cls: type) -> None:
    name = "_process_queue" if cls is Downloader else "_handle_downloader_output"
    monkeypatch.delattr(cls, name)
    with pytest.raises(UnknownScrapyError, match=rf"{cls.__name__} has no {name}\): pin an older release"):
        private_names.refuse_without_private_names()


def test_each_that_is_used_is_looked_for() -> None:
    used = set()
    for source in CRAWLER.rglob("*.py"):
        for line in source.read_text().splitlines():
            if "SLF001" in line:
                used.update(re.findall(r"(?<!self)\.(_[a-z]\w*)", line.partition("#")[0]))
    needed = {name for names in private_names._NEEDED.values() for name in names}
    assert used - OTHERS
    assert used <= needed | OTHERS
