"""Calls the Scrapyd of nodes over HTTP. Scrapyd answers errors with 200 and `"status": "error"`, and `ScrapydClient`
raises them as exceptions.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import httpx2
from pydantic import TypeAdapter, ValidationError

from gateway.clock import VERDICT_SECONDS, remaining
from gateway.contract.crawl import Egg
from gateway.contract.outbox import BY_PLATFORM, AttemptId, StopReason, whole_text
from gateway.contract.reasons import Reason, reason_of
from gateway.contract.records import MAX_ANSWERED, NodeSpec, SpiderInfo, has_more_values
from gateway.errors import NodeError, NodeRefusedError, NodeShutError, NodeUnreachableError, StillInstallingError

#: Seconds that a call may take in all, from looking up the node's name to the end of its answer.
CALL_SECONDS = 8.0
#: The same for posting an attempt. If there is no answer by then, the node is asked whether it has taken the attempt.
POST_SECONDS = 5.0
#: Maximum number of bytes of an answer: to `question`, to other calls, and to the delivery of an egg, where the
#: answer may describe thousands of spiders.
MAX_SHORT_ANSWER, MAX_ANSWER, MAX_DELIVERY_ANSWER = 16 << 10, 1 << 20, 16 << 20
#: Maximum number of characters of a refusal, which becomes part of the job's document.
_MAX_MESSAGE = 2000
#: Seconds that an upload may take: Scrapyd imports each spider of an egg before it answers.
DEPLOY_SECONDS = 120.0
#: Seconds to connect. If connecting takes longer, Scrapyd has certainly not received the call.
_CONNECT_SECONDS = 3.0
#: A header that makes a question longer than a network packet, as most posts are. So if the network loses long
#: packets, the question fails, and no attempt is posted in vain.
_FILLING = {"X-Filling": "." * 3000}
#: Header of all calls to nodes. It refuses compression, because a compressed kilobyte can become megabytes.
PLAINLY = {"Accept-Encoding": "identity"}


Answer = TypeVar("Answer")
_INFOS = TypeAdapter(tuple[SpiderInfo, ...])


@cache
def authorities() -> ssl.SSLContext:
    """The TLS context. All clients of nodes share it, because loading it takes longer than a dozen calls."""
    return httpx2.create_ssl_context(trust_env=False)


class Taken(NamedTuple):
    """A node's answer about an egg that it has taken."""

    #: How many spiders the egg has.
    spiders: int
    infos: tuple[SpiderInfo, ...] = ()


class ScrapydClient:
    """One client for all nodes. It keeps connections, and threads share them.

    It makes calls on an event loop of its own, which ends each call when its time is over. A socket's timeout would
    not be enough, because it starts again with every byte.
    """

    def __init__(self, username: str, password: str) -> None:
        auth = (username, password) if password else None
        # few idle connections are kept, because httpcore2 compares all of them with each other at every call. The
        # total is not limited, because nodes that hang would otherwise use up the connections to other nodes
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=16, keepalive_expiry=15)
        timeout = httpx2.Timeout(None, connect=_CONNECT_SECONDS)
        # trust_env: a proxy of the host's environment must never see the nodes' password
        self._http = httpx2.AsyncClient(
            auth=auth, headers=PLAINLY, timeout=timeout, limits=limits, trust_env=False, verify=authorities()
        )
        self._starting = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False

    def schedule(self, url: str, spec: NodeSpec, env: Mapping[str, str]) -> None:
        """Hand over one attempt, with its environment variables. Posting the same attempt again changes nothing.

        Raises `NodeRefusedError` if the node has certainly not taken it, `NodeUnreachableError` if this is not known.
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
        self._post(f"{url}/schedule.json", form, seconds=min(POST_SECONDS, CALL_SECONDS))

    def was_taken(self, url: str, project: str, attempt: AttemptId) -> bool:
        """Whether the node has taken the attempt. If it has not, it never will, even if a post is still on its way.
        Raises as `schedule`, and `NodeRefusedError` also if the node is too old to answer this.
        """
        form = {"project": project, "job": str(attempt)}
        answer = self._post(f"{url}/withdraw.json", form, seconds=VERDICT_SECONDS, headers=_FILLING)
        if not isinstance(taken := answer.get("taken"), bool):
            raise NodeRefusedError(f"{url} does not say what it has taken")
        return taken

    def cancel(self, url: str, project: str, attempt: AttemptId, why: StopReason = "cancel") -> None:
        """Ask the node to stop the attempt. After its grace period, the node kills the process. Raises as
        `schedule`.
        """
        self._post(f"{url}/cancel.json", {"project": project, "job": str(attempt), "why": why})

    def add_version(self, url: str, project: str, version: str, egg: Path, wait: float | None = None) -> Taken:
        """Deploy an egg. Before the node answers, it installs the egg's requirements, for up to `wait` seconds or its
        own limit, and lists the egg's spiders. Raises as `schedule`, and `StillInstallingError`.
        """
        form = {"project": project, "version": version, "by": BY_PLATFORM}
        if wait is not None:
            form["wait"] = str(wait)
        with egg.open("rb") as file:
            limits = {"seconds": DEPLOY_SECONDS, "longest": MAX_DELIVERY_ANSWER}
            answer = self._post(f"{url}/addversion.json", form, files={"egg": file}, **limits)
        return Taken(int(answer.get("spiders", 0)), _infos(answer.get("infos"), Egg(project, version)))

    def dependencies(self, url: str, egg: Egg) -> dict[str, Any]:
        """How the installation of the egg's requirements has gone. Raises as `schedule`."""
        params = {"project": egg.project, "version": egg.version}
        return self._ask("GET", f"{url}/dependencies.json", params=params)

    def question(self, url: str) -> Future[dict[str, Any]]:
        """Ask Scrapyd for its status, without a thread that waits for the answer. If Scrapyd does not answer as it
        should, the future raises as `schedule` does.
        """
        page, seconds = f"{url}/daemonstatus.json", remaining(VERDICT_SECONDS)

        async def call() -> dict[str, Any]:
            # this answer is parsed in the loop, because it is short
            answer = await self._call("GET", page, seconds, MAX_SHORT_ANSWER, {"headers": _FILLING})
            return understood(page, *answer)

        return self._begin(call)

    def delete_version(self, url: str, project: str, version: str) -> None:
        """Remove an egg. Raises what `schedule` raises, and `NodeRefusedError` if the node has no such egg."""
        self._post(f"{url}/delversion.json", {"project": project, "version": version})

    def close(self) -> None:
        """End all calls: those under way raise `CancelledError`, later ones `NodeUnreachableError`."""
        self._is_closed = True
        if self._loop is not None:
            asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(_CONNECT_SECONDS)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_CONNECT_SECONDS)

    async def _end(self) -> None:
        calls = asyncio.all_tasks() - {asyncio.current_task()}
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await self._http.aclose()

    def _started(self) -> asyncio.AbstractEventLoop:
        """The event loop. It is started at the first call, because a thread does not survive a fork of the
        process.
        """
        with self._starting:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=_run, args=(self._loop,), name="scrapyd", daemon=True)
                self._thread.start()
            return self._loop

    def _post(self, url: str, form: dict[str, str], **options: Any) -> dict[str, Any]:
        return self._ask("POST", url, data=form, **options)

    def _ask(
        self, method: str, url: str, *, seconds: float = CALL_SECONDS, longest: int = MAX_ANSWER, **options: Any
    ) -> dict[str, Any]:
        # parse the answer here and not in the loop, where all other calls would wait for it
        seconds = remaining(seconds)
        return understood(url, *self._begin(lambda: self._call(method, url, seconds, longest, options)).result())

    def _begin(self, call: Callable[[], Coroutine[Any, Any, Answer]]) -> Future[Answer]:
        if self._is_closed:
            raise NodeUnreachableError("the process is ending, so no node is called any more", may_have_arrived=False)
        return asyncio.run_coroutine_threadsafe(call(), self._started())

    async def _call(
        self, method: str, url: str, seconds: float, longest: int, options: dict[str, Any]
    ) -> tuple[int, bytes]:
        """The status code and the whole content of the answer."""
        try:
            async with asyncio.timeout(seconds), self._http.stream(method, url, **options) as response:
                content = await content_of(response, longest)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.UnsupportedProtocol, httpx2.InvalidURL) as error:
            raise NodeUnreachableError(f"nobody answers at {url}", may_have_arrived=False) from error
        except TimeoutError as error:
            raise NodeUnreachableError(f"no complete answer from {url} within {seconds:.2g} s") from error
        except httpx2.HTTPError as error:
            raise NodeUnreachableError(f"no answer from {url}: {error or type(error).__name__}") from error
        except Exception as error:
            # httpx2 passes on errors of other libraries, for example for the port 99999 or the host `..`
            raise NodeUnreachableError(f"{url} cannot be called: {error!r}"[:_MAX_MESSAGE]) from error
        return response.status_code, content


async def content_of(response: httpx2.Response, longest: int = MAX_ANSWER) -> bytes:
    """The whole answer, as it was sent. Raises `httpx2.DecodingError` if it has more than `longest` bytes."""
    content = bytearray()
    async for piece in response.aiter_raw():
        content += piece
        if len(content) > longest:
            raise httpx2.DecodingError(f"its answer is longer than {longest >> 10} KiB")
    return bytes(content)


def understood(url: str, status: int, content: bytes) -> dict[str, Any]:
    """Scrapyd's answer as JSON. Raises as `ScrapydClient.schedule`."""
    if status in {401, 403}:
        raise NodeShutError(f"{url} refuses our password, or the host name in this address ({status})")
    if httpx2.codes.is_redirect(status) or httpx2.codes.is_client_error(status):
        # Scrapyd never redirects, and has all pages that we ask for: something else answers at its address
        raise NodeRefusedError(f"{url} answered {status}: that is no Scrapyd", is_nodes_fault=True)
    if has_more_values(content, MAX_ANSWERED):
        raise NodeUnreachableError(f"{url} answered with more than {MAX_ANSWERED} values")
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise NodeUnreachableError(f"{url} answered {status} without JSON")
    if status != httpx2.codes.OK:
        # Scrapyd answers everything with 200, so this is a proxy's answer, or Scrapyd is stopping
        raise NodeUnreachableError(f"{url} answered {status}")
    if answer.get("status") != "ok":
        # JSON can contain half a surrogate pair, which MongoDB cannot store
        message = str(whole_text(str(answer.get("message", "refused without a reason"))[:_MAX_MESSAGE]))
        if answer.get("code") == StillInstallingError.code:
            raise StillInstallingError(message)
        reason = answer.get("reason")
        raise NodeRefusedError(
            message, is_nodes_fault=answer.get("fault") == "node", reason=reason if isinstance(reason, str) else None
        )
    return answer


_REASONS = (
    (StillInstallingError, Reason.STILL_INSTALLING),
    (NodeShutError, Reason.NODE_REFUSES),
    (NodeUnreachableError, Reason.NODE_UNREACHABLE),
)


def why_not_taken(error: NodeError) -> Reason | None:
    """The code for the node's refusal; `None` if the node is too old to send one."""
    said = reason_of(error.reason) if isinstance(error, NodeRefusedError) else None
    return said or next((reason for kind, reason in _REASONS if isinstance(error, kind)), None)


def _infos(told: Any, egg: Egg) -> tuple[SpiderInfo, ...]:
    """The spiders that the node's answer describes. Empty if the node is too old for this, or if the description
    cannot be read: then its tailer reports them later.
    """
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
