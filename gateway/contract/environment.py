"""Which environment variables and Scrapy settings a project or a crawl may have.

Variables may have any name except the names by which the platform, Python or the system decides how a process runs.

Which settings are allowed depends on who sets them. A project's settings are set by an admin, who may deploy code as
well: all are allowed except those that have no effect on a node or would bypass it (`refused_setting`). A crawl's
settings are set by any user who may crawl. Most of Scrapy's settings name a class, a file or an address, so a crawl
may have only those of `RUN_SETTINGS`, and those that the project opens to crawls.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Annotated, Any

import orjson
from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from gateway.contract.crawl import MASK
from gateway.contract.seen_pages import SKIP_SEEN, read_period
from gateway.contract.variable_names import refused_variable

# --- variables

#: A project, and one crawl, may have at most this many variables.
MAX_VARIABLES = 100
#: Bytes of JSON that the variables of a project, of one crawl, and of both together may have. All fit into a pipe.
MAX_PROJECT_BYTES, MAX_CRAWL_BYTES, MAX_HANDED_BYTES = 32 << 10, 16 << 10, 60 << 10


class RefusedValueError(ValueError):
    """A variable or a setting is refused, or all of them together. The message quotes no value."""

    def __init__(self, problem: str, name: str | None = None) -> None:
        #: The name of the variable or setting; `None` if the problem is about all of them.
        self.problem, self.name = problem, name and name[:100]
        super().__init__(f"{self.name}: {problem}" if self.name else problem)


def check_variables(variables: Mapping[str, str], max_bytes: int, *, most: int = MAX_VARIABLES) -> None:
    """Check the names, values, number and size. Raises `RefusedValueError`."""
    if len(variables) > most:
        raise RefusedValueError(f"there may be {most} variables")
    for name, value in variables.items():
        if problem := refused_variable(name) or _refused_text(value):
            raise RefusedValueError(problem, name)
    if len(orjson.dumps(variables)) > max_bytes:
        raise RefusedValueError(f"all variables together must not be larger than {max_bytes} bytes of JSON")


def _refused_text(value: str) -> str | None:
    if value == MASK:
        return f"{MASK} is what is shown instead of its value: give the value itself"
    if "\0" in value or any("\ud800" <= char <= "\udfff" for char in value):
        return "a value is text without NUL and half surrogate pairs"
    return None


# --- settings of a crawl

_Flag = Annotated[bool, Field(strict=True)]
_Count = Annotated[int, Field(strict=True, ge=0, le=1_000_000_000)]
_Priority = Annotated[int, Field(strict=True, ge=-1000, le=1000)]
_Few = Annotated[int, Field(strict=True, ge=0, le=20)]
_Parallel = Annotated[int, Field(strict=True, ge=1, le=64)]
_Seconds = Annotated[float, Field(strict=True, ge=0, le=3600)]
_Line = Annotated[str, Field(strict=True, min_length=1, max_length=500, pattern=r"^[\t\x20-\x7e]*$")]
_Period = Annotated[Any, AfterValidator(read_period)]
_Statuses = Annotated[list[Annotated[int, Field(strict=True, ge=100, le=599)]], Field(max_length=100)]
_FLAGS = (
    *("AUTOTHROTTLE_DEBUG", "AUTOTHROTTLE_ENABLED", "COOKIES_DEBUG", "COOKIES_ENABLED", "CRAWLSPIDER_FOLLOW_LINKS"),
    *("DEPTH_STATS_VERBOSE", "DOWNLOAD_FAIL_ON_DATALOSS", "DUPEFILTER_DEBUG", "HTTPERROR_ALLOW_ALL"),
    *("METAREFRESH_ENABLED", "RANDOMIZE_DOWNLOAD_DELAY", "REDIRECT_ENABLED", "REFERER_ENABLED", "RETRY_ENABLED"),
    *("ROBOTSTXT_OBEY", "SCHEDULER_DEBUG", "STATS_DUMP"),
)
_COUNTS = (
    *("CLOSESPIDER_ERRORCOUNT", "CLOSESPIDER_ITEMCOUNT", "CLOSESPIDER_PAGECOUNT", "CLOSESPIDER_PAGECOUNT_NO_ITEM"),
    *("CLOSESPIDER_TIMEOUT", "CLOSESPIDER_TIMEOUT_NO_ITEM", "DOWNLOAD_MAXSIZE", "METAREFRESH_MAXDELAY"),
    "URLLENGTH_LIMIT",
)
_DURATIONS = (
    *("AUTOTHROTTLE_MAX_DELAY", "AUTOTHROTTLE_START_DELAY", "AUTOTHROTTLE_TARGET_CONCURRENCY", "DNS_TIMEOUT"),
    *("DOWNLOAD_DELAY", "DOWNLOAD_TIMEOUT", "LOGSTATS_INTERVAL"),
)
#: Scrapy's settings that any user may set for a crawl: numbers, switches and plain text.
RUN_SETTINGS: dict[str, TypeAdapter[Any]] = {
    **dict.fromkeys(_FLAGS, TypeAdapter(_Flag)),
    **dict.fromkeys(_COUNTS, TypeAdapter(_Count)),
    **dict.fromkeys(_DURATIONS, TypeAdapter(_Seconds)),
    **dict.fromkeys(("DEPTH_PRIORITY", "REDIRECT_PRIORITY_ADJUST", "RETRY_PRIORITY_ADJUST"), TypeAdapter(_Priority)),
    **dict.fromkeys(("REDIRECT_MAX_TIMES", "RETRY_TIMES"), TypeAdapter(_Few)),
    **dict.fromkeys(
        ("CONCURRENT_ITEMS", "CONCURRENT_REQUESTS", "CONCURRENT_REQUESTS_PER_DOMAIN"), TypeAdapter(_Parallel)
    ),
    **dict.fromkeys(("ROBOTSTXT_USER_AGENT", "USER_AGENT"), TypeAdapter(_Line)),
    SKIP_SEEN: TypeAdapter(_Period),
    **dict.fromkeys(("HTTPERROR_ALLOWED_CODES", "RETRY_HTTP_CODES"), TypeAdapter(_Statuses)),
}


def refused_run_setting(name: str, value: Any, opened: Collection[str] = ()) -> str | None:
    """Why a crawl may not have this setting; `None` if it may. `opened`: the settings that its project opens to
    crawls.
    """
    if name in RUN_SETTINGS:
        try:
            RUN_SETTINGS[name].validate_python(value)
        except ValidationError as error:
            return str(error.errors()[0]["msg"]).removeprefix("Value error, ")
        return None
    if problem := refused_setting(name, value):
        return problem
    if name in opened:
        return None
    return (
        "a crawl may not set it. It may set plain settings of Scrapy, which the documentation lists, and those that "
        "an admin opens with `PUT /projects/{project}/settings`"
    )


# --- settings of a project

SETTING_PATTERN = r"^[A-Z][A-Z0-9_]{0,99}$"
_SETTING = re.compile(SETTING_PATTERN)
#: Bytes of JSON that the settings of a project may have.
MAX_SETTINGS_BYTES = 64 << 10

_EGRESS = "where crawls may connect to is the node's to decide"
_LIMIT = "the request has fields of its own for what it may change, and the rest is the node's"
_LOG = "the log goes to the clients that follow the crawl"
_REMOTE = "it executes what it is sent"
_CODE = "which code runs is decided by what is deployed"
_LOOP = "the address rule, the report and a graceful stop need Scrapy's asyncio reactor"
_REFUSED: dict[str, str] = {
    **dict.fromkeys(
        ("DOWNLOADER", "DNS_RESOLVER", "EGRESS_ALLOWED_NETWORKS", "ALLOWED_HANDLERS", "CHROMIUM_PATH"), _EGRESS
    ),
    **dict.fromkeys(("DOWNLOAD_BIND_ADDRESS", "DOWNLOAD_VERIFY_CERTIFICATES"), _EGRESS),
    **dict.fromkeys(
        (
            *("MAX_PAGES", "MAX_ITEMS", "MAX_PAGE_BYTES", "MAX_PAGE_SECONDS", "MAX_LOG_BYTES", "STOP_GRACE"),
            *("STALL_SECONDS", "SITE_RATE_LIMIT", "DOWNLOAD_WARNSIZE", "ATTEMPT_DIR", "RENDER_PAGES"),
            *("EXPECT", "ALLOWANCE", "MAX_UNDONE", "REQUESTS_MAX_COUNT", "REQUESTS_MAX_BYTES"),
        ),
        _LIMIT,
    ),
    "NODE_LOG_LEVEL": _LOG,
    **dict.fromkeys(
        (
            *("ADDONS", "SPIDER_MODULES", "NEWSPIDER_MODULE", "COMMANDS_MODULE", "TEMPLATES_DIR", "EDITOR"),
            "LISTED_MODULE",
        ),
        _CODE,
    ),
    **dict.fromkeys(("ASYNCIO_EVENT_LOOP", "FORCE_CRAWLER_PROCESS"), _LOOP),
    "JOBDIR": "what a killed attempt left in it would end the next one at once, with nothing",
}
_REFUSED_PREFIXES: dict[str, str] = {
    "DOWNLOAD_HANDLERS": "connections of other handlers cannot be checked; an operator may allow some "
    "(CRAWL_ALLOW_HANDLERS), which the project then names in its own settings",
    "TWISTED_DNS_": _EGRESS,
    "HTTPPROXY_": _EGRESS,
    "DOWNLOADER_CLIENT": _EGRESS,
    "TWISTED_": _LOOP,
    "REMOTE_CONTROL_": _REMOTE,
    "TELNETCONSOLE_": _REMOTE,
    "LOG_": _LOG,
    "FETCH_": _LIMIT,
    "RATE_LIMIT_": _LIMIT,
    "HTTPCACHE_REDIS_": "the cache is the node's",
    "HTTPCACHE_USER": "the cache is the node's",
    "SKIP_SEEN_SPIDER": "the memory of seen pages is the node's",
    "HTTPCACHE_REFRESH": "the cache is the node's; `ignore_cache` renews it",
    "PLAYWRIGHT_": "the browser is the node's, behind its proxy",
}
#: Settings that say where files are written to.
_PLACES = frozenset({"FEEDS", "FEED_URI", "FEED_TEMPDIR", "FILES_STORE", "IMAGES_STORE", "HTTPCACHE_DIR"})
_COMPONENTS = frozenset({"EXTENSIONS", "DOWNLOADER_MIDDLEWARES", "SPIDER_MIDDLEWARES", "ITEM_PIPELINES"})
#: Prefixes of class names that belong to the platform, or that a node switches off.
_OUR_CLASSES = ("crawler.", "gateway.", "scrapy.extensions.remote_control", "scrapy.extensions.telnet")


def refused_setting(name: str, value: Any) -> str | None:
    """Why a project may not have this setting; `None` if it may."""
    if not _SETTING.fullmatch(name):
        return "a name is up to 100 capital letters, digits and _, and begins with a letter"
    if name.endswith("_BASE"):
        return "Scrapy's defaults are changed by the setting of the same name without _BASE"
    prefix = next((prefix for prefix in _REFUSED_PREFIXES if name.startswith(prefix)), "")
    return _REFUSED.get(name) or _REFUSED_PREFIXES.get(prefix) or _refused_value_of(name, value)


def _refused_value_of(name: str, value: Any) -> str | None:
    if name in _PLACES and any(_leads_out(str(place)) for place in _keys(value)):
        return "files are written below the attempt's own folder: give a relative path, or another store's URL"
    if name in _COMPONENTS and any(str(key).startswith(_OUR_CLASSES) for key in _keys(value)):
        return "it names a component of the platform, or one that nodes switch off"
    return None


def check_settings(settings: Mapping[str, Any]) -> None:
    """Raises `RefusedValueError`."""
    for name, value in settings.items():
        if problem := refused_setting(name, value):
            raise RefusedValueError(problem, name)
    try:
        size = len(orjson.dumps(settings))
    except TypeError:
        raise RefusedValueError("they must hold only valid Unicode and integers of 64 bits") from None
    if size > MAX_SETTINGS_BYTES:
        raise RefusedValueError(f"all settings together must not be larger than {MAX_SETTINGS_BYTES} bytes of JSON")


def _keys(value: Any) -> list[Any]:
    """The names or places in a setting's value, which Scrapy also accepts as JSON text."""
    if isinstance(value, str):
        try:
            value = orjson.loads(value)
        except ValueError:
            return [value]
    return list(value) if isinstance(value, dict | list) else [value]


def _leads_out(place: str) -> bool:
    scheme, separator, _ = place.partition("://")
    if separator:
        return scheme.lower() not in {"s3", "gs", "ftp", "ftps", "http", "https"}
    return place.startswith(("/", "~", "\\", "file:")) or ".." in re.split(r"[/\\]", place)
