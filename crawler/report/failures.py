"""Which requests have failed, and why: as a code, and in words."""

from __future__ import annotations

import os
import re
from http import HTTPStatus
from traceback import walk_tb
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from scrapy.exceptions import IgnoreRequest, NotSupported
from scrapy.utils.url import add_http_if_no_scheme

from crawler.net.egress import EgressBlockedError, HandlerRefusedError
from crawler.net.response_limits import UnusableResponseError
from crawler.pace.robots import RobotsForbiddenError, UnlicensedError
from crawler.scrapy_versions import (
    CannotResolveHostError,
    DownloadCancelledError,
    DownloadConnectionRefusedError,
    DownloadFailedError,
    DownloadTimeoutError,
    ResponseDataLossError,
)
from gateway.contract.reasons import MISFITS, Reason

if TYPE_CHECKING:
    from scrapy import Request

_CLIENT_ERROR = 400
_TOO_MANY_REQUESTS = 429
_SERVER_ERROR = 500
#: Most `IgnoreRequest`s say that the page was not wanted (robots.txt, off site, a limit). Those that begin with these
#: words say that it could not be fetched: a redirect loop, a body that explodes when decompressed.
_GIVEN_UP = ("max redirections reached", "Ignored response")
_WANTS_LOGIN = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})
#: Exceptions of downloads with their codes; the first that fits counts.
_CODES: tuple[tuple[type[Exception], Reason], ...] = (
    (EgressBlockedError, Reason.ADDRESS_FORBIDDEN),
    (HandlerRefusedError, Reason.HANDLER_REFUSED),
    (NotSupported, Reason.URL_UNSUPPORTED),
    (DownloadCancelledError, Reason.PAGE_TOO_LARGE),
    (DownloadTimeoutError, Reason.SITE_TIMEOUT),
    (TimeoutError, Reason.SITE_TIMEOUT),
    (CannotResolveHostError, Reason.SITE_UNREACHABLE),
    (DownloadConnectionRefusedError, Reason.SITE_UNREACHABLE),
    (DownloadFailedError, Reason.SITE_UNREACHABLE),
    (ResponseDataLossError, Reason.SITE_UNREACHABLE),
    (OSError, Reason.SITE_UNREACHABLE),
    (RobotsForbiddenError, Reason.ROBOTS_FORBIDDEN),
    (UnlicensedError, Reason.LICENSE_REQUIRED),
    (IgnoreRequest, Reason.PAGE_REFUSED),
)
#: Failures that the next attempt would have again.
_PERMANENT = frozenset(
    {
        *(Reason.ADDRESS_FORBIDDEN, Reason.SITE_REFUSES, Reason.PAGE_MISSING, Reason.URL_UNSUPPORTED),
        *(Reason.ARGUMENTS_WRONG, Reason.VARIABLE_MISSING, Reason.HANDLER_REFUSED, Reason.PAYMENT_REQUIRED),
    }
)
#: Words for exceptions whose own text says nothing (Twisted's lists of failures), or nothing without its class.
_WORDS: dict[type[Exception], str] = {
    CannotResolveHostError: "the host name could not be resolved",
    DownloadConnectionRefusedError: "the connection was refused",
    DownloadFailedError: "the connection broke before the response was complete",
    ResponseDataLossError: "the response ended before it was complete",
}
#: Exceptions that come from the code or its arguments, and the modules in which their classes must be defined.
_OF_THE_CODE = (
    *(AssertionError, AttributeError, LookupError, ModuleNotFoundError, NameError, NotImplementedError),
    *(SyntaxError, TypeError, ValueError),
)
_WITHOUT_NETWORK = frozenset({"builtins", "pydantic_core"})
#: At most this many exceptions of a chain are read. A project can link exceptions to a ring.
_LONGEST_CHAIN = 20


def text_of(value: object) -> str:
    """`str(value)`, or an empty text if that raises: a project's own `__str__` may raise anything."""
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - as said above
        return ""


def exception_reason(error: BaseException | None, request: Request | None = None) -> str:
    """The exception in words. `request`: the request that ended with it, if there is one."""
    if (proxy := _proxy_host(request)) and isinstance(error, CannotResolveHostError):
        return f"the host name of the proxy {proxy} could not be resolved"
    if proxy and isinstance(error, DownloadConnectionRefusedError):
        return f"the proxy {proxy} refused the connection"
    for kind, words in _WORDS.items():
        if isinstance(error, kind):
            return words
    if isinstance(error, DownloadCancelledError):
        # Scrapy only says how large the page is if the server has announced it
        said = text_of(error).partition(" in request ")[0]
        return f"{_too_large(request)}: {said}" if said else _too_large(request)
    text = text_of(error)
    if isinstance(error, IgnoreRequest) and text:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _too_large(request: Request | None) -> str:
    limit = request.meta.get("download_maxsize") if request else None
    if limit is None:
        return "the page is larger than DOWNLOAD_MAXSIZE allows"
    return f"the page is larger than its limit of {limit} bytes (DOWNLOAD_MAXSIZE, which CRAWL_MAX_PAGE_BYTES bounds)"


def _proxy_host(request: Request | None) -> str | None:
    """The host name of the request's proxy, without its login."""
    proxy = request.meta.get("proxy") if request else None
    try:
        return urlsplit(add_http_if_no_scheme(proxy)).hostname if isinstance(proxy, str) else None
    except ValueError:
        return None


def first_error(error: BaseException) -> BaseException:
    """The first exception of a chain. When Scrapy cleans up after one, it may meet another, and raises that one."""
    for _ in range(_LONGEST_CHAIN):
        if not isinstance(error.__context__, Exception) or error.__cause__ or not _is_scrapys(error):
            break
        error = error.__context__
    return error


def _is_scrapys(error: BaseException) -> bool:
    frames = [frame.f_globals.get("__name__", "") for frame, _ in walk_tb(error.__traceback__)]
    return bool(frames) and str(frames[-1]).startswith("scrapy.")


def is_permanent(error: BaseException) -> bool:
    """Whether code that has not fetched anything would raise the error again. Errors of libraries or the system, and
    those that follow from them, are not permanent: a store that cannot be reached now may answer the next attempt.
    """
    for _ in range(_LONGEST_CHAIN):
        if not _is_of_the_code(error):
            return False
        before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        if before is None:
            return True
        error = before
    return False


def _is_of_the_code(error: BaseException) -> bool:
    if isinstance(error, HandlerRefusedError):
        return True
    # subclasses in other modules do not count: libraries raise them for bad answers (`JSONDecodeError`)
    return isinstance(error, _OF_THE_CODE) and type(error).__module__.partition(".")[0] in _WITHOUT_NETWORK


def missing_variable(error: BaseException) -> str | None:
    """The name of the variable, if the error says that `os.environ` lacks one."""
    if not isinstance(error, KeyError) or not (error.args and isinstance(error.args[0], str)):
        return None
    codes = [frame.f_code for frame, _ in walk_tb(error.__traceback__)]
    return error.args[0] if codes and codes[-1] is os.environ.__class__.__getitem__.__code__ else None


def failure_facts(reason: str, code: Reason, error: BaseException | None = None) -> dict[str, str]:
    """The `ERROR_FACTS` of a failure without the URL. `error` is what was raised, if anything was."""
    facts = {"reason": reason, "code": code.value}
    if code in _PERMANENT or (code is Reason.NOT_IMPORTABLE and not _may_be_the_nodes(error)):
        facts["permanent"] = "yes"
    return facts


def raised_facts(error: BaseException | None, where: Reason) -> dict[str, str]:
    """As `failure_facts`, for an exception of a project's code. `where` is the code if the exception has no better
    one.
    """
    return failure_facts(exception_reason(error), _raised_code(error, where), error)


def status_facts(status: int) -> dict[str, str]:
    """As `failure_facts`, for a page that counts as failed because of its status."""
    return failure_facts(status_reason(status), status_code(status))


def _may_be_the_nodes(error: BaseException | None) -> bool:
    """Whether an `ImportError` may be due to the node, which may lack a system library."""
    return type(error) is ImportError and not text_of(error).startswith("cannot import name")


def download_code(error: BaseException | None, request: Request | None = None) -> Reason:
    """The code for the error with which a request has ended."""
    if _proxy_host(request) and isinstance(error, CannotResolveHostError | DownloadConnectionRefusedError):
        return Reason.PROXY_UNREACHABLE
    return next((code for kind, code in _CODES if isinstance(error, kind)), Reason.REQUESTS_FAILED)


def _raised_code(error: BaseException | None, otherwise: Reason) -> Reason:
    if error is not None and missing_variable(error):
        return Reason.VARIABLE_MISSING
    if isinstance(error, ImportError | SyntaxError):
        return Reason.NOT_IMPORTABLE
    if isinstance(error, TypeError) and re.search(MISFITS, text_of(error)):
        return Reason.ARGUMENTS_WRONG
    own = (EgressBlockedError, HandlerRefusedError, NotSupported)
    return download_code(error) if isinstance(error, own) else otherwise


def status_code(status: int) -> Reason:
    if status == _TOO_MANY_REQUESTS:
        return Reason.RATE_LIMITED
    if status >= _SERVER_ERROR:
        return Reason.SITE_FAILED
    if status == HTTPStatus.PAYMENT_REQUIRED:
        return Reason.PAYMENT_REQUIRED
    return Reason.SITE_REFUSES if status in _WANTS_LOGIN else Reason.PAGE_MISSING


def status_reason(status: int) -> str:
    try:
        return f"HTTP {status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"HTTP {status}"


def is_error_status(status: int) -> bool:
    """Whether a status is an error: too many requests, or a server error. All others, even a 404, are answers."""
    return status == _TOO_MANY_REQUESTS or status >= _SERVER_ERROR


def is_refusal(status: int) -> bool:
    """Whether a status says that the page does not exist, or that we may not have it."""
    return status >= _CLIENT_ERROR and not is_error_status(status)


def is_error(error: BaseException | None) -> bool:
    if isinstance(error, IgnoreRequest) and not isinstance(error, EgressBlockedError | UnusableResponseError):
        return text_of(error).startswith(_GIVEN_UP)
    return True
