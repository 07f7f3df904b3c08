"""Which of our modules are called between the request for a crawl and its spider's first line, outside the spider's
process.

It also finds calls that go upwards: a module calls one of a package that the import rules forbid it to know. Calls
through a library in between count, too, and so do callbacks. The container, which connects the packages, may be
called from everywhere. `HANDED_IN` lists calls of objects that were passed to a lower package as arguments
(`docs/decisions/0028-what-is-handed-in.md`).

`python -m bench modules` also prints both lists on stderr. An import hook (a `sitecustomize`) makes every process of
a stack record the functions that it calls while a gate is open, and the module of ours that called them. A call
counts if every crawl makes it and an idle stack does not, so a heartbeat that happens during every crawl does not
count.
"""

from __future__ import annotations

import mmap
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.effort import Effort
from bench.first_line import fresh, streamed
from bench.our_platform import ROOT, Site, Stack, running_stack
from bench.stock_scrapyd import SPIDER_LINE
from bench.table import Row

ROUNDS = 7
#: Seconds for which the idle stack is watched: several heartbeats and periodic checks.
IDLE_SECONDS = 6.0
#: Seconds between the end of the first crawl and that, so that its results are settled.
SETTLE_SECONDS = 3.0
_IDLE = 255
MOST = 60
#: Calls of a higher package through a passed object: the lower package knows only its protocol, and imports nothing.
HANDED_IN = {
    ("gateway.stores.documents", "gateway.jobs.queue"): (
        "a collection reads its documents with the function that it was made with (`Reader`)"
    ),
    ("gateway.stores.documents", "gateway.nodes.store"): "the same, and a node checks itself when it is read",
    ("gateway.jobs.submission", "gateway.web.call_queue"): (
        "an `Executor` of the standard library and a `Clock`, which the container hands in"
    ),
}
#: Processes on the way of a request. The others are the beat, the stores and the supervisor.
_ON_THE_WAY = ("gateway", "worker", "scrapyd", "tailer")
_HOOK = """
import mmap, os, sys, threading

folder = os.environ.get("CROSSED_MODULES")
if folder:
    gate = mmap.mmap(os.open(folder + "/gate", os.O_RDWR), 1)
    ours = tuple(os.environ["CROSSED_ROOT"] + "/" + name + "/" for name in ("gateway", "crawler", "embedded"))
    seen = {}

    def note(frame, event, _):
        if event == "call" and gate[0] and frame.f_code.co_filename.startswith(ours):
            code, caller = frame.f_code, frame.f_back
            while caller and not caller.f_code.co_filename.startswith(ours):
                caller = caller.f_back
            caller = caller.f_code.co_filename if caller else ""
            if seen.get((code, caller)) != (os.getpid(), gate[0]):
                seen[code, caller] = os.getpid(), gate[0]
                with open(f"{folder}/{gate[0]}-{os.getpid()}-{os.getppid()}", "a") as out:
                    out.write(chr(9).join((code.co_filename, code.co_qualname, caller)) + chr(10))

    threading.setprofile(note)
    sys.setprofile(note)
"""


def run(effort: Effort) -> list[Row]:
    rounds = effort.of(1, ROUNDS)
    with tempfile.TemporaryDirectory() as name, Site() as site:
        folder = Path(name)
        (folder / "sitecustomize.py").write_text(_HOOK)
        (folder / "gate").write_bytes(b"\0")
        variables = {"CROSSED_MODULES": name, "CROSSED_ROOT": str(ROOT), "PYTHONPATH": name, "HTTP_CACHE_TTL": "0"}
        with running_stack(folder / "home", forked=False, **variables) as stack:
            streamed(stack, site)
            idle = _look_on(stack, folder)
            crossed = [_cross(stack, site, folder, number) for number in range(1, rounds + 1)]
    always = set.intersection(*crossed)
    calls = always - idle
    modules = sorted({call.module for call in calls})
    by_the_clock = sorted({call.module for call in always} - set(modules))
    upward = {(call.caller, call.module) for call in calls if call.caller and is_up(call.caller, call.module)}
    up = sorted(f"{caller} -> {module}" for caller, module in upward - set(HANDED_IN))
    handed_in = sorted(f"{caller} -> {module}" for caller, module in upward & set(HANDED_IN))
    _show({"crossed:": modules, "called without a crawl, too:": by_the_clock, "up:": up, "handed in:": handed_in})
    return [
        Row(
            "modules of ours from a request to its spider's first line", "modules", len(modules), MOST,
            "the most that was asked for", len(modules) / MOST, "<= 1",
        ),
        Row(
            "modules on that way that call one above theirs that was not handed in", "pairs", len(up), 0,
            "what was asked for", len(up), "<= 0",
        ),
    ]  # fmt: skip


def _show(parts: Mapping[str, Sequence[str]]) -> None:
    for title, lines in parts.items():
        print(title, *lines, "", sep="\n", file=sys.stderr)


class Call(NamedTuple):
    module: str
    function: str
    #: The module of ours that made the call; empty if none did.
    caller: str


def _look_on(stack: Stack, folder: Path) -> set[Call]:
    """The calls of an idle stack."""
    time.sleep(SETTLE_SECONDS)
    with _opened(folder / "gate", _IDLE):
        time.sleep(IDLE_SECONDS)
    return _noted(stack, folder, _IDLE)


def _cross(stack: Stack, site: Site, folder: Path, number: int) -> set[Call]:
    """The calls between a crawl's request and its first line."""
    _follow(stack, site, folder / "gate", number)
    return _noted(stack, folder, number)


def _noted(stack: Stack, folder: Path, number: int) -> set[Call]:
    pids = stack.ready["pids"]
    on_the_way = {pids[name] for name in _ON_THE_WAY}
    found = set[Call]()
    for noted in folder.glob(f"{number}-*"):
        pid, parent = map(int, noted.name.split("-")[1:])
        # a child of these is the zygote; the spider's process is a child of the zygote
        if pid in on_the_way or parent in on_the_way:
            for line in noted.read_text().splitlines():
                called, function, caller = line.split("\t")
                found.add(Call(_module(called), function, _module(caller) if caller else ""))
    return found


def _floors() -> list[list[str]]:
    """The packages of the import rules, the highest first. The crawler's are above the gateway's: they know some of
    these, and the gateway knows none of theirs.
    """
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    houses = sorted(contract["layers"] for contract in contracts if contract["type"] == "layers")
    return [[room.strip("() ") for room in floor.split("|")] for house in houses for floor in house]


FLOORS = _floors()


def is_up(caller: str, called: str) -> bool:
    """Whether the called module's package is above the caller's."""
    if called == "gateway.container":
        return False
    below, above = _floor(caller), _floor(called)
    return below is not None and above is not None and above < below


def _floor(module: str) -> int | None:
    of_module = (
        number
        for number, rooms in enumerate(FLOORS)
        if any(module == room or module.startswith(f"{room}.") for room in rooms)
    )
    return next(of_module, None)


def _follow(stack: Stack, site: Site, path: Path, number: int) -> None:
    """Request a crawl and follow it to its end. The gate is open until its first line."""
    body = {"user_id": "bench", "spider": "seo", "start_urls": [fresh(site)], "ignore_cache": True}
    headers = {"Accept": "text/event-stream"}
    with (
        _opened(path, number) as gate,
        stack.http.stream("POST", f"{stack.url}/crawl", json=body, headers=headers) as response,
    ):
        for line in response.iter_lines():
            if SPIDER_LINE in line:
                gate[0] = 0
            elif line == "event: end":
                break
        if gate[0]:
            raise RuntimeError(f"the spider's line never came: {response}")


@contextmanager
def _opened(path: Path, number: int) -> Iterator[mmap.mmap]:
    """The gate, open during this block. Calls are recorded under this number."""
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 1) as gate:
        gate[0] = number
        try:
            yield gate
        finally:
            gate[0] = 0


def _module(filename: str) -> str:
    return ".".join(Path(filename).relative_to(ROOT).with_suffix("").parts)
