"""`python -m gateway.web`: runs the gateway with its settings."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from contextlib import closing

import uvicorn

from gateway import logging
from gateway.access.key_store import KeyIssue
from gateway.container import Container
from gateway.errors import SettingsError, UnavailableError
from gateway.settings import NOTICE, Settings
from gateway.stores.document_format import refuse_newer_stores
from gateway.stores.mongo import mongo_errors
from gateway.web.http_protocol import BoundedProtocol, raise_handle_limit
from gateway.web.websocket import ClosingWebSocket

#: Seconds for which a connection may wait for its next request: longer than clients keep one (a pool of httpx2 5,
#: most load balancers 60), because a request that is sent just when we close it gets no answer. nginx has 75, too.
_KEEP_ALIVE = 75
#: Seconds that answers under way, streams among them, may take once the server has to stop.
_GRACE = 5
#: Seconds between two searches for a MongoDB that is away at the start.
_RETRY_SECONDS = 1.0


def main() -> int:
    try:
        settings = Settings.load()
        # made here, before several processes need it
        _ = settings.signing_key
    except SettingsError as error:
        return _fail(str(error))
    host = settings.gateway_address
    if problem := _cannot_bind(host, settings.gateway_port):
        return _fail(f"GATEWAY_PORT: {host}:{settings.gateway_port} cannot be used ({problem}); choose another")
    refuse_newer_stores(settings.mongo_uri, "gateway")
    if settings.serves_others and not _saw_to_first_key(settings):
        threading.Thread(target=_await_first_key, args=(settings,), name="first-key", daemon=True).start()
    logging.configure(settings.log_level)
    raise_handle_limit()
    uvicorn.run(
        "gateway.application:create_app",
        factory=True,
        host=host,
        port=settings.gateway_port,
        workers=settings.gateway_workers,
        # asyncio accepts all waiting connections in each round; uvloop accepts one, so after a crowd others wait long
        loop="asyncio",
        http=BoundedProtocol,
        ws=ClosingWebSocket,
        log_config=None,
        access_log=False,
        # the guards go by the client's address: only a proxy that the settings name may give another one
        proxy_headers=bool(settings.forwarded_allow_ips),
        forwarded_allow_ips=list(settings.forwarded_allow_ips),
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_graceful_shutdown=_GRACE,
    )
    return 0


def _await_first_key(settings: Settings) -> None:
    """Make the first key as soon as MongoDB is there: nobody can call without a key."""
    while not _saw_to_first_key(settings):
        time.sleep(_RETRY_SECONDS)


def _saw_to_first_key(settings: Settings) -> bool:
    """Make the first key if there is none. Returns whether MongoDB was there."""
    try:
        with closing(Container(settings)) as parts, mongo_errors():
            first = parts[KeyIssue].issue_first()
    except UnavailableError:
        return False
    if first is not None:
        lines = ("", "The first key, for admins. It is shown only once:", "", f"    {first.token}", "")
        sys.stdout.writelines(f"{os.environ.get(NOTICE, '') if line else ''}{line}\n" for line in lines)
        sys.stdout.flush()
    return True


def _cannot_bind(host: str, port: int) -> str | None:
    # uvicorn reports this too, but after it has connected to everything, and among other lines
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error.strerror
    return None


def _fail(message: str) -> int:
    sys.stderr.write(f"gateway: {message}\n")
    return 2


if __name__ == "__main__":
    sys.exit(main())
