"""A temporary platform: it has free ports, a temporary folder, and its own stores."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO

from embedded.stack.parent_death import die_with_parent
from embedded.stack.state import StackState

#: Settings of the user's own platform that a scratch platform must not get.
_NOT_INHERITED = frozenset(
    {
        *("MONGO_URI", "MONGO_PASSWORD", "REDIS_URL", "REDIS_HOST", "REDIS_PORT", "REDIS_DB", "REDIS_PASSWORD"),
        *("BROKER_URL", "RABBITMQ_URL", "RABBITMQ_PASSWORD", "HTTP_CACHE_REDIS_URL", "HTTP_CACHE_REDIS_PASSWORD"),
        *("SCRAPYD_PASSWORD", "NODE_URL", "GATEWAY_SIGNING_KEY", "SECRETS_KEY", "DISCOVERYBOT_SECRETS"),
    }
)
#: Seconds to become healthy, and to stop.
_START, _STOP = 120, 60


class ScratchError(Exception):
    """The scratch platform did not start."""


@contextmanager
def scratch_stack(command: Sequence[str], settings: Mapping[str, str]) -> Iterator[StackState]:
    """Run `command` (a `discoverybot up`) with a new data folder. At the end of the block, everything is removed.

    Raises `ScratchError` if it does not become healthy.
    """
    with tempfile.TemporaryDirectory(prefix="discoverybot-") as folder:
        ready = Path(folder) / "ready.json"
        kept = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
        environment = {**kept, **settings, "DISCOVERYBOT_HOME": folder}
        arguments = ("--free-ports", "--ready-file", str(ready))
        with (
            (Path(folder) / "up.log").open("w+b") as output,
            running((*command, *arguments), environment, output=output) as process,
        ):
            try:
                _until(ready.exists, process)
            except ScratchError as error:
                output.seek(0)
                said = output.read().decode("utf-8", "replace").strip()
                raise ScratchError(f"{error}\n{said}" if said else str(error)) from None
            yield StackState.model_validate_json(ready.read_bytes())


@contextmanager
def running(
    command: Sequence[str], environment: Mapping[str, str] | None = None, *, output: IO[bytes] | int = subprocess.PIPE
) -> Iterator[subprocess.Popen[str]]:
    """Run `command` until the block ends; a Ctrl-C for us does not reach it."""
    process = subprocess.Popen(  # noqa: S603 - the commands are ours
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=None if output == subprocess.PIPE else output,
        text=True,
        start_new_session=True,
        preexec_fn=partial(die_with_parent, os.getpid(), signal.SIGTERM),  # noqa: PLW1509 - before any thread starts
    )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(_STOP)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout:
            process.stdout.close()


def _until(look: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + _START
    while not look():
        if process.poll() is not None:
            raise ScratchError(f"the platform did not start (exit code {process.returncode})")
        if time.monotonic() > deadline:
            raise ScratchError(f"the platform was not healthy within {_START} s")
        time.sleep(0.05)


#: With `-P`, nothing is imported from the current folder, which may have packages with the same names as ours.
UP_COMMAND = (sys.executable, "-P", "-m", "gateway.cli.main", "up")
