"""A node's Scrapyd, over HTTP. It answers errors with 200 and `"status": "error"`; here they become exceptions."""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from pydantic import TypeAdapter, ValidationError

from gateway.clock import VERDICT_SECONDS, remaining
from gateway.contract.crawl import Egg
from gateway.contract.outbox import BY_PLATFORM, AttemptId, StopReason
from gateway.contract.records import NodeSpec, SpiderInfo
from gateway.errors import NodeRefusedError, NodeShutError, NodeUnreachableError, StillInstallingError

#: Seconds that a call may take in all, from looking up the node's name to the end of its answer.
CALL_SECONDS = 8.0
#: Seconds that an upload may take: Scrapyd imports each spider of an egg before it answers.
DEPLOY_SECONDS = 120.0
#: Seconds to connect; after them it is certain that no Scrapyd answers there.
_CONNECT_SECONDS = 3.0


_INFOS = TypeAdapter(tuple[SpiderInfo, ...])


@cache
def authorities() -> ssl.SSLContext:
    """For all clients of nodes: loading them takes longer than a dozen calls."""
    return httpx.create_ssl_context(trust_env=False)


class Taken(NamedTuple):
    """What a node says of an egg that it has taken."""

    #: How many it has.
    spiders: int
    infos: tuple[SpiderInfo, ...] = ()


class ScrapydClient:
    """One client for all nodes; connections are kept and shared between threads.

    It makes calls on an event loop of its own, which ends each call when its time is over. Time-outs of sockets would
    begin anew with every byte.
    """

    def __init__(self, username: str, password: str) -> None:
        auth = (username, password) if password else None
        # few: httpcore looks at all of them for each other one, at every call
        limits = httpx.Limits(max_connections=64, max_keepalive_connections=16, keepalive_expiry=15)
        timeout = httpx.Timeout(None, connect=_CONNECT_SECONDS)
        # trust_env: a proxy of the host's environment must never see the nodes' password
        self._http = httpx.AsyncClient(
            auth=auth, timeout=timeout, limits=limits, trust_env=False, verify=authorities()
        )
        self._starting = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def schedule(self, url: str, spec: NodeSpec, env: Mapping[str, str]) -> None:
        """Hand over one attempt, with its variables. Posting the same one again changes nothing.

        Raises `NodeRefusedError` if it was certainly not taken, `NodeUnreachableError` if that is not known.
        """
        form = {
            "project": spec.project,
            "spider": spec.spider,
            "jobid": str(AttemptId(spec.job_id, spec.attempt)),
            "spec": spec.model_dump_json(exclude_none=True),
        }
        if spec.version:
            form["_version"] = spec.version
        if env:
            form["env"] = json.dumps(dict(env))
        self._post(f"{url}/schedule.json", form)

    def cancel(self, url: str, project: str, attempt: AttemptId, why: StopReason = "cancel") -> None:
        """Ask the attempt to stop; SIGKILL follows after the node's grace. Raises as `schedule` does."""
        self._post(f"{url}/cancel.json", {"project": project, "job": str(attempt), "why": why})

    def add_version(self, url: str, project: str, version: str, egg: Path, wait: float | None = None) -> Taken:
        """Deploy an egg. The node lists its spiders before it answers, and installs what they depend on, for which it
        takes `wait` seconds or what it takes by itself. Raises as `schedule`, and `StillInstallingError`.
        """
        form = {"project": project, "version": version, "by": BY_PLATFORM}
        if wait is not None:
            form["wait"] = str(wait)
        with egg.open("rb") as file:
            answer = self._post(f"{url}/addversion.json", form, files={"egg": file}, seconds=DEPLOY_SECONDS)
        return Taken(int(answer.get("spiders", 0)), _infos(answer.get("infos"), Egg(project, version)))

    def dependencies(self, url: str, egg: Egg) -> dict[str, Any]:
        """How the installation of what an egg depends on has gone. Raises as `schedule`."""
        params = {"project": egg.project, "version": egg.version}
        return self._ask("GET", f"{url}/dependencies.json", params=params)

    def probe(self, url: str) -> None:
        """Ask whether Scrapyd is well. Raises as `schedule` does."""
        self._ask("GET", f"{url}/daemonstatus.json", seconds=VERDICT_SECONDS)

    def delete_version(self, url: str, project: str, version: str) -> None:
        """Remove an egg. Raises as `schedule`, `NodeRefusedError` also if there is none."""
        self._post(f"{url}/delversion.json", {"project": project, "version": version})

    def close(self) -> None:
        if self._loop is not None:
            asyncio.run_coroutine_threadsafe(self._http.aclose(), self._loop).result(_CONNECT_SECONDS)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_CONNECT_SECONDS)

    def _started(self) -> asyncio.AbstractEventLoop:
        """The loop. The first call starts it, and not the constructor: a thread does not survive a fork."""
        with self._starting:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=_run, args=(self._loop,), name="scrapyd", daemon=True)
                self._thread.start()
            return self._loop

    def _post(self, url: str, form: dict[str, str], **options: Any) -> dict[str, Any]:
        return self._ask("POST", url, data=form, **options)

    def _ask(self, method: str, url: str, *, seconds: float | None = None, **options: Any) -> dict[str, Any]:
        seconds = CALL_SECONDS if seconds is None else seconds
        call = asyncio.wait_for(self._http.request(method, url, **options), remaining(seconds))
        try:
            response = asyncio.run_coroutine_threadsafe(call, self._started()).result()
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise NodeUnreachableError(f"nobody answers at {url}", may_have_arrived=False) from error
        except TimeoutError as error:
            raise NodeUnreachableError(f"no whole answer from {url} within {seconds:g} s") from error
        except httpx.HTTPError as error:
            raise NodeUnreachableError(f"no answer from {url}: {error or type(error).__name__}") from error
        if response.status_code in {401, 403}:
            raise NodeShutError(f"{url} refuses our password or address ({response.status_code})")
        try:
            answer: dict[str, Any] = response.json()
        except ValueError as error:
            raise NodeUnreachableError(f"{url} answered {response.status_code} without JSON") from error
        if response.status_code != httpx.codes.OK:
            # Scrapyd answers 200 to everything: this comes from a proxy in between, or Scrapyd is stopping
            raise NodeUnreachableError(f"{url} answered {response.status_code}")
        if answer.get("status") != "ok":
            message = str(answer.get("message", "refused without a reason"))
            if answer.get("code") == StillInstallingError.code:
                raise StillInstallingError(message)
            raise NodeRefusedError(message, is_nodes_fault=answer.get("fault") == "node")
        return answer


def _infos(told: Any, egg: Egg) -> tuple[SpiderInfo, ...]:
    """None of a node that is too old to tell them, or tells nonsense: its tailer reports them later."""
    try:
        infos = _INFOS.validate_python(told or ())
    except ValidationError:
        return ()
    here = {"project": egg.project, "version": egg.version, "latest": True}
    return tuple(info.model_copy(update=here) for info in infos)


def _run(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()
