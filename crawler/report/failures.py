"""What went wrong with a request, in words for a person."""

from __future__ import annotations

from http import HTTPStatus

from scrapy.exceptions import (
    CannotResolveHostError,
    DownloadCancelledError,
    DownloadConnectionRefusedError,
    DownloadFailedError,
    IgnoreRequest,
    ResponseDataLossError,
)

#: Where the exception's own text says nothing (Twisted's lists of failures), or nothing without the class.
_WORDS: dict[type[Exception], str] = {
    CannotResolveHostError: "the host name could not be resolved",
    DownloadConnectionRefusedError: "the connection was refused",
    DownloadFailedError: "the connection broke before the response was complete",
    ResponseDataLossError: "the response ended before it was complete",
}
_TOO_LARGE = "the page is larger than CRAWL_MAX_PAGE_BYTES allows"


def exception_reason(error: BaseException | None) -> str:
    for kind, words in _WORDS.items():
        if isinstance(error, kind):
            return words
    if isinstance(error, DownloadCancelledError):
        # Scrapy says how large only when the server said so beforehand
        said = str(error).partition(" in request ")[0]
        return f"{_TOO_LARGE}: {said}" if said else _TOO_LARGE
    text = str(error)
    if isinstance(error, IgnoreRequest) and text:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def status_reason(status: int) -> str:
    try:
        return f"HTTP {status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"HTTP {status}"
