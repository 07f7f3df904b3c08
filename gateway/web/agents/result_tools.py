"""Tools that show results and errors of crawls. Each gives the total number, and some of the entries."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from gateway.web.agents.answer_text import Fence, lines_within, seen
from gateway.web.agents.crawl_tools import MOST_LISTED, Cursor, JobId, ListLimit
from gateway.web.agents.tool_registry import ToolArguments, tool
from gateway.web.inner_calls import InnerCalls

_USUAL_ITEMS = 5
_URL_LENGTH = 200
_FIELDS = 50

Fenced = Annotated[str, Field(description="One JSON object a line, between the marks that `notice` names.")]


class PartTold(BaseModel):
    """A part of what there is."""

    shown: int = Field(description="How many of them are in this answer.")
    left_out: int = Field(
        default=0, description="How many that were asked for found no room here; go on with `next`, if there is one."
    )
    notice: str


def _part(values: Iterable[Any]) -> tuple[Fence, str, dict[str, Any]]:
    """The values that find room, fenced; with the fields of a `PartTold`."""
    fence, found = Fence(), list(values)
    lines = lines_within(found)
    facts = {"shown": len(lines), "left_out": len(found) - len(lines), "notice": fence.notice}
    return fence, fence.around("\n".join(lines)), facts


# --- the log


class LogAsked(ToolArguments):
    job_id: JobId
    text: str | None = Field(
        default=None, max_length=200, description="Only lines with this text; case does not matter."
    )
    level: Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"] | None = Field(
        default=None, description="Only lines of this level or above."
    )
    newest: bool = Field(
        default=False, description="The last lines instead of the first; not with `text` or `after`."
    )
    limit: ListLimit = MOST_LISTED
    after: Annotated[str, Field(pattern=r"^[0-9]{1,6}-[0-9]{1,15}$")] | None = Field(
        default=None, description="The `next` of the answer before."
    )


class LogTold(PartTold):
    total_lines: int = Field(description="Lines of the whole log.")
    levels: dict[str, int] = Field(description="Lines of each level.")
    lines: Fenced
    next: str | None = Field(default=None, description="Pass it as `after` for what follows; null: this was all.")


@tool("Search a log", reads=True)
async def search_log(calls: InnerCalls, args: LogAsked) -> LogTold:
    """Lines of a crawl's log, by text and level; and how many lines of each level there are."""
    index = await calls.get("/jobs/{}/logs/index", args.job_id, level=args.level)
    query: dict[str, Any] = {"level": args.level, "q": args.text, "limit": args.limit, "max_length": 500}
    if args.newest and not args.text and not args.after:
        query["line"] = max(1, index["lines"] - args.limit + 1)
    page = await calls.get("/jobs/{}/logs/lines", args.job_id, **query, **{"from": args.after})
    lines = page["lines"]
    _, text, facts = _part({name: one.get(name) for name in ("ts", "level", "logger", "msg")} for one in lines)
    cut_at = (
        f"{lines[facts['shown']]['id'].partition('-')[0]}-{lines[facts['shown']]['start']}"
        if facts["left_out"]
        else None
    )
    return LogTold(
        total_lines=index["all_lines"],
        levels={seen(name, 20): count for name, count in index["levels"].items()},
        lines=text,
        next=cut_at or page["next"],
        **facts,
    )


# --- items


class ItemsAsked(ToolArguments):
    job_id: JobId
    limit: int = Field(default=_USUAL_ITEMS, ge=0, le=MOST_LISTED, description="0: only how many there are.")
    fields: list[Annotated[str, Field(max_length=100)]] = Field(
        default_factory=list, max_length=40, description="Only these fields of each item."
    )
    text: str | None = Field(default=None, max_length=200, description="Only items with this text in a value.")
    after: Annotated[str, Field(pattern=r"^([0-9a-f]{32}\.)?[0-9]{1,6}-[0-9]{1,15}$")] | None = Field(
        default=None, description="The `next` of the answer before."
    )


class ItemsTold(PartTold):
    total_items: int = Field(description="How many items the job has.")
    items: Fenced | None = None
    next: str | None = Field(default=None, description="Pass it as `after` for the items that follow.")


@tool("Look at some items", reads=True)
async def sample_items(calls: InnerCalls, args: ItemsAsked) -> ItemsTold:
    """Some of the items that a crawl has found, and how many there are. Long values are cut: this is for a look. For
    all of them give people the address `/jobs/{job_id}/items`, which downloads them as JSON, CSV or XLSX.
    """
    total = (await calls.get("/jobs/{}/status", args.job_id))["items_count"]
    if not args.limit:
        return ItemsTold(total_items=total, shown=0, notice=Fence().notice)
    query = {"q": args.text, "after": args.after, "fields": ",".join(args.fields) or None}
    told, following = await calls.shaped(_items, "/jobs/{}/items", args.job_id, limit=args.limit, **query)
    if told["left_out"]:
        # the cursor of the last item that is shown
        _, following = await calls.shaped(_items, "/jobs/{}/items", args.job_id, limit=told["shown"], **query)
    return ItemsTold(total_items=total, next=following, **told)


def _items(page: dict[str, Any]) -> tuple[dict[str, Any], str | None]:
    _, text, facts = _part(page["items"])
    return {"items": text, **facts}, page["next"]


# --- fields


class FieldsAsked(ToolArguments):
    job_id: JobId


class FieldsTold(PartTold):
    total_items: int
    counted: int = Field(description="How many items were counted; if there are more, ask again: it goes on.")
    fields: Fenced = Field(
        description="Each with `share` (of the items that fill it, 0 to 1), `share_before` (in the runs before) and "
        "`lower` (by more than 5 percentage points). Those that are lower come first."
    )
    runs_compared: int


@tool("See how full fields are", reads=True)
async def field_coverage(calls: InnerCalls, args: FieldsAsked) -> FieldsTold:
    """How full each field of a crawl's items is, and how full it was before. What has broken shows here."""
    told = await calls.get("/jobs/{}/fields", args.job_id, compare="runs")
    found = sorted(told["fields"], key=lambda one: not one["lower"])
    names = ("name", "share", "share_before", "lower", "types", "example")
    _, text, facts = _part({name: one[name] for name in names} for one in found[:_FIELDS])
    facts["left_out"] += max(0, len(found) - _FIELDS)
    return FieldsTold(
        total_items=told["items"],
        counted=told["counted"],
        fields=text,
        runs_compared=len(told["runs"]),
        **facts,
    )


# --- changes of datasets


class ChangesAsked(ToolArguments):
    dataset: str = Field(min_length=1, max_length=100, description="The dataset's name.")
    since: int = Field(default=0, ge=0, le=10**15, description="The `next` of the answer before.")
    types: list[Literal["new", "changed", "removed"]] = Field(default_factory=list, max_length=3)
    limit: ListLimit = MOST_LISTED


class ChangesTold(PartTold):
    changes: Fenced
    next: int = Field(description="Pass it as `since` for what follows.")
    pending: int = Field(description="About how many changes follow.")


@tool("See what has changed in a dataset", reads=True)
async def dataset_changes(calls: InnerCalls, args: ChangesAsked) -> ChangesTold:
    """What the runs of a dataset have changed, in order: items that are new, changed or removed."""
    query = {"since": args.since, "limit": args.limit, "types": args.types or None}
    return await calls.shaped(_changes, "/datasets/{}/changes", args.dataset, **query)


def _changes(page: dict[str, Any]) -> ChangesTold:
    found = page["changes"]
    _, text, facts = _part(
        {
            **{name: one[name] for name in ("seq", "type", "key", "at", "run")},
            **({"changes": one["changes"]} if one["type"] == "changed" else {"item": one["item"]}),
        }
        for one in found
    )
    following = found[facts["shown"] - 1]["seq"] if facts["left_out"] else page["next"]
    return ChangesTold(changes=text, next=following, pending=max(0, page["last_seq"] - following), **facts)


# --- schedules


class SchedulesAsked(ToolArguments):
    spider: str | None = Field(default=None, max_length=100)
    text: str | None = Field(default=None, max_length=200, description="Only those with this text.")
    limit: ListLimit = MOST_LISTED
    after: Cursor | None = Field(default=None, description="The `next` of the answer before.")


class ScheduleTold(BaseModel):
    schedule_id: str
    name: str | None = None
    state: str
    interval: str
    timezone: str
    next_run: str | None = None
    last_run_at: str | None = None
    last_job_id: str | None = Field(default=None, description="The job of its last run.")
    spider: str | None = None
    site: str | None = None
    start_urls: list[str] = Field(description="The first three.")


class SchedulesTold(BaseModel):
    schedules: list[ScheduleTold]
    next: str | None = Field(default=None, description="There are more: pass it as `after`.")


@tool("List schedules", reads=True)
async def list_schedules(calls: InnerCalls, args: SchedulesAsked) -> SchedulesTold:
    """What is crawled again and again, when next, and which job was the last."""
    page = await calls.get("/schedules", spider=args.spider, q=args.text, limit=args.limit, after=args.after)
    return SchedulesTold(schedules=[_schedule(one) for one in page["schedules"]], next=page["next"])


def _schedule(one: dict[str, Any]) -> ScheduleTold:
    told = {name: one[name] for name in ScheduleTold.model_fields}
    urls = [seen(url, _URL_LENGTH) for url in one["start_urls"][:3]]
    return ScheduleTold(**{**told, "name": one["name"] and seen(one["name"], 100), "start_urls": urls})


class RunAsked(ToolArguments):
    schedule_id: str = Field(pattern=r"^[0-9a-f]{32}$")


class RunStarted(BaseModel):
    job_id: str
    page_url: str


@tool("Run a schedule now")
async def run_schedule(calls: InnerCalls, args: RunAsked) -> RunStarted:
    """Start one run of a schedule now, beside those that are due. Refused while its last run goes on."""
    told = await calls.post("/schedules/{}/run", args.schedule_id)
    return RunStarted(job_id=told["job_id"], page_url=told["page_url"])


# --- errors


class ErrorsAsked(ToolArguments):
    job_id: JobId | None = Field(default=None, description="Only errors of this job; without it, those of all runs.")
    project: str | None = Field(default=None, max_length=100, description="Not with `job_id`.")
    spider: str | None = Field(default=None, max_length=100, description="Not with `job_id`.")
    state: Literal["open", "resolved", "ignored"] | None = Field(default=None, description="Not with `job_id`.")
    limit: ListLimit = MOST_LISTED
    after: Cursor | None = Field(default=None, description="The `next` of the answer before; not with `job_id`.")


class ErrorsTold(PartTold):
    errors: Fenced = Field(
        description="Each is a kind of error: `error_id`, `title`, `count`, `runs`, and an `example` with its page."
    )
    next: str | None = None


_OF_ERROR = ("error_id", "kind", "title", "state", "mark", "count", "runs", "runs_since", "spider")


@tool("List errors", reads=True)
async def list_errors(calls: InnerCalls, args: ErrorsAsked) -> ErrorsTold:
    """What went wrong, grouped by what it is: in one job, or in all runs, the last seen first. With the place in the
    project's code, how often it occurred, and one example.
    """
    if args.job_id is not None:
        page = await calls.get("/jobs/{}/errors", args.job_id)
    else:
        page = await calls.get("/errors", **args.model_dump(exclude_none=True))
    found = page["errors"][: args.limit]
    _, text, facts = _part(_error(one) for one in found)
    facts["left_out"] += len(page["errors"]) - len(found)
    return ErrorsTold(errors=text, next=page.get("next"), **facts)


def _error(one: dict[str, Any]) -> dict[str, Any]:
    example = {name: one["example"][name] for name in ("job_id", "text", "url", "position")}
    return {**{name: one[name] for name in _OF_ERROR if name in one}, "example": example}
