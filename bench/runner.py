"""Runs benchmarks one after another, each in a process of its own, so that one that fails or hangs loses only its own
rows.

The results are written to `bench/results.json` after each benchmark.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from bench.cpu import tree
from bench.effort import Effort
from bench.table import Row, is_met, render

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "bench" / "results.json"


class Benchmark(NamedTuple):
    run: Callable[[Effort], list[Row]]
    #: Seconds after which it counts as hanging in `make bench`: two to three times its time on an idle machine. In
    #: the long form it is ten times as much.
    limit: float
    #: Whether it is in the short table.
    is_short: bool = True


class Result(NamedTuple):
    seconds: float
    rows: Sequence[Row]
    #: Why it has no rows; empty if it has some.
    failure: str

    def __str__(self) -> str:
        if self.failure:
            return f"FAILED: {self.failure}"
        missed = sum(is_met(row) is False for row in self.rows)
        return f"{len(self.rows)} rows" + (f", {missed} beyond what was wanted" if missed else "")


def run_all(benchmarks: Mapping[str, Benchmark], effort: Effort) -> bool:
    """Print a line for each, and then the table. Returns whether all of them ran."""
    results: dict[str, Result] = {}
    for name, benchmark in benchmarks.items():
        print(f"{name:12}", end="", flush=True)
        command = (sys.executable, "-m", "bench", name, "--effort", effort)
        result = results[name] = run_one(command, benchmark.limit * effort.of(1, 1, 10))
        print(f"{result.seconds:5.0f} s  {result}", flush=True)
        if effort is not Effort.SMOKE:
            write(results, effort, RESULTS)
    print()
    print(render([row for result in results.values() for row in result.rows]))
    return not any(result.failure for result in results.values())


def run_one(command: Sequence[str], limit: float) -> Result:
    """Run a command that writes its rows to the file after `--json`. Ends it with everything that it has started, at
    the latest after `limit` seconds.
    """
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        answer, errors = Path(folder) / "rows.json", Path(folder) / "errors"
        with errors.open("wb") as out:
            process = subprocess.Popen(
                (*command, "--json", str(answer)),
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=out,
            )
            try:
                failure = "" if process.wait(limit) == 0 else _last_line(errors)
            except subprocess.TimeoutExpired:
                failure = f"it has not ended after {limit:.0f} s"
            finally:
                _end(process)
        rows = () if failure else [Row(**row) for row in json.loads(answer.read_bytes())]
    return Result(time.monotonic() - began, rows, failure)


def _last_line(file: Path) -> str:
    """The last line of the file that is not empty. In a traceback, that is the error."""
    lines = file.read_text(errors="replace").split("\n")
    return next((line for line in reversed(lines) if line.strip()), "it has written nothing")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the process and everything that it has started, which may be in sessions of its own."""
    if process.poll() is None:
        for member in reversed(tree(process.pid)):
            with suppress(psutil.NoSuchProcess):
                member.kill()
        process.wait()


def write(results: Mapping[str, Result], effort: Effort, path: Path) -> None:
    """Replace the earlier results of these benchmarks, and keep those of others."""
    found = read(path)
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "system": platform.system()}
    for name, result in results.items():
        found[name] = {
            "effort": effort,
            "date": datetime.now(UTC).date().isoformat(),
            "machine": machine,
            "seconds": round(result.seconds, 1),
            "failure": result.failure,
            "rows": [row._asdict() for row in result.rows],
        }
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    partial.replace(path)


def read(path: Path) -> dict[str, Any]:
    """The results by the benchmarks' names; empty if there are none."""
    return dict(json.loads(path.read_bytes())) if path.exists() else {}
