# /// script
# dependencies = ["httpx2", "pandas"]
# ///
"""Which prices have changed between the two latest runs of a schedule.

uv run prices_in_pandas.py 0d4f5c6b7a8e4f1d9c2b3a4e5f607182
"""

import json
import os
import sys
from typing import Any

import httpx2

URL = os.environ.get("DISCOVERYBOT_URL", "http://127.0.0.1:8001")
KEY = os.environ.get("DISCOVERYBOT_KEY")


def two_latest(client: httpx2.Client, schedule: str) -> list[str]:
    """The ids of the runs, the newest first."""
    answer = client.get("/jobs", params={"schedule_id": schedule, "status": "finished", "limit": 2})
    return [job["job_id"] for job in answer.raise_for_status().json()["jobs"]]


def items(client: httpx2.Client, job: str) -> list[dict[str, Any]]:
    with client.stream("GET", f"/jobs/{job}/items", params={"format": "jsonl"}) as answer:
        answer.raise_for_status()
        return [json.loads(line) for line in answer.iter_lines()]


def main() -> None:
    # here, so that the functions above can be used without it
    import pandas as pd

    headers = {"Authorization": f"Bearer {KEY}"} if KEY else {}
    with httpx2.Client(base_url=URL, headers=headers, timeout=60) as client:
        today, yesterday = (pd.DataFrame(items(client, job)) for job in two_latest(client, sys.argv[1]))
    both = today.merge(yesterday, on="url", suffixes=("", "_before"))
    changed = both[both["price"] != both["price_before"]]
    print(changed[["title", "price_before", "price"]].to_string(index=False))


if __name__ == "__main__":
    main()
