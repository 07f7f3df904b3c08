"""`make bench`: all short benchmarks, one table; `make bench-long`: all benchmarks in full.

`python -m bench NAME …` runs one benchmark in full, and prints its details on stderr.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from bench import (
    burst,
    commands,
    crawl_cost,
    crawls,
    crossed_modules,
    datasets,
    dispatch,
    embedded_mongo,
    first_line,
    fleet,
    guard,
    lists,
    long_log,
    memory,
    projects,
    real_projects,
    removal,
    schedules,
    shipping,
    spider_page,
    sse_fanout,
    submission,
    tables,
)
from bench.effort import Effort
from bench.runner import Benchmark, run_all
from bench.table import Row, render

BENCHMARKS = {
    "first-line": Benchmark(first_line.run, 240),
    "burst": Benchmark(burst.run, 240),
    "memory": Benchmark(memory.run, 180),
    "crawls": Benchmark(crawls.run, 300),
    "dispatch": Benchmark(dispatch.run, 300),
    "fleet": Benchmark(fleet.run, 240, is_short=False),
    "cost": Benchmark(crawl_cost.run, 180),
    "commands": Benchmark(commands.run, 180),
    "lists": Benchmark(lists.run, 300),
    "spider": Benchmark(spider_page.run, 300, is_short=False),
    "log": Benchmark(long_log.run, 300),
    "submission": Benchmark(submission.run, 180),
    "removal": Benchmark(removal.run, 120),
    "tables": Benchmark(tables.run, 300, is_short=False),
    "shipping": Benchmark(shipping.run, 300),
    "streams": Benchmark(sse_fanout.run, 240),
    "schedules": Benchmark(schedules.run, 240),
    "guard": Benchmark(guard.run, 180, is_short=False),
    "datasets": Benchmark(datasets.run, 300),
    "stores": Benchmark(embedded_mongo.run, 180, is_short=False),
    # it needs an index of packages: eight environments are installed first
    "projects": Benchmark(projects.run, 300, is_short=False),
    # fetched from GitHub
    "real-projects": Benchmark(real_projects.run, 600, is_short=False),
    "modules": Benchmark(crossed_modules.run, 120, is_short=False),
}
#: Benchmarks that accept arguments of their own on the command line.
SIZED: dict[str, Callable[[Sequence[str]], list[Row]]] = {
    "dispatch": dispatch.main,
    "fleet": fleet.main,
    "real-projects": real_projects.main,
}


def main() -> bool:
    """Run the benchmarks that were asked for. Returns whether all of them ran."""
    parser = argparse.ArgumentParser("python -m bench", description=__doc__)
    parser.add_argument("name", nargs="?", choices=BENCHMARKS, help="only this one")
    parser.add_argument("--effort", type=Effort, choices=Effort, help="table for all, long for one")
    parser.add_argument("--json", type=Path, help="write one benchmark's rows there instead")
    asked, sizes = parser.parse_known_args()
    if sizes and asked.name not in SIZED:
        parser.error(f"unrecognized arguments: {' '.join(sizes)}")
    if asked.name is None:
        effort = asked.effort or Effort.TABLE
        names = {name: one for name, one in BENCHMARKS.items() if one.is_short or effort is not Effort.TABLE}
        return run_all(names, effort)
    rows = SIZED[asked.name](sizes) if sizes else BENCHMARKS[asked.name].run(asked.effort or Effort.LONG)
    if asked.json:
        asked.json.write_text(json.dumps([row._asdict() for row in rows]))
    else:
        print(render(rows))
    return True


if __name__ == "__main__":
    sys.exit(not main())
