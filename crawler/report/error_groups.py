"""Groups the errors of a crawl by their cause: exceptions, logged errors, and failed requests.

Output of other processes, or of `print`, is only in the log, and in no group.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import sysconfig
import time
from contextlib import contextmanager, suppress
from functools import lru_cache
from itertools import islice
from pathlib import Path
from traceback import walk_tb
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from crawler.report.failures import exception_reason, status_reason, text_of
from gateway.contract import outbox
from gateway.contract.error_fingerprint import (
    BY_HOST,
    LONGEST_READ,
    LONGEST_URL,
    MOST_BY_HOST,
    MOST_GROUPS,
    GroupKind,
    group,
    readable,
    without_values,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from scrapy.http import Request, Response
    from twisted.python.failure import Failure

#: Marks log records and exceptions that are in a group already when they are logged.
COUNTED = "discoverybot_counted"
#: The logger that reports requests as given up. Most of these requests have a group of their own.
_RETRIES = "scrapy.downloadermiddlewares.retry"
#: At most this many given-up requests are remembered, because they may still get a group of their own.
_GIVEN_UP = 64
#: At most this many frames of a traceback are read.
_FRAMES = 5000
_URL = re.compile(r"https?://[^\s<>\"']+")
#: Placeholders in a log message.
_PLACES = re.compile(r"%(\(\w*\))?[^A-Za-z%]*[A-Za-z%]")
#: Our own package. A frame of the project's code is preferred to one of ours.
_OURS = str(Path(__file__).parents[1])
_LIBRARIES = frozenset({"site-packages", "dist-packages"})
_PYTHON = tuple(f"{sysconfig.get_path(name)}{os.sep}" for name in ("stdlib", "platstdlib"))


class ErrorGroups(logging.Handler):
    """The groups of one attempt. It is a handler of the log, and is also informed about failed requests."""

    def __init__(self, folder: Path) -> None:
        super().__init__(logging.ERROR)
        self._log = folder / outbox.LOG
        #: By all that makes two errors equal.
        self._groups: dict[tuple[str, ...], dict[str, Any]] = {}
        #: Errors for which there was no room.
        self.left_out = 0
        self._is_noting = False
        #: By the id of each request: the request, its log record, and the position in the log.
        self._given_up: dict[int, tuple[Request, logging.LogRecord, int | None]] = {}

    @property
    def is_listening(self) -> bool:
        return self in logging.root.handlers

    def listen(self) -> None:
        # before Scrapy's handler, so that the log's length is where the record will be written
        logging.root.addHandler(self)
        logging.root.handlers.remove(self)
        logging.root.handlers.insert(0, self)

    def found(self) -> list[dict[str, Any]]:
        """The groups, the largest first."""
        with self._locked():
            while self._given_up:
                self._log_given_up()
            return sorted(self._groups.values(), key=lambda one: -one["count"])

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock: threads may log while a request is counted."""
        self.acquire()
        try:
            yield
        finally:
            self.release()

    # --- log records

    def emit(self, record: logging.LogRecord) -> None:
        # formatting a record's value might itself log an error
        if self._is_noting or hasattr(record, COUNTED):
            return
        self._is_noting = True
        try:
            self._note(record)
        except Exception:  # noqa: BLE001 - objects in a message may raise anything
            self.left_out += 1
        finally:
            self._is_noting = False

    def _note(self, record: logging.LogRecord) -> None:
        request = record.args.get("request") if isinstance(record.args, dict) else None
        if record.name == _RETRIES and request is not None:
            # the spider may have retried the request itself; then it has not failed
            self._given_up[id(request)] = (request, record, self._log_end())
            if len(self._given_up) > _GIVEN_UP:
                self._log_given_up()
            return
        _, error, traceback = record.exc_info or (None, None, None)
        if error is None:
            self._add_logged(record)
        elif not getattr(error, COUNTED, False):
            place, text = place_of(error, traceback) or record.name, text_of(error)[:LONGEST_READ]
            self._add("exception", class_name(error), place, text, beside=_message(record))

    def broke_down(self, error: BaseException) -> None:
        """Count an exception that has ended the crawl, unless it was logged."""
        if not self.is_listening:
            with suppress(Exception):
                self._add("exception", class_name(error), place_of(error) or "", text_of(error)[:LONGEST_READ])

    def _add_logged(self, record: logging.LogRecord, start: int | None = None) -> None:
        form, file = str(record.msg)[:LONGEST_READ], project_file(record.pathname)
        if not record.args or not any(map(str.isalpha, _PLACES.sub("", form))):
            form = ""
        # the values in a message differ each time, and can be any text, so only the place counts
        place = f"{file}:{record.funcName}" if file else record.name
        self._add("log", record.levelname, place, _message(record), form, start=start)

    def _log_given_up(self) -> None:
        _, record, start = self._given_up.pop(next(iter(self._given_up)))
        with suppress(Exception):
            self._add_logged(record, start)

    # --- errors that are not, or not only, logged

    def is_of(self, url: str, failure: Failure) -> None:
        """Note the page of an exception that Scrapy has logged without it."""
        error: Any = failure.value
        with suppress(Exception):
            traceback: Any = failure.getTracebackObject()  # type: ignore[no-untyped-call]
            place = place_of(error, traceback) or ""
            key = _key("exception", class_name(error), place, text_of(error)[:LONGEST_READ])
            with self._locked():
                known = self._groups.get(key)
                if known and not known["url"]:
                    known["url"] = readable(url, LONGEST_URL)

    def answered(self, request: Request, response: Response) -> None:
        """Count a page whose status is an error."""
        reason = status_reason(response.status)
        self._add_request("status", str(response.status), reason, response.url, request)

    def not_answered(self, request: Request, error: Any) -> None:
        self.pass_over(request, error)
        self._add_request("download", class_name(error), exception_reason(error, request), request.url, request)

    def pass_over(self, request: Request, error: BaseException | None) -> None:
        """Do not count what was logged about the request's end."""
        with suppress(Exception):
            setattr(error, COUNTED, True)
        with self._locked():
            self._given_up.pop(id(request), None)

    def _add_request(self, kind: GroupKind, name: str, text: str, url: str, request: Request) -> None:
        with self._locked():
            *_, start = self._given_up.pop(id(request), (None,))
            self._add(kind, name, _host(url), text, beside=url, start=start)

    def _add(
        self, kind: GroupKind, name: str, place: str, text: str, form: str = "", *, beside: str = "",
        start: int | None = None,
    ) -> None:  # fmt: skip
        """Count an error. `form` is its text without values; `beside` is another text that contains its URL."""
        key = _key(kind, name, place, form or text)
        known = self._groups.get(key)
        if known is not None:
            known["count"] += 1
            return
        of_hosts = sum(one["kind"] in BY_HOST for one in self._groups.values()) if kind in BY_HOST else 0
        if len(self._groups) >= MOST_GROUPS or of_hosts >= MOST_BY_HOST:
            self.left_out += 1
            return
        url = next((found[0] for one in (beside, text) if (found := _URL.search(one))), "")
        made = group(kind, name, place, text, form=form, url=url)
        start = self._log_end() if start is None and kind != "status" else start
        where = {} if start is None else {"log_start": start}
        self._groups[key] = {**made, **where, "count": 1, "at": int(time.time() * 1000)}

    def _log_end(self) -> int | None:
        """The length of the log in bytes, which is where the next line begins."""
        with suppress(OSError):
            return self._log.stat().st_size
        return None


def class_name(error: BaseException) -> str:
    """`ValueError`, or `shop.errors.NoPrice`."""
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def place_of(error: BaseException, traceback: TracebackType | None = None) -> str | None:
    """The innermost function of the project (or else of ours) in the error's traceback, as `shop/spider.py:parse`.
    Twisted takes the traceback from the error itself.
    """
    theirs = ours = None
    for frame, _ in islice(walk_tb(error.__traceback__ or traceback), _FRAMES):
        code = frame.f_code
        if (file := project_file(code.co_filename)) is None:
            continue
        if code.co_filename.startswith(_OURS):
            ours = f"{file}:{code.co_name}"
        else:
            theirs = f"{file}:{code.co_name}"
    return theirs or ours


@lru_cache(maxsize=1000)
def project_file(path: str) -> str | None:
    """The path below the folder or archive from which it is imported, so that it is the same on every node and in
    every version of the project. `None` for a file of Python or of a library.
    """
    if path.startswith("<"):
        return None
    is_ours = path.startswith(_OURS)
    if not is_ours and (path.startswith(_PYTHON) or not _LIBRARIES.isdisjoint(Path(path).parts)):
        return None
    roots = [root for root in map(str, sys.path) if root and path.startswith(root.rstrip(os.sep) + os.sep)]
    below = path[len(max(roots, key=len)) :] if roots else str(Path(*Path(path).parts[-2:]))
    return below.strip(os.sep)


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()[:LONGEST_READ]
    except (TypeError, ValueError, KeyError):
        # the values do not fit the message
        return str(record.msg)[:LONGEST_READ]


def _key(kind: GroupKind, name: str, place: str, text: str) -> tuple[str, ...]:
    return (kind, name, place) if kind in BY_HOST else (kind, name, place, without_values(text))


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
