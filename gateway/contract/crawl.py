"""The fields of a crawl, the options for fetching of a request or a site, and the expectations of a crawl."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Any, Literal, NamedTuple, Self
from urllib.parse import unquote, urlsplit

from pydantic import AfterValidator, BaseModel, Field, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from gateway.contract.param_formats import RATE, parse_rate

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_COOKIE_NAME = _HEADER_NAME
_LINE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_COOKIE_VALUE = re.compile(r"[\x21\x23-\x2b\x2d-\x3a\x3c-\x5b\x5d-\x7e]*")
#: Headers that are refused: they describe the connection, or have a field of their own.
_NOT_TAKEN = frozenset(
    {
        *("host", "content-length", "transfer-encoding", "connection", "keep-alive", "te", "trailer", "upgrade"),
        *("proxy-authorization", "proxy-connection", "expect", "accept-encoding", "cookie", "user-agent"),
    }
)
#: Bytes that all headers and cookies may have together.
MAX_BYTES = 8 << 10
#: Shown in the place of secrets.
MASK = "***"


def _headers(headers: dict[str, str]) -> dict[str, str]:
    if len({name.lower() for name in headers}) < len(headers):
        raise ValueError("no header may be given twice")
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a header's name")
        if name.lower() in _NOT_TAKEN:
            raise ValueError(f"{name} cannot be set here")
        if not _LINE.fullmatch(value):
            raise ValueError(f"the value of {name} must be one line of Latin-1")
        _refuse_mask(name, value)
    return headers


def _cookies(cookies: dict[str, str]) -> dict[str, str]:
    for name, value in cookies.items():
        if not _COOKIE_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a cookie's name")
        if not _COOKIE_VALUE.fullmatch(value):
            raise ValueError(f"the value of {name} must not hold spaces, quotes, commas, semicolons or backslashes")
        _refuse_mask(name, value)
    return cookies


def _refuse_mask(name: str, value: str) -> None:
    """Refuse the mask as a value: it was copied from an answer in which it replaces the secret."""
    if value == MASK:
        raise ValueError(f"{MASK} is what is shown instead of the value of {name}: give the value itself")


def _line(text: str) -> str:
    if not _LINE.fullmatch(text):
        raise ValueError("must be one line of Latin-1")
    return text


def _proxy(url: str) -> str:
    """The URL, if it is the URL of an http proxy. Errors never quote it, because it may contain a password."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ValueError("is not a URL: its host or port cannot be read") from None
    if parts.scheme != "http":
        raise ValueError("must begin with http://")
    if not parts.hostname or port == 0 or not url.isascii() or any(char.isspace() for char in url):
        raise ValueError("must be a URL such as http://user:password@host:8080")
    if parts.path not in {"", "/"} or parts.query or parts.fragment:
        raise ValueError("must name nothing but a host, a port, a user and a password")
    _refuse_mask("the user and password", parts.username or "")
    try:
        unquote(f"{parts.username}{parts.password}", errors="strict").encode("latin-1")
    except UnicodeError:
        raise ValueError("its user and password must be Latin-1") from None
    return url


def _statuses(codes: tuple[int, ...]) -> tuple[int, ...]:
    if any(not 400 <= code <= 599 for code in codes):  # noqa: PLR2004 - the error statuses of HTTP
        raise ValueError("must be statuses from 400 to 599")
    return tuple(sorted(set(codes)))


def _rate(text: str) -> str:
    parse_rate(text)
    return text


# the lengths come before the validators: after them, the JSON schema would have `maxLength`, which is for texts
RateText = Annotated[str, AfterValidator(_rate), Field(json_schema_extra={"pattern": f"^{RATE.pattern}$"})]
Headers = Annotated[dict[str, str], Field(max_length=50, repr=False), AfterValidator(_headers)]
Cookies = Annotated[dict[str, str], Field(max_length=50, repr=False), AfterValidator(_cookies)]
Proxy = Annotated[str, AfterValidator(_proxy), Field(min_length=1, max_length=2083)]
# not strict: what is a tuple here is a list in JSON and BSON
Statuses = Annotated[tuple[int, ...], Field(max_length=20, strict=False), AfterValidator(_statuses)]
Pause = Annotated[float, Field(ge=0, le=3600)]


class FetchOptions(BaseModel, extra="forbid", frozen=True, strict=True):
    """How a crawl fetches pages. Each option is optional: without it, the spider or the platform decides."""

    headers: Headers = Field(default_factory=dict, description="Sent with every request to the start URLs' hosts.")
    cookies: Cookies = Field(default_factory=dict, description="Likewise.")
    user_agent: Annotated[str, AfterValidator(_line), Field(min_length=1, max_length=500)] | None = None
    proxy: Proxy | None = Field(
        default=None, repr=False, description="URL of an http proxy; its address is checked like any other."
    )
    min_pause_seconds: Pause | None = Field(
        default=None, description="The shortest pause between two requests to a host."
    )
    max_pause_seconds: Pause | None = Field(
        default=None, description="The longest pause; each pause is a random time between the two."
    )
    concurrency: Annotated[int, Field(ge=1, le=64)] | None = Field(default=None, description="Requests at once.")
    obey_robots: bool | None = None
    retry_codes: Statuses | None = Field(default=None, description="HTTP statuses after which a page is tried again.")
    rate_limit: RateText | None = Field(
        default=None, description="The rate limit of this crawl alone, such as `30/m`."
    )
    respect: Annotated[tuple[Literal["rsl"], ...], Field(max_length=1, strict=False)] | None = Field(
        default=None,
        description="`rsl`: ask for no page of a host whose robots.txt names a license (Really Simple Licensing).",
    )

    @model_validator(mode="after")
    def _is_sound(self) -> Self:
        if self.respect and self.obey_robots is False:
            raise ValueError("respect needs obey_robots, because robots.txt names the license")
        low, high = self.min_pause_seconds, self.max_pause_seconds
        if high is not None and high < (low or 0):
            raise ValueError("max_pause_seconds must not be below min_pause_seconds")
        texts = [text for pair in (*self.headers.items(), *self.cookies.items()) for text in pair]
        if sum(map(len, texts)) > MAX_BYTES:
            raise ValueError(f"headers and cookies must not be larger than {MAX_BYTES} bytes together")
        return self

    def masked(self) -> Self:
        """A copy that may be shown: with the names of headers and cookies and the proxy's address,
        without secrets.
        """
        return self.model_copy(
            update={
                "headers": dict.fromkeys(self.headers, MASK),
                "cookies": dict.fromkeys(self.cookies, MASK),
                "proxy": self.proxy and _without_password(self.proxy),
            }
        )


def _without_password(url: str) -> str:
    userinfo, at, rest = url.rpartition("@")
    return f"http://{MASK}@{rest}" if at and userinfo else url


# --- what a good crawl finds, as a request, a schedule or a site says


# MongoDB has no names with dots or a leading dollar
FieldName = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[^.$\x00-\x1f\x7f][^.\x00-\x1f\x7f]*$")]
Share = Annotated[float, Field(gt=0, le=1)]


# `gateway/contract/expectations.py` compares it with the crawl's results
class Expect(BaseModel, extra="forbid", frozen=True, strict=True):
    """What a good crawl finds. A crawl that finds less is `partial` at best, and its message says why."""

    min_items: Annotated[int, Field(ge=1, le=100_000_000)] | None = Field(default=None, description="Items at least.")
    max_error_rate: Annotated[float, Field(ge=0, le=1)] | None = Field(
        default=None, description="Share of its requests that may fail; a 404 is no failure. 0.05 is 5 %."
    )
    fields: Annotated[dict[FieldName, Share], Field(max_length=50)] = Field(
        default_factory=dict,
        description="Field of the items → share of them that must have it, 1 for all. Null, an empty or blank text "
        "and an empty list or object do not count.",
        examples=[{"title": 1, "price": 0.9}],
    )
    stop_early_after: Annotated[int, Field(ge=1, le=100_000_000)] | None = Field(
        default=None,
        description="End the crawl early if `max_error_rate` is broken after so many requests, or `fields` after so "
        "many items. By default it goes on to its end.",
    )

    @model_validator(mode="after")
    def _can_stop(self) -> Self:
        if self.stop_early_after is not None and self.max_error_rate is None and not self.fields:
            raise ValueError("stop_early_after needs max_error_rate or fields: too few items show at the end only")
        return self


# --- the dataset that a crawl's items go into

#: A name that needs no escape in a URL or a file's name.
DATASET_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"


def _dataset_name(text: str) -> str:
    if not re.fullmatch(DATASET_NAME, text):
        raise ValueError("has letters, digits and . _ - only, begins with a letter or a digit, and has 100 at most")
    return text


DatasetName = Annotated[str, AfterValidator(_dataset_name), Field(json_schema_extra={"pattern": DATASET_NAME})]
#: A field of items; `seller.id` is the field `id` of the object `seller`.
FieldPath = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]
# as in `Statuses`, what is a tuple here is a list in JSON and BSON
FieldPaths = Annotated[tuple[FieldPath, ...], Field(max_length=20, strict=False)]
EmptyValues = Annotated[tuple[Annotated[str, Field(max_length=200)], ...], Field(max_length=50, strict=False)]
PageUrls = Annotated[
    tuple[Annotated[str, Field(min_length=1, max_length=2000)], ...], Field(max_length=50, strict=False)
]


class DatasetOptions(BaseModel, extra="forbid", frozen=True, strict=True):
    """The options of a dataset. An option that is left out is not changed. If the dataset does not exist yet, it is
    made with these options.
    """

    key: FieldPaths | None = Field(
        default=None,
        description="The fields that say which items are the same. By default the canonical URL in `url`, and the "
        "whole content of items without one. It can be changed only while the dataset has no items.",
        examples=[["sku"]],
    )
    ignore: FieldPaths | None = Field(
        default=None, description="Fields whose difference is no change.", examples=[["scraped_at"]]
    )
    confirm_removed: Annotated[int, Field(ge=1, le=100)] | None = Field(
        default=None,
        description="After how many complete runs in a row without it an item counts as removed; 1 by default.",
    )
    drop_guard: Share | None = Field(
        default=None,
        description="Hold a run that would remove more than this share of the items, and more than three; 0.2 by "
        "default. 1 holds none for that.",
    )
    empty_values: EmptyValues | None = Field(
        default=None, description="Texts that count as empty, such as `N/A`, besides null and blank."
    )
    may_fail: PageUrls | None = Field(
        default=None,
        description="Addresses of pages that may fail, because they have no items and lead to none: a run is "
        "complete if nothing else failed, and not more than ten pages.",
        examples=[["https://shop.example/broken"]],
    )


class DatasetOrder(DatasetOptions, frozen=True):
    """The dataset that the items of a crawl go into."""

    name: DatasetName

    @model_validator(mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        choices = [{"type": "string", "pattern": DATASET_NAME}, handler(core)]
        return {"anyOf": choices, "description": cls.__doc__ or ""}

    @property
    def options(self) -> dict[str, Any]:
        """The options that are given."""
        return self.model_dump(exclude={"name"}, exclude_none=True)


#: The project that has no egg: `crawler/`, `default` in scrapy.cfg.
DEFAULT_PROJECT = "default"


#: Nodes of an older protocol (`outbox.PROTOCOLS`) do not support settings and variables of crawls or projects.
SETTINGS_PROTOCOL = 2
#: Nodes of an older protocol do not know `fetch.respect`, and would fetch the pages.
_RESPECT_PROTOCOL = 3
#: Nodes of an older protocol ignore budgets, and would fetch more than is left.
BUDGET_PROTOCOL = 3


class Number(NamedTuple):
    """A number that a request may leave out. Its field in requests and forms, and its option of the command line, are
    made from this.
    """

    #: Its label in forms and on pages.
    label: str
    #: Its help on the command line.
    option: str
    least: int = 1
    most: int | None = None
    #: Its description in the API's documentation.
    about: str | None = None
    #: The text below its field in a form.
    hint: str | None = None
    #: Its value in a request without it; `None` if the spider or the platform decides.
    default: int | None = None


class CrawlField(NamedTuple):
    """The declaration of a crawl's field, in addition to its type and its `Number`. It is read by all code that
    compares crawls, asks for their fields, sends them to nodes or shows them.
    """

    #: Whether the field is part of a crawl's fingerprint: always, only if it is not at its default, or never. A field
    #: that was added later is left out at its default, so that older fingerprints stay the same.
    identity: Literal["always", "given", "never"] = "given"
    #: The oldest protocol of nodes that know the field. Older nodes would silently ignore it.
    protocol: int = 1
    #: Whether requests, edits and views have the field. The other fields are set by the site or the version.
    asked: bool = True


_FIRST = CrawlField("always")


class CrawlSpec(BaseModel, frozen=True, extra="forbid"):
    """The work of a crawl: everything that changes which pages it fetches or which items it finds."""

    project: Annotated[str, _FIRST] = DEFAULT_PROJECT
    #: Version of the project's egg; every attempt runs this one. `None` for our own project.
    version: Annotated[str | None, _FIRST] = None
    #: How often that version was replaced by another egg; absent for its first egg. After a replacement, the same
    #: request is a different crawl.
    replaced: Annotated[int | None, CrawlField(asked=False)] = None
    spider: Annotated[str, _FIRST]
    start_urls: Annotated[tuple[str, ...], _FIRST]
    #: 0: only the start URLs; `None`: the spider decides.
    depth: Annotated[
        int | None,
        _FIRST,
        Number(
            "Depth",
            "How many links to follow from a URL; 0: none.",
            least=0,
            most=1000,
            about="How many links to follow from a start URL; 0: only the start URLs.",
            hint="Links to follow from a start URL. 0 means the start URLs only.",
        ),
    ] = None
    params: Annotated[dict[str, Any], _FIRST] = Field(default_factory=dict)
    max_pages: Annotated[int | None, _FIRST, Number("Max pages", "Stop after this many pages.")] = None
    max_items: Annotated[
        int | None,
        _FIRST,
        Number("Max items", "Stop after this many items.", about="The crawl ends after this many items."),
    ] = None
    #: Seconds a single attempt may take.
    timeout: Annotated[
        int,
        _FIRST,
        Number(
            "Timeout (s)",
            "Stop after this many seconds.",
            most=7 * 24 * 3600,
            about="How many seconds one attempt may take, up to `JOB_MAX_TIMEOUT`; `JOB_TIMEOUT` by default"
            ", or what the project's `CLOSESPIDER_TIMEOUT` takes, if that is longer.",
        ),
    ] = 3600
    # not a part of the work: it only decides whether an earlier job may be the answer
    ignore_cache: Annotated[bool, CrawlField("never")] = False
    fetch: Annotated[FetchOptions | None, _FIRST] = None
    expect: Annotated[Expect | None, CrawlField(protocol=SETTINGS_PROTOCOL)] = None
    #: Scrapy settings, which override those of the project. `gateway/contract/environment.py` decides which ones are
    #: allowed.
    settings: Annotated[dict[str, Any], CrawlField(protocol=SETTINGS_PROTOCOL)] = Field(default_factory=dict)
    #: Variables of the spider's environment, which override those of the project.
    env: Annotated[dict[str, str], CrawlField(protocol=SETTINGS_PROTOCOL)] = Field(default_factory=dict, repr=False)
    #: Set only for a run of a site: the site whose rate limit this crawl shares with all other crawls of that site.
    site: Annotated[str | None, CrawlField("always", asked=False)] = None
    #: Nodes do not need it: items become part of a dataset after the crawl.
    dataset: DatasetOrder | None = None
    # set by the site
    site_rate_limit: Annotated[str | None, CrawlField("never", asked=False)] = None

    @property
    def renders(self) -> bool:
        """Whether the crawl drives a browser."""
        return self.params.get("render") is True

    def shown(self) -> Self:
        """A copy that may be shown: without the secrets in `fetch`, and the values of variables."""
        fetch = self.fetch and self.fetch.masked()
        return self.model_copy(update={"fetch": fetch, "env": dict.fromkeys(self.env, MASK)})


def fields_of(model: type[BaseModel]) -> dict[str, CrawlField]:
    """The declarations of a model's fields, by name, in their order."""
    return {
        name: next((one for one in field.metadata if isinstance(one, CrawlField)), CrawlField())
        for name, field in model.model_fields.items()
    }


def numbers_of(model: type[BaseModel]) -> dict[str, Number]:
    """By name: the declarations of a model's numbers that requests and forms ask for."""
    fields = model.model_fields.items()
    return {name: one for name, field in fields for one in field.metadata if isinstance(one, Number)}


SPEC_FIELDS = fields_of(CrawlSpec)
_DEFAULTS = {name: field.get_default(call_default_factory=True) for name, field in CrawlSpec.model_fields.items()}
_LATER = {name: one.protocol for name, one in SPEC_FIELDS.items() if one.protocol > 1}


def is_given(spec: CrawlSpec, name: str) -> bool:
    """Whether the field is not at its default."""
    return bool(getattr(spec, name) != _DEFAULTS[name])


def protocol_of(spec: CrawlSpec) -> int:
    """The oldest protocol (`outbox.PROTOCOLS`) that supports all fields of this crawl. The settings of its project
    may need a newer one.
    """
    respects = _RESPECT_PROTOCOL if spec.fetch and spec.fetch.respect else 1
    return max((respects, *(protocol for name, protocol in _LATER.items() if is_given(spec, name))))


#: Files in an egg with its requirements. `REQUIREMENTS_ON_TOP` is read only if the first is missing.
REQUIREMENTS, REQUIREMENTS_ON_TOP = "EGG-INFO/requirements.txt", "requirements.txt"
#: These files may have at most this many bytes. A lock file of five hundred packages with all hashes has a fifth of
#: that.
MAX_REQUIREMENTS = 2 << 20


class Egg(NamedTuple):
    """One version of a deployed project."""

    project: str
    version: str


class PaginationType(StrEnum):
    """How a site's results lead to their next page."""

    NEXT_LINK = "next_link"
    PAGE_PARAM = "page_param"
    INFINITE_SCROLL = "infinite_scroll"
    NONE = "none"
