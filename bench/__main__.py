"""`make bench`: every benchmark, one table."""

from __future__ import annotations

from bench import crawls, embedded_mongo, sse_fanout
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
    print(render([*crawls.run(), *sse_fanout.run(), *stores()]))
