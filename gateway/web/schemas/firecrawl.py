"""The requests and answers of Firecrawl's API, version 2, in its own names, and their conversion to our API."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel
from typing_extensions import TypeAliasType

from gateway.contract.crawl import DEFAULT_PROJECT
from gateway.jobs.job import FINAL_STATUSES, JobStatus
from gateway.web.schemas.crawl import MAX_START_URLS
from gateway.web.schemas.types import Body, Text, Timestamp, UrlText

#: The spider whose items are Firecrawl's documents.
SPIDER = "pages"
#: Milliseconds for which a call waits for its answer: the default, and the maximum.
USUAL_TIMEOUT = 60_000
LONGEST_TIMEOUT = 300_000
#: The default number of pages of a crawl, and of links of a map.
USUAL_LIMIT = 10_000
USUAL_LINKS = 5000
MOST_LINKS = 100_000
_MOST_CONCURRENT = 64
#: By Firecrawl's name of a format: the spider's name.
_FORMATS = {"markdown": "markdown", "html": "html", "rawHtml": "raw_html", "links": "links"}


def _named(value: Any) -> Any:
    """The name of a format, which may also be an object with the name in `type`."""
    return value["type"] if isinstance(value, dict) and value.keys() == {"type"} else value


FirecrawlFormat = TypeAliasType(
    "FirecrawlFormat",
    Annotated[
        Literal["markdown", "html", "rawHtml", "links"],
        BeforeValidator(_named),
        Field(description="As what a page is answered."),
    ],
)
FirecrawlProxy = TypeAliasType(
    "FirecrawlProxy", Annotated[Literal["basic", "auto"], Field(description="Which proxies a crawl goes through.")]
)
FirecrawlSitemap = TypeAliasType(
    "FirecrawlSitemap",
    Annotated[Literal["skip", "include", "only"], Field(description="Whether a site's sitemaps are read.")],
)
Patterns = Annotated[list[Annotated[str, Field(max_length=1000)]], Field(max_length=50)]
#: An option that is not supported here: only `false` is accepted.
Never = Literal[False]
#: An option that has no effect here: any value is accepted.
Ignored = Any


class _Options(Body):
    model_config = ConfigDict(alias_generator=to_camel)

    integration: Ignored = None
    origin: Ignored = None
    audit_metadata: Ignored = None
    zero_data_retention: Never | None = None


class FirecrawlOptions(_Options):
    """How a page is fetched and returned. Options that are not listed are refused by name."""

    formats: Annotated[list[FirecrawlFormat], Field(max_length=10)] | None = None
    only_main_content: bool | None = None
    include_tags: Patterns | None = None
    exclude_tags: Patterns | None = None
    headers: dict[str, str] | None = None
    wait_for: int | None = Field(
        default=None,
        ge=0,
        description="If it is not 0, a browser renders the page, and waits until it is loaded.",
    )
    timeout: int | None = Field(default=None, ge=1, description="Milliseconds that `POST /v2/scrape` waits.")
    max_age: int | None = Field(
        default=None, ge=0, description="Milliseconds that a page may be old which `POST /v2/scrape` answers."
    )
    mobile: Never | None = None
    lockdown: Never | None = None
    redact_pii: Never | None = Field(default=None, alias="redactPII")
    check_prompt_injection: Never | None = None
    domain_tools: Never | None = None
    proxy: FirecrawlProxy | None = None
    skip_tls_verification: Ignored = None
    remove_base64_images: Ignored = None
    block_ads: Ignored = None
    fast_mode: Ignored = None
    store_in_cache: Ignored = None
    parsers: Ignored = None

    def params(self) -> dict[str, Any]:
        """The spider's parameters."""
        asked = {
            "formats": list(dict.fromkeys(_FORMATS[name] for name in self.formats or ["markdown"])),
            "main_content": self.only_main_content is not False,
            "include_tags": self.include_tags,
            "exclude_tags": self.exclude_tags,
            "render": bool(self.wait_for) or None,
        }
        return {name: value for name, value in asked.items() if value is not None}

    def fetch(self) -> dict[str, Any]:
        """The fields of `fetch` in `POST /crawl`."""
        given = self.headers or {}
        agents = [value for name, value in given.items() if name.lower() == "user-agent"]
        headers = {name: value for name, value in given.items() if name.lower() != "user-agent"}
        return {**({"headers": headers} if headers else {}), **({"user_agent": agents[0]} if agents else {})}

    def body(self, urls: list[str], **more: Any) -> dict[str, Any]:
        """The body of a `POST /crawl` that fetches only these pages."""
        return crawl_body(urls, self.params(), self.fetch(), depth=0, **more)


def crawl_body(urls: list[str], params: dict[str, Any], fetch: dict[str, Any], **more: Any) -> dict[str, Any]:
    body = {
        "spider": SPIDER,
        "project": DEFAULT_PROJECT,
        "start_urls": urls,
        "params": params,
        "fetch": fetch or None,
    }
    return {name: value for name, value in (body | more).items() if value is not None}


class FirecrawlScrape(FirecrawlOptions):
    """A page to scrape, and in which formats."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"url": "https://example.com/", "formats": ["markdown", "links"]}]}
    )

    url: UrlText

    def seconds(self) -> float:
        return min(self.timeout or USUAL_TIMEOUT, LONGEST_TIMEOUT) / 1000


class FirecrawlBatch(FirecrawlOptions):
    """Pages to scrape, and in which formats."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"urls": ["https://example.com/"]}]})

    urls: Annotated[list[Annotated[str, Field(max_length=2083)]], Field(min_length=1, max_length=MAX_START_URLS)]
    ignore_invalid_urls: bool | None = Field(default=None, alias="ignoreInvalidURLs")
    max_concurrency: int | None = Field(default=None, ge=1)

    def split(self) -> tuple[list[str], list[str]]:
        """The valid URLs, and the invalid ones, which are left out."""
        if self.ignore_invalid_urls is False:
            return self.urls, []
        urls = [url for url in self.urls if _is_url(url)]
        return urls, [url for url in self.urls if not _is_url(url)]

    def fetch(self) -> dict[str, Any]:
        return super().fetch() | _concurrency(self.max_concurrency)


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and text.isprintable()
    except ValueError:
        return False


def _concurrency(number: int | None) -> dict[str, int]:
    return {} if number is None else {"concurrency": min(number, _MOST_CONCURRENT)}


class FirecrawlCrawl(_Options):
    """A site to crawl: from where, how far, and in which formats."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"url": "https://example.com/docs", "limit": 100}]})

    url: UrlText
    include_paths: Patterns | None = None
    exclude_paths: Patterns | None = None
    regex_on_full_url: bool | None = Field(default=None, alias="regexOnFullURL")
    max_discovery_depth: int | None = Field(default=None, ge=0)
    sitemap: FirecrawlSitemap | None = None
    ignore_query_parameters: bool | None = None
    deduplicate_similar_urls: Ignored = Field(default=None, alias="deduplicateSimilarURLs")
    limit: int | None = Field(default=None, ge=1, le=1_000_000)
    crawl_entire_domain: bool | None = None
    allow_external_links: Never | None = None
    allow_subdomains: bool | None = None
    ignore_robots_txt: bool | None = None
    delay: float | None = Field(default=None, ge=0, le=3600, description="Seconds between two pages.")
    max_concurrency: int | None = Field(default=None, ge=1)
    scrape_options: FirecrawlOptions | None = None

    def body(self, **more: Any) -> dict[str, Any]:
        """The body of a `POST /crawl`."""
        page, limit = self.scrape_options or FirecrawlOptions(), self.limit or USUAL_LIMIT
        params = {
            "include": self.include_paths or [],
            "exclude": self.exclude_paths or [],
            "match": "url" if self.regex_on_full_url else "path",
            "sitemap": self.sitemap or "include",
            "ignore_query": bool(self.ignore_query_parameters),
            "below_start": not self.crawl_entire_domain,
            "subdomains": bool(self.allow_subdomains),
            "obey_robots": not self.ignore_robots_txt,
        }
        pause = {} if self.delay is None else {"min_pause_seconds": self.delay, "max_pause_seconds": self.delay}
        return crawl_body(
            [self.url],
            page.params() | params,
            page.fetch() | pause | _concurrency(self.max_concurrency),
            depth=self.max_discovery_depth,
            max_items=limit,
            # not with sitemaps, which count as pages although they yield no item
            max_pages=limit if self.sitemap == "skip" else None,
            **more,
        )


class FirecrawlMap(_Options):
    """A site whose links are asked for."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"url": "https://example.com/", "search": "docs"}]})

    url: UrlText
    search: Annotated[Text, Field(max_length=200)] | None = None
    sitemap: FirecrawlSitemap | None = None
    include_subdomains: bool | None = None
    ignore_query_parameters: bool | None = None
    limit: int = Field(default=USUAL_LINKS, ge=1, le=MOST_LINKS)
    timeout: int | None = Field(default=None, ge=1)

    def seconds(self) -> float:
        return min(self.timeout or USUAL_TIMEOUT, LONGEST_TIMEOUT) / 1000

    def bodies(self) -> list[dict[str, Any]]:
        """The bodies of the crawls that find the links: one for the page itself, and one for the site's sitemaps."""
        params: dict[str, Any] = {"subdomains": self.include_subdomains is not False}
        page = crawl_body([self.url], params | {"formats": ["links"]}, {}, depth=0, max_pages=1)
        sitemap = crawl_body([self.url], params, {}, max_items=self.limit) | {"spider": "sitemap"}
        return [*([page] if self.sitemap != "only" else []), *([sitemap] if self.sitemap != "skip" else [])]

    def links(self, items: list[dict[str, Any]]) -> list[FirecrawlLink]:
        """The links that these crawls have found, each once."""
        found: dict[str, FirecrawlLink] = {}
        host = _host(self.url)
        for item in items:
            for url in (item.get("url"), *(item.get("links") or ())):
                if isinstance(url, str) and self._is_of(host, _host(url)):
                    bare = url if self.ignore_query_parameters is False else url.partition("?")[0]
                    about = (item.get("title"), item.get("description")) if url == item.get("url") else (None, None)
                    link = FirecrawlLink(url=bare, title=about[0], description=about[1])
                    found.setdefault(bare, link)
        wanted = (self.search or "").casefold().split()
        return [one for one in found.values() if all(word in one.text() for word in wanted)][: self.limit]

    def _is_of(self, site: str, host: str) -> bool:
        return host == site or (self.include_subdomains is not False and host.endswith(f".{site}"))


def _host(url: str) -> str:
    try:
        return re.sub(r"^www\.", "", urlsplit(url).netloc.lower())
    except ValueError:
        return ""


# --- answers


class _Answer(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True)

    success: Literal[True] = True


class FirecrawlLink(BaseModel):
    """A link of a site."""

    url: str
    title: str | None = None
    description: str | None = None

    def text(self) -> str:
        return f"{self.url} {self.title or ''} {self.description or ''}".casefold()


class FirecrawlLinks(_Answer):
    """The links of a site."""

    id: str = Field(description="The id of the last job that searched for links.")
    links: list[FirecrawlLink]


class FirecrawlMetadata(BaseModel):
    """What is known of a page beside its text."""

    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True)

    title: str | None = None
    description: str | None = None
    language: str | None = None
    source_url: str | None = Field(default=None, alias="sourceURL")
    url: str | None = None
    status_code: int | None = None
    content_type: str | None = None
    error: str | None = None
    scrape_id: str | None = Field(default=None, description="The job.")


class FirecrawlPage(BaseModel):
    """A page, in the formats that were asked for."""

    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True)

    markdown: str | None = None
    html: str | None = None
    raw_html: str | None = None
    links: list[str] | None = None
    metadata: FirecrawlMetadata

    @classmethod
    def of(cls, item: dict[str, Any], job_id: str) -> FirecrawlPage:
        about = {name: item.get(name) for name in ("title", "description", "language", "source_url", "url", "error")}
        metadata = FirecrawlMetadata.model_construct(
            **about, status_code=item.get("status"), content_type=item.get("content_type"), scrape_id=job_id
        )
        texts = {name: item.get(name) for name in _FORMATS.values()}
        return cls.model_construct(**texts, metadata=metadata)


class FirecrawlScraped(_Answer):
    """A page that was scraped."""

    data: FirecrawlPage


class FirecrawlStarted(_Answer):
    """The crawl that was begun, and where its status is."""

    id: str = Field(description="The id of a job: `/jobs/{id}` knows it as well.")
    url: str = Field(description="Where its status is.")
    invalid_urls: list[str] | None = Field(default=None, alias="invalidURLs", description="Only of a batch.")


class FirecrawlStatus(_Answer):
    """How far a crawl is, with a page of its results."""

    status: Literal["scraping", "completed", "failed", "cancelled"]
    total: int
    completed: int
    credits_used: int = Field(description="One for each page.")
    expires_at: Timestamp
    next: str | None = Field(description="The address of the next page; null if there are no more pages yet.")
    data: list[FirecrawlPage]

    @classmethod
    def of(
        cls, job: dict[str, Any], pages: list[FirecrawlPage], following: str | None, days: float
    ) -> FirecrawlStatus:
        """`job`: the answer of `GET /jobs/{job_id}/status`; `days`: how long items are kept."""
        status, found = JobStatus(job["status"]), job["items_count"]
        ended = status in FINAL_STATUSES
        last = datetime.fromisoformat(job["finished_at"] or job["created_at"])
        return cls.model_construct(
            status=_STATUSES.get(status, "scraping"),
            total=found if ended else max(found, job["requested_pages"]),
            completed=found,
            credits_used=found,
            expires_at=last + timedelta(days=days),
            next=following,
            data=pages,
        )


_STATUSES: dict[JobStatus, Literal["completed", "failed", "cancelled"]] = {
    JobStatus.FINISHED: "completed",
    JobStatus.PARTIAL: "completed",
    JobStatus.ERROR: "failed",
    JobStatus.CANCELLED: "cancelled",
}


class FirecrawlFailure(BaseModel):
    """A page that failed, and why."""

    id: str
    timestamp: str | None
    url: str
    code: str | None
    error: str


class FirecrawlErrors(BaseModel):
    """The pages of a crawl that failed."""

    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True)

    errors: list[FirecrawlFailure] = Field(description="Pages that could not be fetched; a thousand at most.")
    robots_blocked: list[str] = Field(description="Pages that robots.txt forbids; a thousand at most.")


class FirecrawlActiveCrawl(BaseModel):
    """A crawl that runs now."""

    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True)

    id: str
    team_id: str = Field(description="The user.")
    url: str
    options: None = None


class FirecrawlActive(_Answer):
    """The crawls that run now."""

    crawls: list[FirecrawlActiveCrawl]


class FirecrawlCancelled(_Answer):
    """That a crawl was cancelled."""

    status: Literal["cancelled"] = "cancelled"


#: The number of remaining credits: there are no credits here, but clients expect a number.
ENDLESS = 1_000_000_000


class _Usage(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel)

    billing_period_start: None = None
    billing_period_end: None = None


class CreditsLeft(_Usage):
    """What is left of the credits, of which there is no limit here."""

    remaining_credits: int = ENDLESS
    plan_credits: int = ENDLESS


class TokensLeft(_Usage):
    """What is left of the tokens, of which there is no limit here."""

    remaining_tokens: int = ENDLESS
    plan_tokens: int = ENDLESS


class FirecrawlCredits(_Answer):
    """The credits of a team."""

    data: CreditsLeft = CreditsLeft()


class FirecrawlTokens(_Answer):
    """The tokens of a team."""

    data: TokensLeft = TokensLeft()


class FirecrawlQueue(_Answer):
    """How many jobs wait and run."""

    jobs_in_queue: int
    active_jobs_in_queue: int
    waiting_jobs_in_queue: int
    max_concurrency: int = Field(description="How many of the user's crawls may run at the same time; 0: any number.")
    most_recent_success: str | None


class FirecrawlConcurrency(_Answer):
    """How many pages are scraped at once."""

    concurrency: int
    max_concurrency: int = Field(description="As in the state of the queue.")


class FirecrawlProblem(BaseModel):
    """Any answer that is not a success, in the form that Firecrawl's clients read."""

    success: Literal[False]
    error: str = Field(description="For people.")
    code: str = Field(description="For programs.")
    details: Any = Field(default=None, description="Further facts; `details.field` names the wrong field.")
