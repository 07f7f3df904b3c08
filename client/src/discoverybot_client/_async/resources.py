"""What stays when a job has ended: schedules, datasets, endpoints, projects."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from typing import Any, Self, Unpack
from urllib.parse import quote

from discoverybot_client.params import ChangeTypes, DatasetChanges, DeliveryState, EndpointChanges, ScheduleChanges
from discoverybot_client.records import (
    NEW_JOB,
    Change,
    DatasetItem,
    DatasetRecord,
    DeliveryRecord,
    EndpointRecord,
    ScheduleRecord,
)
from discoverybot_client.rules import GRACE, Deadline, given, sent

from .jobs import Job
from .transport import Transport

#: Entries of a page, and changes of one: the most that the gateway gives.
_PAGE, _MANY = 200, 1000
#: Seconds that the gateway waits for a change.
_WAIT = 30


class Schedule(ScheduleRecord):
    """What is crawled again and again."""

    def __init__(self, data: Mapping[str, Any], transport: Transport) -> None:
        super().__init__(data)
        self._transport = transport

    @property
    def id(self) -> str:
        return str(self._data["schedule_id"])

    async def refresh(self) -> Self:
        return await self._renew("GET")

    async def update(self, **fields: Unpack[ScheduleChanges]) -> Self:
        """Replace these fields; with `rev=schedule.rev` only if nobody else has changed it meanwhile."""
        return await self._renew("PATCH", json=sent(fields))

    async def pause(self) -> Self:
        """No run begins until it is resumed."""
        return await self._renew("POST", "/pause")

    async def resume(self) -> Self:
        return await self._renew("POST", "/resume")

    async def run(self) -> Job:
        """A run now, beside those that are due."""
        receipt = await self._transport.call("POST", f"{self._path()}/run")
        return Job({**NEW_JOB, **receipt}, self._transport)

    async def jobs(self) -> AsyncIterator[Job]:
        """Its jobs, the newest first."""
        async for page in self._transport.pages("/jobs", schedule_id=self.id, limit=_PAGE):
            for job in page["jobs"]:
                yield Job(job, self._transport)

    async def coming(self, count: int = 10) -> list[dict[str, Any]]:
        """The runs to come: `at`, `due` and `local` of each."""
        told = await self._transport.call("GET", f"{self._path()}/next", params={"count": count})
        runs: list[dict[str, Any]] = told["runs"]
        return runs

    async def delete(self) -> None:
        """Its runs stay."""
        await self._transport.call("DELETE", self._path())

    async def _renew(self, method: str, what: str = "", **options: Any) -> Self:
        self._data = await self._transport.call(method, self._path() + what, **options)
        return self

    def _path(self) -> str:
        return f"/schedules/{self.id}"


class Changes:
    """The changes of a dataset, in order. Keep `cursor` beside what you have done with them, and go on from there."""

    def __init__(
        self, transport: Transport, path: str, query: dict[str, Any], since: int | str, *, follow: bool
    ) -> None:
        self._transport = transport
        self._path = path
        self._query = query
        self._follow = follow
        #: All changes up to here were handed out, and the loop over them has come back for more.
        self.cursor: int | str = since

    async def __aiter__(self) -> AsyncIterator[Change]:
        while True:
            page = await self._page()
            for change in page["changes"]:
                yield Change(change)
                self.cursor = change["seq"]
            self.cursor = page["next"]
            if not (page["pending"] or self._follow):
                return

    async def _page(self) -> dict[str, Any]:
        wait = _WAIT if self._follow else 0
        query = {**self._query, "since": self.cursor, "limit": _MANY, **({"wait": wait} if wait else {})}
        deadline = Deadline(self._transport.timeout + wait, wait + GRACE)
        page: dict[str, Any] = await self._transport.call("GET", self._path, params=query, deadline=deadline)
        return page


class Dataset(DatasetRecord):
    """What is known across runs."""

    def __init__(self, data: Mapping[str, Any], transport: Transport) -> None:
        super().__init__(data)
        self._transport = transport

    def changes(
        self, since: int | str | datetime = 0, *, types: ChangeTypes | None = None, follow: bool = False
    ) -> Changes:
        """What has changed after `since`: the `cursor` of an earlier loop, or a time with an offset. With `follow`,
        the loop waits for more and does not end. Raises `CursorExpiredError` if such changes are no longer kept.
        """
        query = {**self._user(), **given(types=types)}
        begin = sent({"since": since})["since"]
        return Changes(self._transport, self._path("/changes"), query, begin, follow=follow)

    async def items(self, *, q: str | None = None, removed: bool = False) -> AsyncIterator[DatasetItem]:
        """What is present; with `removed`, also what is gone."""
        query = {**self._user(), **given(limit=_MANY, q=q, removed="true" if removed else None)}
        async for page in self._transport.pages(self._path("/items"), **query):
            for item in page["items"]:
                yield DatasetItem(item)

    async def refresh(self) -> Self:
        self._data = await self._transport.call("GET", self._path(), params=self._user())
        return self

    async def update(self, **options: Unpack[DatasetChanges]) -> Self:
        self._data = await self._transport.call("PATCH", self._path(), params=self._user(), json=sent(options))
        return self

    async def delete(self) -> None:
        """Delete its items and changes. The jobs stay."""
        await self._transport.call("DELETE", self._path(), params=self._user())

    def _user(self) -> dict[str, Any]:
        return {"user_id": self.user_id}

    def _path(self, what: str = "") -> str:
        return f"/datasets/{quote(self.name, safe='')}{what}"


class Endpoint(EndpointRecord):
    """A receiver of events."""

    def __init__(self, data: Mapping[str, Any], transport: Transport) -> None:
        super().__init__(data)
        self._transport = transport

    @property
    def id(self) -> str:
        return str(self._data["endpoint_id"])

    async def update(self, **fields: Unpack[EndpointChanges]) -> Self:
        self._data = await self._transport.call("PATCH", self._path(), json=sent(fields))
        return self

    async def test(self) -> DeliveryRecord:
        """Call it now, with an event `endpoint.test`."""
        return DeliveryRecord(await self._transport.call("POST", self._path("/test")))

    async def read_secret(self) -> str:
        """The secret for `verify`."""
        return str((await self._transport.call("GET", self._path("/secret")))["secret"])

    async def deliveries(self, *, state: DeliveryState | None = None) -> AsyncIterator[DeliveryRecord]:
        """Its calls, the newest first."""
        async for page in self._transport.pages(self._path("/deliveries"), limit=_PAGE, state=state):
            for delivery in page["deliveries"]:
                yield DeliveryRecord(delivery)

    async def delete(self) -> None:
        await self._transport.call("DELETE", self._path())

    def _path(self, what: str = "") -> str:
        return f"/endpoints/{self.id}{what}"
