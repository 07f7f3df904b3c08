"""The errors that this package raises. All are a `DiscoveryBotError`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from discoverybot_client.answers import JobRecord

if TYPE_CHECKING:
    from discoverybot_client._async.jobs import Job as AsyncJob
    from discoverybot_client._sync.jobs import Job


class DiscoveryBotError(Exception):
    """Base of all errors that this package raises on purpose."""

    #: Seconds after which the gateway wants the request to be repeated.
    retry_after: float | None = None


class ApiError(DiscoveryBotError):
    """The gateway refused the request, or failed."""

    def __init__(
        self, status: int, error: dict[str, Any], request_id: str = "", retry_after: float | None = None
    ) -> None:
        #: The HTTP status.
        self.status = status
        #: The error code, such as `job_not_found`, for programs to branch on. New releases may add codes.
        self.code = str(error.get("code", "http_error"))
        #: What is wrong, for people.
        self.message = str(error.get("message", f"the answer is {status}"))
        #: Further facts, which differ from code to code; mostly an object, or `None`.
        self.detail: Any = error.get("detail")
        #: Names the request in the gateway's log.
        self.request_id = request_id
        self.retry_after = retry_after
        named = f"{self.code}, request {request_id}" if request_id else self.code
        super().__init__(f"{self.message} ({named})")

    def __reduce__(self) -> tuple[Any, ...]:
        # so that it gets from a worker process to the program that has started it
        error = {"code": self.code, "message": self.message, "detail": self.detail}
        return type(self), (self.status, error, self.request_id, self.retry_after)

    @property
    def field(self) -> str | None:
        """The field of the request that is wrong, such as `start_urls.0`."""
        return self.detail.get("field") if isinstance(self.detail, dict) else None


class InvalidRequestError(ApiError):
    """422: a value is wrong; `field` names it."""


class KeyRefusedError(ApiError):
    """401: the gateway wants a key, or does not know this one."""


class ForbiddenError(ApiError):
    """403: the key does not allow it, or a URL may not be fetched."""


class NotFoundError(ApiError):
    """404: the object does not exist, or belongs to another user."""


class ConflictError(ApiError):
    """409: the state of the object does not allow the request."""


class CursorExpiredError(ApiError):
    """410: changes after this cursor are no longer kept. Read the dataset's items, and go on after their `seq`."""


class TooManyRequestsError(ApiError):
    """429: a limit is reached, also after all retries. Nothing was done."""


class UnavailableError(ApiError):
    """503, and 502 and 504 of a proxy: the gateway cannot serve now, also after all retries."""


class GatewayUnreachableError(DiscoveryBotError):
    """No answer, or no complete one, also after all retries."""

    def __init__(self, message: str, *, was_sent: bool = True) -> None:
        super().__init__(message)
        #: Whether the request may have been carried out all the same.
        self.was_sent = was_sent


class RequestTimeoutError(GatewayUnreachableError, TimeoutError):
    """No answer, or no complete one, in time. It is a `TimeoutError`, too."""


class NoGatewayError(DiscoveryBotError):
    """The server that answers is no gateway of DiscoveryBot, or an incompatible one. The message has the beginning of
    its answer. That a job or another object is not there is a `NotFoundError`, never this.
    """


class NotAJobError(DiscoveryBotError):
    """The id is a schedule's: use `client.schedules.get`."""


class _JobError(DiscoveryBotError):
    #: The job in its last known state.
    job: Any

    def __init__(self, message: str, job: JobRecord) -> None:
        super().__init__(message)
        self.job = job


class WaitTimeoutError(_JobError, TimeoutError):
    """The `job` has not ended in time. The crawl goes on. It is a `TimeoutError`, too."""

    job: Job


class CrawlFailedError(_JobError):
    """The crawl ended as `error` or `cancelled`."""

    job: Job

    @property
    def reason(self) -> str | None:
        """A code; docs/troubleshooting.md explains each."""
        return self.job.reason


class AsyncWaitTimeoutError(WaitTimeoutError):
    """As `WaitTimeoutError`, raised by an asynchronous client: type checkers then know the type of `job`."""

    job: AsyncJob  # type: ignore[assignment]


class AsyncCrawlFailedError(CrawlFailedError):
    """As `CrawlFailedError`, raised by an asynchronous client."""

    job: AsyncJob  # type: ignore[assignment]


class WebhookError(DiscoveryBotError):
    """A call was not signed with the secret, or is too old."""


_OF_STATUS: dict[int, type[ApiError]] = {
    401: KeyRefusedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    410: CursorExpiredError,
    422: InvalidRequestError,
    429: TooManyRequestsError,
    502: UnavailableError,
    503: UnavailableError,
    504: UnavailableError,
}


#: Statuses that a proxy, too, gives for a gateway behind it. With another one, an answer that is not in a gateway's
#: form is a stranger's.
_OF_PROXIES = frozenset({401, 403, 407, 408, 413, 414, 425, 429, 431, *range(500, 600)})
#: Characters of a stranger's answer that a message has.
_SHOWN = 80


def error_of(url: str, status: int, body: bytes, retry_after: float | None = None) -> ApiError | NoGatewayError:
    """The error for an answer. One that is not in a gateway's form is that of a proxy before it, or of a stranger:
    for a wrong address, "not found" would be a lie about the object.
    """
    try:
        told = json.loads(body)
    except ValueError:
        told = None
    told = told if isinstance(told, dict) else {}
    error = told.get("error")
    if error is None and status not in _OF_PROXIES:
        return NoGatewayError(f"{stranger(url, body, status)}. Is the address right, with its path?")
    if not isinstance(error, dict):
        error = {"message": stranger(url, body, status)}
    return _OF_STATUS.get(status, ApiError)(status, error, str(told.get("request_id", "")), retry_after)


def stranger(url: str, body: bytes, status: int) -> str:
    """What is said of an answer that is not in a gateway's form."""
    text = " ".join(body[: 4 * _SHOWN].decode("utf-8", "replace").split())
    begin = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    return f"{url} answers {status}, but not as a gateway does" + (f": {begin}" if begin else "")
