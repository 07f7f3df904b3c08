"""Tools that find out what can be crawled, crawl, and say how it went."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, Field

from gateway.contract.crawl import DEFAULT_PROJECT
from gateway.jobs.job import FINAL_STATUSES, JobStatus
from gateway.web.agents.answer_text import TEXT_BYTES, Fence, cost, seen, shortened, within
from gateway.web.agents.tool_registry import ToolArguments, tool
from gateway.web.inner_calls import InnerCalls
from gateway.web.routes.jobs import LONGEST_WAIT

#: Entries of a list in one answer.
MOST_LISTED = 20
#: Pages of a crawl that names no limit.
USUAL_PAGES = 100
#: The user of the jobs as long as there are no keys.
NOBODYS = "agent"
_SCHEMA_BYTES = 12_000
_DESCRIPTION = 300
_JOB_ID = r"^[0-9a-f]{32}$"

JobId = Annotated[str, Field(pattern=_JOB_ID, description="The id of a job, as `start_crawl` gave it.")]
Cursor = Annotated[str, Field(max_length=1000)]
ListLimit = Annotated[int, Field(ge=1, le=MOST_LISTED)]


# --- spiders


class SpidersAsked(ToolArguments):
    name: str | None = Field(default=None, max_length=100, description="Only this spider, with all its parameters.")
    project: str | None = Field(default=None, max_length=100, description="Only spiders of this project.")
    limit: ListLimit = MOST_LISTED
    after: Cursor | None = Field(default=None, description="The `next` of the answer before.")


class SpiderTold(BaseModel):
    project: str
    version: str | None = None
    name: str
    description: str
    needs_urls: bool = Field(description="Whether a crawl must name start URLs.")
    params: list[str] = Field(description="The names of its parameters.")
    params_schema: dict[str, Any] | None = Field(
        default=None, description="JSON Schema of `params`; only where one spider is asked for, and if it is short."
    )


class SpidersTold(BaseModel):
    spiders: list[SpiderTold]
    next: str | None = Field(default=None, description="There are more: pass it as `after`.")


@tool("List spiders", reads=True)
async def list_spiders(calls: InnerCalls, args: SpidersAsked) -> SpidersTold:
    """What can be run: each spider with its project and the names of its parameters.
    Ask with `name` for the JSON Schema of one spider's parameters.
    """
    query = args.model_dump(exclude_none=True)
    page = await calls.get("/spiders", **query)
    found = [_spider(one, whole=args.name is not None) for one in page["spiders"] if one["latest"] or args.name]
    return SpidersTold(spiders=found, next=page["next"])


def _spider(one: dict[str, Any], *, whole: bool) -> SpiderTold:
    schema = one["params_schema"]
    names = [*(schema or {}).get("properties", {}), *one["arguments"]]
    is_short = whole and schema is not None and cost(str(schema)) <= _SCHEMA_BYTES // MOST_LISTED * 4
    return SpiderTold(
        project=one["project"],
        version=one["version"],
        name=one["name"],
        description=seen(one["description"], _DESCRIPTION),
        needs_urls=one["needs_urls"],
        params=[seen(name, 60) for name in names[:40]],
        params_schema=schema if is_short else None,
    )


# --- to crawl


class CrawlAsked(ToolArguments):
    spider: str = Field(max_length=100, description="A spider of `list_spiders`.")
    start_urls: list[Annotated[str, Field(max_length=2083)]] = Field(
        default_factory=list, max_length=MOST_LISTED, description="Absolute http(s) URLs of public hosts."
    )
    project: str | None = Field(default=None, max_length=100, description="The spider's project, if several have it.")
    depth: int | None = Field(
        default=None, ge=0, description="Links to follow from a start URL; 0: only these pages."
    )
    max_pages: int = Field(default=USUAL_PAGES, ge=1, description="The crawl ends after so many pages.")
    max_items: int | None = Field(default=None, ge=1, description="The crawl ends after so many items.")
    params: dict[str, Any] = Field(default_factory=dict, description="The spider's parameters.")
    tags: list[Annotated[str, Field(max_length=100)]] = Field(default_factory=list, max_length=20)
    ignore_cache: bool = Field(default=False, description="Crawl anew, although the same crawl was made before.")


class CrawlProblem(BaseModel):
    code: str
    field: str | None = None
    message: str


class CrawlForeseen(BaseModel):
    accepted: bool
    problems: list[CrawlProblem] = Field(description="Why `start_crawl` would refuse it.")
    known_job_id: str | None = Field(
        default=None, description="The job that would answer it, because it is the same."
    )
    waiting_reason: str | None = Field(default=None, description="Why it would have to wait.")
    queue_position: int | None = None
    max_pages: int | None = None
    timeout: int | None = Field(default=None, description="Seconds after which the crawl would be stopped.")


class CrawlStarted(BaseModel):
    job_id: str
    cached: bool = Field(description="Whether the same crawl existed already: this is its job.")
    page_url: str = Field(description="For people: the job's page, below the address of this gateway.")
    next_step: str


@tool("Preview a crawl", reads=True)
async def preview_crawl(calls: InnerCalls, args: CrawlAsked) -> CrawlForeseen:
    """What `start_crawl` would do with the same arguments: whether it would be refused and why, whether a job does
    the same already, and whether it would have to wait. Nothing is made.
    """
    told = await calls.post("/crawl/preview", body=_crawl(calls, args))
    place, crawl = told["place"] or {}, told["crawl"] or {}
    return CrawlForeseen(
        accepted=told["accepted"],
        problems=[
            CrawlProblem(code=one["code"], field=one["field"], message=seen(one["message"]))
            for one in told["problems"][:MOST_LISTED]
        ],
        known_job_id=(told["answer"] or {}).get("job_id"),
        waiting_reason=place.get("waiting_reason"),
        queue_position=place.get("queue_position"),
        max_pages=crawl.get("max_pages"),
        timeout=crawl.get("timeout"),
    )


@tool("Start a crawl")
async def start_crawl(calls: InnerCalls, args: CrawlAsked) -> CrawlStarted:
    """Start a crawl now and answer at once with its job's id. Then call `get_job` with `wait_seconds`, and
    `sample_items` once there are items. The same crawl within an hour is answered with the same job.
    """
    told = await calls.post("/crawl", body=_crawl(calls, args))
    return CrawlStarted(
        job_id=told["job_id"],
        cached=told["cached"],
        page_url=told["page_url"],
        next_step=f"get_job with job_id {told['job_id']} and wait_seconds {LONGEST_WAIT}",
    )


def _crawl(calls: InnerCalls, args: CrawlAsked) -> dict[str, Any]:
    return args.model_dump(exclude_none=True) | who(calls)


def who(calls: InnerCalls) -> dict[str, str]:
    """The user of a crawl, where no key says it."""
    return {} if calls.caller.key else {"user_id": NOBODYS}


# --- running crawls


class JobAsked(ToolArguments):
    job_id: JobId
    wait_seconds: int = Field(
        default=0, ge=0, le=LONGEST_WAIT, description="Answer once the job has ended, or after so many seconds."
    )


class AdviceTold(BaseModel):
    what: str
    steps: list[str]
    reference: str = Field(description="The page of the documentation that says more.")


class JobTold(BaseModel):
    job_id: str
    status: JobStatus
    ended: bool
    spider: str | None = None
    waiting_reason: str | None = Field(default=None, description="Why it has not started.")
    queue_position: int | None = None
    not_before: str | None = None
    reason: str | None = Field(default=None, description="Why it ended so, as a code.")
    message: str | None = Field(default=None, description="The same in words, which may quote what a page has said.")
    requested_pages: int = 0
    completed_pages: int = 0
    items: int = 0
    errors: int = 0
    new_errors: int = Field(default=0, description="Kinds of errors that no run before has had: see `list_errors`.")
    started_at: str | None = None
    finished_at: str | None = None
    advice: AdviceTold | None = Field(default=None, description="What is wrong, and what to do about it.")
    page_url: str | None = None
    notice: str


@tool("Look at a job", reads=True)
async def get_job(calls: InnerCalls, args: JobAsked) -> JobTold:
    """How a crawl goes or went: its status and counts, why it waits or failed, and what to do about it."""
    wait = args.wait_seconds or None
    return await calls.shaped(_job, "/jobs/{}", args.job_id, wait=wait)


def _job(told: dict[str, Any]) -> JobTold:
    fence, advice = Fence(), told.get("advice")
    same = ("spider", "waiting_reason", "queue_position", "not_before", "reason", "started_at", "finished_at")
    return JobTold(
        job_id=told["job_id"],
        status=told["status"],
        ended=told["status"] in FINAL_STATUSES,
        message=fence.around(within(seen(told["message"], 2000), 4000)) if told.get("message") else None,
        requested_pages=told["requested_pages"],
        completed_pages=told["completed_pages"],
        items=told["items_count"],
        errors=told["errors_count"],
        new_errors=told.get("new_errors", 0),
        advice=AdviceTold.model_validate(shortened(advice)) if advice else None,
        page_url=told.get("page_url"),
        notice=fence.notice,
        **{name: told.get(name) for name in same},
    )


class StopAsked(ToolArguments):
    job_id: JobId


class StopTold(BaseModel):
    job_id: str
    status: JobStatus
    ended: bool = Field(description="False: it was asked to stop, and ends within moments.")


@tool("Stop a job", ends=True, repeatable=True)
async def stop_job(calls: InnerCalls, args: StopAsked) -> StopTold:
    """Stop a crawl that waits or runs. What it has found stays."""
    told = await calls.post("/jobs/{}/cancel", args.job_id)
    return StopTold(job_id=told["job_id"], status=told["status"], ended=told["status"] in FINAL_STATUSES)


# --- a page as Markdown


class PageAsked(ToolArguments):
    url: str = Field(max_length=2083, description="The address of a public page.")
    wait_seconds: int = Field(default=25, ge=0, le=LONGEST_WAIT)
    offset: int = Field(default=0, ge=0, description="The `next_offset` of the answer before.")
    ignore_cache: bool = Field(default=False, description="Fetch it anew.")


class PageTold(BaseModel):
    job_id: str
    status: JobStatus
    ended: bool = Field(description="False: it is not fetched yet; call again with the same arguments.")
    total_characters: int = 0
    markdown: str | None = Field(default=None, description="Null if there is no text: `get_job` says why.")
    next_offset: int | None = Field(default=None, description="Where the rest begins; null if this is all.")
    notice: str


@tool("Read a page as Markdown", repeatable=True)
async def page_to_markdown(calls: InnerCalls, args: PageAsked) -> PageTold:
    """Fetch one page and give its main text as Markdown, without menus and advertisements. It is a crawl of its own,
    with the spider `article`.
    """
    body = {"spider": "article", "project": DEFAULT_PROJECT, "start_urls": [args.url], "depth": 0, "max_pages": 1}
    more = {"params": {"format": "markdown", "min_words": 1}, "ignore_cache": args.ignore_cache and not args.offset}
    job_id = (await calls.post("/crawl", body={**body, **more, **who(calls)}))["job_id"]
    job = await calls.shaped(_job, "/jobs/{}", job_id, wait=args.wait_seconds or None)
    text = ""
    if job.ended and job.items:
        text = await calls.shaped(_markdown, "/jobs/{}/items", job_id, limit=1)
    return _page(job, text, args.offset)


def _markdown(page: dict[str, Any]) -> str:
    text = page["items"][0].get("markdown") if page["items"] else None
    return seen(text, len(text)) if isinstance(text, str) else ""


def _page(job: JobTold, text: str, offset: int) -> PageTold:
    fence, rest = Fence(), text[offset : offset + TEXT_BYTES]
    while cost(rest) > TEXT_BYTES:
        rest = rest[: len(rest) * 3 // 4]
    end = offset + len(rest)
    return PageTold(
        job_id=job.job_id,
        status=job.status,
        ended=job.ended,
        total_characters=len(text),
        markdown=fence.around(rest) if rest else None,
        next_offset=end if end < len(text) else None,
        notice=fence.notice,
    )
