# /// script
# dependencies = ["dlt[duckdb]", "httpx2"]
# ///
"""Loads the items of a job, or of a schedule's latest run, into DuckDB with dlt.

uv run load_with_dlt.py 4f0c8e3a9d1b4c7e8f2a6b5d4c3e2f1a

dlt makes the table, adds columns that are new, and replaces the rows of a `url` that is there. For another database
name another destination.
"""

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

import httpx2

URL = os.environ.get("DISCOVERYBOT_URL", "http://127.0.0.1:8001")
KEY = os.environ.get("DISCOVERYBOT_KEY")


def items(job: str) -> Iterator[dict[str, Any]]:
    """One after the other, so that a large job fits into the memory."""
    headers = {"Authorization": f"Bearer {KEY}"} if KEY else {}
    with (
        httpx2.Client(base_url=URL, headers=headers, timeout=60) as client,
        client.stream("GET", f"/jobs/{job}/items", params={"format": "jsonl"}) as answer,
    ):
        answer.raise_for_status()
        yield from map(json.loads, answer.iter_lines())


def main() -> None:
    # here, so that the function above can be used without it
    import dlt

    found = dlt.resource(items(sys.argv[1]), name="items", primary_key="url", write_disposition="merge")
    pipeline = dlt.pipeline("discoverybot", destination="duckdb", dataset_name="crawls")
    print(pipeline.run(found))


if __name__ == "__main__":
    main()
