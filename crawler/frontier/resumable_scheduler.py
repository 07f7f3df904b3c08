"""Scrapy's scheduler, which keeps a frontier file: a crawl that was killed goes on where it was.

A request is *done* once its output is consumed and its items are through the pipelines. Then one frame goes into the
frontier file with the requests that it gave, and its items go into `items.jsonl`. The next attempt on the same node
fetches only those pages again whose requests were not done, and has each item once.

A context variable says which request gives what. It is set around the one private method of Scrapy's engine that is
used here, and the tasks in which callbacks and pipelines run have a copy of it.

A request that is not done when the crawl is interrupted runs again. Items that it has already given do not count,
because it gives them again. So items need not be recognised, whatever pipelines made of them and in whichever order
they came. Requests that it has given are recognised, because they may be done themselves: by their fingerprint and,
where several have the same one, by their mark.
"""

from __future__ import annotations

import io
import logging
import pickle
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from hashlib import blake2b
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from weakref import WeakSet

from scrapy import Request, Spider, signals
from scrapy.core.scheduler import Scheduler
from scrapy.downloadermiddlewares.cookies import CookiesMiddleware
from scrapy.dupefilters import RFPDupeFilter
from scrapy.extensions.closespider import CloseSpider
from scrapy.http import Response
from scrapy.http.request import _find_method
from scrapy.utils.misc import load_object
from scrapy.utils.request import request_from_dict
from twisted.python.failure import Failure

from crawler.closing import Closing, StoppedError
from crawler.frontier.journal import (
    OTHER,
    START,
    FrontierFile,
    FrontierState,
    KeptRequest,
    RequestMark,
    attempt_to_continue,
    copy_lines,
    describe,
    empty,
    hand_on,
    read_frontier,
    take_over_items,
)
from crawler.frontier.sealing import FrontierSeal
from crawler.report.crawl_limits import PageLimit
from crawler.report.failures import exception_reason
from crawler.report.progress import ProgressReport
from crawler.report.request_record import PARENT, RequestRecord
from crawler.scrapy_versions import HAS_FRONTIER, create_looping_call, engine_slot
from crawler.setting_names import ATTEMPT_DIR, MAX_UNDONE
from gateway.contract.outbox import FRONTIER, INTERRUPTED, ITEMS, REQUESTS, state_dir

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator
    from contextlib import AbstractContextManager

    from scrapy.crawler import Crawler
    from scrapy.settings import BaseSettings
    from twisted.internet.defer import Deferred

logger = logging.getLogger(__name__)

#: Seconds after which items are written although their request is not done, so that users see them.
PATIENCE = 2.0
#: Seconds between two checks for such items.
_LOOK = 1.0
#: The mark of a request that the duplicate filter knows, so that no other has its fingerprint.
FILTERED = "-"
#: The mark of a request whose mark cannot be computed.
_UNMARKED = "?"
#: The parts of a request from which the marks of all others are computed. None of these is in the fingerprint.
_MARKED = ("callback", "errback", "headers", "cookies", "meta", "priority", "flags", "cb_kwargs")


class FrontierEntry:
    """The stored facts about a request, from its scheduling until it is done."""

    __slots__ = ("children", "count", "data", "done", "doubtful", "has_cookies", "id", "is_filtered", "is_kept",
                 "lines", "mark", "parent", "parent_id", "print", "records", "since", "state", "to_skip",
                 "url")  # fmt: skip

    def __init__(self, number: int, parent: FrontierEntry | None, parent_id: int, child: RequestMark) -> None:
        self.id = number
        self.parent = parent
        self.parent_id = parent_id
        #: Its fingerprint.
        self.print, self.mark = child
        #: URL of the response whose output is being consumed.
        self.url = ""
        self.is_filtered = False
        self.data = b""
        #: Whether the frontier file has the request.
        self.is_kept = False
        #: Whether it, or an answer to it, has changed a cookie jar.
        self.has_cookies = False
        self.done = False
        self.children: list[FrontierEntry] = []
        #: Requests that it gave, and that an earlier run may have given already. This is decided once its output has
        #: ended.
        self.doubtful: list[tuple[Request, RequestMark]] = []
        #: Items that it gave and that are not written, as lines.
        self.lines: list[bytes] = []
        #: Lines for the record of requests: how it ended, and which requests were made on its behalf.
        self.records: list[bytes] = []
        #: Changes of the spider's state that its callback has made.
        self.state: list[Any] = []
        #: When the first of these items was given.
        self.since = 0.0
        #: Number of items that it has given, and of items to skip because an attempt of release 0.2.0 or earlier
        #: wrote them.
        self.count = 0
        self.to_skip = 0

    def kept(self) -> KeptRequest:
        return KeptRequest(self.id, self.parent_id, self.print, self.is_filtered, self.data, self.mark)


class _Left(NamedTuple):
    """The frontier that an earlier attempt has left, loaded into memory."""

    state: FrontierState
    requests: list[tuple[Request, KeptRequest]]
    #: Changes of the spider's own state: the part, the method and its arguments.
    changes: list[tuple[Any, str, tuple[Any, ...]]]
    cookies: dict[Any, list[Any]]


#: The request whose output is being consumed.
_current: ContextVar[FrontierEntry | None] = ContextVar("request_whose_output_is_consumed", default=None)


def follows_requests(settings: BaseSettings) -> bool:
    """Whether a crawl with this scheduler and these settings keeps a frontier, if the disk can be written."""
    is_scrapys = load_object(settings["DUPEFILTER_CLASS"]) is RFPDupeFilter
    return HAS_FRONTIER and is_scrapys and not settings.get("JOBDIR")


class ResumableScheduler(Scheduler):
    """Scrapy's scheduler with a frontier file. It behaves as Scrapy's own outside of an attempt, with `JOBDIR`, and
    with a duplicate filter that is not Scrapy's.
    """

    crawler: Crawler

    def open(self, spider: Spider) -> Deferred[None] | None:
        opened = super().open(spider)
        report = self.crawler.get_extension(ProgressReport)
        #: Whether a frontier is kept.
        self._follows = False
        self._file: FrontierFile | None = None
        if report is None:
            return opened
        if why_not := self._why_not():
            logger.info("A crawl that is interrupted will begin anew: %s", why_not)
            return opened
        settings = self.crawler.settings
        self._folder = Path(settings[ATTEMPT_DIR])
        self._seal = FrontierSeal(self._folder.name.rpartition("-")[0])
        self._max_undone = settings.getint(MAX_UNDONE)
        self._fingerprint = self.crawler.request_fingerprinter.fingerprint
        self._seen: set[str] = set()
        self._waiting: dict[Request, FrontierEntry] = {}
        self._in_flight: dict[Request, FrontierEntry] = {}
        #: Requests that are in no frame yet, by fingerprint: another parent of the same one may be done first.
        self._not_kept: dict[str, FrontierEntry] = {}
        self._names: dict[Any, str] = {}
        #: Cookie jars that have changed since the last frame, and changes since the last frame that had all jars.
        self._changed_jars: set[Any] = set()
        self._jar_changes = 0
        self._start_state: list[Any] = []
        self._start_given = 0
        #: Requests that `start()` has just given. A mark in their `meta` would pass on to requests made from them.
        self._of_start: WeakSet[Request] = WeakSet()
        #: Items of `start()` in the pipelines.
        self._start_under_way = 0
        self._start_doubtful: list[tuple[Request, RequestMark]] = []
        self._has_let_go = False
        self._batch: list[FrontierEntry] | None = None
        self._batch_state: list[Any] = []
        self._report = report
        self._record = self.crawler.get_extension(RequestRecord)
        self._begin(spider)
        return opened

    def _why_not(self) -> str | None:
        if not HAS_FRONTIER:
            return "that takes Scrapy 2.14 or later"
        if self.dqs is not None:
            return "the project keeps its requests by itself (JOBDIR)"
        if type(self.df) is not RFPDupeFilter:
            return f"what {type(self.df).__name__} knows cannot be kept (DUPEFILTER_CLASS)"
        return None

    # --- the frontier of the previous attempt

    def _begin(self, spider: Spider) -> None:
        before = attempt_to_continue(self._folder)
        left = self._left_by(before, spider) if before else None
        state = left.state if left else FrontierState()
        try:
            left_out = self._take_over(before, state) if before and left else 0
            self._file = FrontierFile(state_dir(self._folder) / FRONTIER, state, self._seal)
        except OSError as error:
            logger.warning("A crawl that is interrupted will begin anew: %s", error)
            for copied in (ITEMS, REQUESTS):
                empty(self._folder / copied)
            return
        if before:
            hand_on(before)
        self._begin_with(state)
        self._attach(spider, state)
        self._follow()
        self._follows = True
        if before and left:
            self._restore(left)
            logger.info(
                "Goes on where attempt %s was interrupted: %d requests are waiting, %d items are there, %d are of "
                "requests that were not done and run again",
                before.name.rpartition("-")[2],
                len(left.requests),
                self._report.items_count,
                left_out,
            )
        self._report.note_frontier(is_kept=True)

    def _begin_with(self, state: FrontierState) -> None:
        self._next_id = state.next_id
        self._started = bool(state.facts.get("started"))
        self._start_done = bool(state.facts.get("start_done"))
        self._seconds_before = float(state.facts.get("seconds", 0.0))
        self._began = monotonic()
        #: By parent and fingerprint: marks of the requests that the parent gave in an earlier run.
        self._again = {parent: _marks(children) for parent, children in state.children.items()}
        self._start_to_skip = state.given.get(START, 0)
        self._seen |= state.seen
        self._samples = state.samples

    def _left_by(self, before: Path, spider: Spider) -> _Left | None:
        """The frontier of the attempt `before`; `None` if it cannot be restored, so that the crawl begins anew."""
        try:
            state = read_frontier(before, self._seal)
            parts = getattr(spider, "kept_state", {})
            changes = [(parts[part], method, args) for part, method, args in _changes(state.changes)]
            if unknown := [method for part, method, _ in changes if not hasattr(part, method)]:
                raise ValueError(f"its spider's state has no {unknown[0]}() any more")  # noqa: TRY301 - as any other
            requests = [(self._as_request(kept, spider), kept) for kept in state.pending.values()]
            cookies = _cookies(state)
        except Exception as error:  # noqa: BLE001 - a project's objects may raise anything
            number = before.name.rpartition("-")[2]
            logger.warning(
                "Begins anew: what attempt %s has left cannot be restored: %s",
                number,
                exception_reason(error),
            )
            return None
        return _Left(state, requests, changes, cookies)

    @staticmethod
    def _as_request(kept: KeptRequest, spider: Spider) -> Request:
        return request_from_dict(pickle.loads(kept.data), spider=spider)  # noqa: S301 - as above

    def _take_over(self, before: Path, state: FrontierState) -> int:
        """Copy the items and the record of requests of the attempt `before`. Returns how many items were left out
        because they do not count. Raises `OSError`.
        """
        if self._record and state.requests_end:
            # without the condition: the attempt before may have kept no record
            copy_lines(before / REQUESTS, self._folder / REQUESTS, [(0, state.requests_end)])
        return take_over_items(before / ITEMS, self._folder / ITEMS, state)

    def _restore(self, left: _Left) -> None:
        for part, method, args in left.changes:
            part.replay(method, args)
        for request, kept in left.requests:
            entry = FrontierEntry(kept.id, None, kept.parent, RequestMark(kept.fingerprint, kept.mark))
            entry.is_kept, entry.to_skip = True, left.state.given.get(kept.id, 0)
            self._waiting[request] = entry
            self._mqpush(request)
        self._report.restore(left.state.facts.get("report", {}), left.state.samples)
        self._restore_counters()
        if cookies := self.crawler.get_downloader_middleware(CookiesMiddleware):
            for key, jar in left.cookies.items():
                for cookie in jar:
                    cookies.jars[key].set_cookie(cookie)

    def _restore_counters(self) -> None:
        progress = self._report.committed
        if limit := self.crawler.get_downloader_middleware(PageLimit):
            limit.asked_before(progress.requested_pages)
        if closer := self.crawler.get_extension(CloseSpider):
            counted = {"pagecount": progress.completed_pages, "itemcount": progress.items_count}
            closer.counter.update(counted, errorcount=progress.errors_count)
            if seconds := closer.close_on["timeout"]:
                closer.close_on["timeout"] = max(0.1, seconds - self._seconds_before)

    def _attach(self, spider: Spider, state: FrontierState) -> None:
        for name, part in getattr(spider, "kept_state", {}).items():
            part.keep(name, self._note)
        self._report.keep_items_with(self.give)
        if self._record:
            self._record.keep_with(self.record, state.facts.get("left_out", 0))
        for signal in (signals.request_reached_downloader, signals.response_downloaded):
            self.crawler.signals.connect(self._look_for_cookies, signal)
        for signal in (signals.item_scraped, signals.item_dropped, signals.item_error):
            self.crawler.signals.connect(self._item_is_through, signal)
        self._timer = create_looping_call(self._show_items)
        self._timer.start(_LOOK, now=False)

    # --- which request an output comes from

    def _follow(self) -> None:
        engine: Any = self.crawler.engine
        inner = engine._handle_downloader_output  # noqa: SLF001 - there is no public way to hear that a request is done

        def handle(result: Any, request: Request) -> Any:
            if self._is_interrupted(result):
                # the crawl did not wait for this response: the next attempt requests the page again
                return None
            entry = self._in_flight.get(request)
            if entry and isinstance(result, Response):
                entry.url = result.url
            token = _current.set(entry)
            try:
                handled = inner(result, request)
            finally:
                _current.reset(token)
            return handled if entry is None else handled.addBoth(self._finish, request, entry)

        engine._handle_downloader_output = handle  # noqa: SLF001 - as above

    def _is_interrupted(self, result: Any) -> bool:
        stopped = isinstance(result, Failure) and isinstance(result.value, StoppedError)
        return stopped and self._may_go_on()

    def _may_go_on(self) -> bool:
        """Whether another attempt can continue after this one, which is being stopped."""
        closing = self.crawler.get_extension(Closing)
        return self._file is not None and not (closing and closing.has_begun)

    def let_go(self) -> None:
        """Note that downloads are given up: from now on, the output of a request may be incomplete."""
        self._has_let_go = True

    def _parent(self) -> FrontierEntry | None:
        """The request whose output is consumed; `None` outside of that, and in tasks that outlive their callback."""
        parent = _current.get()
        return None if parent is None or parent.done else parent

    def enqueue_request(self, request: Request) -> bool:
        if not self._follows:
            return super().enqueue_request(request)
        parent = self._parent()
        parent_id = parent.id if parent else START if request in self._of_start else OTHER
        self._of_start.discard(request)
        if parent_id == START and self._started:
            return True
        fingerprint = self._fingerprint(request).hex()
        child = RequestMark(fingerprint, self._mark(request) if request.dont_filter else FILTERED)
        marks = self._again.get(parent_id, {}).get(fingerprint, [])
        if recognised := [mark for mark in (child.mark, "") if mark in marks]:
            marks.remove(recognised[0])
            return True
        if marks and request.dont_filter:
            (parent.doubtful if parent else self._start_doubtful).append((request, child))
            return True
        return self._schedule(request, parent, parent_id, child)

    def _schedule(self, request: Request, parent: FrontierEntry | None, parent_id: int, child: RequestMark) -> bool:
        if not request.dont_filter and self._is_duplicate(request, parent, child.fingerprint):
            return False
        if request in self._waiting or request in self._in_flight:
            # the same object once more, as with `yield response.request`: a copy keeps the two entries apart
            request = request.copy()
        if parent and parent.url:
            request.meta[PARENT] = parent.url
        entry = FrontierEntry(self._next_id, parent, parent_id, child)
        entry.is_filtered = not request.dont_filter
        entry.data = self._pickled(request)
        self._next_id += 1
        self._waiting[request] = entry
        self._mqpush(request)
        for name in ("scheduler/enqueued/memory", "scheduler/enqueued"):
            self._stat(name)
        self._add(entry, parent)
        return True

    def _decide(
        self, doubtful: list[tuple[Request, RequestMark]], parent: FrontierEntry | None, parent_id: int
    ) -> None:
        """Decide about the doubtful requests, now that the parent's output is complete. If a request of the earlier
        run was not given again, a new one with its fingerprint is taken for it: some part of it differs from run to
        run.
        """
        for request, child in doubtful:
            marks = self._again[parent_id][child.fingerprint]
            if marks:
                marks.pop(0)
            else:
                self._schedule(request, parent, parent_id, child)
        doubtful.clear()

    def _mark(self, request: Request) -> str:
        """A hash that tells requests with the same fingerprint apart, by their callbacks, headers, meta and so on."""
        try:
            values = self._as_dict(request)
            text = repr([values.get(name) for name in _MARKED])
        except Exception:  # noqa: BLE001 - a project's objects may raise anything
            return _UNMARKED
        return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()

    # --- `start()`, which runs in each attempt. As for a request, its output counts once it is done

    def takes(self, one: Any) -> bool:
        """Whether to pass on a request or item of `start()`, to the queue or to the pipelines."""
        if not self._follows:
            return True
        if isinstance(one, Request):
            self._of_start.add(one)
            return True
        if self._start_done:
            return False
        self._start_under_way += 1
        return True

    def start_has_ended(self) -> None:
        if self._follows:
            self._decide(self._start_doubtful, None, START)

    def _item_is_through(self) -> None:
        if _current.get() is None and self._start_under_way:
            self._start_under_way -= 1

    def _is_duplicate(self, request: Request, parent: FrontierEntry | None, fingerprint: str) -> bool:
        if fingerprint not in self._seen:
            self._seen.add(fingerprint)
            return False
        self.df.log(request, self.spider)
        if parent and (waiting := self._not_kept.get(fingerprint)):
            # the frame of whichever parent is done first has it
            parent.children.append(waiting)
        return True

    def _add(self, entry: FrontierEntry, parent: FrontierEntry | None) -> None:
        if parent:
            parent.children.append(entry)
            self._not_kept[entry.print] = entry
        elif self._batch is not None:
            self._batch.append(entry)
        elif entry.parent_id == START:
            state, self._start_state = self._start_state, []
            self._write([entry], state=state)
        else:
            self._write([entry])

    def next_request(self) -> Request | None:
        if not self._follows:
            return super().next_request()
        if self._max_undone and len(self._in_flight) >= self._max_undone:
            return None
        request = super().next_request()
        if request is not None:
            self._in_flight[request] = self._waiting.pop(request)
        return request

    def close(self, reason: str) -> Deferred[None] | None:
        if self._follows:
            self._timer.stop()
            for entry in list(self._in_flight.values()):
                self._give_early(entry)
            self._write([], state=self._start_state)
            if self._file is not None and reason == INTERRUPTED:  # only then can another attempt continue
                self._file.close()
            elif self._file is not None:
                # not now: if the crawl were killed before its report is written, it would begin anew
                self._report.once_written(self._file.remove)
                for entry in self._in_flight.values():
                    self._give_records(entry)
            self._file = None
        return super().close(reason)

    def give(self, line: bytes) -> bool:
        """Take an item as a line of `items.jsonl`; false if an earlier attempt has given it. Raises `OSError`."""
        entry = self._parent()
        if self._file is None or (entry is None and (self._start_done or _current.get())):
            self._write([], lines=[line])
            return True
        if entry is None:
            self._start_given += 1
            if self._start_given <= self._start_to_skip:
                return False
            self._write([], lines=[line], gave={str(START): self._start_given})
            return True
        entry.count += 1
        if entry.count <= entry.to_skip:
            return False
        if not entry.lines:
            entry.since = monotonic()
        entry.lines.append(line)
        return True

    def record(self, request: Request, line: bytes) -> None:
        """Take a line of `requests.jsonl` that says how a request ended. It is written once the request is done. A
        request that was not scheduled (for robots.txt or an image) waits for the scheduled one that needed it.
        """
        entry = self._in_flight.get(request) or self._parent()
        if self._file is None or entry is None:
            self._write([], records=[line])
        else:
            entry.records.append(line)

    def _note(self, part: str, method: str, args: tuple[Any, ...]) -> None:
        """Note a change of the spider's own state."""
        parent = self._parent()
        state = parent.state if parent else self._start_state if self._batch is None else self._batch_state
        state.append((part, method, args))

    @contextmanager
    def together(self) -> Iterator[None]:
        """Put all requests that are scheduled in this block into one frame, so that all are kept or none. The block
        must not run in the callback of a request.
        """
        if not self._follows:
            yield
            return
        self._batch, self._batch_state = [], []
        try:
            yield
        finally:
            batch, state = self._batch, self._batch_state
            self._batch, self._batch_state = None, []
            self._write(batch, state=state)

    # --- the file

    def _finish(self, handled: Any, request: Request, entry: FrontierEntry) -> Any:
        if self._has_let_go and self._may_go_on():
            # the output may be incomplete: the next attempt requests the page again
            return handled
        self._in_flight.pop(request, None)
        if entry.has_cookies:
            self._changed_jars.add(request.meta.get("cookiejar"))
        self._report.commit(request)
        self._decide(entry.doubtful, entry, entry.id)
        entry.done, entry.data = True, b""
        # the file must also have the requests that led to this one, and the requests that it gave
        new = [*_unkept_line(entry), *(child for child in dict.fromkeys(entry.children) if not child.is_kept)]
        self._write(new, lines=entry.lines, records=entry.records, done=entry.id, state=entry.state)
        entry.children, entry.lines, entry.records, entry.state, entry.parent = [], [], [], [], None
        return handled

    def _show_items(self) -> None:
        """Write the items of requests that take long to be done, or may never be."""
        latest = monotonic() - PATIENCE
        for entry in list(self._in_flight.values()):
            if entry.since < latest:
                self._give_early(entry)

    def _give_early(self, entry: FrontierEntry) -> None:
        if entry.lines:
            lines, entry.lines = entry.lines, []
            self._write(_unkept_line(entry), lines=lines, gave={str(entry.id): entry.count})

    def _write(
        self,
        new: list[FrontierEntry],
        *,
        lines: Iterable[bytes] = (),
        records: Iterable[bytes] = (),
        done: int | None = None,
        gave: dict[str, int] | None = None,
        state: list[Any] | None = None,
    ) -> None:
        items, requests = list(lines), list(records)
        if self._file is not None:
            try:
                self._append(self._file, new, items, requests, done=done, gave=gave, state=state)
            except Exception as error:  # noqa: BLE001 - a full disk, or state that does not pickle: the crawl goes on
                self._give_up(f"its frontier cannot be written: {error}")
        if requests and self._record and not self._record.write(requests):
            self._give_up("its requests cannot be written")
        if items and not self._report.write_items(items):
            self._give_up("its items cannot be written")

    def _append(
        self, file: FrontierFile, new: list[FrontierEntry], items: list[bytes], requests: list[bytes], **about: Any
    ) -> None:
        """Append a frame. `about` has `done`, `gave` and `state` as in the frame."""
        about["state"] = changes = pickle.dumps(about["state"]) if about["state"] else b""
        about["jar"], about["jars"] = jars = self._changed_cookies()
        head: dict[str, Any] = {
            "new": [describe(entry.kept()) for entry in new],
            "marks": [entry.mark for entry in new],
            "end": self._report.items_end + sum(map(len, items)),
            "requests": (self._record.end if self._record else 0) + sum(map(len, requests)),
            "facts": self._facts(len(items)),
        }
        if (samples := self._report.samples()) != self._samples:
            head["samples"] = samples
        head |= {name: len(value) if isinstance(value, bytes) else value for name, value in about.items() if value}
        file.append(head, [*(entry.data for entry in new), changes, *jars])
        self._samples = samples
        for entry in new:
            entry.is_kept, entry.data = True, b""
            if self._not_kept.get(entry.print) is entry:
                del self._not_kept[entry.print]

    def _facts(self, items: int) -> dict[str, Any]:
        engine: Any = self.crawler.engine
        # the engine sets `_start` to `None` when `start()` is exhausted; Scrapy has no public attribute for this
        started = self._started or engine._start is None  # noqa: SLF001
        self._start_done = self._start_done or (engine._start is None and not self._start_under_way)  # noqa: SLF001
        return {
            "started": started,
            "start_done": self._start_done,
            "seconds": round(self._seconds_before + monotonic() - self._began, 3),
            "report": self._report.facts(items),
            "left_out": self._record.left_out if self._record else 0,
        }

    def _give_up(self, why: str) -> None:
        """Go on without a frontier file."""
        if self._file is None:
            return
        logger.warning("If this crawl is interrupted, it will begin anew: %s", why)
        self._report.note_frontier(is_kept=False)
        file, self._file = self._file, None
        with suppress(OSError):
            file.remove()
        for entry in self._in_flight.values():
            lines, entry.lines = entry.lines, []
            if lines:
                self._report.write_items(lines)
            self._give_records(entry)

    def _give_records(self, entry: FrontierEntry) -> None:
        """Write the records of a request that is not done but will not be fetched again by another attempt."""
        records, entry.records = entry.records, []
        if records and self._record:
            self._record.write(records)

    # --- cookies

    def _look_for_cookies(self, request: Request, response: Response | None = None) -> None:
        """Note that a jar has changed, either by the request's own cookies before it is sent, or by its response."""
        if request.cookies if response is None else b"Set-Cookie" in response.headers:
            self._changed_jars.add(request.meta.get("cookiejar"))
            if entry := self._in_flight.get(request):
                # the jar itself changes a little later, maybe after another frame
                entry.has_cookies = True

    def _changed_cookies(self) -> tuple[bytes, bytes]:
        """All jars, or only those that have changed. All are written after as many changes as there are jars, so that
        the file grows by what changes: a spider may have a jar for each request.
        """
        changed, self._changed_jars = self._changed_jars, set()
        cookies = self.crawler.get_downloader_middleware(CookiesMiddleware) if changed else None
        if cookies is None:
            return b"", b""
        self._jar_changes += len(changed)
        is_whole = self._jar_changes >= len(cookies.jars)
        if is_whole:
            self._jar_changes, changed = 0, set(cookies.jars)
        jars = pickle.dumps({key: list(cookies.jars[key].jar) for key in changed})
        return (jars, b"") if is_whole else (b"", jars)

    # --- requests as bytes

    def _pickled(self, request: Request) -> bytes:
        if self._file is None:
            return b""
        try:
            return pickle.dumps(self._as_dict(request))
        except Exception as error:  # noqa: BLE001 - a project's objects may raise anything
            self._give_up(f"{request} cannot be written down: {self._culprit(request) or error}")
            return b""

    def _as_dict(self, request: Request) -> dict[str, Any]:
        """As `Request.to_dict`, but quicker: that looks for each callback among all members of the spider."""
        if type(request).to_dict is not Request.to_dict:
            return request.to_dict(spider=self.spider)
        values = {name: getattr(request, name) for name in request.attributes}
        values |= {
            "headers": dict(request.headers),
            "callback": self._name(request.callback),
            "errback": self._name(request.errback),
        }
        if type(request) is not Request:
            values["_class"] = f"{type(request).__module__}.{type(request).__name__}"
        return values

    def _name(self, callback: Any) -> Any:
        if not callable(callback):
            return callback
        function = getattr(callback, "__func__", callback)
        if function not in self._names:
            self._names[function] = _find_method(self.spider, callback)
        return self._names[function]

    def _culprit(self, request: Request) -> str | None:
        parts = [(name, getattr(request, name)) for name in ("callback", "errback")]
        parts += [(f"{where}[{key!r}]", value) for where in ("meta", "cb_kwargs")
                  for key, value in getattr(request, where).items()]  # fmt: skip
        for name, value in parts:
            try:
                pickle.dumps(self._name(value) if name in {"callback", "errback"} else value)
            except Exception as error:  # noqa: BLE001 - as above
                return f"{name}: {error}"
        return None

    def _stat(self, name: str) -> None:
        if self.stats:
            self.stats.inc_value(name)


def _unkept_line(entry: FrontierEntry) -> list[FrontierEntry]:
    """`entry` and the entries that led to it, the first one first, as far as the file does not have them."""
    line: list[FrontierEntry] = []
    up: FrontierEntry | None = entry
    while up is not None and not up.is_kept:
        line.append(up)
        up = up.parent
    return line[::-1]


def _marks(children: list[RequestMark]) -> dict[str, list[str]]:
    """The marks of these requests by fingerprint."""
    marks: dict[str, list[str]] = {}
    for child in children:
        marks.setdefault(child.fingerprint, []).append(child.mark)
    return marks


def _changes(pickles: bytes | bytearray) -> Iterator[tuple[str, str, tuple[Any, ...]]]:
    """The changes of the spider's own state (part, method, arguments) in their order."""
    file = io.BytesIO(pickles)
    while file.tell() < len(pickles):
        yield from pickle.load(file)  # noqa: S301 - written by this project's own process


def _cookies(state: FrontierState) -> dict[Any, list[Any]]:
    """The cookies of each jar."""
    jars: dict[Any, list[Any]] = {}
    file = io.BytesIO(state.jar + state.jar_changes)
    while file.tell() < len(file.getbuffer()):
        jars |= pickle.load(file)  # noqa: S301 - written by this project's own process
    return jars


class StartOutput:
    """Spider middleware nearest to the engine: hands on what `start()` gives if the scheduler takes it."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    async def process_start(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        scheduler = engine_slot(self._crawler).scheduler
        try:
            async for one in start:
                if scheduler.takes(one):
                    yield one
        except Exception:
            scheduler.start_has_ended()
            raise
        scheduler.start_has_ended()


def together(crawler: Crawler) -> AbstractContextManager[None]:
    """As `ResumableScheduler.together`, if the crawl has that scheduler."""
    scheduler = crawler.engine.scheduler if crawler.engine else None
    return scheduler.together() if isinstance(scheduler, ResumableScheduler) else nullcontext()
