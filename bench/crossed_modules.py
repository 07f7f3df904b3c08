"""Which modules of ours a crawl crosses from its request to its spider's first line, outside the spider's process.

And where that way goes back up the house: where a module calls one of a room that, by the import rules, it must not
know. A call through a library between the two counts, so a callback does. The container, which puts the rooms
together, may be called from everywhere.

`python -m bench modules` also shows both, on stderr. An import hook (a `sitecustomize`) has every process of a stack
note the modules whose functions it calls while a gate is open, and the module of ours that called them. What every
crawl crosses counts; a heartbeat that happens to fall into one of them does not.
"""

from __future__ import annotations

import mmap
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

from bench.first_line import fresh, streamed
from bench.our_platform import ROOT, Site, Stack, running_stack
from bench.stock_scrapyd import SPIDER_LINE
from bench.table import Row

ROUNDS = 7
MOST = 60
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
                    out.write(code.co_filename + chr(9) + caller + chr(10))

    threading.setprofile(note)
    sys.setprofile(note)
"""


def main(_: Sequence[str]) -> list[Row]:
    return run()


def run() -> list[Row]:
    with tempfile.TemporaryDirectory() as name, Site() as site:
        folder = Path(name)
        (folder / "sitecustomize.py").write_text(_HOOK)
        (folder / "gate").write_bytes(b"\0")
        variables = {"CROSSED_MODULES": name, "CROSSED_ROOT": str(ROOT), "PYTHONPATH": name, "HTTP_CACHE_TTL": "0"}
        with running_stack(folder / "home", forked=False, **variables) as stack:
            streamed(stack, site)
            crossed = [_cross(stack, site, folder, number) for number in range(1, ROUNDS + 1)]
    always = set.intersection(*crossed)
    modules = sorted({module for module, _ in always})
    up = sorted(f"{caller} -> {module}" for module, caller in always if caller and _is_up(caller, module))
    print("\n".join([*modules, "", *up]), file=sys.stderr)
    return [
        Row(
            "modules of ours from a request to its spider's first line", "modules", len(modules), MOST,
            "the most that was asked for", len(modules) / MOST, "<= 1",
        ),
        Row(
            "modules on that way that call one of a room above theirs", "pairs", len(up), 0,
            "what was asked for", len(up), "<= 0",
        ),
    ]  # fmt: skip


def _cross(stack: Stack, site: Site, folder: Path, number: int) -> set[tuple[str, str]]:
    """Modules that were called, each with a module of ours that called it; empty if none did."""
    _follow(stack, site, folder / "gate", number)
    pids = stack.ready["pids"]
    on_the_way = {pids[name] for name in _ON_THE_WAY}
    found = set[tuple[str, str]]()
    for noted in folder.glob(f"{number}-*"):
        pid, parent = map(int, noted.name.split("-")[1:])
        # a child of these is the zygote; the spider's process is a child of the zygote
        if pid in on_the_way or parent in on_the_way:
            for line in noted.read_text().splitlines():
                called, _, caller = line.partition("\t")
                found.add((_module(called), _module(caller) if caller else ""))
    return found


def _floors() -> list[list[str]]:
    """The rooms of the import rules, the highest first. The crawler's stand above the gateway's, some of which it
    knows; the gateway knows none of the crawler's.
    """
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    houses = sorted(contract["layers"] for contract in contracts if contract["type"] == "layers")
    return [[room.strip("() ") for room in floor.split("|")] for house in houses for floor in house]


FLOORS = _floors()


def _is_up(caller: str, called: str) -> bool:
    """Whether the called module's room is above the caller's."""
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
    """Ask for a crawl and follow it to its end; the gate is open until its first line."""
    body = {"user_id": "bench", "spider": "seo", "start_urls": [fresh(site)], "ignore_cache": True}
    headers = {"Accept": "text/event-stream"}
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 1) as gate:
        gate[0] = number
        with stack.http.stream("POST", f"{stack.url}/crawl", json=body, headers=headers) as response:
            for line in response.iter_lines():
                if SPIDER_LINE in line:
                    gate[0] = 0
                elif line == "event: end":
                    break
        if gate[0]:
            raise RuntimeError(f"the spider's line never came: {response}")


def _module(filename: str) -> str:
    return ".".join(Path(filename).relative_to(ROOT).with_suffix("").parts)
