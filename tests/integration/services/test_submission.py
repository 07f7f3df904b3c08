from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from conftest import DEAD_AFTER, Platform
from pymongo.errors import AutoReconnect

from gateway.contract.crawl import CrawlSpec
from gateway.contract.public_address import parse_networks
from gateway.contract.reasons import Reason
from gateway.contract.records import SpiderInfo
from gateway.errors import (
    ForbiddenAddressError,
    IdempotencyConflictError,
    InvalidRequestError,
    UnavailableError,
    UserQuotaError,
)
from gateway.jobs.admission import Admission, Quotas, WaitingStore
from gateway.jobs.completion import Cancellation
from gateway.jobs.dedupe import Dedupe, DedupeRelease, Entry, fingerprint
from gateway.jobs.job import CrawlOrder, Job, JobStatus, Requester, new_job_id
from gateway.jobs.outcome import CANCELLED, Outcome
from gateway.jobs.rerun import Resubmission
from gateway.jobs.submission import Receipt, RequestedCrawl, Submission
from gateway.projects.catalog import SpiderCatalog, WorkCheck
from gateway.projects.eggs import SpiderStore
from gateway.projects.versions import VersionStore
from gateway.schedules.store import ScheduleStore
from gateway.sites.store import SiteStore
from gateway.stores.redis import connect_async, dedupe_key

SCHEMA = {
    "type": "object",
    "properties": {"obey_robots": {"type": "boolean"}, "limit": {"type": "integer"}},
    "additionalProperties": False,
}


def order(**fields: Any) -> RequestedCrawl:
    spec = {"spider": "seo", "start_urls": ("https://site.example/",), **fields.pop("spec", {})}
    asked = {name: fields.pop(name) for name in CrawlOrder.model_fields if name in fields}
    by = Requester(fields.pop("user_id", "ada"), **fields)
    return RequestedCrawl(by, CrawlOrder(spec=CrawlSpec(**spec), **asked))


def running(platform: Platform, job_id: str) -> Job:
    """Set the job to running, as if a node had it."""
    platform.database["jobs"].update_one({"_id": job_id}, {"$set": {"status": JobStatus.RUNNING}})
    return platform.jobs.get(job_id)


def key_of(one: RequestedCrawl) -> str:
    return dedupe_key(one.user_id, one.spec.spider, fingerprint(one.user_id, one.spec))


@pytest.fixture
async def submission(platform: Platform, redis_url: str) -> AsyncIterator[Submission]:
    spiders = SpiderStore(platform.database)
    spiders.publish("n1", [SpiderInfo(project="default", name="seo", params_schema=SCHEMA)])
    client = connect_async(redis_url)
    with ThreadPoolExecutor(8) as executor:
        yield Submission(
            jobs=platform.jobs,
            schedules=ScheduleStore(platform.database),
            dedupe=Dedupe(client, ttl=60),
            check=WorkCheck(
                SpiderCatalog(spiders, VersionStore(platform.database)),
                platform.nodes,
                platform.environment,
                DEAD_AFTER,
                clock=platform.clock,
            ),
            waker=platform,
            admission=Admission(WaitingStore(platform.database)),
            executor=executor,
            clock=platform.clock,
        )
    await client.aclose()


def resubmission(platform: Platform) -> Resubmission:
    return Resubmission(
        jobs=platform.jobs,
        sites=SiteStore(platform.database),
        dedupe=DedupeRelease(platform.redis),
        check=WorkCheck(
            SpiderCatalog(SpiderStore(platform.database), VersionStore(platform.database)),
            platform.nodes,
            platform.environment,
            DEAD_AFTER,
            clock=platform.clock,
        ),
        waker=platform,
        admission=Admission(WaitingStore(platform.database)),
    )


def job_count(platform: Platform) -> int:
    count: int = platform.database["jobs"].count_documents({})
    return count


async def test_a_repeated_request_is_answered_with_the_job_that_exists(
    platform: Platform, submission: Submission
) -> None:
    first, second = await submission.submit(order()), await submission.submit(order())
    assert (first.cached, second.cached) == (False, True)
    assert first.job_id == second.job_id
    assert second.cached_at is not None
    assert platform.woken == [("enqueue_crawl", first.job_id)]


async def test_two_hundred_simultaneous_identical_requests_make_one_job(
    platform: Platform, submission: Submission
) -> None:
    receipts = await asyncio.gather(*(submission.submit(order()) for _ in range(200)))
    assert len({receipt.job_id for receipt in receipts}) == 1
    assert sum(not receipt.cached for receipt in receipts) <= 1
    assert job_count(platform) == 1


async def test_a_request_whose_owner_died_before_the_document_is_finished_by_the_next(
    platform: Platform, submission: Submission
) -> None:
    dead = Entry(new_job_id(), 1_700_000_000_000, confirmed=False)
    platform.redis.set(key_of(order()), dead.encode())
    receipts = await asyncio.gather(*(submission.submit(order()) for _ in range(20)))
    assert {receipt.job_id for receipt in receipts} == {dead.job_id}
    assert platform.jobs.get(dead.job_id).status is JobStatus.PENDING
    assert platform.redis.get(key_of(order())) == dead._replace(confirmed=True).encode().encode()


async def test_a_flushed_redis_changes_nothing_while_the_job_lives(
    platform: Platform, submission: Submission
) -> None:
    first = await submission.submit(order())
    platform.redis.flushall()
    again = await submission.submit(order())
    assert (again.job_id, again.cached) == (first.job_id, True)
    third = await submission.submit(order())
    assert third.job_id == first.job_id
    assert job_count(platform) == 1


@pytest.mark.parametrize(
    "written",
    [b"nonsense", b"\xff|\xff|1", b"C|..|1", b"C||1", b"P||1", b"C|" + b"1" * 32 + b"|" + b"9" * 30, b""],
)
async def test_a_key_that_nobody_can_read_is_asked_for_as_if_it_were_flushed(
    platform: Platform, submission: Submission, written: bytes
) -> None:
    platform.redis.set(key_of(order()), written)
    assert await submission.look(order()) is None
    first = await submission.submit(order())
    assert (first.cached, job_count(platform)) == (False, 1)
    assert [(await submission.submit(order())).job_id for _ in range(2)] == [first.job_id] * 2
    assert platform.redis.get(key_of(order())).startswith(b"C|" + first.job_id.encode())


async def test_a_key_that_claims_the_job_of_another_request_is_not_believed(
    platform: Platform, submission: Submission
) -> None:
    other = await submission.submit(order(spec={"start_urls": ("https://other.example/",)}))
    platform.redis.set(key_of(order()), Entry(other.job_id, 1, confirmed=False).encode())
    mine = await submission.submit(order())
    assert mine.job_id != other.job_id
    assert (await submission.submit(order())).job_id == mine.job_id


async def test_ignore_cache_takes_a_new_job_and_the_key(platform: Platform, submission: Submission) -> None:
    first = await submission.submit(order())
    fresh = await submission.submit(order(spec={"ignore_cache": True}))
    assert fresh.job_id != first.job_id
    assert not fresh.cached
    assert (await submission.submit(order())).job_id == fresh.job_id
    assert platform.jobs.get(first.job_id).live_key is None


async def test_an_idempotency_key_makes_even_ignore_cache_safe_to_repeat(
    platform: Platform, submission: Submission
) -> None:
    one = order(spec={"ignore_cache": True}, idempotency_key="k")
    receipts = [await submission.submit(one) for _ in range(3)]
    assert len({receipt.job_id for receipt in receipts}) == 1
    assert job_count(platform) == 1
    with pytest.raises(IdempotencyConflictError):
        await submission.submit(order(spec={"depth": 9}, idempotency_key="k"))
    # a webhook in the repeated request is added, as without an idempotency key
    urls = ["https://example.com/a", "https://example.com/b"]
    for url in urls:
        await submission.submit(one._replace(crawl=one.crawl.model_copy(update={"webhooks": (url,)})))
    assert list(platform.jobs.get(receipts[0].job_id).webhooks) == urls


async def test_after_an_error_the_same_request_is_a_new_job(platform: Platform, submission: Submission) -> None:
    first = await submission.submit(order())
    platform.completion.end_waiting(
        platform.jobs.get(first.job_id), Outcome(JobStatus.ERROR, Reason.REQUESTS_FAILED, "site is down")
    )
    again = await submission.submit(order())
    assert (again.job_id == first.job_id, again.cached) == (False, False)


class Interrupted(Dedupe):
    """Calls `meanwhile` just before the key is confirmed with the job's id."""

    meanwhile: Callable[[str], object]

    async def confirm(self, key: str, claimed: Entry, job_id: str) -> None:
        self.meanwhile(job_id)
        await super().confirm(key, claimed, job_id)


@pytest.fixture
async def interrupted(redis_url: str) -> AsyncIterator[Interrupted]:
    client = connect_async(redis_url)
    yield Interrupted(client, ttl=60)
    await client.aclose()


@pytest.mark.parametrize("found", ["its own", "a twin"])
async def test_a_job_that_fails_before_it_is_the_answer_never_becomes_it(
    platform: Platform, submission: Submission, interrupted: Interrupted, found: str
) -> None:
    def fail(job_id: str) -> None:
        platform.completion.end_waiting(
            platform.jobs.get(job_id), Outcome(JobStatus.ERROR, Reason.REQUESTS_FAILED, "site is down")
        )

    if found == "a twin":
        await submission.submit(order())
        platform.redis.flushall()
    interrupted.meanwhile, submission._dedupe = fail, interrupted
    first = await submission.submit(order())
    assert first.cached == (found == "a twin")
    assert platform.redis.keys("crawl:*") == []
    interrupted.meanwhile = str
    again = await submission.submit(order())
    assert (again.job_id == first.job_id, again.cached) == (False, False)


async def test_a_redis_that_is_flushed_in_the_middle_of_a_request_changes_nothing(
    platform: Platform, submission: Submission, interrupted: Interrupted
) -> None:
    interrupted.meanwhile, submission._dedupe = lambda _: platform.redis.flushall(), interrupted
    first = await submission.submit(order())
    interrupted.meanwhile = str
    again = await submission.submit(order())
    assert (again.job_id, again.cached) == (first.job_id, True)
    platform.completion.end_waiting(
        running(platform, first.job_id), Outcome(JobStatus.FINISHED, Reason.COMPLETED, "3 pages")
    )
    assert (await submission.submit(order())).job_id == first.job_id


@pytest.mark.parametrize(
    ("spec", "field"),
    [({"spider": "nope"}, "spider"), ({"params": {"limit": "x"}}, "params.limit"),
     ({"params": {"oops": 1}}, "params.oops"), ({"project": "elsewhere"}, "project")],
)  # fmt: skip
async def test_what_no_spider_takes_is_refused_and_leaves_nothing_behind(
    platform: Platform, submission: Submission, spec: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        await submission.submit(order(spec=spec))
    assert caught.value.field == field
    assert caught.value.detail["known"]
    assert (job_count(platform), platform.redis.keys("crawl:*")) == (0, [])


def test_a_webhook_inside_is_allowed_by_a_setting_of_its_own(platform: Platform) -> None:
    catalog = SpiderCatalog(SpiderStore(platform.database), VersionStore(platform.database))
    inside, both = parse_networks(["127.0.0.0/8"]), ("http://127.0.0.1/",)
    for_crawls = WorkCheck(catalog, platform.nodes, platform.environment, DEAD_AFTER, inside)
    with pytest.raises(ForbiddenAddressError, match=r"webhook_url: .* allow it with WEBHOOK_ALLOW_NETWORKS"):
        for_crawls.addresses(order(spec={"start_urls": both}).spec, both)
    for_webhooks = WorkCheck(catalog, platform.nodes, platform.environment, DEAD_AFTER, (), inside)
    for_webhooks.addresses(order().spec, both)
    with pytest.raises(ForbiddenAddressError, match=r"start_urls\.0: .* allow it with CRAWL_ALLOW_NETWORKS"):
        for_webhooks.addresses(order(spec={"start_urls": both}).spec, ())


async def test_a_forbidden_address_is_refused_and_leaves_nothing_behind(
    platform: Platform, submission: Submission
) -> None:
    with pytest.raises(ForbiddenAddressError):
        await submission.submit(order(spec={"start_urls": ("https://ok.example/", "http://169.254.169.254/")}))
    with pytest.raises(ForbiddenAddressError):
        await submission.submit(order(webhooks=("http://127.0.0.1:6800/addversion.json",)))
    assert (job_count(platform), platform.redis.keys("crawl:*")) == (0, [])


class Counting(ThreadPoolExecutor):
    """Counts the calls."""

    calls = 0

    def submit(self, *args: Any, **kwargs: Any) -> Future[Any]:
        self.calls += 1
        return super().submit(*args, **kwargs)


@pytest.mark.parametrize(("urls", "calls"), [(1, 1), (50, 1), (51, 3), (1000, 3)])
async def test_many_start_urls_are_looked_at_beside_the_event_loop(
    submission: Submission, urls: int, calls: int
) -> None:
    with Counting(2) as executor:
        submission._executor = executor
        spec = {"start_urls": tuple(f"https://site.example/{number}" for number in range(urls))}
        receipt = await submission.submit(order(spec=spec))
        assert (receipt.cached, executor.calls) == (False, calls)
        with pytest.raises(ForbiddenAddressError, match=rf"start_urls\.{urls}:"):
            await submission.submit(order(spec={"start_urls": (*spec["start_urls"], "http://127.0.0.1/")}))


async def test_users_do_not_share_jobs(submission: Submission) -> None:
    mine, theirs = await submission.submit(order()), await submission.submit(order(user_id="bob"))
    assert mine.job_id != theirs.job_id


async def test_a_webhook_in_a_repeat_is_added_to_the_job(platform: Platform, submission: Submission) -> None:
    first = await submission.submit(order())
    await submission.submit(order(webhooks=("https://hook.example/",)))
    assert platform.jobs.get(first.job_id).webhooks == ["https://hook.example/"]


async def test_a_webhook_of_a_request_for_which_there_is_no_place_is_added_to_the_job_that_answers_it(
    platform: Platform, submission: Submission
) -> None:
    first = await submission.submit(order())
    # as if the gateway had died before it confirmed the key
    platform.redis.set(key_of(order()), Entry(first.job_id, 1_700_000_000_000, confirmed=False).encode())
    submission._admission = Admission(WaitingStore(platform.database), Quotas(waiting=1))
    again = await submission.submit(order(webhooks=("https://hook.example/",)))
    assert (again.job_id, again.cached) == (first.job_id, True)
    assert platform.jobs.get(first.job_id).webhooks == ["https://hook.example/"]


async def test_submission_works_while_redis_is_away(platform: Platform, submission: Submission) -> None:
    client = connect_async("redis://127.0.0.1:1/0", timeout=0.2)
    submission._dedupe = Dedupe(client, ttl=60)
    receipts = await asyncio.gather(*(submission.submit(order()) for _ in range(20)))
    assert len({receipt.job_id for receipt in receipts}) == 1
    assert job_count(platform) == 1
    await client.aclose()


async def test_a_repeat_after_a_retry_is_answered_with_the_new_job(
    platform: Platform, submission: Submission
) -> None:
    first = await submission.submit(order())
    platform.completion.end_waiting(
        running(platform, first.job_id), Outcome(JobStatus.FINISHED, Reason.COMPLETED, "3 pages")
    )
    assert (await submission.submit(order())).job_id == first.job_id
    again = resubmission(platform).run_again(first.job_id, "asked-again")
    assert (again.retry_of, again.correlation_id) == (first.job_id, "asked-again")
    assert (await submission.submit(order())).job_id == again.id


# --- simultaneous requests


async def together(submission: Submission, *orders: RequestedCrawl) -> list[Receipt | BaseException]:
    return await asyncio.gather(*map(submission.submit, orders), return_exceptions=True)


def without_redis(submission: Submission) -> None:
    submission._dedupe = Dedupe(connect_async("redis://127.0.0.1:1/0"), ttl=60)


def page(number: int, **fields: Any) -> RequestedCrawl:
    return order(spec={"start_urls": (f"https://site.example/{number}",), **fields.pop("spec", {})}, **fields)


async def test_an_order_that_cannot_be_inserted_keeps_no_other_from_it(
    platform: Platform, submission: Submission
) -> None:
    unstorable = page(1, tags=("half a pair: \ud800",))
    unknown = page(2, spec={"spider": "nope"})
    # without Redis, only MongoDB sees that two of the requests are the same
    without_redis(submission)
    receipts = await together(submission, page(0), page(3), unstorable, unknown, page(4), page(4), page(5))
    assert isinstance(receipts[2], UnicodeEncodeError)
    assert isinstance(receipts[3], InvalidRequestError)
    accepted = [receipt for receipt in receipts if isinstance(receipt, Receipt)]
    assert len({receipt.job_id for receipt in accepted}) == job_count(platform) == 4
    assert sorted(receipt.cached for receipt in accepted) == [False] * 4 + [True]


async def test_requests_take_no_more_places_than_there_are_and_give_back_those_that_they_do_not_need(
    platform: Platform, submission: Submission
) -> None:
    submission._admission = Admission(WaitingStore(platform.database), Quotas(waiting=4))
    without_redis(submission)
    # one at a time: a job that is inserted during a count may count twice until the next count
    with ThreadPoolExecutor(1) as submission._executor:
        # two of the four are the same job
        receipts = await together(submission, page(0), page(1), page(2), page(2))
        assert not any(isinstance(receipt, BaseException) for receipt in receipts)
        receipts = await together(submission, page(3), page(4), page(5))
    assert sorted(isinstance(receipt, UserQuotaError) for receipt in receipts) == [False, True, True]
    assert job_count(platform) == 4


async def test_no_request_is_answered_before_mongodb_has_taken_its_job(
    platform: Platform, submission: Submission
) -> None:
    def away(_: Job, **_options: object) -> None:
        raise AutoReconnect("MongoDB is away")

    platform.jobs.insert = away  # type: ignore[method-assign]
    receipts = await together(submission, page(0), page(1), page(2))
    assert [type(receipt) for receipt in receipts] == [UnavailableError] * 3
    assert (job_count(platform), platform.redis.keys("crawl:*"), platform.woken) == (0, [], [])


async def test_a_crawl_that_is_cancelled_and_asked_for_again_starts_though_the_first_still_ends(
    platform: Platform, submission: Submission
) -> None:
    first = await submission.submit(order())
    running(platform, first.job_id)
    cancellation = Cancellation(jobs=platform.jobs, completion=platform.completion, waker=platform)
    assert cancellation.cancel(first.job_id).status is JobStatus.RUNNING
    second = await submission.submit(order())
    assert (second.cached, second.job_id == first.job_id) == (False, False)
    assert (await submission.submit(order())).job_id == second.job_id
    # the end of the first job does not release the key of the second
    ended = platform.jobs.finish(platform.jobs.get(first.job_id), CANCELLED)
    assert ended
    platform.completion.settle(ended)
    platform.redis.delete(key_of(order()))
    assert (await submission.submit(order())).job_id == second.job_id
