"""Runs `apprise_call.py` for each message, in a process of its own that gets only the message."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import cast

from attrs import define, field

from gateway.contract.public_address import Network
from gateway.errors import InvalidRequestError
from gateway.signals.apprise_call import AppriseAsked, AppriseSaid
from gateway.signals.webhook_caller import CallResult

#: Seconds for one message, including the wait for a free process. A delivery's lease lasts longer.
SEND_SECONDS = 20.0
#: At most this many processes run at a time: each takes half a second of a core, and 50 MB.
PROCESSES = 4
#: Seconds for the check of an address.
_LOOK_SECONDS = 15.0
_COMMAND = (sys.executable, "-m", "gateway.signals.apprise_call")
#: The process gets no settings, keys or proxies of the platform, because it runs code of many other authors.
_ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}


@define(eq=False, repr=False, slots=False)
class AppriseCaller:
    _webhook_networks: Sequence[Network] = ()
    _turns: asyncio.Semaphore = field(init=False, factory=lambda: asyncio.Semaphore(PROCESSES))

    def check(self, url: str) -> None:
        """Raises `InvalidRequestError` for an address that Apprise does not know, and if it is not installed."""
        asked = self._asked(url, None, "", "info")
        try:
            done = subprocess.run(  # noqa: S603 - our own program; what is given is its input
                _COMMAND, input=asked, capture_output=True, timeout=_LOOK_SECONDS, env=_ENVIRONMENT, check=True
            )
            said = cast("AppriseSaid", json.loads(done.stdout))
        except (subprocess.SubprocessError, ValueError):
            raise InvalidRequestError("url", "could not be looked at by Apprise") from None
        if said["problem"] is not None:
            raise InvalidRequestError("format" if said["missing"] else "url", said["problem"])

    async def send(self, url: str, body: str) -> CallResult:
        """Send a message. `body` is made by `sentences.message_body`."""
        try:
            async with asyncio.timeout(SEND_SECONDS):
                async with self._turns:
                    said = await _run(self._asked(url, **json.loads(body)))
        except TimeoutError:
            return CallResult(f"it took longer than {SEND_SECONDS:g} seconds")
        except (OSError, ValueError) as error:
            return CallResult(f"Apprise broke: {type(error).__name__}", is_ours=True)
        return CallResult(said["problem"], is_ours=said["missing"])

    def _asked(self, url: str, title: str | None, text: str, kind: str) -> bytes:
        networks = [str(network) for network in self._webhook_networks]
        asked = AppriseAsked(url=url, title=title, text=text, kind=kind, networks=networks)
        return json.dumps(asked).encode()


async def _run(asked: bytes) -> AppriseSaid:
    """Run the program. Raises `ValueError` if its output cannot be read. The process has always ended afterwards."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *_COMMAND, stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.DEVNULL, env=_ENVIRONMENT
    )
    try:
        out, _ = await process.communicate(asked)
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    return cast("AppriseSaid", json.loads(out))
