"""`POST /crawl`: the request and the receipt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, create_model, field_validator
from pydantic.config import JsonDict

from gateway.contract.crawl import DatasetOrder, Expect, FetchOptions
from gateway.jobs.job import LIMITS, NUMBERS
from gateway.schedules.schedule import CatchUp, Overlap
from gateway.web.schemas.types import (
    Body,
    Name,
    Params,
    QueryBoolean,
    QueryModel,
    QueryTime,
    Tag,
    Text,
    Timestamp,
    UrlText,
    UserId,
    Variables,
)

MAX_RUNS = 1_000_000_000
#: Fields that need an interval: they have no meaning for a single run.
OF_INTERVALS = ("timezone", "jitter", "overlap", "catch_up", "ends_at", "max_runs")

Moment = Annotated[QueryTime, Field(examples=["2027-06-01T09:00:00+02:00"])]
Interval = Annotated[Text, Field(min_length=1, max_length=200, examples=["0 9 * * *", "@daily", "every 15m"])]
ZoneName = Annotated[Text, Field(min_length=1, max_length=100, examples=["Europe/Paris"])]
# not strict, because JSON has no enumerations
OverlapName = Annotated[Overlap, Field(strict=False)]
CatchUpName = Annotated[CatchUp, Field(strict=False)]


class TimingFields(Body, strict=True):
    """When a crawl runs. All fields are optional: without them, it runs now."""

    interval: Interval | None = Field(
        default=None,
        description="Run the crawl again and again: five-field cron, a name such as `@daily`, or `every 15m`.",
    )
    schedule_at: Moment | None = Field(
        default=None,
        description="Run the crawl at this time, in the future and with an offset; with `interval`, not before it.",
    )
    timezone: ZoneName | None = Field(
        default=None, description="The IANA name of the time zone for cron; `UTC` by default."
    )
    jitter: Annotated[float, Field(ge=0, le=0.5, allow_inf_nan=False)] | None = Field(
        default=None,
        description="Shift each run by up to this fraction of the gap to the next; 0.1 for `every`, 0 for cron.",
    )
    overlap: OverlapName | None = Field(
        default=None, description="What to do if a run is due before the previous one has ended; `skip` by default."
    )
    catch_up: CatchUpName | None = Field(
        default=None, description="How to make up for missed runs: by `one` run for all of them, by `none`, or `all`."
    )
    ends_at: Moment | None = Field(default=None, description="No run after this time.")
    max_runs: int | None = Field(default=None, ge=1, le=MAX_RUNS, description="Runs after which the schedule ends.")


class OptionalTiming(TimingFields):
    """Timing with an optional interval. Without it, the fields that need an interval must be left out."""

    @field_validator(*OF_INTERVALS, mode="after")
    @classmethod
    def _belongs_to_an_interval(cls, value: Any, info: ValidationInfo) -> Any:
        # if the interval is invalid, it is not in `data`, and has its own error
        if value is not None and info.data.get("interval", "") is None:
            raise ValueError("needs an interval, and the request has none")
        return value


MAX_START_URLS = 1000
_MOST = 100_000_000
_DEPLOYED: JsonDict = {
    "user_id": "abc123",
    "project": "shop",
    "version": "1.4",
    "spider": "offers",
    "start_urls": ["https://shop.example.com/offers"],
    "params": {"category": "shoes"},
    "settings": {"DOWNLOAD_DELAY": 0.5},
    "env": {"SHOP_REGION": "eu"},
    "max_items": 500,
    "expect": {"min_items": 100, "max_error_rate": 0.05, "fields": {"title": 1, "price": 0.9}},
}
#: A crawl by a spider with its own start URLs. It has no `user_id`, because the key of the request identifies the
#: user.
_OWN_URLS: JsonDict = {"project": "quotesbot", "spider": "toscrape-css"}
_EXAMPLE: JsonDict = {
    "user_id": "abc123",
    "spider": "seo",
    "start_urls": ["https://example.com"],
    "depth": 2,
    "max_pages": 1000,
    "tags": ["nightly"],
}
_DAILY: JsonDict = {
    "user_id": "abc123",
    "spider": "seo",
    "start_urls": ["https://example.com"],
    "interval": "0 9 * * *",
    "timezone": "Europe/Paris",
}
_JOB_ID = "5f0c8e3a9d1b4c7e8f2a6b5d4c3e2f1a"
_RECEIPT: JsonDict = {
    "job_id": _JOB_ID,
    "scheduled": False,
    "cached": False,
    "logs_url": f"/jobs/{_JOB_ID}/logs",
    "status_url": f"/jobs/{_JOB_ID}/status",
    "page_url": f"/console/jobs/{_JOB_ID}",
}
_SCHEDULED: JsonDict = {**_RECEIPT, "scheduled": True, "next_run": "2027-06-01T07:00:00.000Z"}

StartUrls = Annotated[
    list[UrlText],
    Field(
        max_length=MAX_START_URLS,
        description="Absolute http(s) URLs of public hosts. A spider that has its own needs none: `GET /spiders` "
        "says whether it `needs_urls`.",
    ),
]


def _number(name: str) -> Any:
    one = NUMBERS[name]
    return Field(default=one.default, ge=one.least, le=one.most or _MOST, description=one.about)


if TYPE_CHECKING:
    _Limits = Body
else:
    _Limits = create_model("_Limits", __base__=Body, **{name: (int | None, _number(name)) for name in LIMITS})


class WorkFields(_Limits, strict=True):
    """What a crawl does, apart from its spider and its start URLs. All fields are optional. The fields for limits are
    made from the declarations in `CrawlSpec`.
    """

    ignore_cache: bool = Field(
        default=False,
        description="Make a new job, and fetch its pages without the HTTP cache. Runs of a schedule never use it.",
    )
    params: Params = Field(
        default_factory=dict, description="The spider's parameters, which are checked against its schema."
    )
    priority: int = _number("priority")
    tags: list[Tag] = Field(default_factory=list, max_length=20)
    timeout: int | None = _number("timeout")
    max_retries: int | None = _number("max_retries")
    project: Name | None = Field(
        default=None,
        description="The project of the spider; by default the platform's own, or the only one that has the spider.",
    )
    version: Name | None = Field(
        default=None,
        description="The version of the project's egg, which all attempts run; by default the latest one. "
        "Without a version, each run of a schedule uses the latest version at its time.",
    )
    fetch: FetchOptions | None = Field(default=None, description="How pages are fetched.")
    expect: Expect | None = Field(
        default=None, description="What the crawl must find; a crawl that finds less is `partial`."
    )
    settings: Params = Field(
        default_factory=dict,
        description="Settings of Scrapy, over those of the project and its spiders: plain ones, and those that the "
        "project opens.",
    )
    dataset: DatasetOrder | None = Field(
        default=None,
        description="The dataset that the items become part of when the crawl has ended: a name, or an object that "
        "also says what makes an item the same. It is made if it does not exist.",
        examples=["prices", {"name": "prices", "key": ["sku"], "ignore": ["scraped_at"]}],
    )
    env: Variables = Field(
        default_factory=dict,
        description="Variables for a deployed project's spider, over those of the project, as far as it opens "
        "them. They are kept as they are: secrets belong to the project.",
    )


class _AskedFields(BaseModel):
    user_id: UserId | None = Field(
        default=None,
        description="The user who asks; letters, digits and `. _ @ + | ~ = -`. By default the user of the key; a "
        "request without a key must name one.",
    )
    spider: Name = Field(description="A spider of `GET /spiders`.")
    start_urls: StartUrls = Field(default_factory=list)
    webhook_url: UrlText | None = Field(default=None, description="This URL is called when a run has ended.")


class CrawlRequest(OptionalTiming, WorkFields, _AskedFields):
    """A crawl that runs now, later or repeatedly. Only `spider` is always required."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE, _DAILY, _DEPLOYED, _OWN_URLS]})


class CrawlQuery(QueryModel):
    ignore_cache: QueryBoolean = Field(default=False, description="The same as in the body.")


class CrawlReceipt(BaseModel, json_schema_extra={"examples": [_RECEIPT, _SCHEDULED]}):
    """The job for the request: a new job, or an existing job that does the same work."""

    job_id: str = Field(description="The job's id, or the schedule's, which can be used in place of a job's id.")
    scheduled: bool = Field(description="Whether the crawl runs later, or again and again.")
    cached: bool = Field(description="Whether the job or the schedule existed before this request.")
    cached_at: Annotated[Timestamp | None, Field(description="When it was first requested; only with `cached`.")] = (
        None
    )
    next_run: Annotated[
        Timestamp | None, Field(description="The next run, with `scheduled`; absent while the schedule is paused.")
    ] = None
    logs_url: str
    status_url: str
    page_url: str = Field(description="The job's page in the console, for people.")
    retry_of: str | None = Field(default=None, description="The job that this one runs again; only after a retry.")

    @classmethod
    def of(cls, job_id: str, *, scheduled: bool = False, **more: Any) -> CrawlReceipt:
        return cls(
            job_id=job_id,
            scheduled=scheduled,
            logs_url=f"/jobs/{job_id}/logs",
            status_url=f"/jobs/{job_id}/status",
            page_url=f"/console/jobs/{job_id}",
            **more,
        )
