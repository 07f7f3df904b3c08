"""Deployed projects: which version a crawl runs, which spiders there are, and where they may start."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from conftest import Platform
from scrapyd.eggstorage import sorted_versions
from test_submission import order, resubmission, submission

from gateway.contract.crawl import FetchOptions
from gateway.contract.reasons import Reason
from gateway.contract.records import SpiderInfo
from gateway.errors import ConflictError, IdempotencyConflictError, InvalidRequestError
from gateway.jobs.job import JobStatus
from gateway.jobs.outcome import Outcome
from gateway.jobs.submission import Submission
from gateway.projects.catalog import Project, SpiderCatalog
from gateway.projects.eggs import SpiderStore
from gateway.projects.versions import VersionStore

__all__ = ["submission"]  # the fixture


def offers(version: str, *, latest: bool = True, **more: Any) -> SpiderInfo:
    return SpiderInfo(project="Shop", version=version, latest=latest, name="offers", **more)


OWN = SpiderInfo(project="default", name="seo")


def deploy(platform: Platform, *infos: SpiderInfo, node: str = "n1") -> None:
    SpiderStore(platform.database).publish(node, [OWN, *infos])


@pytest.fixture
def catalog(platform: Platform) -> SpiderCatalog:
    """A catalog that reads the database each time, because 10 s pass between any two looks at its clock."""
    ahead = iter(range(0, 100_000, 10))
    return SpiderCatalog(
        SpiderStore(platform.database), VersionStore(platform.database), monotonic=lambda: next(ahead)
    )


def shop(**fields: Any) -> Any:
    spec = {"project": "Shop", "spider": "offers", **fields.pop("spec", {})}
    return order(spec=spec, **fields)


async def test_without_a_version_the_latest_is_what_every_attempt_runs(
    platform: Platform, submission: Submission, catalog: SpiderCatalog
) -> None:
    submission._check._catalog = catalog
    deploy(platform, offers("9", latest=False), offers("10"))
    receipt = await submission.submit(shop(spec={"project": "shop"}))
    spec = platform.jobs.get(receipt.job_id).spec
    assert (spec.project, spec.version) == ("Shop", "10")


@pytest.mark.parametrize(
    "name", ["name", "self", "cls", "crawler_or_spidercls", "_job", "allowed_domains", "custom_settings", "parse"]
)
async def test_a_parameter_that_would_break_the_constructor_or_replace_what_the_spider_is_is_refused(
    platform: Platform, submission: Submission, name: str
) -> None:
    deploy(platform, offers("1"))
    with pytest.raises(InvalidRequestError, match="taken by Scrapy") as caught:
        await submission.submit(shop(spec={"params": {name: "x"}}))
    assert caught.value.field == f"params.{name}"


async def test_a_parameter_that_the_constructor_takes_may_have_any_name(
    platform: Platform, submission: Submission
) -> None:
    deploy(platform, offers("1", arguments=["start", "log"]))
    receipt = await submission.submit(shop(spec={"params": {"start": "2026-01-01", "log": "x"}}))
    assert platform.jobs.get(receipt.job_id).spec.params == {"start": "2026-01-01", "log": "x"}
    with pytest.raises(InvalidRequestError, match="taken by Scrapy"):
        await submission.submit(shop(spec={"params": {"close": "x"}}))


async def test_after_a_deployment_the_same_request_is_another_crawl(
    platform: Platform, submission: Submission, catalog: SpiderCatalog
) -> None:
    submission._check._catalog = catalog
    deploy(platform, offers("1"))
    first = await submission.submit(shop())
    assert (await submission.submit(shop())).cached
    deploy(platform, offers("1", latest=False), offers("2"))
    second = await submission.submit(shop())
    assert (second.cached, second.job_id == first.job_id) == (False, False)
    assert (await submission.submit(shop(spec={"version": "1"}))).job_id == first.job_id


async def test_after_the_same_version_was_deployed_with_another_content_the_same_request_is_another_crawl(
    platform: Platform, submission: Submission
) -> None:
    deploy(platform, offers("1"))
    first = await submission.submit(shop(idempotency_key="k"))
    versions = VersionStore(platform.database)
    versions.change("Shop", lambda known: known.with_deployed("1"))
    assert (await submission.submit(shop())).job_id == first.job_id
    versions.change("Shop", lambda known: known.with_deployed("1", other_content=True))
    second = await submission.submit(shop())
    assert (second.cached, second.job_id == first.job_id) == (False, False)
    assert (await submission.submit(shop(spec={"version": "1"}))).job_id == second.job_id
    assert (await submission.submit(shop(idempotency_key="k"))).job_id == first.job_id


async def test_a_repeat_under_its_key_is_the_same_job_even_after_a_deployment(
    platform: Platform, submission: Submission, catalog: SpiderCatalog
) -> None:
    submission._check._catalog = catalog
    deploy(platform, offers("1"))
    first = await submission.submit(shop(idempotency_key="k"))
    deploy(platform, offers("1", latest=False), offers("2"))
    assert (await submission.submit(shop(idempotency_key="k"))).job_id == first.job_id
    with pytest.raises(IdempotencyConflictError):
        await submission.submit(shop(spec={"version": "2"}, idempotency_key="k"))


@pytest.mark.parametrize(
    ("spec", "field", "known"),
    [
        ({"project": "shed"}, "project", ["Shop", "default"]),
        ({"version": "3"}, "version", ["1", "1_5"]),
        ({"spider": "ofers"}, "spider", ["offers"]),
        ({"project": "default", "spider": "seo", "version": "1"}, "version", None),
        ({"start_urls": ("https://shop.example/", "https://notshop.example/")}, "start_urls.1", ["shop.example"]),
    ],
)
async def test_what_is_not_there_is_named_with_what_is(
    platform: Platform, submission: Submission, spec: dict[str, Any], field: str, known: list[str] | None
) -> None:
    deploy(platform, offers("1", latest=False), offers("1_5", allowed_domains=["shop.example"]))
    with pytest.raises(InvalidRequestError) as caught:
        await submission.submit(shop(spec=spec))
    assert caught.value.field == field
    assert caught.value.detail.get("known") == known
    assert platform.database["jobs"].count_documents({}) == 0
    assert platform.redis.keys("crawl:*") == []


@pytest.mark.parametrize("url", ["https://shop.example/", "http://www.Shop.example.:8080/x"])
async def test_a_spider_that_keeps_to_its_domains_starts_there_and_on_their_subdomains(
    platform: Platform, submission: Submission, url: str
) -> None:
    deploy(platform, offers("1_5", allowed_domains=["Shop.example", "http://other.example/"]))
    receipt = await submission.submit(shop(spec={"start_urls": (url,), "version": "1/5"}))
    assert platform.jobs.get(receipt.job_id).spec.version == "1_5"


async def test_a_start_url_elsewhere_is_refused_with_the_domains(platform: Platform, submission: Submission) -> None:
    deploy(platform, offers("1", allowed_domains=["shop.example", "shop.test"]))
    with pytest.raises(InvalidRequestError) as caught:
        await submission.submit(shop(spec={"start_urls": ("https://example.com/",)}))
    assert caught.value.message == "start_urls.0: spider 'offers' keeps to shop.example, shop.test"


class Counted(SpiderStore):
    reads = 0

    def all(self) -> list[SpiderInfo]:
        self.reads += 1
        return super().all()


def test_what_can_be_run_is_read_again_only_when_it_has_changed(platform: Platform) -> None:
    store, seconds = Counted(platform.database), [0.0]
    catalog = SpiderCatalog(store, VersionStore(platform.database), monotonic=lambda: seconds[0])
    deploy(platform, *(SpiderInfo(project="Large", version="1", name=f"s{number}") for number in range(200)))
    for seconds[0] in range(20):
        assert catalog.project_of("s7") == "Large"
    assert store.reads == 1
    deploy(platform, offers("1"), node="n2")
    assert catalog.project_of("offers") == "Shop"
    assert store.reads == 2
    # a node of 0.2.0 does not change the revision when it publishes
    with platform.database["project_versions"].find({}) as found:
        before = list(found)
    deploy(platform, offers("2"), node="n2")
    platform.database["project_versions"].replace_one({"_id": before[0]["_id"]}, before[0])
    assert catalog.project("Shop").latest == "1"
    seconds[0] += 31
    assert catalog.project("Shop").latest == "2"


def test_one_version_is_the_latest_though_a_node_missed_it(platform: Platform, catalog: SpiderCatalog) -> None:
    deploy(platform, offers("9"), node="n2")
    deploy(platform, offers("9", latest=False), offers("10"), node="n1")
    assert catalog.projects() == [Project("Shop", "10", "9", ("9", "10")), Project("default", None, None, ())]
    assert [info.version for info in catalog.select(project="shop") if info.latest] == ["10"]


@pytest.mark.parametrize(
    "versions",
    [("1.0.dev3", "1.0rc1", "1.0", "1.0.post1", "1.9", "1.10"), ("1.0", "1.0.0"), ("1.10", "1.9", "r7")],
    ids=["PEP 440", "equal", "one that is none"],
)
def test_versions_are_ordered_as_the_nodes_order_them(
    platform: Platform, catalog: SpiderCatalog, versions: tuple[str, ...]
) -> None:
    assert tuple(sorted_versions(versions)) == versions
    for place, version in enumerate(reversed(versions)):
        deploy(platform, offers(version), node=f"n{place}")
    assert catalog.projects()[0] == Project("Shop", versions[-1], versions[-2], versions)
    assert {info.version for info in catalog.select(project="Shop") if info.latest} == {versions[-1]}


HERMIT = SpiderInfo(project="Shop", version="1", name="hermit", needs_urls=False)


async def test_a_spider_with_start_urls_of_its_own_needs_none(platform: Platform, submission: Submission) -> None:
    deploy(platform, offers("1"), HERMIT)
    receipt = await submission.submit(shop(spec={"spider": "hermit", "start_urls": ()}))
    assert platform.jobs.get(receipt.job_id).spec.start_urls == ()
    needing: tuple[dict[str, Any], ...] = ({"spider": "offers"}, {"project": "default", "spider": "seo"})
    for spec in needing:
        with pytest.raises(InvalidRequestError, match="has none of its own") as caught:
            await submission.submit(shop(spec={**spec, "start_urls": ()}))
        assert caught.value.field == "start_urls"


@pytest.mark.parametrize("secret", ["headers", "cookies"])
async def test_what_is_sent_to_the_start_urls_hosts_needs_some(
    platform: Platform, submission: Submission, secret: str
) -> None:
    deploy(platform, HERMIT)
    fetch = FetchOptions.model_validate({secret: {"X-Token": "1"}})
    with pytest.raises(InvalidRequestError) as caught:
        await submission.submit(shop(spec={"spider": "hermit", "start_urls": (), "fetch": fetch}))
    assert caught.value.field == f"fetch.{secret}"


@pytest.mark.parametrize(
    ("spider", "version", "project"),
    [
        ("seo", None, "default"),
        ("hermit", None, "Shop"),
        ("twin", None, ["Shed", "Shop"]),
        ("twin", "7", "Shed"),
        ("twin", "8", ["Shed", "Shop"]),
        ("former", "1", "Shop"),
        ("former", None, None),
        ("seo", "8", "default"),
    ],
)
def test_the_project_of_a_spider_that_only_one_has_need_not_be_named(
    platform: Platform, catalog: SpiderCatalog, spider: str, version: str | None, project: str | list[str] | None
) -> None:
    deploy(
        platform,
        SpiderInfo(project="Shop", version="2", name="hermit"),
        SpiderInfo(project="Shop", version="2", name="twin"),
        SpiderInfo(project="Shop", version="1", name="former"),
        SpiderInfo(project="Shop", version="2", name="seo"),
        SpiderInfo(project="Shed", version="7", name="twin"),
    )
    if isinstance(project, str):
        assert catalog.project_of(spider, version) == project
        return
    with pytest.raises(InvalidRequestError) as caught:
        catalog.project_of(spider, version)
    assert caught.value.field == ("project" if project else "spider")
    assert caught.value.detail["known"] == (project or ["seo", "hermit", "twin"])


DECLARED = {"properties": {"pages": {"type": "integer"}, "code": {"type": "string", "pattern": "^(a+)+$"}}}


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"pages": 5, "code": "aaa", "else": "text"}, None),
        ({"pages": "5"}, "params.pages"),
        ({"code": "a" * 60 + "b"}, "params.code"),
        ({"else": 5}, "params.else"),
        ({"rules": "5"}, "params.rules"),
    ],
)
async def test_declared_parameters_are_checked_and_others_are_free_form(
    platform: Platform, submission: Submission, params: dict[str, Any], field: str | None
) -> None:
    deploy(platform, offers("1", params_schema=DECLARED))
    wanted = shop(spec={"params": params})
    if field is None:
        assert platform.jobs.get((await submission.submit(wanted)).job_id).spec.params == params
        return
    with pytest.raises(InvalidRequestError) as caught:
        await submission.submit(wanted)
    assert caught.value.field == field


async def test_a_retry_runs_the_version_of_the_old_job(platform: Platform, submission: Submission) -> None:
    deploy(platform, offers("1"))
    first = await submission.submit(shop())
    platform.completion.end_waiting(
        platform.jobs.get(first.job_id), Outcome(JobStatus.ERROR, Reason.REQUESTS_FAILED, "site is down")
    )
    deploy(platform, offers("1", latest=False), offers("2"))
    assert resubmission(platform).run_again(first.job_id).spec.version == "1"


async def test_a_retry_of_a_version_that_is_gone_says_so(platform: Platform, submission: Submission) -> None:
    deploy(platform, offers("1"))
    first = await submission.submit(shop())
    platform.completion.end_waiting(
        platform.jobs.get(first.job_id), Outcome(JobStatus.ERROR, Reason.REQUESTS_FAILED, "site is down")
    )
    deploy(platform, offers("2"))
    with pytest.raises(ConflictError, match="unknown version '1' of project 'Shop'; there is 2"):
        resubmission(platform).run_again(first.job_id)


RENDERS = {
    "type": "object",
    "properties": {"render": {"type": "boolean"}},
    "additionalProperties": False,
}


def beat(platform: Platform, *, browsers: int) -> None:
    platform.nodes.heartbeat(
        "n1",
        url=platform.double.url,
        max_slots=2,
        alive=(),
        present=(),
        beating_since=platform.clock(),
        max_render_slots=browsers,
    )


async def test_a_crawl_that_renders_is_marked_as_one(platform: Platform, submission: Submission) -> None:
    deploy(platform, SpiderInfo(project="default", name="look", params_schema=RENDERS))
    beat(platform, browsers=1)
    jobs = [
        platform.jobs.get((await submission.submit(order(spec={"spider": "look", "params": params}))).job_id)
        for params in ({"render": True}, {"render": False}, {})
    ]
    assert [job.render for job in jobs] == [True, None, None]


async def test_rendering_is_refused_while_no_living_node_has_a_browser(
    platform: Platform, submission: Submission
) -> None:
    deploy(platform, SpiderInfo(project="default", name="look", params_schema=RENDERS))
    wanted = order(spec={"spider": "look", "params": {"render": True}})
    beat(platform, browsers=0)
    with pytest.raises(InvalidRequestError, match="CHROMIUM_PATH") as caught:
        await submission.submit(wanted)
    assert caught.value.field == "params.render"
    beat(platform, browsers=1)
    platform.ahead = timedelta(minutes=5)
    with pytest.raises(InvalidRequestError, match="CHROMIUM_PATH"):
        await submission.submit(wanted)
    assert platform.database["jobs"].count_documents({}) == 0


async def test_a_retry_of_a_rendering_job_needs_a_living_browser_too(
    platform: Platform, submission: Submission
) -> None:
    deploy(platform, SpiderInfo(project="default", name="look", params_schema=RENDERS))
    beat(platform, browsers=1)
    first = await submission.submit(order(spec={"spider": "look", "params": {"render": True}}))
    platform.completion.end_waiting(
        platform.jobs.get(first.job_id), Outcome(JobStatus.ERROR, Reason.REQUESTS_FAILED, "site is down")
    )
    beat(platform, browsers=0)
    with pytest.raises(ConflictError, match=r"cannot be run again: .*CHROMIUM_PATH"):
        resubmission(platform).run_again(first.job_id)
    beat(platform, browsers=1)
    assert resubmission(platform).run_again(first.job_id).render
