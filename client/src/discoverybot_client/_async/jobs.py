"""A job: what it is, what it says, what it finds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Self, Unpack, cast

from discoverybot_client.answers import (
    DeliveryRecord,
    FieldCoverage,
    FileRecord,
    ItemDifferences,
    JobDetailRecord,
    JobErrorRecord,
    JobProgress,
    JobRecord,
    JobSummary,
    Moment,
    RepairBundle,
    RequestRecord,
)
from discoverybot_client.errors import AsyncCrawlFailedError, AsyncWaitTimeoutError, NotAJobError
from discoverybot_client.events import JobEvent
from discoverybot_client.params import (
    DeliveryState,
    ItemFormat,
    LogFormat,
    RequestExportOptions,
    RequestFilters,
    RequestFormat,
    ResendFields,
)
from discoverybot_client.records import FINAL, NEW_JOB, Event, LogLine
from discoverybot_client.rules import (
    AWAY,
    GRACE,
    WAIT_SLICE,
    Deadline,
    Names,
    Pace,
    comma_separated,
    given,
    misshapen,
    segment,
    sent,
)

from .bound import Bound
from .event_stream import events

#: Items of a page: the most that the gateway gives.
_PAGE = 1000
#: Lines of a page, and the characters of a line: the most that the gateway gives.
_LINES, _LONG = 5000, 1 << 20
#: What only the answer has that started it.
_STARTED = ("cached", "cached_at", "scheduled")


class Job(Bound, JobRecord):
    """A crawl, as it was known last: `refresh` and `wait` renew it."""

    _called = "Job"

    @property
    def id(self) -> str:
        """The id that `Client.job` and other calls take."""
        return str(self._data["job_id"])

    @property
    def has_ended(self) -> bool:
        """Whether the job had ended at the last `refresh` or `wait`."""
        return self._data.get("status") in FINAL

    @property
    def is_good(self) -> bool:
        """Whether the job has ended as `finished`, or as `partial` (some pages failed)."""
        return self._data.get("status") in {"finished", "partial"}

    @property
    def cached(self) -> bool | None:
        """Whether it was there before `start_crawl` asked for it; `None` if the job was not started by this call."""
        return self._data.get("cached")

    @property
    def scheduled(self) -> bool | None:
        """Whether it begins later (`schedule_at`): then the id is that of a schedule. `None` likewise."""
        return self._data.get("scheduled")

    def require_good(self) -> Self:
        """The job itself. Raises `CrawlFailedError` if it has failed or was cancelled."""
        if self.has_ended and not self.is_good:
            raise AsyncCrawlFailedError(f"job {self.id}: {self.status}: {self.message}", self)
        return self

    async def refresh(self) -> Self:
        """Ask the gateway for the job as it is now. Raises `NotAJobError` for the id of a schedule."""
        data = await self._transport.call("GET", self._path())
        if data.get("kind", "job") != "job":
            raise NotAJobError(f"{self.id} is a {data['kind']}, not a job: client.schedules.get(…) has it")
        self._take(data)
        return self

    async def wait(self, timeout: float | None = None) -> Self:
        """Wait until the job has ended, whether well or not, and return it. `timeout` is for all of it, in seconds:
        after that raises `WaitTimeoutError`, and the crawl goes on. A gateway that is away or restarts is asked
        again. With 0 it is asked once.
        """
        if timeout == 0 and not self.has_ended:
            with suppress(*AWAY):
                self._take(await self._transport.call("GET", self._path()))
        deadline, pace, failures = Deadline(timeout), Pace(self._transport.retries), 0
        while not self.has_ended:
            left = deadline.left()
            if left == 0:
                raise AsyncWaitTimeoutError(f"job {self.id} has not ended within {timeout:.3g} seconds", self)
            seconds = WAIT_SLICE if left is None else max(1, min(WAIT_SLICE, int(left)))
            limit = Deadline(deadline.within(seconds + GRACE), seconds + GRACE)
            pace.asks()
            try:
                self._take(await self._transport.call("GET", self._path(), params={"wait": seconds}, deadline=limit))
                failures, pause = 0, pace.pause(is_news=self.has_ended)
            except AWAY as error:
                # it is asked again until the time is over, however few retries a call has
                failures += 1
                pause = self._transport.retries.pause(failures, error.retry_after)
            if pause:
                await asyncio.sleep(deadline.within(pause))
        return self

    def _take(self, data: dict[str, Any]) -> None:
        """Replace what is known of the job, but keep how it was started."""
        started = {name: self._data[name] for name in _STARTED if name in self._data}
        self._learn({**started, **data})

    # --- log and events

    async def follow(
        self, *, level: str | None = None, after: str = "", patience: float | None = None
    ) -> AsyncGenerator[LogLine, None]:
        """Each line of the log until the job's end, from the first line or from the line after the id `after`. No
        line is left out and none comes twice, however often the connection breaks. `level` leaves out lines of lower
        levels. Raises an error if the gateway is away for longer than `patience` seconds; without `patience`, waits
        for the gateway without a limit.
        """
        async for event in self.events(level=level, after=after, patience=patience):
            if event.name in {"log", "gap"}:
                yield self._line(event)

    async def events(
        self, *, level: str | None = None, after: str = "", patience: float | None = None
    ) -> AsyncGenerator[JobEvent, None]:
        """As `follow`, but all events of the stream: `log`, `status`, `progress`, `gap`, and `end` once; and
        `dropped` whenever the connection breaks, before it goes on.
        """
        async for event in events(self._transport, self._path("logs"), after, patience, level=level):
            if event.name == "end":
                self._data = {**self._data, **event.data}
            yield cast("JobEvent", event)

    async def search_log(
        self,
        q: str | None = None,
        *,
        level: str | None = None,
        logger: str | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[LogLine]:
        """Each line so far with this text, in upper or lower case, from the first attempt on. `level` leaves out
        lines of lower levels, and `logger` those of other loggers.
        """
        query = {"q": q, "level": level, "logger": logger, "limit": limit, "max_length": _LONG}
        lines = self._transport.entries(self._path("logs/lines"), "lines", query, page=_LINES, cursor="from")
        async for line in lines:
            yield self._line(Event("log", line.get("id", ""), line))

    def _line(self, event: Event[Any, Any]) -> LogLine:
        try:
            return LogLine.of(event)
        except (KeyError, TypeError, ValueError):
            raise misshapen(self._transport.url, event.data) from None

    # --- results

    async def items(
        self,
        *,
        attempt: int | str | None = None,
        fields: Names | None = None,
        q: str | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[dict[str, Any]]:
        """Each item, read page by page; if the crawl still runs, the items so far. `attempt`: a number or `all`.
        `fields`: leave out all other fields. `q`: only items with this text. `limit`: at most this many items.
        """
        query = given(limit=limit, attempt=attempt, q=q, **comma_separated(fields=fields))
        async for item in self._transport.entries(self._path("items"), "items", query, page=_PAGE):
            yield item

    async def requests(self, **filters: Unpack[RequestFilters]) -> AsyncIterator[RequestRecord]:
        """The crawl's requests to sites, in order. `status="4xx"` or `failed=True` selects some of them, and
        `sort="-ms"` puts the slowest first.
        """
        async for request in self._transport.entries(self._path("requests"), "requests", filters):
            yield RequestRecord(request)

    async def errors(self) -> list[JobErrorRecord]:
        """The job's errors in groups of equal ones, the most frequent first; each group says whether it is new."""
        told = await self._transport.call("GET", self._path("errors"))
        return [JobErrorRecord(error) for error in told.objects("errors")]

    async def fields(self, *, compare: bool = False) -> FieldCoverage:
        """How full each field of the job's items is; with `compare` also in earlier runs."""
        query = {"compare": "runs"} if compare else {}
        return FieldCoverage(await self._transport.call("GET", self._path("fields"), params=query))

    async def differences(
        self, other: str | None = None, *, key: Names | None = None, limit: int | None = None
    ) -> ItemDifferences:
        """Which of its items are new, changed or gone since the run with the id `other`: by default the last one
        before it that ended well. `key` are the fields that make two items the same, by default `url` or the key of
        its dataset; `limit` is how many of each kind are shown.
        """
        query = given(other_job_id=other, limit=limit, **comma_separated(key=key))
        return ItemDifferences(await self._transport.call("GET", self._path("differences"), params=query))

    async def progress(self) -> JobProgress:
        """How far it is: pages and items over time, by attempt, and an estimate of when it ends."""
        return JobProgress(await self._transport.call("GET", self._path("progress")))

    async def runs(self, *, limit: int | None = None) -> list[JobSummary]:
        """The newest runs of its schedule, or of the same request, this one among them."""
        told = await self._transport.call("GET", self._path("runs"), params=given(limit=limit))
        return [JobSummary(run) for run in told.objects("runs")]

    async def repair(self) -> RepairBundle:
        """What its spider is mended with: failing pages, errors, fields that dropped, differences to the last good
        run, and, for administrators, the source. The texts of web pages in it are not to be trusted (`untrusted`).
        """
        return RepairBundle(await self._transport.call("GET", self._path("repair")))

    async def timeline(self) -> list[Moment]:
        """What has happened to the job, and when."""
        told = await self._transport.call("GET", self._path("timeline"))
        return [Moment(moment) for moment in told.objects("moments")]

    async def deliveries(
        self, *, state: DeliveryState | None = None, limit: int | None = None
    ) -> AsyncIterator[DeliveryRecord]:
        """The calls of webhooks and endpoints about the job, the newest first."""
        query = {"state": state, "limit": limit}
        async for delivery in self._transport.entries(self._path("deliveries"), "deliveries", query):
            yield DeliveryRecord(delivery)

    async def delivery(self, delivery_id: str) -> DeliveryRecord:
        """One of these calls, with its `body`."""
        return DeliveryRecord(await self._transport.call("GET", self._path(f"deliveries/{segment(delivery_id)}")))

    async def resend(self, **wanted: Unpack[ResendFields]) -> int:
        """Make such calls again: `deliveries=[…]` by their ids, or `missing=True`. Returns their number."""
        return int((await self._transport.call("POST", self._path("deliveries/resend"), json=sent(wanted)))["resent"])

    async def files(self) -> AsyncIterator[FileRecord]:
        """The files that the crawl has written."""
        async for file in self._transport.entries(self._path("files"), "files", {}, page=_PAGE):
            yield FileRecord(file)

    async def download(self, name: str, target: str | Path) -> Path:
        """Save one of the crawl's files as `target`, which exists only once it is complete."""
        path = "/".join(map(segment, name.split("/")))
        return await self._transport.download(f"{self._path('files')}/{path}", Path(target))

    async def download_log(
        self,
        target: str | Path,
        format: LogFormat = "text",  # noqa: A002 - as the API has it
        *,
        level: str | None = None,
    ) -> Path:
        """The log so far as a file: `text`, or `jsonl` with an object a line."""
        return await self._transport.download(self._path("logs/download"), Path(target), format=format, level=level)

    async def export(
        self,
        target: str | Path,
        format: ItemFormat = "jsonl",  # noqa: A002 - as the API has it
        *,
        attempt: int | str | None = None,
        fields: Names | None = None,
        q: str | None = None,
        bom: bool | None = None,
        escape_formulas: bool | None = None,
    ) -> Path:
        """The items as a file: `jsonl`, `csv`, `json`, `xlsx` or `parquet`. `attempt`, `fields` and `q` as for
        `items`; `fields` are also the columns of a CSV, in this order. With `bom` a CSV begins with a byte order
        mark, for Excel; what a spreadsheet would run is escaped in it unless `escape_formulas` is false.
        """
        query = {"attempt": attempt, "q": q, "bom": bom, "escape_formulas": escape_formulas}
        path, columns = self._path("items/download"), comma_separated(fields=fields)
        return await self._transport.download(path, Path(target), format=format, **columns, **query)

    async def export_requests(
        self,
        target: str | Path,
        format: RequestFormat = "jsonl",  # noqa: A002 - as the API has it
        **options: Unpack[RequestExportOptions],
    ) -> Path:
        """The crawl's requests to sites as a file: `jsonl` or `csv`. `status="4xx"` or `failed=True` selects some of
        them, as for `requests`; `bom` and `escape_formulas` as for `export`.
        """
        return await self._transport.download(self._path("requests/download"), Path(target), format=format, **options)

    # --- actions

    async def cancel(self) -> Self:
        """Stop the crawl. A running crawl ends within seconds: call `wait`."""
        return await self._act("cancel", repeatable=True)

    async def pause(self, *, begin_anew: bool = False) -> Self:
        """Pause the crawl. With `begin_anew` also if it cannot go on where it was, and so begins anew."""
        return await self._act("pause", params={"begin_anew": "true"} if begin_anew else {})

    async def resume(self) -> Self:
        """Let the crawl go on where it was paused."""
        return await self._act("resume")

    async def retry(self) -> Job:
        """The new job that crawls the same again."""
        receipt = await self._transport.call("POST", self._path("retry"))
        return Job({**NEW_JOB, "spider": self.spider, **receipt}, self._transport)

    async def delete(self) -> None:
        """Delete an ended job with its items and its log."""
        await self._transport.call("DELETE", self._path())

    async def _act(self, what: str, **options: Any) -> Self:
        told = await self._transport.call("POST", self._path(what), **options)
        self._data = {**self._data, **told}
        return self

    def _path(self, what: str = "") -> str:
        path = f"/jobs/{segment(self.id)}"
        return f"{path}/{what}" if what else path


class JobDetail(Job, JobDetailRecord):
    """A job of which all fields are known, as `Client.job` and `Client.crawl` return it. It is a `Job`: one that was
    just started, or comes from a list, may lack some.
    """
