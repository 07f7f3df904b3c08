"""Who calls: keys, and the sessions of the console and stream tokens that were made from keys."""

from __future__ import annotations

import asyncio
import hmac
import re
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, cast
from urllib.parse import parse_qsl, urlencode

import structlog
from attrs import define, field
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import Scope

from gateway.access.key_store import KeyStore
from gateway.access.keys import (
    ANYBODY,
    ApiKey,
    Caller,
    ConsoleSession,
    Seal,
    read_session,
    read_stream_token,
    read_token,
)
from gateway.clock import Clock
from gateway.contract.bot_identity import DIRECTORY_PATH
from gateway.errors import ForgedRequestError, UnauthenticatedError, UnavailableError, WrongKeyError
from gateway.stores.mongo import mongo_errors
from gateway.web.call_queue import Threads, shared_context

#: Seconds for which an answer is used: after that a new key is accepted, and a revoked one is refused.
FRESH = 2.0
#: Answers that are kept: a client that tries ids at random must not fill the memory.
_MOST = 1000
#: Seconds that a request waits for MongoDB to say whether there are keys, if there were none before.
_PATIENCE = 0.5
#: Seconds between two checks whether the key or session that opened a stream is still valid.
_LOOK = 3.0


class _Answer(NamedTuple):
    at: float
    task: asyncio.Task[Any]

    @property
    def is_old(self) -> bool:
        """Whether MongoDB has to be asked again. A failed question is old at once."""
        task = self.task
        failed = task.done() and (task.cancelled() or task.exception() is not None)
        return failed or self.at + FRESH < time.monotonic()


@define(eq=False, repr=False, slots=False)
class KeyRing:
    """The keys that were lately used, with the answers of MongoDB about them. For use on one event loop."""

    _keys: KeyStore
    _threads: Threads
    _clock: Clock
    seal: Seal
    #: Answers by the id of the key. The answer under `None` says whether there are any keys.
    _answers: OrderedDict[str | None, _Answer] = field(init=False, factory=OrderedDict)
    #: Whether there are keys; `None` until that is known.
    _in_use: bool | None = field(init=False, default=None)

    async def in_use(self) -> bool:
        """Whether there are keys. Once there are, this is not asked again. Raises `UnavailableError` if MongoDB has
        never said so.
        """
        if not self._in_use:
            asked = self._ask(None, self._keys.any)
            if self._in_use is False and not asked.done():
                await asyncio.wait({asked}, timeout=_PATIENCE)
            self._in_use = await self._told(asked)
        return self._in_use

    def has_first(self) -> None:
        """This process has made a key, so MongoDB need not be asked whether there is one. For any thread."""
        self._in_use = True

    async def caller(self, text: str) -> Caller:
        """The caller with this key. Raises `WrongKeyError`, `UnavailableError`."""
        token = read_token(text)
        key = await self._key(token.key_id) if token else None
        if token is None or not token.opens(key) or key is None or not key.is_valid(self._clock()):
            raise WrongKeyError("this key is not valid; `discoverybot keys list` on the server shows those that are")
        return Caller.with_key(key)

    def remembers(self, text: str) -> bool:
        """Whether this key was valid when MongoDB was last asked for it. MongoDB is not asked now."""
        token = read_token(text)
        return token is not None and token.opens(self._remembered(token.key_id))

    def remembers_stream(self, text: str, job_id: str) -> bool:
        """The same for a stream token."""
        token = read_stream_token(text)
        key = self._remembered(token.key_id) if token else None
        return token is not None and key is not None and token.opens(job_id, key, self._clock(), self.seal)

    def remembers_session(self, session: ConsoleSession) -> bool:
        """The same for a session."""
        key = self._remembered(session.key_id)
        return key is not None and session.opens(key, self._clock(), self.seal)

    async def stream_caller(self, text: str, job_id: str) -> Caller:
        """Raises `WrongKeyError` for a token that does not open this job's stream (any more); `UnavailableError`."""
        token, now = read_stream_token(text), self._clock()
        key = await self._key(token.key_id) if token else None
        if token is None or key is None or not key.is_valid(now) or not token.opens(job_id, key, now, self.seal):
            raise WrongKeyError(
                f"this token does not open this stream: POST /jobs/{job_id}/stream-token returns one that does"
            )
        return Caller.with_key(key)

    async def session_caller(self, session: ConsoleSession) -> Caller:
        """Raises `WrongKeyError` for a session that has ended; `UnavailableError`."""
        key, now = await self._key(session.key_id), self._clock()
        if key is None or not key.is_valid(now) or not session.opens(key, now, self.seal):
            raise WrongKeyError("this session has ended: POST /session with a key begins a new one")
        return Caller.with_key(key)

    async def end_session(self, session: ConsoleSession) -> None:
        """End it: for this process at once, for others within seconds. Raises `UnavailableError`."""
        ending = self._answered(self._keys.end_session, session.key_id, session.id, session.expires_at)
        await asyncio.shield(asyncio.create_task(ending, context=shared_context()))
        self._answers.pop(session.key_id, None)

    async def until_over(self, key: ApiKey, session: ConsoleSession | None = None) -> None:
        """Returns when the key, or the session, has ended, or some seconds later. While MongoDB is away, the state
        that was known last counts.
        """
        while key.is_valid(now := self._clock()) and (session is None or session.opens(key, now, self.seal)):
            await asyncio.sleep(_LOOK)
            with suppress(UnavailableError):
                key = await self._key(key.id) or key._replace(revoked_at=now)

    async def _key(self, key_id: str) -> ApiKey | None:
        key: ApiKey | None = await asyncio.shield(self._ask(key_id, self._keys.use, key_id))
        return key

    def _remembered(self, key_id: str) -> ApiKey | None:
        """The key, if it was valid when MongoDB was last asked about it and has not expired since. MongoDB is not
        asked now.
        """
        answer = self._answers.get(key_id)
        if answer is None or not answer.task.done() or answer.task.cancelled() or answer.task.exception():
            return None
        key: ApiKey | None = answer.task.result()
        return key if key and key.is_valid(self._clock()) else None

    async def _told(self, asked: asyncio.Task[Any]) -> bool:
        if self._in_use is False and not asked.done():
            return False
        try:
            return bool(await asyncio.shield(asked))
        except UnavailableError:
            if self._in_use is None:
                self._answers.pop(None, None)
                raise
            return self._in_use

    def _ask(self, name: str | None, question: Callable[..., Any], *arguments: Any) -> asyncio.Task[Any]:
        """Ask MongoDB, unless a fresh answer is there or on its way: callers with the same question share one."""
        answer = self._answers.get(name)
        if answer is None or answer.is_old:
            task = asyncio.create_task(self._answered(question, *arguments), context=shared_context())
            answer = self._answers[name] = _Answer(time.monotonic(), task)
            self._answers.move_to_end(name)
            # read the error, because the request that asked might be gone: asyncio would log it as never retrieved
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            if len(self._answers) > _MOST:
                self._answers.popitem(last=False)
        return answer.task

    async def _answered(self, question: Callable[..., Any], *arguments: Any) -> Any:
        with mongo_errors():
            return await self._threads.look(question, *arguments)


# --- the console's cookie, and whether the request that carries it comes from a page of ours.
#
# A browser sends a cookie no matter which page makes the request. `SameSite=Strict` keeps other sites out, but not
# pages on other ports of this machine. So a request that changes something must also carry the session's CSRF token,
# in a header that only a page which could read the token can send, and must not come from another origin.

CSRF_HEADER = "X-CSRF-Token"
#: The header in which a page of the console sends the id of its session; an `EventSource` sends it in the parameter
#: `session` instead. All tabs of a browser share the cookie, so a tab that was opened before another user signed in
#: would otherwise get this user's data.
SESSION_HEADER = "X-Session"
COOKIE = "discoverybot_session"
#: The name over https: with this prefix no neighbouring host can plant a cookie (RFC 6265bis, 4.1.3.2).
SECURE_COOKIE = f"__Host-{COOKIE}"
READING = frozenset({"GET", "HEAD", "OPTIONS"})
#: A form on a node's own page, which knows no CSRF token. For this form the browser has to name our origin instead.
_NODES_FORM = re.compile(r"/nodes/[^/]+/scrapyd/cancel\.json")


def session_of(scope: Scope) -> ConsoleSession | None:
    """The session in the request's cookie, if any; it is not checked yet."""
    cookies = HTTPConnection(scope).cookies
    text = cookies.get(SECURE_COOKIE) or cookies.get(COOKIE)
    return read_session(text) if text else None


def refuse_forgery(scope: Scope, csrf_token: str) -> None:
    """Raises `ForgedRequestError` if a page of another origin may have made this request."""
    if scope["method"] in READING:
        return
    refuse_others(scope)
    headers = Headers(scope=scope)
    if _NODES_FORM.fullmatch(scope["path"]) and "origin" in headers:
        return
    given = headers.get(CSRF_HEADER, "")
    if not hmac.compare_digest(given.encode(), csrf_token.encode()):
        raise ForgedRequestError(f"send {CSRF_HEADER}: GET /session returns its value")


def refuse_others(scope: Scope) -> None:
    """Raises `ForgedRequestError` for a request of another origin's page, even if that page may call with a key."""
    headers = Headers(scope=scope)
    origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
    is_ours = origin is None or origin.lower().partition("://")[2] == headers.get("host", "").lower()
    if not is_ours or site not in {"none", "same-origin"}:
        raise ForgedRequestError("a page of another origin may not act for the user who is signed in here")


def keep(response: Response, session: ConsoleSession, scope: Scope, seconds: float) -> None:
    """Make the browser hold the session's cookie for so many seconds."""
    secure = _is_secure(scope)
    response.set_cookie(
        SECURE_COOKIE if secure else COOKIE,
        str(session),
        max_age=int(seconds),
        path="/",
        secure=secure,
        httponly=True,
        samesite="strict",
    )


def forget(response: Response) -> None:
    for name, secure in ((COOKIE, False), (SECURE_COOKIE, True)):
        response.delete_cookie(name, path="/", secure=secure, httponly=True, samesite="strict")


def _is_secure(scope: Scope) -> bool:
    """Whether the browser uses TLS, with us or with a proxy in between, as the browser or the proxy says. A client
    that lies only gets a cookie that its browser does not send.
    """
    headers = Headers(scope=scope)
    said = (
        scope.get("scheme", ""),
        headers.get("x-forwarded-proto", ""),
        headers.get("origin", "").partition("://")[0],
    )
    return "https" in {text.lower() for text in said}


# --- who calls. While there are no keys, only the operator can. Later a client shows a key, or a session or token
# that was made from one.
#
# `Authorization` wins over a cookie, because a client sends it on purpose.

SIGN_IN_PAGE = "/console/sign-in"
#: Paths that are the same for every caller, or that balancers and browsers ask for without a key.
OPEN = frozenset(
    {SIGN_IN_PAGE, "/help", "/docs", "/redoc", "/openapi.json", "/health", "/health/live", DIRECTORY_PATH}
)
#: The console's files.
STATIC = "/console/static/"
#: The documentation.
HELP = "/help/"
_OPEN_FOLDERS = ("/docs/assets/", HELP, STATIC)
_LOG = re.compile(r"/jobs/([0-9a-f]{32})/logs")
_STREAM = re.compile(rf"/events|{_LOG.pattern}")
_SIGN_IN = ("POST", "/session")
_NO_KEY = "send a key: Authorization: Bearer db_…; an admin makes one with `discoverybot keys create`"


def is_page(path: str) -> bool:
    """Whether this is the address of a page of the console."""
    return path == "/" or (path.startswith("/console/") and not path.startswith(STATIC))


def is_for_a_browser(scope: Scope) -> bool:
    """Whether it is a page, and the client asks for HTML: programs get refusals in the API's format."""
    is_read = scope["method"] in READING and is_page(scope["path"])
    return is_read and "text/html" in Headers(scope=scope).get("accept", "")


async def identify(scope: Scope, *, key_required: bool) -> None:
    """Find out who calls; routes find the caller in `request.state`. `key_required`: also while there are no keys.

    Raises `ForgedRequestError`, `UnauthenticatedError`, `UnavailableError`.
    """
    if stream := stream_token_of(scope):
        _forget_parameter(scope, "token")
    page_session = _page_session(scope)
    is_open = scope["path"] in OPEN or scope["path"].startswith(_OPEN_FOLDERS)
    caller = ANYBODY if is_open else await _caller(scope, stream, page_session, key_required=key_required)
    state = scope.setdefault("state", {})
    state["caller"] = caller
    if caller.key:
        ring: KeyRing = scope["app"].state.parts[KeyRing]
        state["until_over"] = partial(ring.until_over, caller.key, state.get("session"))
        structlog.contextvars.bind_contextvars(key_id=caller.key.id)


def _page_session(scope: Scope) -> str | None:
    """The id of the session of the page that calls, if it names one."""
    if not _STREAM.fullmatch(scope["path"]):
        return Headers(scope=scope).get(SESSION_HEADER)
    named = [value for name, value in _parameters(scope) if name == "session"]
    if named:
        _forget_parameter(scope, "session")
    return named[0] if named else None


async def _caller(
    scope: Scope, stream: StreamTokenShown | None, page_session: str | None, *, key_required: bool
) -> Caller:
    ring: KeyRing = scope["app"].state.parts[KeyRing]
    if not key_required and not await ring.in_use():
        return ANYBODY
    given = Headers(scope=scope).getlist("authorization")
    if not given:
        return await _without_header(scope, ring, stream, page_session)
    scheme, _, key = given[0].partition(" ")
    if len(given) > 1 or scheme.lower() != "bearer":
        raise WrongKeyError(_NO_KEY)
    return await ring.caller(key.strip())


async def _without_header(
    scope: Scope, ring: KeyRing, stream: StreamTokenShown | None, page_session: str | None
) -> Caller:
    """The caller of a request without `Authorization`, known by a stream token or a session, or about to sign in."""
    if stream:
        return await ring.stream_caller(*stream)
    if signs_in(scope):
        return ANYBODY
    if session := session_of(scope):
        if page_session not in {None, session.id}:
            raise UnauthenticatedError("the session of this page is over: sign in again")
        caller = await ring.session_caller(session)
        assert caller.key  # noqa: S101 - every session has a key
        refuse_forgery(scope, session.csrf_token(caller.key, ring.seal))
        scope.setdefault("state", {})["session"] = session
        return caller
    raise UnauthenticatedError(_NO_KEY)


def signs_in(scope: Scope) -> bool:
    return (scope["method"], scope["path"]) == _SIGN_IN


class StreamTokenShown(NamedTuple):
    token: str
    job_id: str


def stream_token_of(scope: Scope) -> StreamTokenShown | None:
    """The token in the address of a log, if any; it is not checked yet."""
    log = _LOG.fullmatch(scope["path"])
    tokens = [value for name, value in _parameters(scope) if name == "token"] if log else ()
    return StreamTokenShown(tokens[0], log[1]) if log and tokens else None


def _forget_parameter(scope: Scope, name: str) -> None:
    """Take it out of the address, because some parts write addresses down: the server's log is one."""
    kept = [pair for pair in _parameters(scope) if pair[0] != name]
    scope["query_string"] = urlencode(kept, encoding="latin-1").encode("latin-1")


def _parameters(scope: Scope) -> list[tuple[str, str]]:
    query = cast("bytes", scope.get("query_string", b""))
    return parse_qsl(query.decode("latin-1"), keep_blank_values=True, encoding="latin-1")
