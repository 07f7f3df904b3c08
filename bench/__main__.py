"""`make bench`: every benchmark, one table. `python -m bench NAME …`: one of them, in the size that is asked for."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr

from bench import (
    burst,
    commands,
    crawl_cost,
    crawls,
    crossed_modules,
    dispatch,
    embedded_mongo,
    first_line,
    fleet,
    lists,
    long_log,
    memory,
    schedules,
    sse_fanout,
    submission,
)
from bench.table import Row, render

#: Operations a second that the embedded MongoDB server has to reach at 100,000 documents.
FLOOR = 500.0
#: Benchmarks that can run alone, with arguments of their own.
NAMED: dict[str, Callable[[Sequence[str]], list[Row]]] = {
    "commands": commands.main,
    "cost": crawl_cost.main,
    "dispatch": dispatch.main,
    "fleet": fleet.main,
    "lists": lists.main,
    "log": long_log.main,
    "modules": crossed_modules.main,
    "submission": lambda _: submission.run(),
}


def stores() -> list[Row]:
    return [
        Row(
            f"embedded MongoDB: {row.what}, {row.clients} client(s)", "1/s", row.per_second, FLOOR,
            "the floor that was asked for", row.per_second / FLOOR, ">= 1",
        )
        for row in embedded_mongo.run()
    ]  # fmt: skip


def every() -> list[Row]:
    jobs = [*first_line.run(), *burst.run(), *memory.run()]
    return [
        *jobs,
        *crawls.run(),
        *dispatch.run(),
        *fleet.run(fleet.SHORT),
        *crawl_cost.run(crawl_cost.SHORT),
        *commands.run(),
        *lists.run(),
        *long_log.run(),
        *submission.run(),
        *crossed_modules.run(),
        *sse_fanout.run(),
        *schedules.run(),
        *stores(),
    ]


def all_rows() -> list[Row]:
    # what single benchmarks tell besides their rows is for those who run them by name
    with redirect_stderr(io.StringIO()):
        return every()


if __name__ == "__main__":
    print(render(NAMED[sys.argv[1]](sys.argv[2:]) if sys.argv[1:] else all_rows()))
