"""Which requests have failed, and what went wrong with them in words for a person."""

from __future__ import annotations

from http import HTTPStatus

from scrapy.exceptions import IgnoreRequest

from crawler.net.egress import EgressBlockedError
from crawler.scrapy_versions import (
    CannotResolveHostError,
    DownloadCancelledError,
    DownloadConnectionRefusedError,
    DownloadFailedError,
    ResponseDataLossError,
)

_CLIENT_ERROR = 400
_TOO_MANY_REQUESTS = 429
_SERVER_ERROR = 500
#: `IgnoreRequest` mostly says that nobody wanted the page (robots.txt, off site, a limit). With these words Scrapy
#: says that it was wanted and could not be had: a redirect loop, a body that explodes when decompressed.
_GIVEN_UP = ("max redirections reached", "Ignored response")
#: Where the exception's own text says nothing (Twisted's lists of failures), or nothing without the class.
_WORDS: dict[type[Exception], str] = {
    CannotResolveHostError: "the host name could not be resolved",
    DownloadConnectionRefusedError: "the connection was refused",
    DownloadFailedError: "the connection broke before the response was complete",
    ResponseDataLossError: "the response ended before it was complete",
}
_TOO_LARGE = "the page is larger than CRAWL_MAX_PAGE_BYTES allows"


def text_of(value: object) -> str:
    """As `str` of what a project has made, whose `__str__` may raise anything; empty then."""
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - as said above
        return ""


def exception_reason(error: BaseException | None) -> str:
    for kind, words in _WORDS.items():
        if isinstance(error, kind):
            return words
    if isinstance(error, DownloadCancelledError):
        # Scrapy says how large only when the server said so beforehand
        said = text_of(error).partition(" in request ")[0]
        return f"{_TOO_LARGE}: {said}" if said else _TOO_LARGE
    text = text_of(error)
    if isinstance(error, IgnoreRequest) and text:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def status_reason(status: int) -> str:
    try:
        return f"HTTP {status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"HTTP {status}"


def is_error_status(status: int) -> bool:
    """Being sent away, or a broken server. Any other status, a 404 too, is an answer."""
    return status == _TOO_MANY_REQUESTS or status >= _SERVER_ERROR


def is_refusal(status: int) -> bool:
    """An answer that says that there is no such page, or not for us."""
    return status >= _CLIENT_ERROR and not is_error_status(status)


def is_error(error: BaseException | None) -> bool:
    if isinstance(error, IgnoreRequest) and not isinstance(error, EgressBlockedError):
        return text_of(error).startswith(_GIVEN_UP)
    return True
