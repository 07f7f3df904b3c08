"""The types that requests and answers share. In requests they are strict: a value of another type
is not converted.
"""

from __future__ import annotations

import re
from datetime import datetime
from itertools import islice
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import urlsplit

import orjson
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    GetJsonSchemaHandler,
    PlainSerializer,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import CoreSchema
from typing_extensions import TypeAliasType

from gateway.clock import to_iso, truncate
from gateway.contract.environment import MAX_CRAWL_BYTES, MAX_VARIABLES
from gateway.contract.log_line import LEVELS
from gateway.contract.public_address import ascii_host
from gateway.contract.variable_names import VARIABLE_PATTERN
from gateway.jobs.hosts import CrawledHost
from gateway.jobs.job import JobStatus, WaitingReason
from gateway.jobs.queries import JobFilter

_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d(:\d\d(\.\d{1,9})?)?([Zz]|[+-]\d\d:\d\d)")
#: ASCII's control characters, and half surrogate pairs, which JSON can contain but UTF-8 cannot.
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_BOOLEANS = {"true": True, "false": False}
#: The largest `params` of a job, in bytes of JSON, and their deepest nesting.
MAX_PARAMS_BYTES = 64 << 10
MAX_PARAMS_DEPTH = 16
#: The largest number of values in `params`: each is checked, and some (selectors, patterns) are compiled.
MAX_PARAMS_VALUES = 5000
_INT64 = 1 << 63


def _parse_time(value: object) -> object:
    """Parse text in RFC 3339 with an offset. Values that are not text are left to pydantic."""
    if not isinstance(value, str):
        return value
    if not _TIME.fullmatch(value):
        raise ValueError("must be a time with an offset, such as 2027-06-01T09:00:00Z")
    try:
        return truncate(datetime.fromisoformat(value.upper()))
    except OverflowError as error:
        raise ValueError("lies outside the years 1 to 9999") from error


def _parse_boolean(value: object) -> object:
    return _BOOLEANS.get(value, value) if isinstance(value, str) else value


def _as_host(value: object) -> object:
    """The host of a URL, or a host; without a port, because a host counts with all of its ports. Values that are not
    text are left to pydantic.
    """
    if not isinstance(value, str):
        return value
    if value.count(":") > 1 and not set(value) & set("[/"):
        value = f"[{value}]"
    parts = urlsplit(value if "//" in value else f"//{value}")
    host = parts.hostname or ""
    if not host or set(host) & set(" \t%@*"):
        raise ValueError("must be a host, such as example.com")
    return ascii_host(host).lower().rstrip(".")


def _printable(text: str) -> str:
    if _UNPRINTABLE.search(text):
        raise ValueError("must not hold control characters or half surrogate pairs")
    return text


def _storable(value: Any, depth: int = 0) -> None:
    """Refuse values that BSON or strict JSON cannot store, before anything is written."""
    if depth > MAX_PARAMS_DEPTH:
        raise ValueError(f"must not nest deeper than {MAX_PARAMS_DEPTH} levels")
    if isinstance(value, dict):
        for key, inner in value.items():
            if not key or "\0" in key or "." in key or key.startswith("$"):
                raise ValueError("must not have names that are empty, hold a dot or NUL, or begin with $")
            _storable(inner, depth + 1)
    elif isinstance(value, list):
        for inner in value:
            _storable(inner, depth + 1)
    elif isinstance(value, int) and not -_INT64 <= value < _INT64:
        raise ValueError("must not hold integers beyond 64 bits")
    elif isinstance(value, float) and not -float("inf") < value < float("inf"):
        raise ValueError("must not hold NaN or infinities")


def _values(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + sum(_values(inner) for inner in value.values())
    return 1 + sum(_values(inner) for inner in value) if isinstance(value, list) else 1


def _check_params(params: dict[str, Any]) -> dict[str, Any]:
    _storable(params)
    try:
        size = len(orjson.dumps(params))
    except TypeError as error:
        raise ValueError("must hold only valid Unicode") from error
    if size > MAX_PARAMS_BYTES:
        raise ValueError(f"must not be larger than {MAX_PARAMS_BYTES} bytes of JSON")
    if _values(params) > MAX_PARAMS_VALUES:
        raise ValueError(f"must not hold more than {MAX_PARAMS_VALUES} values")
    return params


def open_schema(values: dict[str, Any]) -> dict[str, Any]:
    """The schema of the enumeration and of any other text: what was generated from a closed one fails when a later
    release answers with a new value.
    """
    return {"anyOf": [values, {"type": "string"}]}


class _OpenSchema:
    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return open_schema(handler(core))


_Values = TypeVar("_Values")
#: An enumeration in an answer, of which later releases may have more values.
Open = Annotated[_Values, _OpenSchema()]
#: A time in an answer: `2027-06-01T09:00:01.250Z`.
Timestamp = Annotated[
    datetime,
    PlainSerializer(to_iso, when_used="json"),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
#: A time in a request: it must have an offset, and is converted to UTC.
QueryTime = Annotated[
    datetime,
    BeforeValidator(_parse_time, json_schema_input_type=str),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
#: A boolean in a query: only `true` or `false`.
QueryBoolean = Annotated[bool, BeforeValidator(_parse_boolean), Field(strict=True)]
#: The level of a log's lines, in upper or lower case. What reads it refuses others, and names those that there are.
LogLevel = TypeAliasType(
    "LogLevel",
    Annotated[
        str,
        Field(max_length=20),
        WithJsonSchema({"type": "string", "enum": [*LEVELS], "description": "A level of a log, the lowest first."}),
    ],
)
#: Visible text in one line.
Text = Annotated[str, AfterValidator(_printable), Field(json_schema_extra={"pattern": r"^[^\x00-\x1f\x7f]*$"})]
#: The `next` of the previous page, in lists with the newest first. The store that reads it reports invalid cursors.
Cursor = Annotated[str, Field(max_length=64, json_schema_extra={"pattern": "^[0-9]{1,14}-[0-9a-f]{32}$"})]
#: No spaces, no colon (it separates the parts of Redis keys), no control characters.
UserId = Annotated[str, Field(pattern=r"^[A-Za-z0-9._@+|~=-]+$", min_length=1, max_length=128)]
Name = Annotated[Text, Field(min_length=1, max_length=100)]
Tag = Annotated[Text, Field(min_length=1, max_length=100)]
#: The longest URL that every browser accepts.
UrlText = Annotated[Text, Field(min_length=1, max_length=2083)]
#: A host; of a URL, its host is taken.
HostName = Annotated[str, BeforeValidator(_as_host, json_schema_input_type=str), Field(min_length=1, max_length=253)]
#: Text to search for in a list.
SearchText = Annotated[Text, Field(min_length=1, max_length=200)]
Params = Annotated[dict[str, Any], AfterValidator(_check_params)]
#: Environment variables. Errors never quote them. `gateway/contract/environment.py` decides which names and values
#: are allowed.
Variables = Annotated[
    dict[Annotated[str, Field(pattern=VARIABLE_PATTERN)], Annotated[str, Field(max_length=MAX_CRAWL_BYTES)]],
    Field(max_length=MAX_VARIABLES, repr=False),
]


#: At most this many unknown fields are refused by name: a body may have thousands, and each error takes time.
_MOST_UNKNOWN = 20


class Body(BaseModel, extra="forbid"):
    """The fields that a client sends. Unknown fields are refused."""

    @model_validator(mode="before")
    @classmethod
    def _leave_out_many_unknown(cls, sent: Any) -> Any:
        if not isinstance(sent, dict) or len(sent) <= len(cls.model_fields) + _MOST_UNKNOWN:
            return sent
        names = {field.alias or name for name, field in cls.model_fields.items()}
        unknown = islice((name for name in sent if name not in names), _MOST_UNKNOWN)
        return {name: sent[name] for name in (*(names & sent.keys()), *unknown)}


class QueryModel(Body):
    """The parameters of a query. Unknown parameters are refused, because a misspelt filter would have no effect."""


#: The beginning of an id. A shorter one would match too many ids.
IdPrefix = Annotated[str, Field(pattern="^[0-9a-f]{4,32}$")]


class JobsFilter(QueryModel):
    """A filter of jobs. A job must match all of its fields."""

    user_id: UserId | None = Field(default=None, description="Only jobs of this user.")
    status: list[JobStatus] = Field(
        default_factory=list, max_length=10, description="Only jobs with this status; may be repeated for several."
    )
    spider: Name | None = Field(default=None, description="Only jobs of this spider.")
    site: Name | None = Field(default=None, description="Only runs of this site.")
    host: HostName | None = Field(
        default=None,
        description="Only jobs that crawl this host or one below it: their start URLs name it, they have asked it "
        "(see `progress.hosts` of an attempt), or they wait and their spider is known to crawl it.",
    )
    project: Name | None = Field(default=None, description="Only jobs of this project.")
    schedule_id: Annotated[str, Field(pattern="^[0-9a-f]{32}$")] | None = Field(
        default=None, description="Only runs of this schedule."
    )
    tag: Tag | None = Field(default=None, description="Only jobs with this tag.")
    since: QueryTime | None = Field(
        default=None, description="Only jobs created at or after this time; RFC 3339 with an offset."
    )
    until: QueryTime | None = Field(default=None, description="Only jobs created before this time.")
    started_since: QueryTime | None = Field(default=None, description="Only jobs that started at or after this time.")
    started_until: QueryTime | None = Field(default=None, description="Only jobs that started before this time.")
    finished_since: QueryTime | None = Field(default=None, description="Only jobs that ended at or after this time.")
    finished_until: QueryTime | None = Field(default=None, description="Only jobs that ended before this time.")
    waiting_reason: WaitingReason | None = Field(default=None, description="Only jobs that wait for this reason.")
    dead: QueryBoolean = Field(default=False, description="Only dead letters.")
    q: SearchText | None = Field(
        default=None, description="Only jobs with this text in the id, spider, tags, start URLs or message."
    )
    id_prefix: IdPrefix | None = Field(
        default=None, description="Only jobs whose id begins so; at least four digits of it."
    )

    job_id: list[Annotated[str, Field(pattern="^[0-9a-f]{32}$")]] = Field(
        default_factory=list, max_length=200, description="Only these jobs; may be repeated."
    )

    def to_filter(self) -> JobFilter:
        fields = self.model_dump(include=set(JobsFilter.model_fields))
        several = {name: tuple(dict.fromkeys(fields[name])) for name in ("status", "job_id")}
        return JobFilter(**fields | several | {"host": CrawledHost(self.host) if self.host else None})


class JobsQuery(JobsFilter):
    sort: Literal["newest", "oldest", "started", "ended"] = Field(
        default="newest",
        description="Which jobs come first: the last or first created, the last started, or the last ended.",
    )
    limit: int = Field(default=50, ge=1, le=200, description="The size of a page.")
    after: Cursor | None = Field(default=None, description="The `next` of the previous page.")


class JobCountQuery(JobsFilter):
    after: Cursor | None = Field(default=None, description="With `q`: the `next` of the answer before.")


class JobPointsQuery(JobCountQuery):
    limit: int = Field(default=1500, ge=1, le=5000, description="Maximum number of points.")


class RowsQuery(QueryModel):
    """The query of routes whose records can also be downloaded as a table."""

    format: Literal["json", "jsonl", "csv"] = Field(default="json", description="JSON is page by page.")
    escape_formulas: QueryBoolean | None = Field(
        default=None,
        description="In a CSV, put a `'` before text that a spreadsheet would run (`=…`, `+…`, `-…`, `@…`), but not "
        "before plain numbers. `false` gives the text as it was scraped.",
    )
    bom: QueryBoolean | None = Field(
        default=None,
        description="Begin a CSV with a byte order mark, by which Excel knows that it is UTF-8.",
    )


#: Of all files that are made of rows.
FileFormat = TypeAliasType(
    "FileFormat",
    Annotated[
        Literal["json", "jsonl", "csv", "xlsx", "parquet"],
        Field(description="The format of a file. Parquet needs the extra `parquet` where the gateway runs."),
    ],
)


class DownloadQuery(RowsQuery):
    format: FileFormat = Field(  # type: ignore[assignment]  # more of them
        default="json", description="Parquet needs the extra `parquet` where the gateway runs."
    )
    fields: Annotated[Text, Field(min_length=1, max_length=2000)] | None = Field(
        default=None,
        description="Only these fields, separated by commas; also the columns of a CSV, in this order. `seller.name` "
        "is the field `name` of the object `seller`.",
    )

    @property
    def field_names(self) -> list[str]:
        return [name for part in (self.fields or "").split(",") if (name := part.strip())]


#: What a file is made as.
WantedFormat = Annotated[
    FileFormat,
    Field(description="As what. Parquet needs the extra `parquet` where the gateway runs."),
]


class ItemsFileQuery(DownloadQuery):
    """All items of a run, as a file."""

    format: WantedFormat = "jsonl"
    q: SearchText | None = Field(
        default=None, description="Only items with this text in a value; case does not matter. It reads item by item."
    )
    attempt: Annotated[str, Field(pattern="^(all|[1-9][0-9]{0,5})$")] | None = Field(
        default=None, description="`all`, or the number of an attempt; by default the attempt that counts."
    )


class ItemsQuery(ItemsFileQuery):
    format: WantedFormat = "json"
    limit: Annotated[int, Field(ge=1, le=1000)] | None = Field(
        default=None, description="The size of a page; without it, all items are streamed."
    )
    after: Annotated[str, Field(pattern=r"^([0-9a-f]{32}\.)?[0-9]{1,6}-[0-9]{1,15}$")] | None = Field(
        default=None, description="The `next` (JSON) or `X-Next` (header) of the previous page."
    )
