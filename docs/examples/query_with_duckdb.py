# /// script
# dependencies = ["duckdb", "httpx2"]
# ///
"""Asks the items of a job, or of a schedule's latest run, with SQL: DuckDB over Parquet.

uv run query_with_duckdb.py 4f0c8e3a9d1b4c7e8f2a6b5d4c3e2f1a 'SELECT price, count(*) FROM items GROUP BY price'

The gateway needs pyarrow for Parquet: the extra `discoverybot[parquet]`.
"""

import os
import sys
import tempfile
from pathlib import Path

import duckdb
import httpx2

URL = os.environ.get("DISCOVERYBOT_URL", "http://127.0.0.1:8001")
KEY = os.environ.get("DISCOVERYBOT_KEY")


def save(job: str, file: Path) -> None:
    """The gateway makes the whole table before it answers, which takes seconds for 100,000 items."""
    headers = {"Authorization": f"Bearer {KEY}"} if KEY else {}
    with (
        httpx2.Client(base_url=URL, headers=headers, timeout=600) as client,
        client.stream("GET", f"/jobs/{job}/items", params={"format": "parquet"}) as answer,
        file.open("wb") as target,
    ):
        answer.raise_for_status()
        for piece in answer.iter_bytes():
            target.write(piece)


def main() -> None:
    job, question = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder, duckdb.connect() as database:
        save(job, Path(folder) / "items.parquet")
        database.read_parquet(f"{folder}/items.parquet").create_view("items")
        for row in database.execute(question).fetchall():
            print(*row, sep="\t")


if __name__ == "__main__":
    main()
