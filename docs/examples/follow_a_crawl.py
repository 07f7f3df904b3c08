# /// script
# dependencies = ["httpx2"]
# ///
"""Asks for a crawl, prints its log live, and ends with exit code 0 if the crawl finished.

uv run follow_a_crawl.py https://example.com
"""

import os
import sys
import time
from typing import Any

import httpx2

URL = os.environ.get("DISCOVERYBOT_URL", "http://127.0.0.1:8001")
KEY = os.environ.get("DISCOVERYBOT_KEY")


def follow(client: httpx2.Client, job_id: str) -> dict[str, Any]:
    """Every line once, also where the connection breaks; what the last event says: the job's status at its end."""
    position = ""
    while True:
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": position} if position else {})
        try:
            with client.stream("GET", f"/jobs/{job_id}/logs", headers=headers) as stream:
                stream.raise_for_status()
                for event in httpx2.EventSource(stream):
                    position = event.id or position
                    if event.event == "log":
                        line = event.json()
                        print(line["level"], line["msg"])
                    elif event.event == "end":
                        status: dict[str, Any] = event.json()
                        return status
        except httpx2.TransportError as error:
            print(f"the connection broke ({error!r}), trying again", file=sys.stderr)
        time.sleep(1)


def main() -> int:
    crawl = {"user_id": "example", "spider": "seo", "start_urls": sys.argv[1:], "depth": 1}
    headers = {"Authorization": f"Bearer {KEY}"} if KEY else {}
    # a stream that has nothing to say sends a comment every 15 seconds
    with httpx2.Client(base_url=URL, headers=headers, timeout=40) as client:
        answer = client.post("/crawl", json=crawl)
        if answer.is_error:
            print(answer.text, file=sys.stderr)  # says which field is wrong, and why
            return 1
        status = follow(client, answer.json()["job_id"])
    print(f"{status['status']}: {status['completed_pages']} pages, {status['items_count']} items")
    return 0 if status["status"] == "finished" else 1


if __name__ == "__main__":
    sys.exit(main())
