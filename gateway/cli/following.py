"""A job's event stream, followed to its end over any number of broken connections."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import httpx
import orjson
from httpx_sse import EventSource, ServerSentEvent, SSEError

from gateway.cli.api import Api, ApiError, refusal
from gateway.cli.exit_code import ExitCode

#: The gateway sends a comment every 15 s; one that is silent for so long is gone.
_SILENCE = 45.0
#: Seconds between two tries to come back, until the gateway says otherwise.
_RETRY = 2.0
#: Seconds without any answer after which we give up.
PATIENCE = 120.0


class Event(NamedTuple):
    """`log`, `status`, `progress`, `gap`, `end`, or our own `dropped`: the connection broke, we come back."""

    name: str
    data: dict[str, Any]


def follow(
    api: Api,
    job_id: str,
    *,
    level: str | None = None,
    patience: float = PATIENCE,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Event]:
    """Everything from the first line to `end`, no gap, no repeat: each new connection goes on after the last event.

    Raises `ApiError` if the gateway refuses, or stays away for `patience` seconds.
    """
    path, last_id, retry = f"/jobs/{job_id}/logs", "", _RETRY
    heard = time.monotonic()
    while True:
        try:
            for event in _connection(api, path, last_id, level):
                heard = time.monotonic()
                last_id = event.id or last_id
                retry = retry if event.retry is None else event.retry / 1000
                if event.data:
                    yield Event(event.event, orjson.loads(event.data))
                if event.event == "end":
                    return
        except _OverError:
            return
        except (httpx.TransportError, SSEError, _AwayError) as error:
            if time.monotonic() - heard > patience:
                raise ApiError(f"the gateway at {api.url} does not come back: {error}", ExitCode.ERROR) from None
        yield Event("dropped", {})
        sleep(retry)


class _AwayError(Exception):
    """The gateway answers, but cannot serve now."""


class _OverError(Exception):
    """204: everything has been seen."""


def _connection(api: Api, path: str, last_id: str, level: str | None) -> Iterator[ServerSentEvent]:
    headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last_id} if last_id else {})
    query = {"level": level} if level else {}
    timeout = httpx.Timeout(_SILENCE, connect=5)
    with api.client.stream("GET", path, headers=headers, params=query, timeout=timeout) as answer:
        if answer.status_code == httpx.codes.NO_CONTENT:
            raise _OverError
        if answer.is_error:
            answer.read()
            if answer.is_server_error:
                raise _AwayError(refusal(answer))
            raise ApiError(refusal(answer))
        yield from EventSource(answer).iter_sse()
