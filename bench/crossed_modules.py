"""Which modules of ours a crawl crosses from its request to its spider's first line, outside the spider's process.

`python -m bench modules` also shows them, on stderr. Every process of a stack is told by an import hook (a
`sitecustomize`) to note the modules whose functions it calls while a gate is open. What every crawl crosses counts;
a heartbeat that happens to fall into one of them does not.
"""

from __future__ import annotations

import mmap
import sys
import tempfile
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
    seen = {}

    def note(frame, event, _):
        if event == "call" and gate[0]:
            code = frame.f_code
            if seen.get(code) != (os.getpid(), gate[0]):
                seen[code] = os.getpid(), gate[0]
                with open(f"{folder}/{gate[0]}-{os.getpid()}-{os.getppid()}", "a") as out:
                    out.write(code.co_filename + chr(10))

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
        variables = {"CROSSED_MODULES": name, "PYTHONPATH": name, "HTTP_CACHE_TTL": "0"}
        with running_stack(folder / "home", forked=False, **variables) as stack:
            streamed(stack, site)
            crossed = [_cross(stack, site, folder, number) for number in range(1, ROUNDS + 1)]
    always = sorted(set.intersection(*crossed))
    print("\n".join(always), file=sys.stderr)
    return [
        Row(
            "modules of ours from a request to its spider's first line", "modules", len(always), MOST,
            "the most that was asked for", len(always) / MOST, "<= 1",
        )
    ]  # fmt: skip


def _cross(stack: Stack, site: Site, folder: Path, number: int) -> set[str]:
    _follow(stack, site, folder / "gate", number)
    pids = stack.ready["pids"]
    on_the_way = {pids[name] for name in _ON_THE_WAY}
    found = set[str]()
    for noted in folder.glob(f"{number}-*"):
        pid, parent = map(int, noted.name.split("-")[1:])
        # a child of these is the zygote; the spider's process is a child of the zygote
        if pid in on_the_way or parent in on_the_way:
            found |= {module for line in noted.read_text().splitlines() if (module := _ours(line))}
    return found


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


def _ours(filename: str) -> str | None:
    path = Path(filename)
    is_ours = path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in {"gateway", "crawler", "embedded"}
    return ".".join(path.relative_to(ROOT).with_suffix("").parts) if is_ours else None
