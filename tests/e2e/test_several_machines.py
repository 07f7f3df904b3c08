"""One platform on several machines: the stores, what serves people, and a node, each started by itself."""

from __future__ import annotations

import os
import re
import stat
import subprocess
from pathlib import Path

import pytest
import warm
from sites.server import Site
from stack import Stack, running_stack, wait_until
from stores import embedded_mongo, free_port, valkey_server

pytestmark = [pytest.mark.stack, pytest.mark.timeout(300)]

#: The node's machine has an address of its own.
NODE = "127.0.0.2"


def _cli(home: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "DISCOVERYBOT_HOME": str(home), **variables}
    return warm.run("gateway.cli.main", *arguments, env=environment)


def _wait_for_its_spiders(stack: Stack) -> None:
    """Of which a crawl here needs one: they are published one after the other."""

    def names() -> set[str]:
        return {one["name"] for one in stack.http.get(f"{stack.url}/spiders").json()["spiders"]}

    wait_until(lambda: "seo" in names(), what="a node's spiders")


def test_a_machine_that_is_invited_joins_once_and_runs_crawls(tmp_path: Path, site: Site) -> None:
    port = str(free_port())
    with valkey_server(tmp_path / "redis") as redis_url, embedded_mongo(tmp_path / "mongo") as mongo_uri:
        shared = {"MONGO_URI": str(mongo_uri), "REDIS_URL": str(redis_url), "SCRAPYD_PASSWORD": "a-password-of-all"}
        reached = {f"JOIN_{name}": shared[name] for name in ("MONGO_URI", "REDIS_URL")}
        reached["JOIN_BROKER_URL"] = f"{redis_url.removesuffix('/0')}/2"
        front, node = tmp_path / "front", tmp_path / "node"
        with running_stack(front, only=("gateway", "worker", "beat"), **shared, **reached) as stack:
            admin = _cli(front, "keys", "create", "--scope", "admin", **shared).stdout.strip()
            # a gateway notices within two seconds that there are keys
            wait_until(
                lambda: stack.http.get(f"{stack.url}/jobs").status_code == 401, what="a gateway that takes keys"
            )
            invited = _cli(front, "nodes", "invite", DISCOVERYBOT_URL=stack.url, DISCOVERYBOT_KEY=admin).stdout
            found = re.search(r"DISCOVERYBOT_KEY=(\S+) discoverybot join (\S+) NAME", invited)
            assert found, invited
            joining = {"DISCOVERYBOT_KEY": found[1], "SCRAPYD_PORT": port}
            joined = _cli(node, "join", found[2], "east", "--address", NODE, **joining)
            assert joined.returncode == 0, joined.stderr
            assert stat.S_IMODE((node / "node.json").stat().st_mode) == 0o600
            again = _cli(tmp_path / "another", "join", found[2], "west", **joining)
            assert again.returncode != 0
            assert not (tmp_path / "another/node.json").exists()
            stack.http.headers["Authorization"] = f"Bearer {admin}"
            with running_stack(node, joined=True, SCRAPYD_PORT=port):
                _wait_for_its_spiders(stack)
                job_id = stack.crawl(f"{site.url}/tree/2")
                assert stack.wait_final(job_id)["status"] == "finished"
                assert stack.job(job_id)["node"] == "east"
                _drain(stack, front, site)
            _forget(stack, front)


def _drain(stack: Stack, front: Path, site: Site) -> None:
    """While a crawl runs there. What it brought is elsewhere once the command has ended."""
    job_id = stack.crawl(f"{site.url}/tree/4")
    wait_until(lambda: stack.status(job_id)["status"] != "pending", what="the node's work")
    key = {"DISCOVERYBOT_URL": stack.url, "DISCOVERYBOT_KEY": stack.http.headers["Authorization"][7:]}
    drained = _cli(front, "nodes", "drain", "east", "--wait", "--timeout", "90", **key)
    assert drained.stdout == "east: draining; its machine may go\n", drained.stderr
    ended = stack.status(job_id)
    assert ended["status"] == "finished"
    items = stack.http.get(f"{stack.url}/jobs/{job_id}/items", params={"format": "jsonl"}).text.splitlines()
    assert len(items) == ended["items_count"] > 0
    alive = _cli(front, "nodes", "forget", "east", **key)
    assert (alive.returncode, "signs of life" in alive.stderr) == (2, True), alive.stderr


def _forget(stack: Stack, front: Path) -> None:
    key = {"DISCOVERYBOT_URL": stack.url, "DISCOVERYBOT_KEY": stack.http.headers["Authorization"][7:]}
    wait_until(lambda: _cli(front, "nodes", "forget", "east", **key).returncode == 0, what="a node that is gone")
    assert stack.http.get(f"{stack.url}/nodes").json()["nodes"] == []


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
            _wait_for_its_spiders(front)
            job_id = front.crawl(f"{site.url}/tree/4")
            assert front.wait_final(job_id)["status"] == "finished"
            assert front.job(job_id)["node"] == "east"
            assert sorted(item["depth"] for item in front.items(job_id)) == [0, 1, 1, 1, 1]
            assert b"Spider closed" in front.log(job_id)
