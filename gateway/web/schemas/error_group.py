"""How the API shows error groups."""

from __future__ import annotations

from datetime import date, datetime
from typing import Literal, Self

from pydantic import BaseModel, Field
from pydantic.config import JsonDict

from gateway.contract.error_fingerprint import title
from gateway.error_groups.error_group import ErrorExample, ErrorGroup, ErrorGroupMark, ErrorGroupState, ErrorRun, Gone
from gateway.error_groups.store import ErrorFilter, RunGroup
from gateway.web.schemas.types import Body, Cursor, Name, QueryModel, QueryTime, SearchText, Timestamp, UserId

_JOB_ID = "5f0c8e3a9d1b4c7e8f2a6b5d4c3e2f1a"
_ERROR_ID = "2b0c8e3a9d1b4c7e8f2a6b5d4c3e2f1a"
_SEEN: JsonDict = {"job_id": _JOB_ID, "version": "2.0", "at": "2027-06-01T09:03:41.000Z", "count": 12}
_WHAT: JsonDict = {
    "error_id": _ERROR_ID,
    "kind": "exception",
    "title": "ValueError: could not convert string to float: <text>",
    "name": "ValueError",
    "place": "shop/spiders/prices.py:parse_price",
    "message": "could not convert string to float: <text>",
}
_EXAMPLE: JsonDict = {
    "job_id": _JOB_ID,
    "attempt": 1,
    "text": "could not convert string to float: '€ 9,50'",
    "url": "https://shop.example/sale/17",
    "at": "2027-06-01T09:01:12.331Z",
    "position": "1-20480",
}
_ERROR: JsonDict = {
    **_WHAT,
    "user_id": "abc123",
    "project": "shop",
    "spider": "prices",
    "state": "open",
    "first_seen": _SEEN,
    "last_seen": _SEEN,
    "first_since": None,
    "runs": 3,
    "count": 36,
    "days": [{"day": "2027-06-01", "runs": 3, "count": 36}],
    "runs_since": 0,
    "runs_since_is_least": False,
    "resolved_at": None,
    "resolved_by": None,
    "resolved_version": None,
    "back": None,
    "example": _EXAMPLE,
}

Kind = Literal["exception", "log", "status", "download", "crawl"]


class ErrorGroupRunView(BaseModel):
    """A run with errors of the group."""

    job_id: str
    version: str | None = Field(description="The project's version; `null` if the crawl named none.")
    at: Timestamp = Field(description="When the run ended.")
    count: int = Field(description="How often it occurred in the run.")

    @classmethod
    def of(cls, run: ErrorRun) -> Self:
        return cls(**run.model_dump(include=set(cls.model_fields)))


class ErrorGroupMarkedRun(ErrorGroupRunView):
    """A run of the group's spider, and what it means for the group."""

    mark: ErrorGroupMark = Field(
        description="`new`: the first run with it; `back`: it was resolved before the run began."
    )


class ErrorGroupDayView(BaseModel):
    """How often an error came on a day."""

    day: date = Field(description="The day, by UTC.")
    runs: int
    count: int


class ErrorGroupExampleView(BaseModel):
    """The first error of the group in the last run."""

    job_id: str
    attempt: int
    text: str = Field(description="The message with its values, up to 500 characters.")
    url: str = Field(description="The page that it is about; empty if that is not known.")
    at: Timestamp | None
    position: str | None = Field(
        description="Where its line begins in the log: the `from` of `GET /jobs/{job_id}/logs/lines`."
    )

    @classmethod
    def of(cls, example: ErrorExample) -> Self:
        return cls(**example.model_dump(include=set(cls.model_fields)), position=position_of(example))


def position_of(example: ErrorExample) -> str | None:
    return None if example.log_start is None else f"{example.attempt}-{example.log_start}"


class _What(BaseModel):
    """The facts that all errors of a group have in common."""

    error_id: str = Field(description="The same for all runs of this user's spider.")
    kind: str = Field(
        description="`exception`; `log`: a message of level ERROR or above; `status`: an answer of 400 or above; "
        "`download`: a request without an answer; `crawl`: a crawl that failed without any of these."
    )
    title: str = Field(description="The error in one line.")
    name: str = Field(description="The exception's class, the level, the status, or the job's `reason`.")
    place: str = Field(description="The function of the project's code that raised or logged it, or the host.")
    message: str = Field(description="The message, with `<number>`, `<text>`, `<url>` … for values that differ.")


class ErrorGroupView(_What, json_schema_extra={"examples": [_ERROR]}):
    """Errors of many runs that are the same."""

    user_id: str
    project: str
    spider: str
    state: ErrorGroupState
    first_seen: ErrorGroupRunView
    last_seen: ErrorGroupRunView
    first_since: ErrorGroupRunView | None = Field(
        description="In a list with `since`: the first run since then with it, of the last 50 with it."
    )
    runs: int = Field(description="How many runs have had it.")
    count: int = Field(description="How often it occurred in all of them.")
    days: list[ErrorGroupDayView] = Field(
        description="The days on which runs with it ended, the oldest first: of the last 30 in lists, else up to 90."
    )
    runs_since: int = Field(description="How many runs of the spider have ended well since, without it.")
    runs_since_is_least: bool = Field(
        description="Whether `runs_since` is too low: it counts 30 days only, and the error is older."
    )
    resolved_at: Timestamp | None = Field(description="When somebody said last that it is repaired.")
    resolved_by: str | None
    resolved_version: str | None = Field(description="The version with the repair, as named by whoever resolved it.")
    back: ErrorGroupRunView | None = Field(description="The run that has had it again after that.")
    example: ErrorGroupExampleView

    @classmethod
    def of(
        cls, group: ErrorGroup, gone: Gone, days_since: datetime | None = None, since: datetime | None = None
    ) -> Self:
        """The view of a group. `since`: the beginning of what is asked for."""
        first = f"{days_since:%Y-%m-%d}" if days_since else ""
        again = group.first_since(since) if since else None
        resolved = group.resolved
        return cls(
            **what_of(group.id, group),
            **group.model_dump(include={"user_id", "project", "spider", "state", "runs", "count"}),
            first_seen=ErrorGroupRunView.of(group.first),
            last_seen=ErrorGroupRunView.of(group.last),
            first_since=ErrorGroupRunView.of(again) if again else None,
            days=[ErrorGroupDayView(day=date.fromisoformat(day), **vars(one)) for day, one in group.days.items()
                  if day >= first],
            runs_since=gone.runs,
            runs_since_is_least=gone.is_least,
            resolved_at=resolved.at if resolved else None,
            resolved_by=resolved.by if resolved else None,
            resolved_version=resolved.version if resolved else None,
            back=ErrorGroupRunView.of(group.back) if group.back else None,
            example=ErrorGroupExampleView.of(group.example),
        )  # fmt: skip


def what_of(identity: str, told: ErrorGroup | RunGroup) -> dict[str, str]:
    one = told.found if isinstance(told, RunGroup) else told
    return {
        "error_id": identity,
        "title": title(one.kind, one.name, one.place, one.message),
        **one.model_dump(include={"kind", "name", "place", "message"}),
    }


class ErrorGroupDetail(ErrorGroupView, json_schema_extra={"examples": [{
    **_ERROR, "recent_runs": [{**_SEEN, "mark": "new"}], "gone_since": None}]}):  # fmt: skip
    """An error, with its runs and days."""

    recent_runs: list[ErrorGroupMarkedRun] = Field(description="The last 50 runs with it, the newest first.")
    gone_since: ErrorGroupRunView | None = Field(
        description="The first run without it that ended well after the last one with it, if that is among the "
        "spider's last 50; its `count` is 0."
    )


class ErrorGroupPage(BaseModel):
    """A page of errors."""

    errors: list[ErrorGroupView]
    next: str | None = Field(description="The `after` of the next page; `null` on the last one.")


class ErrorsFilter(QueryModel):
    user_id: UserId | None = Field(default=None, description="Only errors of this user's crawls.")
    project: Name | None = Field(default=None, description="Only errors of this project.")
    spider: Name | None = Field(default=None, description="Only errors of this spider.")
    state: ErrorGroupState | None = Field(default=None, description="Only errors in this state.")
    kind: Kind | None = Field(default=None, description="Only such errors.")
    since: QueryTime | None = Field(default=None, description="Only what was seen at or after this time.")
    new_since: QueryTime | None = Field(default=None, description="Only what was first seen at or after this time.")
    until: QueryTime | None = Field(default=None, description="Only what was first seen before this time.")
    q: SearchText | None = Field(default=None, description="Only with this text in the name, message or place.")

    def to_filter(self) -> ErrorFilter:
        return ErrorFilter(**self.model_dump(include=set(ErrorsFilter.model_fields)))


class ErrorsQuery(ErrorsFilter):
    sort: Literal["last_seen", "count", "first_seen", "oldest"] = Field(
        default="last_seen",
        description="What comes first: what was seen last, what occurred most often, or what was seen for the first "
        "time before all others. `oldest`: what came first since `since` (`first_since`); this is one page, of the "
        "1,000 errors that were seen last.",
    )
    limit: int = Field(default=50, ge=1, le=200, description="The size of a page.")
    after: Cursor | None = Field(default=None, description="The `next` of the previous page, with the same `sort`.")


class ErrorGroupUpdate(Body, json_schema_extra={"examples": [{"state": "resolved", "version": "2.1"}]}):
    """The state that an error is to have."""

    state: ErrorGroupState = Field(
        description="`resolved`: it is repaired; open again once a run has it that began later. `ignored`: stays so."
    )
    version: Name | None = Field(default=None, description="The version that has the repair, with `resolved`.")


_OF_RUN: JsonDict = {"mark": "new", "state": "open", "count": 12, "first_seen": _SEEN, "runs": 1}


class JobErrorView(_What, json_schema_extra={"examples": [{**_WHAT, **_OF_RUN, "example": _EXAMPLE}]}):
    """Errors of one job that are the same."""

    mark: ErrorGroupMark = Field(
        description="`new`: no run before has had it; `back`: it was resolved before the run began; else `known`."
    )
    state: ErrorGroupState | None = Field(description="`null` while it is not known across runs.")
    count: int = Field(description="How often it occurred in this run.")
    first_seen: ErrorGroupRunView | None
    runs: int = Field(description="How many runs have had it, if this is known.")
    example: ErrorGroupExampleView


class JobErrorsView(BaseModel):
    """What went wrong in a job, by kind of error."""

    errors: list[JobErrorView] = Field(description="The most frequent first; at most 50.")
    left_out: int = Field(description="Errors of the run that are in none of these, as there were too many groups.")
