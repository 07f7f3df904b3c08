"""Passes on the pages of a node's Scrapyd, so that only the gateway must reach the node and know its password.

Any code that runs on a node can change what the node serves. So its pages are shown under a policy that allows no
script, and no form except the one that cancels a job on the same node. The node gets neither the browser's cookie nor
its API key.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Mapping
from urllib.parse import quote, urlsplit

import httpx2
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from gateway.contract.reasons import Reason
from gateway.contract.written_files import passive_type
from gateway.errors import NodeError, NodeRefusedError, NodeShutError, NodeUnreachableError, NotFoundError
from gateway.nodes.scrapyd import CALL_SECONDS, PLAINLY, authorities, content_of, understood

#: Maximum number of bytes of one answer. For a larger log or file of items, a client must ask for a `Range`.
MAX_BYTES = 1 << 30
#: Maximum number of seconds that one answer may take.
MAX_SECONDS = 600
#: Seconds for each read, and for getting a connection.
_TIMEOUT = httpx2.Timeout(CALL_SECONDS, connect=3.0)
_AT_ONCE = httpx2.Limits(max_connections=16, keepalive_expiry=15)
#: The paths that are passed on: home, jobs, logs and items. Scrapyd's JSON services are not for browsers.
_PAGES = re.compile(r"|jobs|(logs|items)(/.*)?", re.DOTALL)
_PASSED_TO_NODE = ("accept", "range", "if-range", "if-modified-since", "if-none-match")
_PASSED_BACK = ("content-length", "content-range", "accept-ranges", "last-modified", "etag")
#: Status codes of Scrapyd that are passed on to the browser.
_MEANT = frozenset({200, 206, 304, 416})
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_NAME = re.compile(r"[A-Za-z0-9.-]+(:\d+)?")


class ScrapydPages:
    """The client for Scrapyd's pages, for use on one event loop."""

    def __init__(self, username: str, password: str) -> None:
        auth = (username, password) if password else None
        # trust_env: a proxy of the host's environment must never see the nodes' password
        self._http = httpx2.AsyncClient(
            auth=auth, headers=PLAINLY, timeout=_TIMEOUT, limits=_AT_ONCE, trust_env=False, verify=authorities()
        )

    async def close(self) -> None:
        await self._http.aclose()

    async def page(self, node_url: str, path: str, prefix: str, headers: Mapping[str, str]) -> Response:
        """The node's page at `path`, whose links begin with `prefix`.

        Raises `NotFoundError` if the node has no such page, and `NodeError`.
        """
        if not _PAGES.fullmatch(path) or {".", ".."} & set(path.split("/")):
            raise NotFoundError(f"a node has no page {path!r}")
        # valid values of these headers are ASCII, and httpx2 can send nothing else
        sent = {
            name: headers[name] for name in _PASSED_TO_NODE if headers.get(name, "").isascii() and name in headers
        }
        sent["X-Forwarded-Prefix"] = prefix
        answer = await self._send("GET", f"{node_url}/{quote(path)}", headers=sent)
        try:
            return _passed_on(answer, node_url, prefix, headers.get("host", ""))
        except BaseException:
            await answer.aclose()
            raise

    async def cancel(self, node_url: str, project: str, job: str) -> None:
        """Cancel a job that is not the platform's. Raises `NotFoundError` if the node has no such project, and
        `NodeError`.
        """
        answer = await self._send("POST", f"{node_url}/cancel.json", data={"project": project, "job": job})
        try:
            async with asyncio.timeout(CALL_SECONDS):
                understood(node_url, 200, await content_of(answer))
        except (httpx2.HTTPError, TimeoutError) as error:
            raise NodeUnreachableError("the node's answer cannot be read") from error
        except NodeRefusedError as error:
            if error.reason == Reason.PROJECT_MISSING:
                # the one refusal that is the caller's fault
                raise NotFoundError(error.message) from error
            raise
        finally:
            await answer.aclose()

    async def _send(
        self, method: str, url: str, *, headers: dict[str, str] | None = None, data: dict[str, str] | None = None
    ) -> httpx2.Response:
        try:
            async with asyncio.timeout(CALL_SECONDS):
                answer = await self._http.send(
                    self._http.build_request(method, url, headers=headers, data=data), stream=True
                )
        except (httpx2.HTTPError, TimeoutError) as error:
            reason = str(error) or type(error).__name__
            raise NodeUnreachableError(f"the node does not answer ({reason})") from error
        if answer.status_code in {401, 403}:
            await answer.aclose()
            raise NodeShutError(
                f"the node refuses our password, or the host name in its address ({answer.status_code})"
            )
        return answer


class _Relayed(StreamingResponse):
    """Passes on the node's answer, and closes it in any case."""

    def __init__(self, answer: httpx2.Response, headers: Mapping[str, str]) -> None:
        super().__init__(_bounded(answer), answer.status_code, headers)
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._answer.aclose()


def _passed_on(answer: httpx2.Response, node_url: str, prefix: str, host: str) -> Response:
    headers = {name: answer.headers[name] for name in _PASSED_BACK if name in answer.headers}
    if kind := answer.headers.get("content-type"):
        headers["Content-Type"] = passive_type(kind)
    headers |= {"Content-Security-Policy": _policy(prefix, host), "Cache-Control": "no-store"}
    if answer.status_code == httpx2.codes.NOT_MODIFIED:
        headers.pop("content-length", None)
    elif answer.status_code in _REDIRECTS:
        headers = {"Location": _location(answer, node_url, prefix), "Content-Length": "0"}
    elif answer.status_code == httpx2.codes.NOT_FOUND:
        raise NotFoundError(f"the node has no page {urlsplit(str(answer.url)).path!r}")
    elif answer.status_code not in _MEANT:
        raise NodeError(f"the node answered {answer.status_code}")
    if int(headers.get("content-length", 0)) > MAX_BYTES:
        raise NodeError(f"this is larger than the {MAX_BYTES} bytes that are passed on; ask for a Range of it")
    return _Relayed(answer, headers)


async def _bounded(answer: httpx2.Response) -> AsyncIterator[bytes]:
    if answer.status_code in _REDIRECTS:
        return
    sent, deadline = 0, time.monotonic() + MAX_SECONDS
    async for chunk in answer.aiter_raw():
        sent += len(chunk)
        if sent > MAX_BYTES or time.monotonic() > deadline:
            # break off, so that no client takes the part for the whole
            raise NodeError("the node's answer is too large, or takes too long, to be passed on")
        yield chunk


def _location(answer: httpx2.Response, node_url: str, prefix: str) -> str:
    """The target of Scrapyd's redirect, as an address of the gateway. Raises `NodeError` if it is not on the node."""
    target = urlsplit(str(answer.url.join(answer.headers.get("location", ""))))
    if target.netloc != urlsplit(node_url).netloc:
        raise NodeError("the node redirects to another address")
    return prefix + quote(target.path.removeprefix(urlsplit(node_url).path), safe="/%")


def _policy(prefix: str, host: str) -> str:
    """The content security policy of the pages. Without `allow-same-origin`, the browser would send no cookie when
    somebody follows a link of the page. It is harmless, because no script runs.
    """
    form = f"{host}{prefix}/cancel.json" if _NAME.fullmatch(host) else "'self'"
    return (
        "sandbox allow-same-origin allow-forms; default-src 'none'; style-src 'unsafe-inline'; "
        f"form-action {form}; base-uri 'none'; frame-ancestors 'none'"
    )
