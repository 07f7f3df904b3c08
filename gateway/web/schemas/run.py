"""Runs of sites: how one is asked for, its record, its results."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

from gateway.domain.node_files import Progress
from gateway.domain.run import RUN_STATUSES, RunStatus
from gateway.domain.site import OPERATOR
from gateway.domain.slot import Trigger
from gateway.services.run_record import Run
from gateway.services.scraping import RunOrder
from gateway.web.schemas.types import Name, Params, Text, Timestamp, UserId

#: Results that somebody who waits for them may want.
MAX_SYNC_RESULTS = 25
_JOB = "5f0c8e3a9d1b4c7e8f2a6b5d4c3e2f1a"
_EXAMPLE: JsonDict = {
    "site_name": "exampleboard",
    "search_term": "data engineer",
    "location": "Berlin",
    "is_remote": False,
    "results_wanted": 20,
}
_RECEIPT: JsonDict = {"task_id": _JOB, "run_id": f"manual_{_JOB}", "status": "queued", "execution_mode": "async"}
_RECORD: JsonDict = {
    "run_id": f"manual_{_JOB}",
    "site_schedule_id": 3,
    "task_id": _JOB,
    "trigger": "manual",
    "status": "succeeded",
    "started_at": "2027-06-01T09:00:00.250Z",
    "finished_at": "2027-06-01T09:00:09.750Z",
    "requested_pages": 2,
    "completed_pages": 2,
    "errors_count": 0,
    "message": "2 pages",
    "created_at": "2027-06-01T09:00:00.000Z",
    "updated_at": "2027-06-01T09:00:09.900Z",
    "results": [{"title": "Data engineer", "url": "https://board.example.com/jobs/1"}],
    "next": None,
    "items_url": f"/jobs/{_JOB}/items",
}
Words = Annotated[Text, Field(max_length=500)]


class ScrapeRequest(BaseModel):
    """A run of a site, now. Only `site_name` is required; what is not said is as in the site's own runs."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": [_EXAMPLE]})

    site_name: Name = Field(description="One of `GET /jobs/sites`.")
    search_term: Words | None = Field(default=None, description="For `{keywords}` in the site's search URL.")
    location: Words | None = Field(default=None, description="For `{location}`.")
    is_remote: bool | None = Field(default=None, description="Only remote ones, or only others; all by default.")
    results_wanted: int | None = Field(
        default=None, ge=1, le=10_000, description="It ends with so many. `mode=sync`: 25 at most, and by default."
    )
    payload: Params = Field(default_factory=dict, description="Further parameters, over the site's own `payload`.")
    user_id: UserId = Field(default=OPERATOR, description="Who asks; by default the user of the key.")

    def to_order(self, **more: Any) -> RunOrder:
        return RunOrder(site=self.site_name, **self.model_dump(exclude={"site_name"}), **more)


class ScrapeQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    mode: Literal["async", "sync"] = Field(
        default="async", description="`sync` waits for the end, `SCRAPE_SYNC_TIMEOUT` seconds at most."
    )


class RunQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    limit: int = Field(default=100, ge=0, le=1000, description="Results in the answer; 0: the record alone.")
    after: Annotated[str, Field(pattern="^[0-9]{1,6}-[0-9]{1,15}$")] | None = Field(
        default=None, description="`next` of the page before."
    )


class ScrapeReceiptData(BaseModel):
    task_id: str = Field(description="The job's id.")
    run_id: str
    status: Literal["queued"] = "queued"
    execution_mode: Literal["async"] = "async"


class ScrapeReceipt(BaseModel):
    """The run that was started."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"status": "success", "data": _RECEIPT}]})

    status: Literal["success"] = "success"
    data: ScrapeReceiptData


class RunRecord(BaseModel):
    run_id: str
    site_schedule_id: int | None = Field(description="The site's running number; null once the site is gone.")
    task_id: str = Field(description="The job's id.")
    trigger: Trigger
    status: RunStatus
    started_at: Timestamp | None
    finished_at: Timestamp | None
    requested_pages: int
    completed_pages: int
    errors_count: int
    message: str | None
    created_at: Timestamp
    updated_at: Timestamp

    @classmethod
    def of(cls, run: Run) -> RunRecord:
        job, progress = run.job, run.job.progress or Progress()
        return cls(
            run_id=run.id,
            site_schedule_id=run.site_number,
            task_id=job.id,
            trigger=job.trigger or Trigger.MANUAL,
            status=RUN_STATUSES[job.status],
            **progress.model_dump(include={"requested_pages", "completed_pages", "errors_count"}),
            **job.model_dump(include={"started_at", "finished_at", "message", "created_at", "updated_at"}),
        )


class RunView(RunRecord):
    """A run and its results so far: of the attempt that counts, in the order they were scraped."""

    model_config = ConfigDict(json_schema_extra={"examples": [_RECORD]})

    items_url: str = Field(description="All results, in every format.")
    results: list[dict[str, Any]]
    next: str | None = Field(description="`after` of the page that follows.")


class SyncRunView(RunView):
    execution_mode: Literal["sync"]


class ScrapeResult(BaseModel):
    """A run that somebody has waited for."""

    status: Literal["success", "failed"] = Field(description="`failed`: the run has failed; `data.message` says why.")
    data: SyncRunView
