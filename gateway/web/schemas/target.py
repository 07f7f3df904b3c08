"""Targets: what is searched for on a site, and how often."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidatorFunctionWrapHandler, WrapValidator

from gateway.domain.schedule import Schedule
from gateway.domain.site import Target
from gateway.web.schemas.site import Named, SiteName
from gateway.web.schemas.types import QueryBoolean, Text, Timestamp

_MOST_MINUTES = 366 * 24 * 60
#: What a posting's list can be cut at: as many as the spider takes.
_MOST_RESULTS = 10_000


def _minutes_or_cron(given: Any, check: ValidatorFunctionWrapHandler) -> Any:
    """One fault for both: pydantic tells of each by a name that nobody has given it."""
    try:
        return check(given)
    except ValidationError:
        raise ValueError(f"must be minutes (1 to {_MOST_MINUTES}), or cron such as `0 9 * * *`") from None


Words = Annotated[Text, Field(max_length=500)]
Keywords = Annotated[Words, Field(description="For `{keywords}` of the site's template.")]
Location = Annotated[Words, Field(description="For `{location}`.")]
Frequency = Annotated[
    Annotated[int, Field(ge=1, le=_MOST_MINUTES)] | Annotated[Text, Field(min_length=1, max_length=200)] | None,
    WrapValidator(_minutes_or_cron),
    Field(description="Minutes, or cron (`0 9 * * *`, `@daily`); null: the site's `interval_minutes`."),
]
Timezone = Annotated[Text, Field(min_length=1, max_length=64, description="In which cron is read.")]
Enabled = Annotated[bool, Field(description="Whether it is run by itself.")]
ResultsWanted = Annotated[
    Annotated[int, Field(ge=1, le=_MOST_RESULTS)] | None,
    Field(description="A run ends with so many; null: with all there are."),
]
IsRemote = Annotated[bool | None, Field(description="Only remote ones, or only others; null: both.")]
#: Absent from a change; told from null, which some fields may be.
_UNCHANGED: Any = Field(default_factory=type(None))


class _Named(Named):
    def given(self) -> dict[str, Any]:
        """Minutes, too, as text."""
        given = super().given()
        if isinstance(given.get("frequency"), int):
            given["frequency"] = str(given["frequency"])
        return given


class TargetRequest(_Named):
    """Only `site` is required."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"site": "example-jobs", "keywords": "python", "location": "Paris", "frequency": "0 9 * * MON-FRI"},
                {"site": "example-jobs", "keywords": "welder", "frequency": 30, "results_wanted": 100},
            ]
        },
    )

    site: SiteName
    keywords: Keywords = ""
    location: Location = ""
    frequency: Frequency = None
    timezone: Timezone = "UTC"
    enabled: Enabled = True
    results_wanted: ResultsWanted = None
    is_remote: IsRemote = None


class TargetChanges(_Named):
    """What is absent stays as it is. A target stays with its site."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"frequency": "@daily"}]})

    keywords: Keywords = _UNCHANGED
    location: Location = _UNCHANGED
    frequency: Frequency = _UNCHANGED
    timezone: Timezone = _UNCHANGED
    enabled: Enabled = _UNCHANGED
    results_wanted: ResultsWanted = _UNCHANGED
    is_remote: IsRemote = _UNCHANGED


class TargetView(BaseModel):
    """A target, and where its schedule stands."""

    id: str
    number: int = Field(description="`target_id` in messages; as good as the id in every address.")
    site: str
    keywords: str
    location: str
    frequency: int | str | None
    timezone: str
    enabled: bool
    results_wanted: int | None
    is_remote: bool | None
    schedule_id: str = Field(description="In `/schedules`.")
    last_scheduled: Timestamp | None = Field(description="When a run of it was last handed to a worker.")
    next_run: Timestamp | None = Field(description="Null where it or its site is disabled.")
    created_at: Timestamp
    updated_at: Timestamp

    @classmethod
    def of(cls, target: Target, schedule: Schedule | None) -> TargetView:
        text = target.frequency
        return cls(
            **target.model_dump(exclude={"rev", "frequency"}),
            frequency=int(text) if text and text.isascii() and text.isdigit() else text,
            next_run=schedule.next_run if schedule else None,
        )


class TargetPage(BaseModel):
    targets: list[TargetView] = Field(description="By number.")
    next: str | None = Field(description="`after` of the next page; null on the last.")


class TargetsQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    site: SiteName | None = Field(default=None, description="Only of this site.")
    enabled: QueryBoolean | None = Field(default=None, description="Only those that are, or are not.")
    limit: int = Field(default=50, ge=1, le=200)
    after: Annotated[str, Field(pattern="^[0-9]{1,15}$")] | None = Field(
        default=None, description="`next` of the page before."
    )
