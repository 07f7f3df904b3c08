"""`make bench`: every benchmark, one table."""

from __future__ import annotations

from bench import burst, crawls, embedded_mongo, first_line, memory, schedules, sse_fanout
from bench.table import Row, render

#: Operations a second, asked of the embedded MongoDB server at 100,000 documents.
FLOOR = 500.0


def stores() -> list[Row]:
    return [
        Row(
            f"embedded MongoDB: {row.what}, {row.clients} client(s)", "1/s", row.per_second, FLOOR,
            "the floor that was asked for", row.per_second / FLOOR, ">= 1",
        )
        for row in embedded_mongo.run()
    ]  # fmt: skip


if __name__ == "__main__":
    jobs = [*first_line.run(), *burst.run(), *memory.run()]
    print(render([*jobs, *crawls.run(), *sse_fanout.run(), *schedules.run(), *stores()]))
