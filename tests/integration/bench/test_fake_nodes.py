from __future__ import annotations

import os
from pathlib import Path

import httpx2
from stack import wait_until
from stores import embedded_mongo, valkey_server

from bench.fake_nodes import fake_nodes
from gateway.nodes.store import Node, NodeStore
from gateway.stores.mongo import connect

ATTEMPT = f"{'a' * 32}-1"
PASSWORD = "not-a-secret"


def test_fake_nodes_tell_the_truth_of_what_they_were_posted(tmp_path: Path) -> None:
    with embedded_mongo(tmp_path / "mongo") as mongo, valkey_server(tmp_path / "valkey") as valkey:
        database = connect(mongo)
        store = NodeStore(database)
        environment = {
            **os.environ, "MONGO_URI": mongo, "REDIS_URL": valkey, "SCRAPYD_PASSWORD": PASSWORD,
            "DISCOVERYBOT_HOME": str(tmp_path), "LOG_LEVEL": "warning",
        }  # fmt: skip
        with fake_nodes(2, environment) as order:
            order(slots=3)
            wait_until(lambda: [node.max_slots for node in store.all()] == [3, 3])
            first, second = store.all()
            assert post(first, "schedule.json", "wrong").status_code == 401
            for _ in range(2):
                assert post(first, "schedule.json").json()["status"] == "ok"
            assert (order()["running"], order()["trouble"]) == (1, [])
            wait_until(lambda: said(store) == [([ATTEMPT], [ATTEMPT]), ([], [])])
            post(second, "schedule.json")
            assert order()["trouble"] == [f"{ATTEMPT} was posted to two nodes"]
            assert post(first, "cancel.json").json()["prevstate"] == "running"
            assert (order()["running"], [*order()["cancelled"]]) == (0, [ATTEMPT])
            wait_until(lambda: said(store) == [([], []), ([], [])])
            order(lifetime=0.1)
            post(second, "schedule.json", job=f"{'b' * 32}-1")
            wait_until(lambda: order()["recorded"] == 2)
        database.client.close()


def post(node: Node, path: str, password: str = PASSWORD, *, job: str = ATTEMPT) -> httpx2.Response:
    form = {"jobid": job, "job": job, "project": "default", "spider": "seo"}
    return httpx2.post(f"{node.url}/{path}", data=form, auth=("discoverybot", password), trust_env=False)


def said(store: NodeStore) -> list[tuple[list[str], list[str]]]:
    return [(node.alive, node.present) for node in store.all()]
