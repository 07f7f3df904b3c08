"""What lists take in their query. A parameter nobody knows is refused: a misspelt filter would show everything."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from gateway.domain.job import JobStatus
from gateway.storage.job_queries import JobFilter
from gateway.web.schemas.types import Cursor, Name, QueryTime, Tag, Text, UserId


class JobsQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    user_id: UserId | None = Field(default=None, description="Whose.")
    status: list[JobStatus] = Field(default_factory=list, max_length=10, description="Any of these; repeatable.")
    spider: Name | None = None
    site: Name | None = Field(default=None, description="Runs of this site.")
    schedule_id: Annotated[str, Field(pattern="^[0-9a-f]{32}$")] | None = Field(
        default=None, description="Runs of this schedule."
    )
    tag: Tag | None = None
    since: QueryTime | None = Field(default=None, description="Created at or after; RFC 3339 with an offset.")
    until: QueryTime | None = Field(default=None, description="Created before.")
    q: Annotated[Text, Field(min_length=1, max_length=200)] | None = Field(
        default=None, description="Text in the id, spider, tags, start URLs or message."
    )
    limit: int = Field(default=50, ge=1, le=200)
    after: Cursor | None = Field(default=None, description="`next` of the page before.")

    def to_filter(self) -> JobFilter:
        return JobFilter(
            user_id=self.user_id,
            status=tuple(self.status),
            spider=self.spider,
            site=self.site,
            schedule_id=self.schedule_id,
            tag=self.tag,
            since=self.since,
            until=self.until,
            q=self.q,
        )


class ItemsQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    format: Literal["json", "jsonl", "csv"] = "json"
    fields: Annotated[Text, Field(min_length=1, max_length=2000)] | None = Field(
        default=None, description="Only these, comma-separated; also the columns of a CSV, in this order."
    )
    limit: Annotated[int, Field(ge=1, le=1000)] | None = Field(
        default=None, description="A page of so many; all items, streamed, without it."
    )
    after: Annotated[str, Field(pattern=r"^([0-9a-f]{32}\.)?[0-9]{1,6}-[0-9]{1,15}$")] | None = Field(
        default=None, description="`next` (JSON) or `X-Next` (header) of the page before."
    )
    attempt: Annotated[str, Field(pattern="^(all|[1-9][0-9]{0,5})$")] | None = Field(
        default=None, description="`all` or a number; the attempt that counts without it."
    )

    escape_formulas: bool = Field(
        default=False,
        description="In a CSV, text that a spreadsheet would run (`=…`, `+…`, `-…`, `@…`) gets a `'` before it.",
    )

    @property
    def field_names(self) -> list[str]:
        return [name for part in (self.fields or "").split(",") if (name := part.strip())]
