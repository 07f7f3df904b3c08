"""Which requests are repeated, when, and for how long: the same for both clients."""

from __future__ import annotations

import json
import os
import random
import ssl
import sys
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import SplitResult, quote, urlsplit

import httpx2

from discoverybot_client._version import __version__
from discoverybot_client.errors import (
    ApiError,
    GatewayUnreachableError,
    NoGatewayError,
    RequestTimeoutError,
    TooManyRequestsError,
    UnavailableError,
    stranger,
)

DEFAULT_URL = "http://127.0.0.1:8001"
_USER_AGENT = f"discoverybot-client/{__version__} python/{sys.version_info.major}.{sys.version_info.minor}"
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
#: Methods whose second call changes nothing more.
_REPEATABLE = frozenset({"GET", "HEAD", "PUT", "DELETE"})
#: Statuses with which the request was certainly not carried out.
_NOT_DONE = frozenset({429, 503})
#: Statuses with which the request may have been carried out: of proxies, and of a gateway that has failed.
_UNKNOWN = frozenset({500, 502, 504})
#: The code of the gateway's own 504: the run goes on.
_GOES_ON = "run_goes_on"
#: The code of a 503 while no node is up yet.
_STARTING = "starting"
#: Errors that pass: the gateway is away or overloaded.
AWAY = (GatewayUnreachableError, TooManyRequestsError, UnavailableError)
#: Seconds; see `Retries.pause`.
_FIRST, _LONGEST = 0.25, 30.0
#: More make no pause longer. A gateway may be away for days, and no float has that many digits.
_DOUBLINGS = 20
#: Seconds without data after which a stream counts as dead: the gateway sends a comment every 15 s.
SILENCE = 45.0
#: Seconds for a gateway that never was there.
_FIRST_PATIENCE = 60.0
#: Who waits at the gateway and is answered in less than so many seconds was not kept waiting; and the longest pause
#: before such a request is sent again.
_AT_ONCE, _LONGEST_LOOK = 1.0, 5.0
#: Maximum seconds for which one request waits for the end of a job, and additional seconds for its answer.
WAIT_SLICE, GRACE = 30, 10.0


class Retries(NamedTuple):
    """A request that fails is sent again at most `most` times. The pauses double, from a quarter of a second to half
    a minute, and are random, so that many clients do not come back at once. A longer `Retry-After` is obeyed; if the
    call may not take so long, the error is raised at once.
    """

    most: int = 5
    #: Whether to wait for a gateway that cannot be reached or cannot serve now. One that is starting is waited for
    #: until the time is over, unless `most` is 0.
    waits: bool = True

    @classmethod
    def of(cls, retries: int | Retries) -> Retries:
        return cls(retries) if isinstance(retries, int) else retries

    def cover(self, number: int, error: ApiError | GatewayUnreachableError, *, repeatable: bool) -> bool:
        """Whether to send the request again after `number` tries, the last of which failed with `error`."""
        if isinstance(error, GatewayUnreachableError):
            again = repeatable if error.was_sent else self.waits
        elif error.code == _STARTING:
            return self.most > 0
        elif error.status in _NOT_DONE:
            again = self.waits
        else:
            again = self.waits and repeatable and error.status in _UNKNOWN and error.code != _GOES_ON
        return again and number <= self.most

    def pause(self, number: int, retry_after: float | None = None) -> float:
        """Seconds before try `number`, counted from 0."""
        longest = min(_LONGEST, _FIRST * 2 ** min(number, _DOUBLINGS))
        return max(retry_after or 0.0, random.uniform(longest / 2, longest))  # noqa: S311 - no secret


class Deadline:
    """The time limit of a call with all its retries; none if `seconds` is `None`. A request that receives nothing for
    `silence` seconds is given up, and sent again.
    """

    def __init__(self, seconds: float | None, silence: float = 30.0) -> None:
        self._end = None if seconds is None else time.monotonic() + seconds
        self.silence = silence

    def left(self) -> float | None:
        return None if self._end is None else max(0.0, self._end - time.monotonic())

    def is_over(self) -> bool:
        return self.left() == 0

    def within(self, seconds: float) -> float:
        """`seconds`, or what is left if that is less; never 0, which would mean no limit."""
        left = self.left()
        return seconds if left is None else max(0.001, min(seconds, left))


class Patience:
    """How long a loop that follows something waits for a gateway that is away: `seconds`, or without a limit. One
    that was never there is given up after a minute.
    """

    def __init__(self, retries: Retries, seconds: float | None, *, was_there: bool) -> None:
        self._retries = retries
        self._seconds = seconds
        self._was_there = was_there
        self._since: float | None = None
        self._failures = 0

    def is_heard(self) -> None:
        """The gateway has answered."""
        self._since, self._failures, self._was_there = None, 0, True

    def pause(self, error: ApiError | GatewayUnreachableError, least: float = 0.0) -> float:
        """Seconds until the next try. Raises `error` if the time is over by then."""
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        pause = self._retries.pause(self._failures, error.retry_after or least)
        self._failures += 1
        seconds = self._seconds if self._was_there or self._seconds is not None else _FIRST_PATIENCE
        if seconds is None:
            return pause
        left = self._since + seconds - now
        if left <= 0 or (error.retry_after or 0.0) > left:
            raise error
        return min(pause, left)


class Pace:
    """How soon a loop that lets the gateway wait for news asks again: at once, but after a pause, which grows, if an
    answer without news came at once, as that of a cache between them does.
    """

    def __init__(self, retries: Retries) -> None:
        self._retries = retries
        self._asked = time.monotonic()
        self._in_vain = 0

    def asks(self) -> None:
        """The request is sent now."""
        self._asked = time.monotonic()

    def pause(self, *, is_news: bool = False) -> float:
        """Seconds until the next request, after an answer with news or without."""
        self._in_vain = 0 if is_news or time.monotonic() - self._asked >= _AT_ONCE else self._in_vain + 1
        return min(_LONGEST_LOOK, self._retries.pause(self._in_vain)) if self._in_vain else 0.0


def segment(name: Any) -> str:
    """An id or a name as one part of a path, whatever is in it. Raises `ValueError` if it leads elsewhere."""
    text = str(name)
    if text in {"", ".", ".."}:
        raise ValueError(f"{text!r} is no id or name")
    return quote(text, safe="")


def may_repeat(method: str, headers: Mapping[str, str]) -> bool:
    """Whether it does no harm to send the request again after it may have been carried out."""
    return method in _REPEATABLE or "Idempotency-Key" in headers


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds of a `Retry-After`, which may also be a date."""
    told = headers.get("Retry-After", "")
    with suppress(ValueError):
        seconds = told.replace(".", "", 1).isdecimal()
        return max(0.0, float(told) if seconds else parsedate_to_datetime(told).timestamp() - time.time())
    return None


class Told(dict[str, Any]):
    """The object that a gateway has answered. A field that it must have and lacks is a `NoGatewayError`."""

    def __init__(self, url: str, data: dict[str, Any]) -> None:
        super().__init__(data)
        self._url = url

    def __missing__(self, name: str) -> Any:
        raise lacking(self._url, name)

    def objects(self, name: str) -> list[dict[str, Any]]:
        """The list of objects in this field; anything else there is no gateway's, either."""
        listed = self[name]
        if not (isinstance(listed, list) and all(isinstance(one, dict) for one in listed)):
            raise lacking(self._url, name)
        return listed


def lacking(url: str, name: str) -> NoGatewayError:
    return NoGatewayError(f"{url} answers, but not as a gateway does: there is no {name!r}")


def misshapen(url: str, told: Any) -> NoGatewayError:
    return NoGatewayError(stranger(url, json.dumps(told).encode(), 200))


def has_field(body: bytes, name: str) -> bool:
    """Whether an answer is an object with this field."""
    with suppress(ValueError):
        told = json.loads(body)
        return isinstance(told, dict) and name in told
    return False


def is_page(headers: Mapping[str, str]) -> bool:
    """Whether an answer is a page for people. A page that a crawl has saved is an attachment."""
    return headers.get("Content-Type", "").startswith("text/html") and "Content-Disposition" not in headers


#: Errors of connections that there were.
_BROKEN = (httpx2.ReadError, httpx2.WriteError, httpx2.CloseError, httpx2.RemoteProtocolError, EOFError)


def unreachable(url: str, error: Exception, *, was_sent: bool = True) -> GatewayUnreachableError:
    if isinstance(error, httpx2.TimeoutException):
        return RequestTimeoutError(f"no answer from {url} in time", was_sent=was_sent)
    what = f"the answer of {url} broke off" if isinstance(error, _BROKEN) else f"no gateway at {url}"
    return GatewayUnreachableError(f"{what}: {str(error) or type(error).__name__}", was_sent=was_sent)


#: Which certificates a gateway may have: those of public authorities, those in a file or a folder, or any.
Verify = bool | str | Path | ssl.SSLContext


class Address(NamedTuple):
    """A gateway's URL, and how to call it."""

    url: str
    headers: dict[str, str]
    trust_env: bool
    verify: ssl.SSLContext | bool

    @classmethod
    def of(cls, url: str | None, key: str | None, verify: Verify) -> Address:
        """The address for these values; they default to `DISCOVERYBOT_URL` and `DISCOVERYBOT_KEY`."""
        place = (url or os.environ.get("DISCOVERYBOT_URL") or DEFAULT_URL).rstrip("/")
        secret = os.environ.get("DISCOVERYBOT_KEY", "").strip() if key is None else key
        parts = _parts(place)
        if not (secret.isascii() and secret.isprintable()):
            raise ValueError("key: it has characters that no key has")
        headers = {"User-Agent": _USER_AGENT, **({"Authorization": f"Bearer {secret}"} if secret else {})}
        # no proxy for this machine; and no certificates for plain HTTP, because loading them takes long
        trusted = _trusted(verify) if parts.scheme == "https" else False
        return cls(place, headers, parts.hostname not in _LOOPBACK, trusted)


def _parts(place: str) -> SplitResult:
    """Raises `ValueError` for what is no address of a gateway. Messages and logs have the address, so it may have no
    password, and one that is in it is not repeated.
    """
    try:
        parts = urlsplit(place)
        is_address = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:  # of the port, or of an address in brackets
        is_address = False
    if is_address and "@" in parts.netloc:
        raise ValueError("url: no name or password can be in it; send `headers`")
    if not is_address or not place.isprintable() or "?" in place or "#" in place:
        shown = "what stands there" if "@" in place else repr(place)
        raise ValueError(f"url: {shown} is not the address of a gateway")
    return parts


def _trusted(verify: Verify) -> ssl.SSLContext | bool:
    if not isinstance(verify, str | Path):
        return verify
    path = Path(verify)
    if not path.exists():
        raise ValueError(f"verify: there is no {path}")
    return ssl.create_default_context(capath=path) if path.is_dir() else ssl.create_default_context(cafile=path)


#: Names of fields. A text is a sequence of texts, too, so a wider type would let it pass.
Names = list[str] | tuple[str, ...]


def comma_separated(**names: Names | None) -> dict[str, str]:
    """Lists of names as the API takes them, without those that are `None` or empty. Raises `TypeError` for a text,
    of which each letter would be a name.
    """
    for name, several in names.items():
        if isinstance(several, str):
            raise TypeError(f"{name}: pass a list of names, as in {name}=[{several!r}]")
    return {name: ",".join(several) for name, several in names.items() if several}


def given(**fields: Any) -> dict[str, Any]:
    """The fields that are not `None`, in the form of `sent`."""
    return sent({name: value for name, value in fields.items() if value is not None})


def sent(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields with each `datetime` as text. Raises `ValueError` for a time without an offset: it is ambiguous."""
    return {name: _moment(name, value) if isinstance(value, datetime) else value for name, value in fields.items()}


def _moment(name: str, value: datetime) -> str:
    if value.utcoffset() is None:
        raise ValueError(
            f"{name}: {value} has no offset, as datetime.now(UTC) has; astimezone() gives it the local one"
        )
    return value.isoformat()


#: What crawls URLs for which no spider and no project is named.
DEFAULT_SPIDER = "seo"


def order(
    user_id: str | None, urls: tuple[str, ...], spider: str | None, fields: Mapping[str, Any]
) -> dict[str, Any]:
    """The body of a request for a crawl, without fields that are `None`."""
    if not all(isinstance(url, str) for url in urls):
        raise TypeError("pass URLs one by one, each as a text: a list of them with a star, as in (*urls)")
    if spider is None and urls and fields.get("project") is None:
        # as on the command line
        spider = DEFAULT_SPIDER
    return given(**{"user_id": user_id, "spider": spider, "start_urls": [*urls] or None, **fields})


def idempotent(key: str | None) -> dict[str, str]:
    """The header with which a repeated request is carried out only once; by default it is for this call alone."""
    return {"Idempotency-Key": uuid.uuid4().hex if key is None else key}
