"""The client: where crawls begin, and where all else is found."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self, Unpack
from urllib.parse import quote

import httpx2

from discoverybot_client.deploying import deploy_folder
from discoverybot_client.errors import ApiError
from discoverybot_client.params import (
    CrawlFields,
    DatasetOptions,
    EndpointFields,
    JobFilters,
    ScheduleFields,
    ScheduleFilters,
    SpiderFilters,
)
from discoverybot_client.records import NEW_JOB, Event, ProjectRecord, SpiderRecord
from discoverybot_client.rules import Address, Deadline, Retries, given, sent

from .jobs import Job
from .operations import in_thread
from .resources import Dataset, Endpoint, Schedule
from .transport import Transport

_PAGE = 200
#: Seconds that a deployment takes at most; and that the gateway waits for its nodes before it is asked again: less
#: than proxies wait.
_DEPLOYMENT, _NODES = 3600.0, 50
#: Seconds between two looks at nodes that install.
_LOOK = 1
#: `/health` answers so where no crawl is accepted.
_NOT_HEALTHY = frozenset({503})


class Client:
    """A client of one gateway; it may be used by many tasks at once.

    `url` and `key` are those of `DISCOVERYBOT_URL` and `DISCOVERYBOT_KEY`, if they are not given; without keys,
    `user_id` says for whom it asks. `timeout` is for a whole call with its retries, in seconds.
    """

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        user_id: str | None = None,
        timeout: float = 60.0,
        retries: int | Retries = 6,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        address = Address.of(url, key)
        self.user_id = user_id
        self._key = address.headers.get("Authorization", "").removeprefix("Bearer ")
        tries = Retries(retries) if isinstance(retries, int) else retries
        self._transport = Transport(address, timeout, tries, transport)
        self.schedules = Schedules(self._transport, user_id)
        self.datasets = Datasets(self._transport, user_id)
        self.endpoints = Endpoints(self._transport, user_id)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._transport.close()

    # --- crawls

    async def crawl(
        self, *urls: str, spider: str | None = None, wait: float | None = None, **fields: Unpack[CrawlFields]
    ) -> Job:
        """Crawl from these URLs on, and return the job once it has ended, however it has (`require_good`). It has
        `items`.

        `fields` are those of `POST /crawl`, such as `depth=1` or `params={…}`. `wait` is how many seconds it may
        take: `WaitTimeoutError` after that, and the crawl goes on.
        """
        job = await self.start_crawl(*urls, spider=spider, **fields)
        return await job.wait(wait)

    async def start_crawl(self, *urls: str, spider: str | None = None, **fields: Unpack[CrawlFields]) -> Job:
        """As `crawl`, but returns at once. If the answer is lost, the request is repeated, and still makes one job.
        The same request within `CRAWL_CACHE_TTL` has the same job: `ignore_cache=True` makes a new one.
        """
        if fields.get("interval") is not None:
            raise ValueError("interval: client.schedules.create(…) makes a schedule")
        body = _order(self.user_id, urls, spider, fields)
        receipt = await self._transport.call("POST", "/crawl", json=body, headers=_idempotent())
        return Job({**NEW_JOB, "spider": spider, **receipt}, self._transport)

    async def job(self, job_id: str) -> Job:
        """The job with this id. Raises `NotFoundError`."""
        return await Job({"job_id": job_id}, self._transport).refresh()

    async def jobs(self, **filters: Unpack[JobFilters]) -> AsyncIterator[Job]:
        """Jobs, the newest first. Filters are those of `GET /jobs`, such as `spider="seo"`, `status=["error"]`."""
        async for page in self._transport.pages("/jobs", **_of_user(self.user_id, filters)):
            for job in page["jobs"]:
                yield Job(job, self._transport)

    async def events(self, *job_ids: str, patience: float | None = None) -> AsyncIterator[Event]:
        """What happens to all jobs, or to these: a `snapshot`, then `status` and `progress`. After the connection was
        lost (`dropped`) it begins with a `snapshot` again.
        """
        query = given(user_id=self.user_id, job_id=list(job_ids) or None)
        async for event in self._transport.events("/events", "", patience, **query):
            yield event

    # --- what can be crawled with

    async def spiders(self, **filters: Unpack[SpiderFilters]) -> AsyncIterator[SpiderRecord]:
        async for page in self._transport.pages("/spiders", **filters):
            for spider in page["spiders"]:
                yield SpiderRecord(spider)

    async def projects(self) -> list[ProjectRecord]:
        told = await self._transport.call("GET", "/projects")
        return [ProjectRecord(project) for project in told["projects"]]

    async def deploy(
        self,
        source: str | Path,
        *,
        project: str | None = None,
        version: str | None = None,
        requirements: str | None = None,
    ) -> dict[str, Any]:
        """Deploy a Scrapy project to every node. `source` is its folder, which `discoverybot deploy` makes an egg of;
        or an egg, for which `project` and `version` are to be said, and `requirements` is the text of a lock file.
        """
        path = Path(source)
        if await in_thread(path.is_dir):
            options = given(project=project, version=version)
            return await in_thread(deploy_folder, self._transport.url, self._key, path, options)
        if project is None or version is None:
            raise ValueError("an egg has no name: say project and version")
        return await self._upload(path, project, version, requirements)

    async def _upload(self, egg: Path, project: str, version: str, requirements: str | None) -> dict[str, Any]:
        deadline, content = Deadline(_DEPLOYMENT, _DEPLOYMENT), await in_thread(egg.read_bytes)
        files = {"egg": ("project.egg", content)}
        if requirements is not None:
            files["requirements"] = ("requirements.txt", requirements.encode())
        # once nodes have installed what it needs, the same request is answered
        while True:
            told: dict[str, Any] = await self._transport.call(
                "POST",
                f"/projects/{quote(project, safe='')}/versions",
                params={"version": version, "wait": _NODES},
                files=files,
                deadline=deadline,
                repeatable=True,
            )
            if "dependencies_url" not in told:
                return told
            await self._until_installed(told["dependencies_url"], deadline)

    async def _until_installed(self, url: str, deadline: Deadline) -> None:
        """Or until nobody knows, such as after a node's restart."""
        with suppress(ApiError):
            while any(node["state"] == "building" for node in (await self.request("GET", url))["nodes"]):
                if deadline.is_over():
                    return
                await asyncio.sleep(_LOOK)

    # --- everything else

    async def health(self) -> dict[str, Any]:
        """What works and what does not: `status` is `ok`, `degraded` or `starting`."""
        told: dict[str, Any] = await self._transport.call("GET", "/health", answers=_NOT_HEALTHY)
        return told

    async def request(self, method: str, path: str, *, timeout: float | None = None, **options: Any) -> Any:
        """Any other call of the API: the answer as JSON. `options` are httpx2's: `params`, `json` and others.
        `timeout` is for all of it, in seconds; without it, the client's.
        """
        limit = None if timeout is None else Deadline(timeout, timeout)
        return await self._transport.call(method, path, deadline=limit, **options)

    def pages(self, path: str, **query: Any) -> AsyncIterator[dict[str, Any]]:
        """The pages of any list of the API, to its end."""
        return self._transport.pages(path, **query)

    def stream(
        self, path: str, *, after: str = "", patience: float | None = None, **query: Any
    ) -> AsyncIterator[Event]:
        """The events of any stream of the API, as `Job.events` has those of a job."""
        return self._transport.events(path, after, patience, **query)

    def pieces(
        self, path: str, *, headers: dict[str, str] | None = None, **query: Any
    ) -> AsyncGenerator[bytes, None]:
        """The body of any answer of the API, piece by piece. One that breaks off is not asked for again."""
        return self._transport.pieces(path, headers, **query)


class Schedules:
    def __init__(self, transport: Transport, user_id: str | None) -> None:
        self._transport = transport
        self._user_id = user_id

    async def create(
        self,
        *urls: str,
        interval: str,
        spider: str | None = None,
        name: str | None = None,
        **fields: Unpack[ScheduleFields],
    ) -> Schedule:
        """Crawl again and again: `interval` is `0 9 * * *`, `@daily` or `every 15m`. The same crawl at the same times
        is answered with the schedule that there is.
        """
        body = _order(self._user_id, urls, spider, {**fields, "interval": interval, "name": name})
        told = await self._transport.call("POST", "/schedules", json=body, headers=_idempotent())
        return Schedule(told, self._transport)

    async def get(self, schedule_id: str) -> Schedule:
        return await Schedule({"schedule_id": schedule_id}, self._transport).refresh()

    async def list(self, **filters: Unpack[ScheduleFilters]) -> AsyncIterator[Schedule]:
        """The newest first."""
        async for page in self._transport.pages("/schedules", **_of_user(self._user_id, filters)):
            for schedule in page["schedules"]:
                yield Schedule(schedule, self._transport)


class Datasets:
    def __init__(self, transport: Transport, user_id: str | None) -> None:
        self._transport = transport
        self._user_id = user_id

    async def put(self, name: str, **options: Unpack[DatasetOptions]) -> Dataset:
        """Make it, or set its options: `key=["sku"]` and the like; what is left out gets its default."""
        path, query = f"/datasets/{quote(name, safe='')}", given(user_id=self._user_id)
        return Dataset(await self._transport.call("PUT", path, params=query, json=sent(options)), self._transport)

    async def get(self, name: str) -> Dataset:
        path, query = f"/datasets/{quote(name, safe='')}", given(user_id=self._user_id)
        return Dataset(await self._transport.call("GET", path, params=query), self._transport)

    async def list(self) -> AsyncIterator[Dataset]:
        async for page in self._transport.pages("/datasets", **_of_user(self._user_id, {})):
            for dataset in page["datasets"]:
                yield Dataset(dataset, self._transport)


class Endpoints:
    def __init__(self, transport: Transport, user_id: str | None) -> None:
        self._transport = transport
        self._user_id = user_id

    async def create(self, url: str, **fields: Unpack[EndpointFields]) -> Endpoint:
        """Have it called for `events=[…]`, by default for all. `secret` of the answer is what `verify` takes."""
        body = {**given(user_id=self._user_id), "url": url, **sent(fields)}
        return Endpoint(await self._transport.call("POST", "/endpoints", json=body), self._transport)

    async def get(self, endpoint_id: str) -> Endpoint:
        return Endpoint(await self._transport.call("GET", f"/endpoints/{endpoint_id}"), self._transport)

    async def list(self) -> AsyncIterator[Endpoint]:
        async for page in self._transport.pages("/endpoints", **_of_user(self._user_id, {})):
            for endpoint in page["endpoints"]:
                yield Endpoint(endpoint, self._transport)


def _order(
    user_id: str | None, urls: tuple[str, ...], spider: str | None, fields: Mapping[str, Any]
) -> dict[str, Any]:
    """The body of a request for a crawl: what is `None` is left out."""
    if not all(isinstance(url, str) for url in urls):
        raise TypeError("pass URLs one by one, each as a text: a list of them with a star, as in (*urls)")
    return given(**{"user_id": user_id, "spider": spider, "start_urls": list(urls) or None, **fields})


def _of_user(user_id: str | None, filters: Mapping[str, Any]) -> dict[str, Any]:
    return given(**{"user_id": user_id, "limit": _PAGE, **filters})


def _idempotent() -> dict[str, str]:
    return {"Idempotency-Key": uuid.uuid4().hex}
