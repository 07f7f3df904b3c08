"""One platform on several machines: the stores, what serves people, and a node, each started by itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from sites.server import Site
from stack import running_stack
from stores import embedded_mongo, free_port, valkey_server

pytestmark = [pytest.mark.stack, pytest.mark.timeout(300)]

#: The node's machine has an address of its own.
NODE = "127.0.0.2"


def test_a_crawl_that_is_asked_for_on_one_machine_runs_on_another(tmp_path: Path, site: Site) -> None:
    port = str(free_port())
    with valkey_server(tmp_path / "redis") as redis_url, embedded_mongo(tmp_path / "mongo") as mongo_uri:
        shared = {"MONGO_URI": str(mongo_uri), "REDIS_URL": str(redis_url), "SCRAPYD_PASSWORD": "a-password-of-all"}
        door = {"NODE_NAME": "east", "SCRAPYD_BIND_ADDRESS": NODE, "SCRAPYD_PORT": port}
        node = {**shared, **door, "NODE_URL": f"http://{NODE}:{port}"}
        with (
            running_stack(tmp_path / "node", only=("scrapyd", "tailer"), **node) as east,
            running_stack(tmp_path / "front", only=("gateway", "worker", "beat"), **shared) as front,
        ):
            assert set(east.ready["pids"]) == {"scrapyd", "tailer"}
            job_id = front.crawl(f"{site.url}/tree/4")
            assert front.wait_final(job_id)["status"] == "finished"
            assert front.job(job_id)["node"] == "east"
            assert sorted(item["depth"] for item in front.items(job_id)) == [0, 1, 1, 1, 1]
            assert b"Spider closed" in front.log(job_id)
