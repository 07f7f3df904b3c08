"""One process of the stack from its start to its end: it is started and watched, asked to end, and finally killed
with its process group.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import secrets
import signal
import subprocess
import sys
import time
from collections import deque
from contextlib import suppress
from datetime import datetime
from functools import partial
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import IO, TextIO

import orjson

from embedded.stack.process import Process, become, running
from embedded.stack.zygote import StackZygote

_COLOURS = (36, 35, 33, 32, 34, 96, 95, 93, 92, 94)
#: Keys of JSON log lines that are not shown. `color_message` is Uvicorn's copy of the message for terminals.
_NOT_SHOWN = frozenset({"color_message"})
#: The beginning of a log line of Twisted, and so of Scrapyd: the time and the name of the logger. Newer versions add
#: the level to the name.
_TWISTED = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4} (\[[^\]#]*(?:#(?P<level>\w+))?\])")
#: The prefix of a line that is shown even when quiet (`NOTICE`). It is random, so that no other text can begin with
#: it.
MARK = f"{secrets.token_hex(8)} "
_RESET = "\x1b[0m"
#: Characters that control a terminal. They are made visible, because log lines contain text from outside.
_CONTROLS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
#: The name under which the supervisor writes its own lines.
SELF = "up"


def wants_colour(stream: TextIO) -> bool:
    """Whether the stream is a terminal, and the user has not turned colours off (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


class StackLog:
    """The output of `up`, and its log: `<time> <process> | <line>`, with debug lines only if `debug`.

    The log has a file for each process in `folder`, and is also printed if `verbose`. Otherwise only two things are
    printed: when each part is ready (not if `quiet`), and errors. Nothing is printed once the reader of the output is
    gone.
    """

    def __init__(
        self,
        names: list[str],
        *,
        quiet: bool = False,
        verbose: bool = False,
        debug: bool = False,
        folder: Path | None = None,
        stream: TextIO = sys.stdout,
    ) -> None:
        self._stream = stream
        self._quiet = quiet
        self._verbose = verbose
        self._debug = debug
        self._files = {name: _LogFile(folder / f"{name}.log") for name in (SELF, *names)} if folder else {}
        self._closed = False
        self._width = max(len(name) for name in [SELF, *names])
        self._colours = (
            {name: _COLOURS[i % len(_COLOURS)] for i, name in enumerate(names)} if wants_colour(stream) else {}
        )

    def show(self, text: str) -> None:
        """Print text that is not an event and does not belong in a log."""
        for line in text.splitlines():
            self._print(SELF, line, named=self._verbose)

    def say(self, text: str = "") -> None:
        """Write a line of the supervisor itself, which is printed even when quiet."""
        for line in text.splitlines() or [""]:
            self._write(SELF, line, printed=True)

    def detail(self, text: str) -> None:
        """Write a line of the supervisor that only the log needs."""
        self._write(SELF, text, printed=self._verbose)

    def ready(self, process: Process, seconds: float) -> None:
        """Report that a process is ready, this many seconds after its start."""
        how = "started" if process.probe is running else f"ready in {seconds:.1f} s"
        text = f"{process.name:<{self._width}}  {how:<14}  {process.about}".rstrip()
        self._write(SELF, text, printed=self._verbose)
        if not (self._verbose or self._quiet):
            self._print(SELF, f"  {text}", named=False)

    def line(self, name: str, text: str) -> None:
        """Log a line that the process `name` has written."""
        if text.startswith(MARK):
            # not in a file, because the line may contain a key
            self._print(name, text.removeprefix(MARK), named=True)
            return
        twisted = _TWISTED.match(text)
        if twisted and twisted["level"] == "debug" and not self._debug:
            return
        readable = text[twisted.start(1) :] if twisted else _readable(text)
        for part in filter(str.strip, readable.splitlines()):
            self._write(name, part, printed=self._verbose)

    def close(self) -> None:
        """Close the files. A later line opens its file again."""
        for file in self._files.values():
            file.close()

    def _write(self, name: str, text: str, *, printed: bool) -> None:
        if file := self._files.get(name):
            file.write(f"{datetime.now().astimezone().isoformat(timespec='seconds')} {_visible(text)}")
        if printed:
            self._print(name, text, named=True)

    def _print(self, name: str, text: str, *, named: bool) -> None:
        if self._closed:
            return
        try:
            self._stream.write(f"{self._head(name) if named else ''}{_visible(text)}\n")
            self._stream.flush()
        except (BrokenPipeError, OSError):
            self._closed = True

    def _head(self, name: str) -> str:
        now = datetime.now().astimezone().strftime("%H:%M:%S")
        head = f"{now} {name:<{self._width}} |"
        if colour := self._colours.get(name):
            head = f"\x1b[{colour}m{head}{_RESET}"
        elif self._colours:
            head = f"\x1b[1m{head}{_RESET}"
        return f"{head} "


def _visible(text: str) -> str:
    return _CONTROLS.sub(lambda found: repr(found[0])[1:-1], text)


#: The largest log file, in bytes. A full file is renamed to `<name>.log.1`, and replaces the earlier one.
_LOG_BYTES = 8 << 20


class _LogFile(RotatingFileHandler):
    """A log file whose errors are ignored: a full disk, or a removed folder, must not stop the stack."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, maxBytes=_LOG_BYTES, backupCount=1, encoding="utf-8", delay=True)

    def write(self, line: str) -> None:
        self.handle(logging.makeLogRecord({"msg": line}))

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - as logging has it
        """Ignore the error: it would be printed for every line."""


def _readable(text: str) -> str:
    """A JSON log line in a readable form, without its time, because this log adds the time. Other lines are returned
    as they are.
    """
    if not text.startswith('{"'):
        return text
    try:
        record = orjson.loads(text)
    except ValueError:
        return text
    if not isinstance(record, dict) or "event" not in record:
        return text
    known = {key: record.pop(key, "") for key in ("ts", "level", "logger", "event", "exception")}
    extra = "".join(f" {key}={value}" for key, value in record.items() if key not in _NOT_SHOWN)
    trace = f"\n{known['exception']}" if known["exception"] else ""
    return f"{str(known['level']).upper()} [{known['logger']}] {known['event']}{extra}{trace}"


#: The last lines of a process's output, which are shown when it dies.
TAIL = 15
#: Seconds that the output may take to drain once the process is dead.
_DRAIN = 0.5
#: The exit code of a command that could not be started, as in a shell.
NOT_STARTED = 127


class Child:
    """One run of a `Process`. It has its own session, so that a Ctrl-C for the supervisor does not reach it, and so
    that its children can be killed as a group.
    """

    def __init__(self, process: Process, cwd: Path, log: StackLog, zygote: StackZygote | None = None) -> None:
        self.process = process
        self.tail: deque[str] = deque(maxlen=TAIL)
        self.ended = asyncio.Event()
        self.exit_code: int | None = None
        self._started = time.monotonic()
        self._log = log
        self._popen: subprocess.Popen[bytes] | None = None
        reads, writes = os.pipe()
        with os.fdopen(writes, "wb") as output:
            forked = zygote.fork(process, cwd, output.fileno()) if zygote else None
            self.pid = forked or self._spawn(cwd, output)
        if self.pid is None:
            self.end(NOT_STARTED)
        self._output = asyncio.create_task(self._copy_output(os.fdopen(reads, "rb")))

    def _spawn(self, cwd: Path, output: IO[bytes]) -> int | None:
        try:
            self._popen = subprocess.Popen(  # noqa: S603 - the commands are ours
                self.process.command,
                cwd=cwd,
                env=self.process.environment(os.environ),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=partial(become, self.process, os.getpid()),  # noqa: PLW1509 - the supervisor has one thread
            )
        except OSError as error:
            self.tail.append(f"{self.process.command[0]}: {error.strerror}")
            return None
        return self._popen.pid

    @property
    def alive(self) -> bool:
        return not self.ended.is_set()

    @property
    def age(self) -> float:
        """Seconds since it was started."""
        return time.monotonic() - self._started

    def end(self, exit_code: int) -> None:
        """Note that the process was reaped. Kill the rest of its group, which may still use a port that the next run
        needs.
        """
        self.exit_code = exit_code
        self.signal(signal.SIGKILL)
        if self._popen is not None:
            self._popen.returncode = exit_code  # else it would wait for a process that the supervisor has reaped
        self.ended.set()

    def signal(self, signum: signal.Signals) -> None:
        """Signal the whole group; does nothing if no process is left."""
        if self.pid is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signum)

    async def stop(self, grace: float) -> None:
        """Send SIGTERM, and SIGKILL after `grace` seconds. Returns when the process is gone and its output is
        written.
        """
        if self.alive:
            self.signal(signal.SIGTERM)
            try:
                await asyncio.wait_for(self.ended.wait(), grace)
            except TimeoutError:
                self._log.say(f"{self.process.name} did not stop in {grace:.3g} s: killing it")
                self.signal(signal.SIGKILL)
                await self.ended.wait()
        await self.drain()

    async def drain(self) -> None:
        """Wait until the last output is in the log; only briefly, because an orphan may still hold the pipe."""
        with suppress(TimeoutError, asyncio.CancelledError):
            await asyncio.wait_for(self._output, _DRAIN)

    async def _copy_output(self, output: IO[bytes]) -> None:
        """Copy the output into the log line by line. Lines may have any length and hold any bytes."""
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), output)
        torn = b""
        try:
            while data := await reader.read(1 << 16):
                *lines, torn = (torn + data).split(b"\n")
                for line in lines:
                    self._take(line)
        finally:
            transport.close()
        if torn:
            self._take(torn)

    def _take(self, line: bytes) -> None:
        text = line.decode("utf-8", "replace").rstrip("\r")
        self.tail.append(text.removeprefix(MARK))
        self._log.line(self.process.name, text)
