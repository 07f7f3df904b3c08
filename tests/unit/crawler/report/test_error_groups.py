"""What is counted of a log, whatever the objects in its messages do."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from scrapy import Request
from scrapy.http import Response

from crawler.report.error_groups import ErrorGroups, project_file
from gateway.contract.error_fingerprint import LONGEST_EXAMPLE, MOST_BY_HOST, MOST_GROUPS

logger = logging.getLogger("shop")


@pytest.fixture
def groups(tmp_path: Path) -> Iterator[ErrorGroups]:
    (tmp_path / "crawl.log").write_bytes(b"x" * 4711)
    groups = ErrorGroups(tmp_path)
    groups.listen()
    yield groups
    logging.root.removeHandler(groups)


def record(text: str, *args: Any, error: BaseException | None = None) -> logging.LogRecord:
    info = (type(error), error, error.__traceback__) if error else None
    return logging.LogRecord("shop", logging.ERROR, "/shop/spider.py", 7, text, args, info, "parse")  # type: ignore[arg-type]


class Hostile:
    def __init__(self, act: Any) -> None:
        self._act = act

    def __str__(self) -> str:
        return str(self._act())


class WeirdError(Exception):
    def __init__(self, act: Any) -> None:
        super().__init__()
        self._act = act

    def __str__(self) -> str:
        return str(self._act())

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


def raises(_: ErrorGroups) -> str:
    raise RecursionError("none of it")


def logs_itself(groups: ErrorGroups) -> str:
    groups.handle(record("%s", Hostile(lambda: logs_itself(groups))))
    return "logged"


@pytest.mark.parametrize("act", [raises, logs_itself, lambda _: "x" * 50_000_000, lambda _: "\x00\ud800" * 100])
def test_no_object_breaks_the_log_or_is_kept_whole(groups: ErrorGroups, act: Any) -> None:
    def does() -> Any:
        return act(groups)

    began = time.process_time()
    groups.handle(record("a value: %s", Hostile(does)))
    groups.handle(record("raised", error=ValueError(Hostile(does))))
    groups.handle(record("raised", error=WeirdError(does)))
    assert time.process_time() - began < 2
    found = groups.found()
    assert sum(one["count"] for one in found) + groups.left_out == 3
    assert all(len(one["example"]) <= LONGEST_EXAMPLE for one in found)


def test_warnings_and_what_is_marked_are_not_counted(groups: ErrorGroups) -> None:
    logger.warning("not yet")
    logger.error("told elsewhere", extra={"discoverybot_counted": True})
    logger.critical("too late")
    assert [(one["name"], one["message"], one["log_start"]) for one in groups.found()] == [
        ("CRITICAL", "too late", 4711)
    ]


def test_a_message_with_too_few_values_is_counted_as_it_is(groups: ErrorGroups) -> None:
    groups.handle(record("%s of %s", "one"))
    assert [one["example"] for one in groups.found()] == ["%s of %s"]


def test_threads_that_log_at_the_same_time_lose_nothing(groups: ErrorGroups) -> None:
    threads = [
        threading.Thread(target=lambda: [logger.error("of thread %s", number) for number in range(200)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [one["count"] for one in groups.found()] == [800]


def test_many_hosts_do_not_drive_out_what_code_raises(groups: ErrorGroups) -> None:
    for number in range(2 * MOST_GROUPS):
        request = Request(f"http://host{number}.example/")
        groups.answered(request, Response(request.url, status=404, request=request))
    logger.error("of the code")
    found = groups.found()
    assert sum(one["kind"] == "status" for one in found) == MOST_BY_HOST
    assert "of the code" in {one["message"] for one in found}
    assert groups.left_out == 2 * MOST_GROUPS - MOST_BY_HOST


def test_a_file_is_named_as_it_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend("/srv/eggs/ab12.egg")
    project_file.cache_clear()
    for path, name in {
        "/srv/eggs/ab12.egg/shop/spiders/prices.py": "shop/spiders/prices.py",
        "/nowhere/else/shop.py": "else/shop.py",
        "/srv/venv/lib/python3.12/site-packages/parsel/selector.py": None,
        logging.__file__: None,
        "<frozen importlib._bootstrap>": None,
    }.items():
        assert project_file(path) == name, path
