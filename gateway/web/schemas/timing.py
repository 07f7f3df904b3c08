"""When a crawl is run: what `POST /crawl`, `POST /schedules` and `PATCH /schedules/{id}` take alike."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from gateway.domain.schedule import CatchUp, Overlap
from gateway.web.schemas.types import QueryTime, Text

MAX_RUNS = 1_000_000_000
#: Fields that say how runs follow each other, and so nothing of a single one.
_OF_INTERVALS = ("timezone", "jitter", "overlap", "catch_up", "ends_at", "max_runs")

Moment = Annotated[QueryTime, Field(examples=["2027-06-01T09:00:00+02:00"])]
Interval = Annotated[Text, Field(min_length=1, max_length=200, examples=["0 9 * * *", "@daily", "every 15m"])]
ZoneName = Annotated[Text, Field(min_length=1, max_length=100, examples=["Europe/Paris"])]
Jitter = Annotated[float, Field(ge=0, le=0.5, allow_inf_nan=False)]
# a request is strict, and JSON has no enumerations
OverlapName = Annotated[Overlap, Field(strict=False)]
CatchUpName = Annotated[CatchUp, Field(strict=False)]
Runs = Annotated[int, Field(ge=1, le=MAX_RUNS)]


class TimingFields(BaseModel):
    """All optional: without any of them a crawl is run now."""

    model_config = ConfigDict(extra="forbid", strict=True)

    interval: Interval | None = Field(
        default=None, description="Run it again and again: five-field cron, `@daily` and its like, or `every 15m`."
    )
    schedule_at: Moment | None = Field(
        default=None, description="Run it then (with an offset, ahead); with `interval`, not before then."
    )
    timezone: ZoneName | None = Field(default=None, description="IANA name that cron is read in; `UTC` by default.")
    jitter: Jitter | None = Field(
        default=None,
        description="Fraction of the gap to the next run by which each is moved; 0.1 for `every`, 0 for cron.",
    )
    overlap: OverlapName | None = Field(
        default=None, description="Where a run is due while the one before it goes on; `skip` by default."
    )
    catch_up: CatchUpName | None = Field(
        default=None, description="What becomes of runs that were missed: `one` for all of them, `none`, `all`."
    )
    ends_at: Moment | None = Field(default=None, description="No run after it.")
    max_runs: Runs | None = Field(default=None, description="Runs after which the schedule ends.")


class OptionalTiming(TimingFields):
    """Where there may be no interval, and then nothing that belongs to one."""

    @field_validator(*_OF_INTERVALS, mode="after")
    @classmethod
    def _belongs_to_an_interval(cls, value: Any, info: ValidationInfo) -> Any:
        # an interval that is wrong itself is not in `data`
        if value is not None and info.data.get("interval", "") is None:
            raise ValueError("belongs to an interval, and there is none")
        return value
