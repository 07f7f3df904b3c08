"""The gateway's HTTP API as the CLI uses it. Each failure is an `ApiError` with a message for people."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any

from gateway.cli.terminal import given, program

if TYPE_CHECKING:
    from discoverybot_client import Client, Event


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


#: Maximum number of seconds of a call, even while a platform is starting. Streams and files have limits of their own.
_TIMEOUT = 30.0
#: How many times a call that is safe to repeat is repeated if its answer is lost.
_RETRIES = 2
#: Seconds without a gateway after which a stream is given up.
PATIENCE = 120.0
_UNAUTHORIZED, _SERVER_ERROR = 401, 500


class ApiError(Exception):
    """The gateway refused, or could not be reached."""

    def __init__(
        self, message: str, exit_code: ExitCode = ExitCode.REFUSED, *, detail: Any = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        #: The gateway's error code, if the gateway answered.
        self.code = code
        #: The `detail` of the gateway's answer.
        self.detail = detail


class Api:
    """One gateway. It is called only through `discoverybot_client`."""

    def __init__(self, url: str, timeout: float = _TIMEOUT) -> None:
        self.url = url
        #: Whether the command line names the gateway.
        self.is_named = False
        self._timeout = timeout

    @property
    def key(self) -> str:
        """The API key; empty if there is none."""
        return os.environ.get("DISCOVERYBOT_KEY", "").strip()

    def page(self, job_id: str | None = None) -> str:
        """The address of the console's first page, or of a job's page. For a schedule's id, that page redirects to
        the schedule.
        """
        return f"{self.url}/console/jobs/{job_id}" if job_id else f"{self.url}/"

    @cached_property
    def client(self) -> Client:
        """The client, made on first use. If nobody answers, it fails at once instead of waiting. Raises
        `ApiError`.
        """
        from discoverybot_client import Client, Retries  # noqa: PLC0415 - help and completions are quicker without

        try:
            return Client(self.url, self.key, timeout=self._timeout, retries=Retries(_RETRIES, waits=False))
        except ValueError as error:
            raise ApiError(str(error)) from None

    def get(self, path: str, **query: Any) -> Any:
        return self.call("GET", path, params=given(**query))

    def get_all(self, path: str, **query: Any) -> dict[str, Any]:
        """All pages of a list as one answer."""
        answer: dict[str, Any] = {}
        with self.telling():
            for page in self.client.pages(path, **query):
                lists = {name: [*answer.get(name, ()), *new] for name, new in page.items() if isinstance(new, list)}
                answer = {**page, **lists}
        return answer

    def post(self, path: str, **options: Any) -> Any:
        return self.call("POST", path, **options)

    def submit(self, body: dict[str, Any]) -> dict[str, Any]:
        """`POST /crawl`. If the answer is lost, the request is repeated, and the answer names the same job."""
        receipt: dict[str, Any] = self.post("/crawl", json=body, headers={"Idempotency-Key": uuid.uuid4().hex})
        return receipt

    def call(self, method: str, path: str, **options: Any) -> Any:
        """The answer; `None` if it is empty."""
        with self.telling():
            return self.client.request(method, path, **options)

    def download(self, path: str, **query: Any) -> Iterator[bytes]:
        """The body of `GET path`, piece by piece, however long it is."""
        with self.telling():
            yield from self.client.pieces(path, **query)

    def follow(self, job_id: str, *, level: str | None = None, after: str = "") -> Iterator[Event]:
        """Every event of a job's stream up to `end`, from the first line or from the event `after` on. If the
        connection breaks (`dropped`), it continues.
        """
        with self.telling():
            yield from self.client.stream(f"/jobs/{job_id}/logs", after=after, patience=PATIENCE, level=level)

    def _without_key(self) -> str:
        """How to get in. While the gateway is asked, `keys create` takes a key itself."""
        command = f"{program()} keys create --scope admin"
        if "DISCOVERYBOT_URL" in os.environ:
            command = f"env -u DISCOVERYBOT_URL {command}"
        wrong = "The one in DISCOVERYBOT_KEY is not valid" if self.key else "Set DISCOVERYBOT_KEY"
        return f"\n{wrong}; if the admin's key is lost, on the server: {command}"

    @contextmanager
    def telling(self) -> Iterator[None]:
        """Raise the client's errors as `ApiError`."""
        import discoverybot_client as errors  # noqa: PLC0415 - see above

        try:
            yield
        except errors.ApiError as error:
            code = ExitCode.ERROR if error.status >= _SERVER_ERROR else ExitCode.REFUSED
            message = f"{error.message}{self._without_key()}" if error.status == _UNAUTHORIZED else error.message
            raise ApiError(message, code, detail=error.detail, code=error.code) from None
        except errors.GatewayUnreachableError as error:
            raise ApiError(
                f"{error}\nStart one with `{program()} up`, or name another with --url or DISCOVERYBOT_URL; "
                f"`{program()} doctor` says more.",
                ExitCode.ERROR,
            ) from None
        except errors.DiscoveryBotError as error:
            raise ApiError(f"{error}: check --url or DISCOVERYBOT_URL", ExitCode.ERROR) from None
