"""The client: where crawls begin, and where all else is found."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import suppress
from copy import copy
from errno import ENOENT
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self, Unpack, cast

import httpx2

from discoverybot_client.answers import (
    Action,
    AuditEntry,
    BulkReport,
    CrawlPreview,
    Deployment,
    Health,
    JobsHealth,
    QueueStatus,
    RunDays,
    SchedulerStatus,
    Session,
    SpiderFields,
    SpiderRecord,
)
from discoverybot_client.deploying import Built, build_egg, text_of
from discoverybot_client.errors import ApiError, DiscoveryBotError, NoGatewayError
from discoverybot_client.events import ManyJobsEvent
from discoverybot_client.params import AuditFilters, CrawlFields, JobCountFilters, JobFilters, SpiderFilters
from discoverybot_client.records import NEW_JOB, Event
from discoverybot_client.rules import Address, Deadline, Pace, Retries, Verify, given, idempotent, order, segment

from .event_stream import events
from .jobs import Job, JobDetail
from .operations import in_thread
from .platform import Keys, Nodes, Projects, SavedViews, Sites, Targets
from .resources import Datasets, DeadLetters, Schedules
from .signals import AlertRules, Alerts, Endpoints, ErrorGroups
from .transport import Transport

#: Seconds that a deployment takes at most; and that the gateway waits for its nodes before it is asked again: less
#: than proxies wait.
_DEPLOYMENT, _NODES = 3600.0, 50
#: Seconds between two looks at nodes that install.
_LOOK = 1
#: `/health` answers so where no crawl is accepted; so do a proxy and a gateway that fails, but without this field.
_NOT_HEALTHY = {503: "status"}


class Client:
    """A client of one gateway. Threads, or tasks of one event loop, may share it. A job or another object that it
    returns must not be shared, because `wait` and similar calls update it.

    `url` and `key` default to `DISCOVERYBOT_URL` and `DISCOVERYBOT_KEY`. The URL may have no password, because
    messages and logs have it: raises `ValueError`. On a gateway without keys, `user_id` is the
    user for whom it asks. `timeout` is for a whole call with its retries, in seconds; each page of a list is a call.
    `retries` is how often a request that fails is sent again at most; 0 is never (`Retries`). `verify` is for
    gateways whose certificate is not of a public authority: the path of a file or a folder with the certificates of
    a private one, or an `ssl.SSLContext`, also for certificates of the client; with `False`, any certificate will
    do. `headers` are sent with each request, for what stands before the gateway. `transport` is httpx2's, for tests.
    Close it after use, or use it in a `with` statement.
    """

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        user_id: str | None = None,
        timeout: float = 60.0,
        retries: int | Retries = 5,
        verify: Verify = True,
        headers: Mapping[str, str] | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self.user_id = user_id
        self._transport = Transport(Address.of(url, key, verify), timeout, retries, headers or {}, transport)

    def with_options(self, *, timeout: float | None = None, retries: int | Retries | None = None) -> Self:
        """The same client with another `timeout` or other `retries`, for some calls: `client.with_options(timeout=5,
        retries=0).whoami()`. Both share their connections, and closing one closes the other.
        """
        other = copy(self)
        other._transport = self._transport.with_options(timeout, retries)  # noqa: SLF001 - its own class
        return other

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close its connections."""
        await self._transport.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._transport.url!r}, user_id={self.user_id!r})"

    # --- what there is beside crawls: collections with `get`, `list` and `create`

    @property
    def schedules(self) -> Schedules:
        """Crawls that are repeated."""
        return Schedules(self._transport, self.user_id)

    @property
    def datasets(self) -> Datasets:
        """Items that are tracked across runs."""
        return Datasets(self._transport, self.user_id)

    @property
    def dead_letters(self) -> DeadLetters:
        """Jobs that are out of retries."""
        return DeadLetters(self._transport, self.user_id)

    @property
    def errors(self) -> ErrorGroups:
        """Errors across runs."""
        return ErrorGroups(self._transport, self.user_id)

    @property
    def endpoints(self) -> Endpoints:
        """Receivers of events."""
        return Endpoints(self._transport, self.user_id)

    @property
    def alerts(self) -> Alerts:
        """The alerts of all rules."""
        return Alerts(self._transport, self.user_id)

    @property
    def alert_rules(self) -> AlertRules:
        """The rules for alerts."""
        return AlertRules(self._transport, self.user_id)

    @property
    def sites(self) -> Sites:
        """The sites that are searched."""
        return Sites(self._transport, self.user_id)

    @property
    def targets(self) -> Targets:
        """The searches on sites."""
        return Targets(self._transport, self.user_id)

    @property
    def projects(self) -> Projects:
        """Projects of spiders."""
        return Projects(self._transport, self.user_id)

    @property
    def nodes(self) -> Nodes:
        """The machines that crawl."""
        return Nodes(self._transport, self.user_id)

    @property
    def keys(self) -> Keys:
        """Keys of the gateway."""
        return Keys(self._transport, self.user_id)

    @property
    def views(self) -> SavedViews:
        """Lists of the console that the caller has saved."""
        return SavedViews(self._transport, self.user_id)

    # --- crawls

    async def crawl(
        self,
        *urls: str,
        spider: str | None = None,
        wait: float | None = None,
        idempotency_key: str | None = None,
        **fields: Unpack[CrawlFields],
    ) -> JobDetail:
        """Crawl from these URLs on, and return the job once it has ended, whether well or not (see
        `Job.require_good`). `Job.items` has the results.

        Without a spider and a project the spider is `seo`, as on the command line. `fields` are those of
        `POST /crawl`, such as `depth=1` or `params={…}`. `wait` is how many seconds all of it
        may take; after that raises `WaitTimeoutError`, and the crawl goes on. If the gateway has not even accepted
        the crawl by then, raises `RequestTimeoutError` (both are a `TimeoutError`), `GatewayUnreachableError` or
        `UnavailableError`.
        """
        deadline = Deadline(wait)
        limit = Deadline(deadline.within(self._transport.timeout))
        job = await self._start(urls, spider, fields, idempotent(idempotency_key), limit)
        await job.wait(None if wait is None else deadline.within(wait))
        return JobDetail(job.raw, self._transport)

    async def start_crawl(
        self,
        *urls: str,
        spider: str | None = None,
        idempotency_key: str | None = None,
        **fields: Unpack[CrawlFields],
    ) -> Job:
        """As `crawl`, but returns at once. If the answer is lost, the request is repeated, and still makes one job.
        The same request within `CRAWL_CACHE_TTL` is answered with the same job (`job.cached`): `ignore_cache=True`
        makes a new one. With an `idempotency_key` of your own, also another process that repeats the call gets the
        job of the first call.
        """
        return await self._start(urls, spider, fields, idempotent(idempotency_key), Deadline(self._transport.timeout))

    async def _start(
        self,
        urls: tuple[str, ...],
        spider: str | None,
        fields: CrawlFields,
        headers: dict[str, str],
        deadline: Deadline,
    ) -> Job:
        if fields.get("interval") is not None:
            raise ValueError("interval: client.schedules.create(…) makes a schedule")
        body = order(self.user_id, urls, spider, fields)
        call = self._transport.call
        receipt = await call("POST", "/crawl", json=body, headers=headers, deadline=deadline)
        if not (receipt.get("cached") or receipt.get("scheduled")):
            return Job({**NEW_JOB, "spider": spider, **receipt}, self._transport)
        # it may have run already, or begin later; that it was started is known, whether or not this is answered
        with suppress(DiscoveryBotError):
            receipt |= await call("GET", f"/jobs/{segment(receipt['job_id'])}", deadline=deadline)
        return Job(receipt, self._transport)

    async def preview_crawl(
        self, *urls: str, spider: str | None = None, **fields: Unpack[CrawlFields]
    ) -> CrawlPreview:
        """What `start_crawl` would do with the same arguments: why the crawl would be refused, or when and where it
        would run. No job is made.
        """
        body = order(self.user_id, urls, spider, fields)
        return CrawlPreview(await self._transport.call("POST", "/crawl/preview", json=body, repeatable=True))

    async def job(self, job_id: str) -> JobDetail:
        """The job with this id. Raises `NotFoundError`, and `NotAJobError` for the id of a schedule."""
        return await JobDetail({"job_id": job_id}, self._transport).refresh()

    async def jobs(self, **filters: Unpack[JobFilters]) -> AsyncIterator[Job]:
        """Jobs, the newest first. Filters are those of `GET /jobs`, such as `spider="seo"`, `status=["error"]`."""
        query = {"user_id": self.user_id, **filters}
        async for job in self._transport.entries("/jobs", "jobs", query):
            yield Job(job, self._transport)

    async def count_jobs(self, **filters: Unpack[JobCountFilters]) -> int:
        """How many jobs match. If a search (`q`) takes too long, how many were found until then."""
        query = given(**{"user_id": self.user_id, **filters})
        return int((await self._transport.call("GET", "/jobs/count", params=query))["count"])

    async def act_on_jobs(
        self,
        action: Action,
        *,
        expect: BulkReport | None = None,
        **filters: Unpack[JobCountFilters],
    ) -> BulkReport:
        """Act on all jobs that match. Without `expect`, the jobs are only counted (`matched`). Pass that report as
        `expect` to act on the jobs that it counted; the new report says how many were `done` and which `refused`.
        """
        body = {"action": action, "filter": given(**{"user_id": self.user_id, **filters})}
        if expect is None:
            return BulkReport(await self._transport.call("POST", "/jobs/bulk", json=body, repeatable=True))
        body |= {"expect": expect.raw["matched"], "as_of": expect.raw["as_of"]}
        report: dict[str, Any] = {}
        while True:
            told = await self._transport.call("POST", "/jobs/bulk", json=body, repeatable=True)
            report = _added(report, told)
            if told.get("next") is None or told.get("stopped"):
                return BulkReport(report)
            if told["next"] == body.get("after"):
                raise NoGatewayError(f"the jobs after {told['next']!r} are the same again")
            body["after"] = told["next"]

    async def events(self, *job_ids: str, patience: float | None = None) -> AsyncGenerator[ManyJobsEvent, None]:
        """Events of all jobs, or of these: a `snapshot`, then `status` and `progress`. After the connection was
        lost (`dropped`) it begins with a `snapshot` again.
        """
        query = given(user_id=self.user_id, job_id=list(job_ids) or None)
        async for event in events(self._transport, "/events", "", patience, **query):
            yield cast("ManyJobsEvent", event)

    # --- spiders

    async def spiders(self, **filters: Unpack[SpiderFilters]) -> AsyncIterator[SpiderRecord]:
        """All spiders, with the arguments that each takes."""
        async for spider in self._transport.entries("/spiders", "spiders", filters):
            yield SpiderRecord(spider)

    async def spider_days(self, project: str, spider: str, days: int = 30) -> RunDays:
        """How the spider's runs went, day by day."""
        path = f"/spiders/{segment(project)}/{segment(spider)}/days"
        query = given(days=days, user_id=self.user_id)
        return RunDays(await self._transport.call("GET", path, params=query))

    async def spider_fields(
        self, project: str, spider: str, *, site: str | None = None, schedule_id: str | None = None
    ) -> SpiderFields:
        """How full the fields of its items were in its last good runs. If not `complete`, ask again."""
        path = f"/spiders/{segment(project)}/{segment(spider)}/fields"
        query = given(user_id=self.user_id, site=site, schedule_id=schedule_id)
        return SpiderFields(await self._transport.call("GET", path, params=query))

    async def deploy(
        self,
        source: str | Path,
        *,
        project: str | None = None,
        version: str | None = None,
        requirements: str | Path | None = None,
    ) -> Deployment:
        """Deploy a Scrapy project to every node. `source` is its folder, of which the command `discoverybot deploy`
        makes an egg on this machine (`DeployError` if that fails); or an egg, which needs `project` and `version`.
        Raises `FileNotFoundError` if it is neither.
        `requirements` is the text of a lock file, or the `Path` of one; without it, a folder is deployed with what it
        declares, and an egg with nothing.
        """
        path = Path(source)
        if await in_thread(path.is_dir):
            options = given(project=project, version=version)
            with TemporaryDirectory(prefix="discoverybot-deploy-") as place:
                built = await in_thread(build_egg, path, Path(place), options, requirements)
                return Deployment(await self._upload(built))
        if not await in_thread(path.exists):
            raise FileNotFoundError(ENOENT, "there is no such folder and no such egg", str(path))
        if project is None or version is None:
            raise ValueError("an egg has no name: say project and version")
        needs = await in_thread(text_of, requirements)
        return Deployment(await self._upload(Built(path, project, version, needs)))

    async def _upload(self, built: Built) -> dict[str, Any]:
        deadline, content = Deadline(_DEPLOYMENT, _DEPLOYMENT), await in_thread(built.egg.read_bytes)
        files = {"egg": ("project.egg", content)}
        if built.requirements is not None:
            files["requirements"] = ("requirements.txt", built.requirements.encode())
        pace = Pace(self._transport.retries)
        # the gateway stores the egg once nodes have installed its requirements: repeat it then
        while True:
            pace.asks()
            told: dict[str, Any] = await self._transport.call(
                "POST",
                f"/projects/{segment(built.project)}/versions",
                params={"version": built.version, "wait": _NODES},
                files=files,
                deadline=deadline,
                repeatable=True,
            )
            if "dependencies_url" not in told:
                return told
            await self._until_installed(told["dependencies_url"], deadline)
            if pause := pace.pause():
                await asyncio.sleep(deadline.within(pause))

    async def _until_installed(self, url: str, deadline: Deadline) -> None:
        """Wait until no node is installing, or until the gateway does not know, such as after a node's restart."""
        with suppress(ApiError):
            while any(node["state"] == "building" for node in (await self.request("GET", url))["nodes"]):
                if deadline.is_over():
                    return
                await asyncio.sleep(_LOOK)

    # --- everything else

    async def health(self) -> Health:
        """What works and what does not: `status` is `ok`, `degraded`, `starting` or `down`."""
        told = await self._transport.call("GET", "/health", answers=_NOT_HEALTHY)
        return Health({**told, "status": told["status"]})

    async def whoami(self) -> Session:
        """Whose key it is, and what it may do."""
        return Session(await self._transport.call("GET", "/session"))

    async def read_webhook_secret(self) -> str:
        """The secret for `verify` with which calls of a crawl's `webhook_url` are signed. Raises `NotFoundError` if
        none was made: such calls are not signed. Endpoints have secrets of their own.
        """
        told = await self._transport.call("GET", "/webhooks/secret", params=given(user_id=self.user_id))
        return str(told["secret"])

    async def renew_webhook_secret(self, *, keep_hours: int | None = None) -> str:
        """A new secret for these calls, or the first one. For `keep_hours` hours, by default 24, calls are signed
        with the old secret, too.
        """
        query, body = given(user_id=self.user_id), given(keep_hours=keep_hours)
        return str((await self._transport.call("POST", "/webhooks/secret", params=query, json=body))["secret"])

    async def queue(self, *, hours: int | None = None) -> QueueStatus:
        """Which jobs wait and why, which processes work, and how sites have answered in the last `hours`."""
        return QueueStatus(await self._transport.call("GET", "/jobs/queue/status", params=given(hours=hours)))

    async def jobs_health(self) -> JobsHealth:
        """For monitoring: how many jobs there are in each status, and how long the oldest one has waited."""
        return JobsHealth(await self._transport.call("GET", "/jobs/health"))

    async def scheduler(self, *, last: int | None = None) -> SchedulerStatus:
        """Whether schedules are on time, and the `last` decisions on them."""
        return SchedulerStatus(await self._transport.call("GET", "/scheduler/status", params=given(last=last)))

    async def audit(self, **filters: Unpack[AuditFilters]) -> AsyncIterator[AuditEntry]:
        """Calls that may have changed something, the latest first."""
        async for entry in self._transport.entries("/audit", "entries", filters):
            yield AuditEntry(entry)

    async def request(self, method: str, path: str, *, timeout: float | None = None, **options: Any) -> Any:
        """Any other call of the API: the answer as JSON. `options` are httpx2's: `params`, `json` and others.
        `timeout`: seconds for the whole call; by default the client's. The client's `user_id` is not added, because
        not every call takes it: `params={"user_id": client.user_id}`. The same goes for `pages` and `stream`.
        """
        limit = None if timeout is None else Deadline(timeout, timeout)
        return await self._transport.request(method, path, deadline=limit, **options)

    def pages(self, path: str, **query: Any) -> AsyncIterator[dict[str, Any]]:
        """The pages of any list of the API, to its end."""
        return self._transport.pages(path, **query)

    def stream(
        self, path: str, *, after: str = "", patience: float | None = None, **query: Any
    ) -> AsyncGenerator[Event, None]:
        """The events of any stream of the API, as `Job.events` has those of a job."""
        return events(self._transport, path, after, patience, **query)

    def pieces(
        self, path: str, *, headers: dict[str, str] | None = None, **query: Any
    ) -> AsyncGenerator[bytes, None]:
        """The body of any answer of the API, piece by piece. A request whose answer breaks off is not repeated."""
        return self._transport.pieces(path, headers, **query)


def _added(before: dict[str, Any], told: dict[str, Any]) -> dict[str, Any]:
    """The sum of two parts of a report."""
    counts = {name: before.get(name, 0) + told.get(name, 0) for name in ("done", "refused")}
    refusals = [*before.get("refusals", ()), *told.get("refusals", ())]
    return {**told, **counts, "matched": before.get("matched", told["matched"]), "refusals": refusals}
