"""What may be asked of schedules."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

from gateway.domain.schedule import ScheduleState
from gateway.storage.schedules import ScheduleFilter
from gateway.web.schemas.crawl import CrawlRequest, StartUrls, WorkFields
from gateway.web.schemas.listing import ItemsQuery
from gateway.web.schemas.timing import Interval, TimingFields
from gateway.web.schemas.types import Cursor, Name, Text, UrlText, UserId

#: The run under way, or the one before.
LAST_RUN = "last"
_NEW: JsonDict = {
    "user_id": "abc123",
    "name": "every morning",
    "spider": "seo",
    "start_urls": ["https://example.com"],
    "interval": "0 9 * * *",
    "timezone": "Europe/Paris",
}


class ScheduleRequest(CrawlRequest):
    """As `POST /crawl` with an interval, which is required here; and a name."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": [_NEW]})

    interval: Interval = Field(description="Five-field cron, `@daily` and its like, or `every 15m`.")
    name: Name | None = None


class ScheduleChange(TimingFields, WorkFields):
    """What is given replaces what is there, each field as a whole; what is left out stays. Null is the default."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={"examples": [{"interval": "30 8 * * MON-FRI", "timezone": "Europe/Paris"}]},
    )

    name: Name | None = None
    ignore_cache: bool = Field(default=True, description="Whether each run asks sites anew, past the HTTP cache.")
    # these have no default that null could mean; a factory's is not in the schema
    spider: Name = Field(default_factory=str, description="One of `GET /spiders`.")
    start_urls: StartUrls = Field(default_factory=list)
    interval: Interval = Field(
        default_factory=str, description="Five-field cron, `@daily` and its like, or `every 15m`."
    )
    webhooks: list[UrlText] = Field(default_factory=list, max_length=20, description="Called when a run has ended.")
    rev: int | None = Field(
        default=None, ge=1, description="Only if the schedule is in this revision still; otherwise 409."
    )


class SchedulesQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    user_id: UserId | None = Field(default=None, description="Whose.")
    state: ScheduleState | None = None
    site: Name | None = Field(default=None, description="Of this site and its targets.")
    spider: Name | None = None
    q: Annotated[Text, Field(min_length=1, max_length=200)] | None = Field(
        default=None, description="Text in the id, name, spider, site, tags or start URLs."
    )
    limit: int = Field(default=50, ge=1, le=200)
    after: Cursor | None = Field(default=None, description="`next` of the page before.")

    def to_filter(self) -> ScheduleFilter:
        return ScheduleFilter(user_id=self.user_id, state=self.state, site=self.site, spider=self.spider, q=self.q)


class PreviewQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    count: int = Field(default=10, ge=1, le=100)


class HistoryQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    limit: int = Field(default=50, ge=1, le=200)
    after: Cursor | None = Field(default=None, description="`next` of the page before.")


class ScheduleItemsQuery(ItemsQuery):
    run: Annotated[str, Field(pattern=f"^({LAST_RUN}|[0-9a-f]{{32}})$")] = Field(
        default=LAST_RUN, description="`last`: the run under way, or the one before; or a run's job id."
    )
