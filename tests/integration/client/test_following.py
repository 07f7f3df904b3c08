"""A log is followed over any number of broken connections: no line is left out, and none comes twice."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from scripted_server import Answer, Asked, nothing, stand_in, whole
from stores import free_port

from discoverybot_client import AsyncClient, Client, GatewayUnreachableError, Job, NotFoundError, UnavailableError

JOB = {"job_id": "5f0c8e3a9d1b4c7e8f2a6b5d4c3e2f1a", "status": "running"}
LINES = [f"line {number} – {'x' * (number % 7)}" for number in range(1, 41)]
AWAY = {"error": {"code": "unavailable", "message": "MongoDB is away"}}


def event(name: str, position: int, data: object) -> bytes:
    return f"event: {name}\nid: 1-{position}\ndata: {json.dumps(data)}\n\n".encode()


#: Each event with its position.
STREAM = [
    *(
        (10 * number, event("log", 10 * number, {"ts": None, "level": "INFO", "logger": "seo", "msg": line}))
        for number, line in enumerate(LINES, start=1)
    ),
    (401, event("end", 401, {"status": "finished", "items_count": 3})),
]


def stream(cut: Callable[[bytes], bytes]) -> Answer:
    """The rest of the stream after the client's last event, of which only what `cut` leaves is sent."""

    def answer(asked: Asked, connection: socket.socket) -> None:
        known = int(asked.headers.get("last-event-id", "1-0").removeprefix("1-"))
        rest = b"".join(sent for position, sent in STREAM if position > known)
        head = b"HTTP/1.1 200 .\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
        connection.sendall(head + cut(b"retry: 1\n\n: ping\n\n" + rest))

    return answer


@contextmanager
def job_of(*answers: Answer) -> Iterator[Job]:
    with stand_in(whole(JOB), *answers) as server, Client(server.url) as client:
        yield client.job(JOB["job_id"])


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("discoverybot_client.rules._FIRST", 0.002)


@pytest.mark.parametrize("size", [150, 151, 177, 200, 333, 1000])
def test_wherever_it_is_cut_each_line_comes_once(size: int) -> None:
    with job_of(stream(lambda rest: rest[:size])) as job:
        assert [line.msg for line in job.follow()] == LINES
        assert (job.status, job.items_count, job.has_ended) == ("finished", 3, True)


def test_a_connection_that_brings_nothing_is_only_one_more_try() -> None:
    none, some = stream(lambda _: b""), stream(lambda rest: rest[:400])
    with job_of(nothing, none, some, whole(AWAY, 503), nothing, some, stream(lambda rest: rest)) as job:
        names = [event.name for event in job.events()]
        assert (names.count("dropped"), names.count("log"), names[-1]) == (6, len(LINES), "end")


async def test_the_asynchronous_client_does_the_same() -> None:
    with stand_in(whole(JOB), stream(lambda rest: rest[:500])) as server:
        async with AsyncClient(server.url) as client:
            job = await client.job(JOB["job_id"])
            assert [line.msg async for line in job.follow()] == LINES


def test_who_leaves_goes_on_after_a_line() -> None:
    with job_of(stream(lambda rest: rest)) as job:
        for line in job.follow():
            if line.msg == LINES[7]:
                break
        assert [other.msg for other in job.follow(after=line.id)] == LINES[8:]


def test_a_stream_that_is_over_ends() -> None:
    with job_of(whole(b"", 204)) as job:
        assert list(job.follow(after="1-401")) == []


def test_patience_ends_and_a_refusal_is_no_interruption() -> None:
    with job_of(nothing) as job, pytest.raises(GatewayUnreachableError):
        list(job.follow(patience=0.2))
    with job_of(whole(AWAY, 503)) as job, pytest.raises(UnavailableError):
        list(job.follow(patience=0.2))
    gone = whole({"error": {"code": "job_not_found", "message": "no"}}, 404)
    with job_of(gone) as job, pytest.raises(NotFoundError):
        list(job.follow())


def test_a_gateway_that_never_was_there_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("discoverybot_client.rules._FIRST_PATIENCE", 0.1)
    with Client(f"http://127.0.0.1:{free_port()}") as client, pytest.raises(GatewayUnreachableError):
        list(client.events())


def test_who_is_slow_has_lost_no_patience() -> None:
    cut = stream(lambda rest: rest[:200])
    with job_of(cut) as job:
        lines = job.follow(patience=0.3)
        seen = [next(lines).msg]
        time.sleep(0.5)
        assert [*seen, *(line.msg for line in lines)] == LINES
