"""The gateway deploys an egg to a real Scrapyd, and says what became of it."""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import httpx2
import pytest
import warm
from eggs import egg as pack
from eggs import source
from node import PASSWORD, ROOT, Node, wait_for
from pydantic import SecretStr
from sites.server import Site
from wheels import page_of_wheels, write_wheels_of_node

from gateway.clock import utc_now
from gateway.contract.crawl import REQUIREMENTS, Egg
from gateway.contract.records import SpiderInfo
from gateway.dispatch.dependencies import put_requirements
from gateway.nodes.store import NodeStore
from gateway.projects.eggs import EggStore, SpiderStore
from gateway.settings import Settings
from gateway.stores.mongo import connect

SPIDER = "import scrapy\n\nclass Offers(scrapy.Spider):\n    name = 'offers'\n    allowed_domains = ['shop.test']\n"


def egg(spiders: str = SPIDER, package: str = "shop") -> bytes:
    return pack(source(package, spiders=spiders))


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The package index from which the node installs what projects depend on."""
    write_wheels_of_node(folder := tmp_path_factory.mktemp("wheels"))
    with Site(page_of_wheels(folder)) as site:
        yield site


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, index: Site) -> Iterator[Node]:
    places = {"PROJECT_INDEX_URL": "none", "PROJECT_WHEELS": f"{index.url}/"}
    node = Node(tmp_path_factory.mktemp("node"), ROOT, PYTHONPATH="", **places)
    try:
        yield node.start()
    finally:
        node.clean_up()


@pytest.fixture(scope="module")
def own_settings(settings: Settings) -> Settings:
    """Settings with a database of its own, so that no other test sees these nodes."""
    uri = settings.mongo_uri.replace("/discoverybot", "/deployment")
    return settings.model_copy(update={"mongo_uri": uri, "scrapyd_password": SecretStr(PASSWORD)})


@pytest.fixture(scope="module")
def nodes(own_settings: Settings) -> Iterator[NodeStore]:
    database = connect(own_settings.mongo_uri)
    yield NodeStore(database)
    database.client.close()


@pytest.fixture(scope="module")
def door(
    serve: Callable[[Settings], AbstractContextManager[httpx2.Client]], own_settings: Settings
) -> Iterator[httpx2.Client]:
    with serve(own_settings) as client:
        yield client


@pytest.fixture(scope="module")
def eggs(nodes: NodeStore) -> EggStore:
    return EggStore(nodes._nodes.database)


@pytest.fixture
def living(nodes: NodeStore, node: Node) -> Iterator[Callable[..., None]]:
    """Lets nodes send a heartbeat, by their names and URLs. After the test they are dead."""
    names: list[str] = []

    def beat(**urls: str) -> None:
        for name, url in urls.items():
            names.append(name)
            nodes.heartbeat(name, url=url, max_slots=1, alive=(), present=(), beating_since=utc_now())

    yield beat
    for name in names:
        nodes._nodes.delete_one({"_id": name})


def post(door: httpx2.Client, content: Any, project: str = "shop", version: str = "1.4") -> httpx2.Response:
    return door.post(f"/projects/{project}/versions", params={"version": version}, content=content, timeout=60)


def test_an_egg_goes_to_every_living_node_and_its_spiders_can_be_asked_for(
    door: httpx2.Client, node: Node, living: Callable[..., None], user: str
) -> None:
    url = str(node.client.base_url).rstrip("/")
    living(n1=url, n2=url)
    answer = post(door, egg())
    assert answer.status_code == 200, answer.text
    accepted = {"accepted": True, "spiders": 1, "message": None, "reason": None}
    assert answer.json() == {
        "project": "shop",
        "version": "1.4",
        "spiders": 1,
        "nodes": [{"node": "n1", **accepted}, {"node": "n2", **accepted}],
    }
    listed = door.get("/spiders?project=Shop").json()["spiders"]
    known = {
        "project": "shop",
        "version": "1.4",
        "latest": True,
        "name": "offers",
        "description": "",
        "arguments": [],
    }
    assert listed == [
        {
            **known,
            "params_schema": None,
            "allowed_domains": ["shop.test"],
            "own_start": False,
            "needs_urls": True,
            "arguments": [],
        },
    ]
    body = {"user_id": user, "project": "shop", "spider": "offers", "start_urls": ["https://shop.test/"]}
    job_id = door.post("/crawl", json={**body, "max_items": 5}).json()["job_id"]
    status = door.get(f"/jobs/{job_id}/status").json()
    assert (status["version"], status["max_items"]) == ("1.4", 5)
    spec = door.get(f"/jobs/{job_id}").json()["spec"]
    assert (spec["project"], spec["version"], spec["max_items"]) == ("shop", "1.4", 5)


def version_of(door: httpx2.Client, user: str, **fields: Any) -> str:
    """Ask for a crawl. Returns the version that it runs."""
    body = {"user_id": user, "spider": "offers", "start_urls": ["https://shop.test/"], "ignore_cache": True, **fields}
    answer = door.post("/crawl", json=body)
    assert answer.status_code == 200, answer.text
    version: str = door.get(f"/jobs/{answer.json()['job_id']}/status").json()["version"]
    return version


def test_a_deployment_and_a_rollback_count_in_every_gateway_once_they_are_answered(
    *,
    door: httpx2.Client,
    serve: Callable[[Settings], AbstractContextManager[httpx2.Client]],
    own_settings: Settings,
    node: Node,
    living: Callable[..., None],
    user: str,
) -> None:
    living(n1=str(node.client.base_url).rstrip("/"))
    with serve(own_settings) as other:
        for version in ("1.10", "1.9", "1.2"):
            assert post(door, egg(), "quick", version).status_code == 200
            assert version_of(other, user, project="quick") == version
        for version in ("1.9", "1.10"):
            answer = other.post("/projects/Quick/rollback")
            assert (answer.status_code, answer.json()["latest"]) == (200, version)
            assert version_of(door, user, project="quick") == version
        again = other.post("/projects/quick/rollback")
        assert (again.status_code, again.json()["error"]["code"]) == (409, "conflict")
        assert other.post("/projects/quick/versions/1.2/activate").json()["latest"] == "1.2"
        assert version_of(door, user, project="quick") == "1.2"
        assert other.delete("/projects/quick/versions/1.2").status_code == 200
        assert version_of(door, user, project="quick") == "1.10"
        refused = door.post(
            "/crawl", json={"user_id": user, "spider": "offers", "project": "quick", "version": "1.2"}
        )
        assert refused.json()["error"]["detail"] == {"field": "version", "known": ["1.10", "1.9"]}


def test_the_versions_of_a_project_are_listed_with_all_that_is_known(
    door: httpx2.Client, node: Node, living: Callable[..., None]
) -> None:
    living(n1=str(node.client.base_url).rstrip("/"))
    content = egg()
    for version in ("2", "1"):
        assert post(door, content, "known", version).status_code == 200
    listed = door.get("/projects/known/versions").json()
    versions = listed.pop("versions")
    assert listed == {"project": "known", "latest": "1", "previous": "2"}
    kept = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content), "spiders": 1, "nodes": ["n1"]}
    assert [{**version, "deployed_at": None} for version in versions] == [
        {"version": "1", "latest": True, "deployed_at": None, **kept},
        {"version": "2", "latest": False, "deployed_at": None, **kept},
    ]
    assert all(version["deployed_at"] for version in versions)
    named = {project["name"]: project for project in door.get("/projects").json()["projects"]}
    assert named["known"] == {"name": "known", "latest": "1", "previous": "2", "versions": ["2", "1"]}


@pytest.mark.parametrize(
    ("route", "code"),
    [
        ("GET /projects/nobody/versions", "project_not_found"),
        ("POST /projects/nobody/rollback", "project_not_found"),
        ("POST /projects/nobody/versions/1/activate", "project_not_found"),
        ("POST /projects/shop/versions/9.9/activate", "version_not_found"),
    ],
)
def test_what_is_not_there_cannot_be_the_latest(
    *, door: httpx2.Client, node: Node, nodes: NodeStore, living: Callable[..., None], route: str, code: str
) -> None:
    SpiderStore(nodes._nodes.database).publish("n1", [SpiderInfo(project="default", name="seo")])
    living(n1=str(node.client.base_url).rstrip("/"))
    assert post(door, egg(), "shop").status_code == 200
    answer = door.request(*route.split())
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, code)


def test_an_egg_that_every_node_refuses_is_the_callers_fault(
    door: httpx2.Client, node: Node, living: Callable[..., None]
) -> None:
    living(n1=str(node.client.base_url).rstrip("/"))
    answer = post(door, egg("import pandas_of_nowhere\n", "broken"), "broken")
    error = answer.json()["error"]
    assert (answer.status_code, error["detail"]["field"]) == (422, "egg")
    assert "pandas_of_nowhere" in error["message"]
    assert [(said["node"], said["reason"]) for said in error["detail"]["nodes"]] == [("n1", "not_importable")]


def test_a_node_that_cannot_be_asked_is_told_of_and_brought_the_egg_later(
    door: httpx2.Client, node: Node, living: Callable[..., None], eggs: EggStore
) -> None:
    living(n1=str(node.client.base_url).rstrip("/"), n2="http://127.0.0.1:1")
    content = egg()
    answer = post(door, content, "half")
    assert answer.status_code == 200, answer.text
    n1, n2 = answer.json()["nodes"]
    assert (n1["accepted"], n2["accepted"]) == (True, False)
    assert n2["message"].startswith("nobody answers at http://127.0.0.1:1")
    assert (n1["reason"], n2["reason"]) == (None, "node_unreachable")
    kept = eggs.get(Egg("half", "1.4"))
    assert kept is not None
    assert kept.content is not None
    assert b"".join(eggs.read(kept.content)) == content


def test_an_egg_that_no_node_has_looked_at_is_not_kept(
    door: httpx2.Client, living: Callable[..., None], eggs: EggStore
) -> None:
    living(n1="http://127.0.0.1:1")
    answer = post(door, egg(), "unseen")
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (502, "node_error")
    assert error["message"].startswith("deployed on 0 of 1 nodes: nobody answers at http://127.0.0.1:1")
    assert eggs.get(Egg("unseen", "1.4")) is None


def test_a_version_that_exists_is_replaced_and_what_it_was_is_kept_no_longer(
    door: httpx2.Client, node: Node, living: Callable[..., None], eggs: EggStore
) -> None:
    living(n1=str(node.client.base_url).rstrip("/"))
    contents = [egg(), egg(SPIDER.replace("offers", "deals"))]
    for content in (contents[0], contents[0], contents[1]):
        assert post(door, content, "again").status_code == 200
        kept = eggs.get(Egg("again", "1.4"))
        assert kept is not None
        assert kept.content is not None
        assert b"".join(eggs.read(kept.content)) == content
    others = eggs._eggs.count_documents({"content": {"$ne": None}, "project": {"$ne": "again"}})
    assert eggs._chunks.count_documents({}) == others + 1


def test_a_deleted_version_is_nowhere_any_more(
    door: httpx2.Client, node: Node, living: Callable[..., None], eggs: EggStore
) -> None:
    living(n1=str(node.client.base_url).rstrip("/"))
    assert post(door, egg(), "doomed").status_code == 200
    answer = door.delete("/projects/doomed/versions/1.4")
    removed = {"node": "n1", "removed": True, "message": None}
    assert (answer.status_code, answer.json()) == (200, {"project": "doomed", "version": "1.4", "nodes": [removed]})
    assert not (node.home / "node/eggs/doomed/1.4.egg").exists()
    again = door.delete("/projects/doomed/versions/1.4")
    assert (again.status_code, again.json()["error"]["code"]) == (404, "version_not_found")
    assert post(door, egg(), "doomed").status_code == 200
    kept = eggs.get(Egg("doomed", "1.4"))
    assert kept is not None
    assert kept.content is not None


def test_there_is_nothing_to_delete_of_our_own_project_or_of_what_nobody_has(door: httpx2.Client) -> None:
    assert door.delete("/projects/discoverybot/versions/1").status_code == 422
    assert door.delete("/projects/nobody/versions/1").status_code == 404
    assert door.delete("/projects/shop/versions/..").status_code in {404, 422}


def test_without_a_living_node_nothing_is_deployed(door: httpx2.Client, nodes: NodeStore) -> None:
    long_ago = NodeStore(nodes._nodes.database, clock=lambda: utc_now() - timedelta(hours=1))
    long_ago.heartbeat("dead", url="http://127.0.0.1:1", max_slots=1, alive=(), present=(), beating_since=utc_now())
    assert post(door, egg()).status_code == 409


@pytest.mark.parametrize(
    ("path", "content", "status", "field"),
    [
        ("/projects/DiscoveryBot/versions?version=1", egg(), 422, "project"),
        ("/projects/shop/versions?version=1", b"no zip", 422, "egg"),
        ("/projects/shop/versions?version=1", b"", 422, "egg"),
        ("/projects/shop/versions?version=..%2F1", egg(), 422, "version"),
        ("/projects/shop/versions", egg(), 422, "version"),
        ("/projects/.shop/versions?version=1", egg(), 422, "project"),
        ("/projects/shop/versions?version=1&project=x", egg(), 422, "project"),
    ],
)
def test_what_is_no_deployment_is_refused_by_name(
    door: httpx2.Client, path: str, content: bytes, status: int, field: str
) -> None:
    answer = door.post(path, content=content)
    assert (answer.status_code, answer.json()["error"]["detail"]["field"]) == (status, field)


def test_only_an_egg_may_be_larger_than_other_bodies(door: httpx2.Client, tmp_path: Path) -> None:
    large = b"x" * (1 << 20)
    assert post(door, large).json()["error"]["detail"]["field"] == "egg"
    assert post(door, iter([large] * 65)).status_code == 413
    for path in ("/crawl", "/projects/shop/versions/x", "/projects/a/b/versions"):
        assert door.post(path, content=large).status_code == 413


def test_a_page_of_another_origin_deploys_nothing(door: httpx2.Client) -> None:
    answer = door.post("/projects/shop/versions?version=1", content=egg(), headers={"Origin": "https://evil.example"})
    assert answer.status_code == 403


def spoiled(changes: dict[int, int]) -> bytes:
    """An egg with these bytes in the first entry of its directory."""
    content = bytearray(egg())
    entry = content.index(b"PK\x01\x02")
    for place, byte in changes.items():
        content[entry + place] = byte
    return bytes(content)


def send_form(door: httpx2.Client, **files: bytes | None) -> httpx2.Response:
    form = {"egg": egg(), "requirements": b"", **files}
    parts = {name: (f"{name}.file", content) for name, content in form.items() if content is not None}
    return door.post("/projects/shop/versions", params={"version": "2.0"}, files=parts, timeout=60)


def test_the_same_egg_with_the_same_requirements_has_the_same_bytes_at_any_time(tmp_path: Path) -> None:
    """A node that gets the same egg again has it unpacked already."""
    (tmp_path / "shop.egg").write_bytes(egg())
    put_requirements(tmp_path / "shop.egg", b"scrapy\n")
    with zipfile.ZipFile(tmp_path / "shop.egg") as archive:
        assert archive.getinfo(REQUIREMENTS).date_time == (1980, 1, 1, 0, 0, 0)


def test_requirements_in_the_form_become_a_part_of_the_egg_and_decide_whether_it_is_taken(
    door: httpx2.Client, node: Node, living: Callable[..., None]
) -> None:
    living(n1=str(node.client.base_url).rstrip("/"))
    answer = send_form(door, requirements=b"--pre\n")
    assert answer.status_code == 422, answer.text
    assert "requirements.txt, line 1: '--pre' is an option" in answer.json()["error"]["message"]
    (told,) = door.get("/projects/shop/versions/2.0/dependencies").json()["nodes"]
    assert (told["node"], told["state"], told["packages"]) == ("n1", "failed", [])
    assert "'--pre' is an option" in told["log"]
    assert send_form(door, requirements=None).status_code == 200
    (told,) = door.get("/projects/shop/versions/2.0/dependencies").json()["nodes"]
    assert told["state"] == "none"
    assert door.get("/projects/shop/versions/3.0/dependencies").status_code == 404


class OtherRelease(BaseHTTPRequestHandler):
    """A node's Scrapyd that answers with a state that this release does not know."""

    answer: ClassVar[dict[str, Any]] = {"state": "queued", "message": 7, "packages": None}

    def do_GET(self) -> None:
        body = json.dumps({"status": "ok", **self.answer}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def test_a_deployment_may_end_before_all_is_installed_and_the_command_line_waits_for_it(
    *, door: httpx2.Client, node: Node, index: Site, living: Callable[..., None], tmp_path: Path
) -> None:
    living(n1=str(node.client.base_url).rstrip("/"))
    url, params = "/projects/slow/versions", {"version": "1", "wait": "0"}
    index.hold()
    answer = door.post(url, params=params, files={"egg": egg(), "requirements": b"scrapy\n"})
    assert answer.status_code == 202, answer.text
    assert answer.json()["dependencies_url"] == f"{url}/1/dependencies"
    assert "still being installed" in answer.json()["nodes"][0]["message"]
    assert door.get(answer.json()["dependencies_url"]).json()["nodes"][0]["state"] == "building"
    for name, text in source("shop", spiders=SPIDER).items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "scrapy.cfg").write_text("[settings]\ndefault = shop.settings\n")
    (tmp_path / "requirements.txt").write_text("scrapy\n")
    command = ("deploy", str(tmp_path), "--project", "slow", "--version", "1", "--url", str(door.base_url))
    with ThreadPoolExecutor(1) as threads:
        deploying = threads.submit(warm.run, "gateway.cli.main", *command, env=os.environ)
        page = door.get(f"{url}/1/dependencies").json
        wait_for(lambda: page()["nodes"][0]["state"] == "building")
        index.release()
        done = deploying.result()
    assert (done.returncode, done.stdout) == (0, "✓ n1: 1 spider\nslow 1: 1 spider\n"), done.stderr


class OlderScrapy(OtherRelease):
    answer: ClassVar[dict[str, Any]] = {"state": "ready", "packages": ["Scrapy==2.14.1", "odd", "scrapyd==1.6"]}


def told_by(
    handler: type[OtherRelease], door: httpx2.Client, node: Node, living: Callable[..., None]
) -> dict[str, Any]:
    """What the gateway says of an egg's installation if the node answers like this."""
    living(n1=str(node.client.base_url).rstrip("/"))
    assert post(door, egg(), "odd").status_code == 200
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        living(n1=f"http://127.0.0.1:{server.server_port}")
        answer = door.get("/projects/odd/versions/1.4/dependencies")
        server.shutdown()
    assert answer.status_code == 200, answer.text
    (told,) = answer.json()["nodes"]
    return dict(told)


def test_an_answer_that_is_not_understood_is_no_error(
    door: httpx2.Client, node: Node, living: Callable[..., None]
) -> None:
    told = told_by(OtherRelease, door, node, living)
    assert (told["state"], told["message"]) == ("unknown", "its answer has the format of another release")


def test_a_scrapy_with_a_known_vulnerability_is_warned_of(
    door: httpx2.Client, node: Node, living: Callable[..., None]
) -> None:
    (warning,) = told_by(OlderScrapy, door, node, living)["warnings"]
    assert "Scrapy 2.14.1" in warning
    assert "GHSA-76g3-c3x4-crvx" in warning
    assert "pin 2.17" in warning


class Lenient(OtherRelease):
    answer: ClassVar[dict[str, Any]] = {
        "state": "ready",
        "added": ["six", "furl"],
        "as_of": "2024-10-22",
        "raised": ["lxml"],
        "left_out": ["mysqlclient"],
    }


def test_what_a_node_has_changed_so_that_it_runs_is_told(
    door: httpx2.Client, node: Node, living: Callable[..., None]
) -> None:
    added, raised, left_out, of_its_time = told_by(Lenient, door, node, living)["warnings"]
    assert added.startswith("not declared, and added: six, furl (declare")
    assert raised.endswith("cannot be built: lxml")
    assert left_out.endswith("cannot build it: mysqlclient")
    assert "with the versions of 2024-10-22" in of_its_time
