"""The HTTP cache: pages that crawls of the same user fetched lately. It is in a Redis server of its own, and crawls
continue without it if that fails.
"""

from __future__ import annotations

import logging
from hashlib import sha256
from time import monotonic
from typing import TYPE_CHECKING

import zstandard
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry
from scrapy.extensions.httpcache import DummyPolicy
from scrapy.http import Headers
from scrapy.responsetypes import responsetypes

from crawler import extras
from crawler.report.failures import is_error_status, is_refusal
from crawler.setting_names import HTTPCACHE_REDIS_URL, HTTPCACHE_REFRESH, HTTPCACHE_USER

if TYPE_CHECKING:
    from scrapy import Request, Spider
    from scrapy.http import Response
    from scrapy.settings import BaseSettings
    from scrapy.utils.request import RequestFingerprinterProtocol

logger = logging.getLogger(__name__)

#: The reactor waits for the answer, so a cache slower than this is worse than none.
ANSWER_SECONDS = 0.5
#: Seconds for which a Redis that failed is not asked; doubled each time, up to a minute.
PAUSE_SECONDS = 5.0
PAUSE_SECONDS_MAX = 60.0
#: Larger pages cost Redis more than they save.
MAX_BODY_BYTES = 5 << 20
_WORTH_COMPRESSING = 512
_VERSION = 1
_NOT_WHOLE = frozenset({"download_stopped", "partial", "dataloss"})


def cache_key(user_id: str, request: Request, fingerprint: bytes) -> str:
    """The key of a page in Redis. It has the user and the login, because fingerprints ignore cookies and logins, and
    neither users nor logins share pages. Cookies that a site has set are left out: they differ from crawl to crawl,
    so that no page would be found again.
    """
    given = [request.headers.getlist("Authorization"), request.cookies] if _has_login(request) else None
    login = f":{sha256(repr(given).encode()).hexdigest()[:32]}" if given else ""
    return f"cache:{user_id}:{fingerprint.hex()}{login}"


def _has_login(request: Request) -> bool:
    return bool(request.cookies) or b"Authorization" in request.headers


class CachePolicy(DummyPolicy):
    """Keeps complete responses to GET, unless they are errors or the server asked not to keep them. Without a known
    user, as in a plain Scrapyd job, it keeps no page that was fetched with a cookie or login.
    """

    def __init__(self, settings: BaseSettings) -> None:
        super().__init__(settings)
        self._has_user = bool(settings.get(HTTPCACHE_USER))

    def should_cache_request(self, request: Request) -> bool:
        anonymous = not _has_login(request) and b"Cookie" not in request.headers
        return request.method == "GET" and (self._has_user or anonymous) and super().should_cache_request(request)

    def should_cache_response(self, response: Response, request: Request) -> bool:
        # a crawl whose start URLs were refused has failed: the next one must ask the site again
        refused = is_refusal(response.status) and request.meta.get("is_start_request", False)
        return (
            not (is_error_status(response.status) or refused)
            and _NOT_WHOLE.isdisjoint(response.flags)
            and b"no-store" not in (response.headers.get(b"Cache-Control") or b"").lower()
            and super().should_cache_response(response, request)
        )


def connect(settings: BaseSettings) -> Redis:
    return Redis.from_url(
        settings[HTTPCACHE_REDIS_URL],
        socket_timeout=ANSWER_SECONDS,
        socket_connect_timeout=ANSWER_SECONDS,
        retry=Retry(NoBackoff(), 0),
    )


class RedisCacheStorage:
    """Scrapy's cache storage over Redis, which also forgets what is older than the TTL."""

    def __init__(self, settings: BaseSettings) -> None:
        self._redis = connect(settings)
        self._user = settings.get(HTTPCACHE_USER, "")
        self._ttl = settings.getint("HTTPCACHE_EXPIRATION_SECS")
        self._refresh = settings.getbool(HTTPCACHE_REFRESH)
        self._largest = settings.getint("DOWNLOAD_MAXSIZE")
        self._pause = CachePause()
        self._fingerprinter: RequestFingerprinterProtocol | None = None

    def open_spider(self, spider: Spider) -> None:
        self._fingerprinter = spider.crawler.request_fingerprinter

    def close_spider(self, spider: Spider) -> None:  # noqa: ARG002 - Scrapy's signature
        self._redis.close()

    def retrieve_response(self, spider: Spider, request: Request) -> Response | None:  # noqa: ARG002 - Scrapy's signature
        if self._refresh or self._pause.lasts():
            return None
        try:
            packed = self._redis.get(self._key(request))
            self._pause.end()
            return unpack(packed, self._largest) if isinstance(packed, bytes) else None
        except RedisError as error:
            self._pause.begin(error)
        except Exception as error:  # noqa: BLE001 - anything else that is stored there is not a page
            logger.warning("An entry of the HTTP cache is unreadable: %s", error)
        return None

    def store_response(self, spider: Spider, request: Request, response: Response) -> None:  # noqa: ARG002 - Scrapy's signature
        if self._pause.lasts() or len(response.body) > MAX_BODY_BYTES:
            return
        try:
            self._redis.set(self._key(request), pack(response), ex=self._ttl)
            self._pause.end()
        except RedisError as error:
            self._pause.begin(error)

    def _key(self, request: Request) -> str:
        if self._fingerprinter is None:
            raise RuntimeError("the spider is not open")
        return cache_key(self._user, request, self._fingerprinter.fingerprint(request))


class CachePause:
    """The time during which a failed Redis is not asked, so that not every page waits for its time-out."""

    def __init__(self) -> None:
        self._until = 0.0
        self._seconds = PAUSE_SECONDS

    def lasts(self) -> bool:
        return monotonic() < self._until

    def begin(self, error: Exception) -> None:
        logger.warning("The HTTP cache does not answer (%s); going on without it for %g s", error, self._seconds)
        self._until = monotonic() + self._seconds
        self._seconds = min(PAUSE_SECONDS_MAX, self._seconds * 2)

    def end(self) -> None:
        self._seconds = PAUSE_SECONDS


def pack(response: Response) -> bytes:
    """The response as bytes: a line of JSON, then the body, compressed with zstd (level 1) if that is smaller."""
    body, compressed = response.body, False
    if len(body) > _WORTH_COMPRESSING:
        smaller = zstandard.ZstdCompressor(level=1).compress(body)
        if len(smaller) < len(body):
            body, compressed = smaller, True
    head = {
        "version": _VERSION,
        "url": response.url,
        "status": response.status,
        "headers": [
            [name.decode("latin-1"), [value.decode("latin-1") for value in response.headers.getlist(name)]]
            for name in response.headers
        ],
        "protocol": response.protocol,
        "compressed": compressed,
    }
    return extras.dumps(head) + b"\n" + body


def unpack(packed: bytes, largest: int) -> Response | None:
    """The response, or `None` for an entry of another version. Raises if the entry is damaged."""
    line, _, body = packed.partition(b"\n")
    head = extras.loads(line)
    if head["version"] != _VERSION:
        return None
    if head["compressed"]:
        # checked here, because zstd ignores `max_output_size` if the frame says how large its content is
        if not 0 <= zstandard.frame_content_size(body) <= largest:
            raise ValueError("a page of this size was never stored")
        body = zstandard.ZstdDecompressor().decompress(body)
    headers = Headers(dict(head["headers"]), encoding="latin-1")
    kind = responsetypes.from_args(headers=headers, url=head["url"], body=body)
    return kind(url=head["url"], status=head["status"], headers=headers, body=body, protocol=head["protocol"])
