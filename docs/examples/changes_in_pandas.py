# /// script
# dependencies = ["httpx2", "pandas"]
# ///
"""Which field of which item has changed, in pandas.

uv run changes_in_pandas.py prices 2211

The number is where the last time has ended; it is printed at the end. Without it: all changes that are kept.
"""

import os
import sys
from typing import Any

import httpx2

URL = os.environ.get("DISCOVERYBOT_URL", "http://127.0.0.1:8001")
KEY = os.environ.get("DISCOVERYBOT_KEY")


def changes(client: httpx2.Client, since: int) -> tuple[list[dict[str, Any]], int]:
    """All changes after this one, and the number to go on from."""
    found: list[dict[str, Any]] = []
    while True:
        page = client.get("/changes", params={"since": since, "limit": 1000}).raise_for_status().json()
        found += page["changes"]
        since = page["next"]
        if not page["pending"]:
            return found, since


def rows(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row for each field that has changed, and one for each item that is new or gone."""
    made = []
    for change in found:
        facts = {**change["key"], "type": change["type"], "at": change["at"]}
        different = (change["changes"] or {}) if change["type"] == "changed" else {"": {}}
        made += [{**facts, "field": name, **values} for name, values in different.items()]
    return made


def main() -> None:
    # here, so that the functions above can be used without it
    import pandas as pd

    name, *cursor = sys.argv[1:]
    headers = {"Authorization": f"Bearer {KEY}"} if KEY else {}
    with httpx2.Client(base_url=f"{URL}/datasets/{name}", headers=headers, timeout=60) as client:
        found, since = changes(client, int(cursor[0]) if cursor else 0)
    table = pd.DataFrame(rows(found), columns=None if found else ["type", "field"])
    print(table.groupby(["type", "field"]).size().to_string())
    print(table[table["type"] == "changed"].to_string(index=False))
    print("next time:", since)


if __name__ == "__main__":
    main()
