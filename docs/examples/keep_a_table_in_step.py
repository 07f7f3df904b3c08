# /// script
# dependencies = ["httpx2"]
# ///
"""Keeps a table of a database in step with a dataset: run it as often as you like, or after each run.

uv run keep_a_table_in_step.py prices prices.db

The cursor is in the same database, and changes in the same transaction as the rows. So nothing is lost or done twice,
whatever stops in between. SQLite stands for your database: with psycopg, write `%s` for `?`, and JSONB for TEXT.
"""

import json
import os
import sqlite3
import sys
from typing import Any

import httpx2

URL = os.environ.get("DISCOVERYBOT_URL", "http://127.0.0.1:8001")
KEY = os.environ.get("DISCOVERYBOT_KEY")
TABLES = """
CREATE TABLE IF NOT EXISTS items (key TEXT PRIMARY KEY, seq INTEGER NOT NULL, item TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS progress (one INTEGER PRIMARY KEY CHECK (one = 1), seq INTEGER NOT NULL);
"""
# a state that is older than what is there changes nothing
PUT = """INSERT INTO items VALUES (?, ?, ?)
ON CONFLICT (key) DO UPDATE SET seq = excluded.seq, item = excluded.item WHERE excluded.seq > items.seq"""
DELETE = "DELETE FROM items WHERE key = ? AND seq < ?"
MOVE = "INSERT INTO progress VALUES (1, ?) ON CONFLICT (one) DO UPDATE SET seq = excluded.seq"
GONE = 410


def row(entry: dict[str, Any]) -> tuple[str, int, str]:
    return entry["key_hash"], entry["seq"], json.dumps(entry["item"])


def begin_anew(client: httpx2.Client, database: sqlite3.Connection) -> None:
    """Take over what is there now, in place of changes that are no longer kept."""
    first, after = None, {}
    with database:
        database.execute("DELETE FROM items")
        while first is None or after["after"]:
            page = client.get("/items", params={**after, "limit": 1000}).raise_for_status().json()
            first = page["seq"] if first is None else first
            after = {"after": page["next"]}
            database.executemany(PUT, map(row, page["items"]))
        database.execute(MOVE, [first])


def catch_up(client: httpx2.Client, database: sqlite3.Connection) -> int:
    """Carry out all changes that there are. Returns how many."""
    count = 0
    while True:
        found = database.execute("SELECT seq FROM progress").fetchone()
        answer = client.get("/changes", params={"since": found[0] if found else 0, "limit": 1000})
        if answer.status_code == GONE:
            begin_anew(client, database)
            continue
        page = answer.raise_for_status().json()
        with database:
            for change in page["changes"]:
                key, seq, item = row(change)
                database.execute(*((DELETE, (key, seq)) if change["deleted"] else (PUT, (key, seq, item))))
            database.execute(MOVE, [page["next"]])
        count += len(page["changes"])
        if not page["pending"]:
            return count


def main() -> None:
    name, file = sys.argv[1:]
    database = sqlite3.connect(file)
    database.executescript(TABLES)
    headers = {"Authorization": f"Bearer {KEY}"} if KEY else {}
    with httpx2.Client(base_url=f"{URL}/datasets/{name}", headers=headers, timeout=60) as client:
        print(catch_up(client, database), "changes")


if __name__ == "__main__":
    main()
