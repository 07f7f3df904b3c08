"""The gateway's HTTP API as the CLI uses it. Each failure is an `ApiError` with a message for people."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from functools import cached_property
from typing import Any
from urllib.parse import urlsplit

import httpx2

from gateway.cli.terminal import given, program


class ExitCode(IntEnum):
    """The outcome of a followed crawl, or of the command itself."""

    #: The crawl finished; the command did what it was asked.
    OK = 0
    #: The crawl ended in error, or the gateway could not be reached.
    ERROR = 1
    #: The command line is wrong, or the gateway refused the request.
    REFUSED = 2
    #: The crawl ended with errors on up to 30 % of its pages, or at its time limit.
    PARTIAL = 3
    CANCELLED = 4
    #: Ctrl-C while following: the crawl itself goes on.
    INTERRUPTED = 130


_OF_STATUS = {
    "finished": ExitCode.OK,
    "partial": ExitCode.PARTIAL,
    "cancelled": ExitCode.CANCELLED,
}


def of_status(status: str) -> ExitCode:
    """The exit code for a job that has ended in this status."""
    return _OF_STATUS.get(status, ExitCode.ERROR)


#: Seconds to connect, and to wait for an answer. Streams have limits of their own.
_TIMEOUT = httpx2.Timeout(30, connect=5)
#: The same for a file whose first byte is sent when all of it is made: a million rows as XLSX take minutes.
_WHOLE = httpx2.Timeout(3600, connect=5)
_WHOLE_FORMATS = frozenset({"xlsx", "parquet"})
#: How often a crawl is asked for if the connection breaks; an Idempotency-Key makes that safe.
_SUBMISSIONS = 3
#: Seconds to wait for the first node of a platform that is starting.
_START_SECONDS = 30
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


class ApiError(Exception):
    """The gateway refused, or could not be reached."""

    def __init__(
        self, message: str, exit_code: ExitCode = ExitCode.REFUSED, *, detail: Any = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        #: The gateway's code for it, if it is from the gateway.
        self.code = code
        #: What else the gateway said.
        self.detail = detail


class Api:
    """One gateway."""

    def __init__(self, url: str, timeout: httpx2.Timeout | float = _TIMEOUT) -> None:
        self.url = url
        self._timeout = timeout

    @property
    def key(self) -> str:
        """The API key; empty if there is none."""
        return os.environ.get("DISCOVERYBOT_KEY", "").strip()

    def page(self, job_id: str | None = None) -> str:
        """The address of the console's first page, or of a job's page, which sends a schedule's id on to the
        schedule.
        """
        return f"{self.url}/console/jobs/{job_id}" if job_id else f"{self.url}/"

    @cached_property
    def client(self) -> httpx2.Client:
        """The HTTP client, made on first use. Raises `ApiError`."""
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else None
        try:
            # a proxy for the internet does not lead to a gateway on this machine
            address = urlsplit(self.url)
            trust_env = address.hostname not in _LOOPBACK
            # to load all authorities takes longer than a call, and without TLS nobody needs them
            return httpx2.Client(
                base_url=self.url,
                headers=headers,
                timeout=self._timeout,
                trust_env=trust_env,
                verify=address.scheme != "http",
            )
        except (httpx2.InvalidURL, ValueError) as error:
            raise ApiError(f"url: {self.url!r} is not the address of a gateway: {error}") from None

    def get(self, path: str, **query: Any) -> Any:
        return self.call("GET", path, params=given(**query))

    def get_all(self, path: str, **query: Any) -> dict[str, Any]:
        """All pages of a list as one answer."""
        answer: dict[str, Any] = self.get(path, **query)
        while after := answer.get("next"):
            page = self.get(path, **query, after=after)
            answer = {name: [*answer[name], *new] if isinstance(new, list) else new for name, new in page.items()}
        return answer

    def post(self, path: str, **options: Any) -> Any:
        return self.call("POST", path, **options)

    def submit(self, body: dict[str, Any]) -> dict[str, Any]:
        """`POST /crawl`. If the answer is lost, the request is repeated, and the answer names the same job."""
        headers = {"Idempotency-Key": uuid.uuid4().hex}
        for _ in range(_SUBMISSIONS - 1):
            try:
                answer: dict[str, Any] = self._checked(self._post_once_started(body, headers)).json()
            except (httpx2.ReadError, httpx2.RemoteProtocolError):
                continue
            except httpx2.HTTPError as error:
                raise self._unreachable(error) from None
            return answer
        last: dict[str, Any] = self.post("/crawl", json=body, headers=headers)
        return last

    def _post_once_started(self, body: dict[str, Any], headers: dict[str, str]) -> httpx2.Response:
        """Wait for a platform that is starting."""
        end = time.monotonic() + _START_SECONDS
        while _part(answer := self.client.post("/crawl", json=body, headers=headers), "code") == "starting":
            if time.monotonic() > end:
                break
            time.sleep(float(answer.headers.get("Retry-After", 1)))
        return answer

    @contextmanager
    def download(self, path: str, **query: Any) -> Iterator[Iterator[bytes]]:
        """The body of `GET path`, piece by piece, however long it is."""
        timeout = _WHOLE if query.get("format") in _WHOLE_FORMATS else self._timeout
        try:
            with self.client.stream("GET", path, params=given(**query), timeout=timeout) as answer:
                if answer.is_error:
                    answer.read()
                self._checked(answer)
                yield answer.iter_bytes()
        except httpx2.HTTPError as error:
            raise self._unreachable(error) from None

    def call(self, method: str, path: str, **options: Any) -> Any:
        """The answer; `None` if there is nothing in it."""
        try:
            answer = self._checked(self.client.request(method, path, **options))
            return answer.json() if answer.status_code != httpx2.codes.NO_CONTENT else None
        except httpx2.HTTPError as error:
            raise self._unreachable(error) from None
        except ValueError:
            raise ApiError(
                f"{self.url} answers, but it is not a gateway: check --url or DISCOVERYBOT_URL", ExitCode.ERROR
            ) from None

    def _checked(self, answer: httpx2.Response) -> httpx2.Response:
        if answer.is_success:
            return answer
        code = ExitCode.ERROR if answer.is_server_error else ExitCode.REFUSED
        raise ApiError(refusal(answer), code, detail=_part(answer, "detail"), code=_part(answer, "code"))

    def _unreachable(self, error: httpx2.HTTPError) -> ApiError:
        reason = str(error) or type(error).__name__
        return ApiError(
            f"no gateway at {self.url}: {reason}\nStart one with `{program()} up`, "
            f"or name another with --url or DISCOVERYBOT_URL; `{program()} doctor` says more.",
            ExitCode.ERROR,
        )


def refusal(answer: httpx2.Response) -> str:
    """The message of an error answer; of an answer that is not from a gateway, its status."""
    message = _part(answer, "message")
    return str(message) if message else f"{answer.request.url} answers {answer.status_code} {answer.reason_phrase}"


def _part(answer: httpx2.Response, name: str) -> Any:
    try:
        return answer.json()["error"][name]
    except (ValueError, KeyError, TypeError):
        return None
