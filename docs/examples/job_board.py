# /// script
# dependencies = ["httpx2"]
# ///
"""Searches a job board, and prints the postings that were not there the last time.

uv run job_board.py exampleboard "data engineer" --seen seen.json

The board is a site that the platform knows: `discoverybot sites add` makes one, and needs no code.
"""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

import httpx2

URL = os.environ.get("DISCOVERYBOT_URL", "http://127.0.0.1:8001")
KEY = os.environ.get("DISCOVERYBOT_KEY")


def search(client: httpx2.Client, board: str, words: str) -> list[dict[str, Any]]:
    """Up to 25 postings. Waits until the run has ended."""
    wanted = {"site_name": board, "search_term": words, "results_wanted": 25}
    answer = client.post("/jobs/scrape", params={"mode": "sync"}, json=wanted)
    if answer.is_error:
        sys.exit(answer.json()["error"]["message"])
    run = answer.json()["data"]
    if run["status"] == "failed":
        sys.exit(run["message"])
    found: list[dict[str, Any]] = run["results"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("board")
    parser.add_argument("words")
    parser.add_argument("--seen", type=Path, default=Path("seen.json"), help="where it remembers what it has printed")
    options = parser.parse_args()
    headers = {"Authorization": f"Bearer {KEY}"} if KEY else {}
    with httpx2.Client(base_url=URL, headers=headers, timeout=60) as client:
        postings = search(client, options.board, options.words)
    seen = set(json.loads(options.seen.read_text())) if options.seen.exists() else set()
    for posting in postings:
        if posting["url"] not in seen:
            print(posting["title"], posting.get("company") or "-", posting["url"], sep="\t")
    options.seen.write_text(json.dumps(sorted(seen | {posting["url"] for posting in postings})))


if __name__ == "__main__":
    main()
