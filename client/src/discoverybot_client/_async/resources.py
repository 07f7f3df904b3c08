"""What stays when a job has ended: schedules, datasets, dead letters."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Self, Unpack

from discoverybot_client.answers import (
    Change,
    ComingRun,
    DatasetHealth,
    DatasetItem,
    DatasetRecord,
    DatasetRunRecord,
    DeadLetterRecord,
    Occurrence,
    RunDays,
    ScheduleRecord,
)
from discoverybot_client.errors import AsyncWaitTimeoutError, NoGatewayError, NotFoundError
from discoverybot_client.params import (
    ChangeTypes,
    DatasetChanges,
    DatasetOptions,
    DeadLetterFilters,
    ItemFormat,
    RunState,
    ScheduleChanges,
    ScheduleFields,
    ScheduleFilters,
)
from discoverybot_client.records import NEW_JOB
from discoverybot_client.rules import (
    AWAY,
    GRACE,
    Deadline,
    Names,
    Pace,
    Patience,
    Told,
    comma_separated,
    given,
    idempotent,
    order,
    segment,
    sent,
)

from .bound import Bound, Resource
from .jobs import Job
from .transport import Transport

#: Changes and items of a page: the most that the gateway gives.
_MANY = 1000
#: Seconds that the gateway waits for a change.
_WAIT = 30
#: Seconds between two looks at a run that is not decided, and the states of such runs.
_LOOK, _UNDECIDED = 0.5, frozenset({"planned", "paused"})


class Schedule(Bound, ScheduleRecord):
    """A crawl that is repeated."""

    @property
    def id(self) -> str:
        """The id that `get` and other calls take."""
        return str(self._data["schedule_id"])

    async def refresh(self) -> Self:
        """Ask for it again."""
        return await self._renew("GET", self._path())

    async def update(self, **fields: Unpack[ScheduleChanges]) -> Self:
        """Replace these fields; with `rev=schedule.rev` only if nobody else has changed it meanwhile."""
        return await self._renew("PATCH", self._path(), json=sent(fields))

    async def pause(self) -> Self:
        """Begin no run until `resume`."""
        return await self._renew("POST", self._path("/pause"))

    async def resume(self) -> Self:
        """Runs begin again when they are due."""
        return await self._renew("POST", self._path("/resume"))

    async def run(self) -> Job:
        """Run the crawl now, in addition to the runs that are due."""
        receipt = await self._transport.call("POST", self._path("/run"))
        return Job({**NEW_JOB, **receipt}, self._transport)

    async def jobs(self, *, limit: int | None = None) -> AsyncIterator[Job]:
        """The schedule's jobs, the newest first."""
        async for job in self._transport.entries("/jobs", "jobs", {"schedule_id": self.id, "limit": limit}):
            yield Job(job, self._transport)

    async def items(self, *, q: str | None = None, limit: int | None = None) -> AsyncIterator[dict[str, Any]]:
        """The items of the run under way, or else of the latest one; `jobs` has all runs. `q`: only items with this
        text.
        """
        async for item in self._transport.entries(self._path("/items"), "items", given(q=q, limit=limit), page=_MANY):
            yield item

    async def export(
        self,
        target: str | Path,
        format: ItemFormat = "jsonl",  # noqa: A002 - as the API has it
        *,
        attempt: int | str | None = None,
        run: str | None = None,
        fields: Names | None = None,
        q: str | None = None,
        bom: bool | None = None,
        escape_formulas: bool | None = None,
    ) -> Path:
        """These items as a file: `jsonl`, `csv`, `json`, `xlsx` or `parquet`, with the arguments of `Job.export`.
        `run`: the job id of another run.
        """
        query = {"attempt": attempt, "run": run, "q": q, "bom": bom, "escape_formulas": escape_formulas}
        path, columns = self._path("/items/download"), comma_separated(fields=fields)
        return await self._transport.download(path, Path(target), format=format, **columns, **query)

    async def coming(self, count: int = 10) -> list[ComingRun]:
        """The runs to come: `at`, `due` and `local` of each."""
        told = await self._transport.call("GET", self._path("/next"), params={"count": count})
        return [ComingRun(run) for run in told.objects("runs")]

    async def history(self, *, limit: int | None = None) -> AsyncIterator[Occurrence]:
        """Each time at which the schedule was due, the latest first, with its job or the reason why there is none."""
        async for entry in self._transport.entries(self._path("/history"), "entries", {"limit": limit}):
            yield Occurrence(entry)

    async def days(self, days: int = 30) -> RunDays:
        """How its runs went, day by day."""
        return RunDays(await self._transport.call("GET", self._path("/days"), params={"days": days}))

    async def delete(self) -> None:
        """Delete the schedule. Its jobs stay."""
        await self._transport.call("DELETE", self._path())

    def _path(self, what: str = "") -> str:
        return f"/schedules/{segment(self.id)}{what}"


class Schedules(Resource):
    """Crawls that are repeated: `client.schedules`."""

    async def create(
        self,
        *urls: str,
        interval: str,
        spider: str | None = None,
        name: str | None = None,
        idempotency_key: str | None = None,
        **fields: Unpack[ScheduleFields],
    ) -> Schedule:
        """Crawl again and again: `interval` is `0 9 * * *`, `@daily` or `every 15m`. The same crawl at the same times
        is answered with the schedule that there is.
        """
        body = order(self._user_id, urls, spider, {**fields, "interval": interval, "name": name})
        told = await self._transport.call("POST", "/schedules", json=body, headers=idempotent(idempotency_key))
        return Schedule(told, self._transport)

    async def get(self, schedule_id: str) -> Schedule:
        """Raises `NotFoundError`."""
        return await Schedule({"schedule_id": schedule_id}, self._transport).refresh()

    async def list(self, **filters: Unpack[ScheduleFilters]) -> AsyncIterator[Schedule]:
        """The newest first."""
        query = {"user_id": self._user_id, **filters}
        async for schedule in self._transport.entries("/schedules", "schedules", query):
            yield Schedule(schedule, self._transport)


class Changes:
    """The changes of a dataset: a loop over it has each as a `Change`, in order. Keep its `cursor` beside what you
    have done with them; the next loop goes on there (`since`).
    """

    def __init__(
        self,
        transport: Transport,
        path: str,
        query: dict[str, Any],
        since: int | str,
        *,
        follow: bool,
        patience: float | None,
    ) -> None:
        self._transport = transport
        self._path = path
        self._query = query
        self._follow = follow
        self._patience = patience
        #: All changes up to here were handed out, and the loop over them has come back for more.
        self.cursor: int | str = since

    async def __aiter__(self) -> AsyncIterator[Change]:
        pace = Pace(self._transport.retries)
        while True:
            pace.asks()
            asked = self.cursor
            page = await self._next_page()
            changes = page.objects("changes")
            if changes and page["next"] == asked:
                # whoever goes on would get them again and again
                raise NoGatewayError(f"the page after {asked!r} of {self._path} is the same again")
            pause = pace.pause(is_news=bool(changes))
            for change in changes:
                yield Change(change)
                self.cursor = change["seq"]
            self.cursor = page["next"]
            if not (page["pending"] or self._follow):
                return
            if pause:
                await asyncio.sleep(pause)

    async def _next_page(self) -> Told:
        """The next page; who follows waits for a gateway that is away."""
        outage = Patience(self._transport.retries, self._patience, was_there=self._transport.was_there)
        while True:
            try:
                return await self._page()
            except AWAY as error:
                if not self._follow:
                    raise
                await self._transport.sleep(outage.pause(error), "GET", self._path, error)

    async def _page(self) -> Told:
        wait = _WAIT if self._follow else 0
        query = {**self._query, "since": self.cursor, "limit": _MANY, **({"wait": wait} if wait else {})}
        deadline = Deadline(self._transport.timeout + wait, wait + GRACE)
        page: Told = await self._transport.call("GET", self._path, params=query, deadline=deadline)
        return page


class Dataset(Bound, DatasetRecord):
    """Items that are tracked across runs."""

    @property
    def items_count(self) -> int:
        """How many items are present; `items()` gives the items themselves."""
        return int(self._data["items"])

    def changes(
        self,
        since: int | str | datetime = 0,
        *,
        types: ChangeTypes | None = None,
        follow: bool = False,
        patience: float | None = None,
    ) -> Changes:
        """The changes after `since`: the `cursor` of an earlier loop, or a time with an offset. With `follow`,
        the loop waits for more and does not end; it raises an error if the gateway is away for longer than
        `patience` seconds, and without `patience` waits for the gateway without a limit. Raises
        `CursorExpiredError` if such changes are no longer kept.
        """
        query = {**self._user(), **given(types=types)}
        begin = sent({"since": since})["since"]
        return Changes(self._transport, self._path("/changes"), query, begin, follow=follow, patience=patience)

    async def items(
        self, *, q: str | None = None, removed: bool = False, limit: int | None = None
    ) -> AsyncIterator[DatasetItem]:
        """The items that are present; with `removed`, also removed ones. `q`: only items with this text."""
        query = {**self._user(), **given(q=q, removed="true" if removed else None, limit=limit)}
        async for item in self._transport.entries(self._path("/items"), "items", query, page=_MANY):
            yield DatasetItem(item)

    async def export(
        self,
        target: str | Path,
        format: ItemFormat = "jsonl",  # noqa: A002 - as the API has it
        *,
        fields: Names | None = None,
        q: str | None = None,
        removed: bool = False,
        as_of: int | None = None,
        bom: bool | None = None,
        escape_formulas: bool | None = None,
    ) -> Path:
        """The items that are present as a file: `jsonl`, `csv`, `json`, `xlsx` or `parquet`; with `removed`, also
        removed ones. `as_of`: as they were right after the change with this `seq`. The other arguments are those of
        `Job.export`.
        """
        columns, wanted = comma_separated(fields=fields), "true" if removed else None
        query = {**columns, "q": q, "removed": wanted, "as_of": as_of, "bom": bom, **self._user()}
        path = self._path("/items/download")
        return await self._transport.download(
            path, Path(target), format=format, escape_formulas=escape_formulas, **query
        )

    async def export_changes(
        self,
        target: str | Path,
        format: ItemFormat = "jsonl",  # noqa: A002 - as the API has it
        *,
        since: int | str | datetime = 0,
        types: ChangeTypes | None = None,
        fields: Names | None = None,
        bom: bool | None = None,
        escape_formulas: bool | None = None,
    ) -> Path:
        """The changes after `since` as a file of this format. `fields`, `bom` and `escape_formulas` as for
        `Job.export`.
        """
        columns = comma_separated(fields=fields)
        query = {"since": since, "types": types, "bom": bom, **columns, **self._user()}
        path = self._path("/changes/download")
        return await self._transport.download(
            path, Path(target), format=format, escape_formulas=escape_formulas, **query
        )

    async def list_runs(
        self, *, state: RunState | None = None, limit: int | None = None
    ) -> AsyncIterator[DatasetRun]:
        """The dataset's runs, the newest first; `state="held"` selects those that wait for `accept`."""
        query = {**self._user(), "state": state, "limit": limit}
        async for run in self._transport.entries(self._path("/runs"), "runs", query):
            yield DatasetRun(run, self._transport, self)

    async def run(self, job_id: str) -> DatasetRun:
        """The run of this job. Raises `NotFoundError`."""
        return await DatasetRun({"job_id": job_id}, self._transport, self).refresh()

    async def wait_for(self, job: Job | str, timeout: float | None = 60.0) -> DatasetRun:
        """What this crawl has done to it, once that is decided: its changes are `published`, or why there are none.
        That is up to a few seconds after the job has ended. `timeout` is for all of it, in seconds: raises
        `WaitTimeoutError` after that, and `ValueError` if the crawl has no dataset, or another one.
        """
        waited = job if isinstance(job, Job) else Job({"job_id": job}, self._transport)
        deadline, place = Deadline(timeout), self._path(f"/runs/{segment(waited.id)}")
        self._require_part(waited)
        await waited.wait(timeout)
        if "spec" not in waited:
            with suppress(*AWAY):
                await waited.refresh()
        self._require_part(waited)
        while True:
            # until its items are compared there is no such run
            limit = Deadline(deadline.within(self._transport.timeout))
            with suppress(NotFoundError, *AWAY):
                told = await self._transport.call("GET", place, params=self._user(), deadline=limit)
                run = DatasetRun(told, self._transport, self)
                if run.state not in _UNDECIDED:
                    return run
            if deadline.is_over():
                raise AsyncWaitTimeoutError(
                    f"dataset {self.name} has no run of job {waited.id} after {timeout} seconds", waited
                )
            await asyncio.sleep(deadline.within(_LOOK))

    async def health(self) -> DatasetHealth:
        """How the last run compares with what is usual."""
        return DatasetHealth(await self._transport.call("GET", self._path("/health"), params=self._user()))

    async def schema(self, *, learned: bool = False) -> dict[str, Any]:
        """The JSON Schema of the items: the pinned one, or with `learned` one made from the last runs."""
        query = {**self._user(), **({"learned": "true"} if learned else {})}
        return dict(await self._transport.call("GET", self._path("/schema"), params=query))

    async def refresh(self) -> Self:
        """Ask for it again."""
        return await self._renew("GET", self._path(), params=self._user())

    async def update(self, **options: Unpack[DatasetChanges]) -> Self:
        """Replace these options."""
        return await self._renew("PATCH", self._path(), params=self._user(), json=sent(options))

    async def delete(self) -> None:
        """Delete its items and changes. The jobs stay."""
        await self._transport.call("DELETE", self._path(), params=self._user())

    def _require_part(self, job: Job) -> None:
        """Raises `ValueError` if the job is known to have no such dataset."""
        spec = job.raw.get("spec")
        if isinstance(spec, dict) and "dataset" in spec:
            dataset = spec["dataset"]
            name = dataset.get("name") if isinstance(dataset, dict) else dataset
            if name != self.name:
                has = f"the dataset {name}" if name else "no dataset"
                raise ValueError(f"job {job.id} has {has}: start it with dataset={self.name!r}")

    def _user(self) -> dict[str, Any]:
        return {"user_id": self.user_id}

    def _path(self, what: str = "") -> str:
        return f"/datasets/{segment(self.name)}{what}"


class DatasetRun(Bound, DatasetRunRecord):
    """The effect of one crawl on a dataset."""

    def __init__(self, data: dict[str, Any], transport: Transport, dataset: Dataset) -> None:
        super().__init__(data, transport)
        self._user = {"user_id": dataset.user_id}
        self._place = f"/datasets/{segment(dataset.name)}/runs"

    async def refresh(self) -> Self:
        """Ask for it again."""
        return await self._renew("GET", self._path(), params=self._user)

    async def accept(self, *, new_normal: bool = False) -> Self:
        """The changes of a run that is held become visible; with `new_normal` what is usual is learned anew."""
        query = {**self._user, **({"new_normal": "true"} if new_normal else {})}
        return await self._renew("POST", self._path("/accept"), params=query)

    async def reject(self) -> Self:
        """The changes of a run that is held are dropped."""
        return await self._renew("POST", self._path("/reject"), params=self._user)

    async def export(self) -> Self:
        """Write the files of the dataset's `exports` that are not there yet, within seconds."""
        return await self._renew("POST", self._path("/export"), params=self._user)

    def _path(self, what: str = "") -> str:
        return f"{self._place}/{segment(self._data['job_id'])}{what}"


class Datasets(Resource):
    """Items that are tracked across runs: `client.datasets`."""

    async def put(self, name: str, **options: Unpack[DatasetOptions]) -> Dataset:
        """Make the dataset, or set its options, such as `key=["sku"]`; other options get their defaults."""
        path, query = f"/datasets/{segment(name)}", given(user_id=self._user_id)
        return Dataset(await self._transport.call("PUT", path, params=query, json=sent(options)), self._transport)

    async def get(self, name: str) -> Dataset:
        """Raises `NotFoundError`."""
        path, query = f"/datasets/{segment(name)}", given(user_id=self._user_id)
        return Dataset(await self._transport.call("GET", path, params=query), self._transport)

    async def list(self, *, limit: int | None = None) -> AsyncIterator[Dataset]:
        """The newest first."""
        query = {"user_id": self._user_id, "limit": limit}
        async for dataset in self._transport.entries("/datasets", "datasets", query):
            yield Dataset(dataset, self._transport)


class DeadLetter(Bound, DeadLetterRecord):
    """A job that is out of retries."""

    async def requeue(self) -> Job:
        """The new job that crawls the same again."""
        receipt = await self._transport.call("POST", f"/dead-letters/{segment(self._data['id'])}/requeue")
        return Job({**NEW_JOB, "spider": self._data.get("spider"), **receipt}, self._transport)

    async def dismiss(self) -> None:
        """Take it off the list. The job stays."""
        await self._transport.call("DELETE", f"/dead-letters/{segment(self._data['id'])}")


class DeadLetters(Resource):
    """Jobs that are out of retries: `client.dead_letters`."""

    async def list(self, **filters: Unpack[DeadLetterFilters]) -> AsyncIterator[DeadLetter]:
        """The newest first."""
        query = {"user_id": self._user_id, **filters}
        async for letter in self._transport.entries("/dead-letters", "dead_letters", query):
            yield DeadLetter(letter, self._transport)
