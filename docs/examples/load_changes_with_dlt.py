# /// script
# dependencies = ["dlt[duckdb]", "httpx2"]
# ///
"""Keeps a table in DuckDB, or another database, in step with a dataset, with dlt.

uv run load_changes_with_dlt.py prices

dlt remembers the number of the last change that it has loaded, takes the latest state of each key (`dedup_sort`), and
deletes the rows of what is gone (`hard_delete`). For another database name another destination.
"""

import os
import sys
from collections.abc import Iterator
from typing import Any

import httpx2

URL = os.environ.get("DISCOVERYBOT_URL", "http://127.0.0.1:8001")
KEY = os.environ.get("DISCOVERYBOT_KEY")


def changes(name: str, since: int) -> Iterator[dict[str, Any]]:
    """The items of all changes after this one, each with the number of its change and whether it is gone."""
    headers = {"Authorization": f"Bearer {KEY}"} if KEY else {}
    with httpx2.Client(base_url=f"{URL}/datasets/{name}", headers=headers, timeout=60) as client:
        while True:
            page = client.get("/changes", params={"since": since, "limit": 1000}).raise_for_status().json()
            for change in page["changes"]:
                yield {**change["item"], **{name: change[name] for name in ("key_hash", "seq", "deleted")}}
            since = page["next"]
            if not page["pending"]:
                return


def main() -> None:
    # here, so that the function above can be used without it
    import dlt

    name = sys.argv[1]

    @dlt.resource(
        name=name,
        primary_key="key_hash",
        write_disposition="merge",
        columns={"seq": {"dedup_sort": "desc"}, "deleted": {"hard_delete": True, "data_type": "bool"}},
    )
    def resource(seq: Any = dlt.sources.incremental("seq", initial_value=0)) -> Iterator[dict[str, Any]]:  # noqa: B008
        yield from changes(name, seq.last_value)

    pipeline = dlt.pipeline("discoverybot_datasets", destination="duckdb", dataset_name="datasets")
    print(pipeline.run(resource()))


if __name__ == "__main__":
    main()
