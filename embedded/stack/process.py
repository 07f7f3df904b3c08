"""One process of the table: what to run, what it waits for, and how to check that it is ready."""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import httpx2

from embedded.stack.parent_death import die_with_parent

Probe = Callable[[], Awaitable[str | None]]
#: Checks an answer. Returns `None` if it is good, else what is missing.
Judge = Callable[[httpx2.Response], str | None]

#: Seconds for one check.
TIMEOUT = 3.0
#: A TLS context without certificate authorities: all probes use plain HTTP, and loading authorities takes time.
_NO_AUTHORITIES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


async def running() -> str | None:
    """The probe of a process that cannot be checked from outside: it is ready once it runs."""
    return None


def listening(host: str, port: int) -> Probe:
    """Ready when a process accepts connections at `host:port`."""

    async def probe() -> str | None:
        try:
            _, writer = await asyncio.wait_for(asyncio.open_connection(host, port), TIMEOUT)
        except (OSError, TimeoutError):
            return f"nothing listens on {host}:{port} yet"
        writer.close()
        return None

    return probe


def redis_answers(host: str, port: int, password: str) -> Probe:
    """Ready when Redis answers PONG. While it still loads its append-only file, it answers LOADING."""

    async def ask() -> bytes:
        reader, writer = await asyncio.open_connection(host, port)
        try:
            writer.write(f"AUTH {password}\r\nPING\r\n".encode())
            await reader.readline()
            return await reader.readline()
        finally:
            writer.close()

    async def probe() -> str | None:
        try:
            answer = await asyncio.wait_for(ask(), TIMEOUT)
        except (OSError, TimeoutError):
            return f"nothing listens on {host}:{port} yet"
        return None if answer == b"+PONG\r\n" else answer.decode("ascii", "replace").strip()

    return probe


def http_answers(
    url: str, accept: Collection[int] = (200,), auth: tuple[str, str] | None = None, judge: Judge = lambda _: None
) -> Probe:
    """Ready when the answer to `GET url` has one of the statuses in `accept`, and `judge` returns `None` for it."""

    async def probe() -> str | None:
        try:
            async with httpx2.AsyncClient(timeout=TIMEOUT, trust_env=False, verify=_NO_AUTHORITIES) as client:
                answer = await client.get(url, auth=auth)
        except httpx2.HTTPError as error:
            return f"no answer from {url} yet ({type(error).__name__})"
        if answer.status_code not in accept:
            return f"{url} answers {answer.status_code}: {answer.text[:300]}"
        return judge(answer)

    return probe


#: Checks that may fail although the whole stack runs: a drained node, for example, stays drained after a restart.
_NOT_OURS = frozenset({"node_list", "node_states", "files", "waiting", "schedules"})


def healthy(answer: httpx2.Response) -> str | None:
    """The judge of `GET /health`: returns the failing checks with their messages."""
    try:
        body = answer.json()
        failed = {name: one["message"] for name, one in body["checks"].items() if one["status"] != "ok"}
        if body["status"] == "ok" or (failed and failed.keys() <= _NOT_OURS):
            return None
        failing = [f"{name}: {message}" for name, message in failed.items()]
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"{answer.request.url} answers {answer.text[:300]}"
    return "; ".join(failing) or f"status {body['status']}"


class User(NamedTuple):
    """A user and a group of the system, by their ids."""

    uid: int
    gid: int

    def become(self) -> None:
        """Change permanently to this user, and lose all rights of the current one. Needs root. Raises `OSError`."""
        os.setgroups([])
        os.setresgid(self.gid, self.gid, self.gid)
        os.setresuid(self.uid, self.uid, self.uid)


@dataclass(frozen=True)
class Process:
    """A process to keep alive."""

    name: str
    command: tuple[str, ...]
    #: Added to the supervisor's own environment.
    env: Mapping[str, str] = field(default_factory=dict)
    #: Names of the processes that must be ready before this one is started.
    needs: tuple[str, ...] = ()
    probe: Probe = running
    #: Seconds between SIGTERM and SIGKILL.
    grace: float = 10
    #: The signal that the kernel sends to the process when the supervisor was killed. It is SIGTERM for processes
    #: that have to end their own children; all others can be killed at any moment.
    death_signal: signal.Signals = signal.SIGKILL
    #: Whether it is a store, which is stopped after all other processes, because they write to it until their end.
    goes_last: bool = False
    #: Whether its command is `python -m …`, and can be forked from a process that has already imported its modules.
    forkable: bool = False
    #: Environment variables that the process does not get. They are left out only if it is started, not if it is
    #: forked.
    untold: Collection[str] = ()
    #: The system user of the process; `None`: the supervisor's user.
    user: User | None = None
    #: A description or an address for people.
    about: str = ""

    def environment(self, supervisors: Mapping[str, str]) -> dict[str, str]:
        return {name: value for name, value in {**supervisors, **self.env}.items() if name not in self.untold}


def become(process: Process, supervisor: int) -> None:
    """To be called in a new child of the supervisor: run as the process's user, and end with the supervisor."""
    if process.user:
        process.user.become()
    # last, because a change of the user cancels the signal for the death of the parent
    die_with_parent(supervisor, process.death_signal)
