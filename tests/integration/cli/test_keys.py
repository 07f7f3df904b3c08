"""Keys as an operator makes them: at a gateway's first start for others, and by hand."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest
import warm
from jobs import make_job
from stack import wait_until
from stores import ROOT, embedded_mongo, free_port
from typer.testing import CliRunner

from gateway.cli.api import ApiError
from gateway.cli.keys import app
from gateway.contract.crawl import CrawlSpec
from gateway.jobs.store import JobStore
from gateway.projects.environment import ProjectConfig, ProjectEnvironment, ProjectStore, SecretBox
from gateway.settings import NOTICE
from gateway.stores.mongo import connect

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    folder = tmp_path_factory.mktemp("keys")
    with embedded_mongo(folder / "mongo") as uri:
        known = {"MONGO_URI": str(uri), "DISCOVERYBOT_HOME": str(folder), "REDIS_URL": "redis://127.0.0.1:1/0"}
        yield {**os.environ, **known}


@pytest.fixture(scope="module")
def run(environment: dict[str, str]) -> Run:
    def call(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        return warm.run("gateway.cli.main", *arguments, env={**environment, **more})

    return call


@contextmanager
def _open_gateway(environment: dict[str, str], output: Path) -> Iterator[str]:
    """One that others could reach, as long as the test takes; it is asked on loopback."""
    port = free_port()
    listening = {"GATEWAY_HOST": "0.0.0.0", "GATEWAY_PORT": str(port)}
    process = warm.start("gateway.web.__main__", env={**environment, **listening}, cwd=ROOT, stdout=output)
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 60
        while not _lives(url):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        process.wait(60)


def _lives(url: str) -> bool:
    try:
        return httpx2.get(f"{url}/health/live", trust_env=False).is_success
    except httpx2.TransportError:
        return False


def assert_a_known_proxy_is_believed(url: str, key: str, run: Run) -> None:
    forwarded = {"Authorization": f"Bearer {key}", "X-Forwarded-For": "192.0.2.1, 192.0.2.7"}
    assert httpx2.post(f"{url}/scheduler/run", headers=forwarded, trust_env=False).is_success
    asked = ("audit", "--url", url, "--route", "/scheduler/run")
    wait_until(lambda: "192.0.2.7" in run(*asked, DISCOVERYBOT_KEY=key, COLUMNS="200").stdout, what="its address")


def test_a_gateway_for_others_makes_the_first_key_and_tells_it_once(
    environment: dict[str, str], run: Run, tmp_path: Path
) -> None:
    with _open_gateway(environment, tmp_path / "first") as url:
        (key,) = re.findall(r"db_first_[0-9a-f]{48}", (tmp_path / "first").read_text())
        admin = {"Authorization": f"Bearer {key}", "Host": "crawls.example.org"}
        assert httpx2.get(f"{url}/nodes", trust_env=False).status_code == 401
        assert httpx2.get(f"{url}/nodes", headers=admin, trust_env=False).status_code == 200
        # a page that calls from elsewhere is still refused
        strange = {**admin, "Origin": "https://elsewhere.example"}
        assert httpx2.post(f"{url}/scheduler/run", headers=strange, trust_env=False).status_code == 403

        made = run("keys", "create", "--user", "anne", "--scope", "crawl", "--expires", "90d", "--note", "laptop")
        assert made.returncode == 0, made.stderr
        anne = made.stdout.strip()
        assert re.fullmatch(r"db_[0-9a-f]{12}_[0-9a-f]{48}", anne)
        assert "DISCOVERYBOT_KEY" in made.stderr
        assert "first" not in made.stderr
        refused = run("jobs", "--url", url)
        assert (refused.returncode, "send a key" in refused.stderr) == (2, True)
        assert run("jobs", "--url", url, DISCOVERYBOT_KEY=anne).returncode == 0

        _, key_id, secret = anne.split("_")
        about = run("keys", "show", key_id[:8]).stdout
        assert (json.loads(about)["note"], secret in about) == ("laptop", False)
        assert len(json.loads(run("keys", "list", "--json").stdout)["keys"]) == 2
        assert run("keys", "revoke", key_id[:8]).stdout == f"{key_id}: revoked\n"
        listed = run("keys", "list", "--user", "anne").stdout
        assert "revoked" in listed
        assert "laptop" in listed
        assert secret not in listed
        shown = run("audit", "--url", url, "--route", "keys revoke", DISCOVERYBOT_KEY=key, COLUMNS="200")
        assert shown.returncode == 0, shown.stderr
        assert f"key_id={key_id}" in shown.stdout
        assert run("audit", "--url", url, DISCOVERYBOT_KEY=key, COLUMNS="200").stdout.count("keys create") == 1

    with _open_gateway({**environment, "FORWARDED_ALLOW_IPS": "127.0.0.0/8"}, tmp_path / "second") as url:
        assert "db_" not in (tmp_path / "second").read_text()
        assert httpx2.get(f"{url}/nodes", headers=admin, trust_env=False).status_code == 200
        assert_a_known_proxy_is_believed(url, key, run)


def test_an_admin_makes_and_revokes_keys_over_the_gateway(
    environment: dict[str, str], run: Run, tmp_path: Path
) -> None:
    first = json.loads(run("keys", "create", "--scope", "admin", "--json").stdout)
    # as the gateway answers, and no more
    assert "is_first" not in first
    admin = first["key"]
    with _open_gateway(environment, tmp_path / "output") as url:
        away = {"MONGO_URI": "", "DISCOVERYBOT_HOME": str(tmp_path / "elsewhere"), "DISCOVERYBOT_KEY": admin}
        named = {**away, "DISCOVERYBOT_URL": url}
        made = run("keys", "create", "--user", "carol", "--scope", "read_all", "--expires", "90d", **named)
        assert made.returncode == 0, made.stderr
        key = made.stdout.strip()
        assert re.fullmatch(r"db_[0-9a-f]{12}_[0-9a-f]{48}", key)
        # the key itself is printed once: the output may go to a log
        assert f"Invitation link: {url}/console/sign-in#<the key>" in made.stderr
        assert "Send it to carol privately" in made.stderr
        assert run("jobs", **{**named, "DISCOVERYBOT_KEY": key}).returncode == 0
        spends = run("keys", "create", "--scope", "agent", "--budget", "pages=50", "--json", **named)
        assert json.loads(spends.stdout)["budget"]["left"]["pages"] == 50, spends.stderr
        listed = run("keys", "--url", url, **away, COLUMNS="200").stdout
        assert "carol" in listed
        assert "0/50 pages" in listed
        assert run("keys", "list", "--user", "carol", "--json", **named).stdout.count("key_id") == 1
        key_id = key.split("_")[1]
        assert run("keys", "revoke", key_id[:8], "--url", url, **away).stdout == f"{key_id}: revoked\n"
        assert json.loads(run("keys", "show", key_id[:8], **named).stdout)["state"] == "revoked"
        unknown = run("keys", "create", "--scope", "read_all", "--project", "nowhere", **named)
        assert (unknown.returncode, "--project: there is no project 'nowhere'" in unknown.stderr) == (2, True)
        refused = run("keys", **{**named, "DISCOVERYBOT_KEY": ""})
        assert (refused.returncode, "send a key" in refused.stderr) == (2, True)


def test_the_first_key_has_to_be_an_admins(tmp_path: Path) -> None:
    with embedded_mongo(tmp_path / "mongo") as store:
        known = {**os.environ, "MONGO_URI": str(store), "DISCOVERYBOT_HOME": str(tmp_path)}
        refused = warm.run("gateway.cli.main", "keys", "create", "--scope", "read", env=known)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert "--scope: the first key has to be an admin's" in refused.stderr
        assert warm.run("gateway.cli.main", "keys", "create", "--scope", "admin", env=known).returncode == 0
        assert warm.run("gateway.cli.main", "keys", "create", "--scope", "read", env=known).returncode == 0


@pytest.mark.parametrize(
    "wrong",
    [
        ("--scope", "everything"),
        ("--scope", "read", "--user", "two words"),
        ("--scope", "read", "--expires", "2020-01-01"),
        ("--scope", "read", "--expires", "soon"),
        (),
    ],
)
def test_a_key_that_makes_no_sense_is_not_made(wrong: tuple[str, ...]) -> None:
    assert CliRunner().invoke(app, ["create", *wrong]).exit_code == 2


def test_keys_say_where_the_database_should_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MONGO_URI", "mongodb://127.0.0.1:1/discoverybot?serverSelectionTimeoutMS=100")
    refused = CliRunner().invoke(app, ["list"]).exception
    assert isinstance(refused, ApiError)
    assert "MongoDB cannot be asked" in str(refused)


def test_secrets_are_sealed_anew_once_the_key_is_changed(run: Run, environment: dict[str, str]) -> None:
    database = connect(environment["MONGO_URI"])

    def holding(*keys: str) -> ProjectEnvironment:
        return ProjectEnvironment(ProjectStore(database), SecretBox(lambda: keys))

    old, new = "o" * 32, "n" * 32
    holding(old).set("shop", "API_KEY", "topsecret", secret=True)
    lost = run("env", "reseal", SECRETS_KEY=new)
    assert lost.returncode == 1
    assert "API_KEY of project 'shop'" in lost.stderr
    sealed = run("env", "reseal", SECRETS_KEY=f"{new}, {old}")
    assert (sealed.returncode, sealed.stdout) == (0, "1 secret sealed anew\n"), sealed.stderr
    spec = CrawlSpec(project="shop", version="1", spider="offers", start_urls=())
    assert holding(new).handed_over(spec).env == {"API_KEY": "topsecret"}
    database.client.close()


def test_a_gateway_for_others_stays_up_without_mongodb_and_makes_the_first_key_once_it_is_there(
    tmp_path: Path,
) -> None:
    output = tmp_path / "output"
    with embedded_mongo(tmp_path / "mongo") as store:
        known = {"MONGO_URI": str(store), "DISCOVERYBOT_HOME": str(tmp_path), "REDIS_URL": "redis://127.0.0.1:1/0"}
        # what is for people is marked for a stack that is quiet
        known[NOTICE] = "for people:"
        store.kill()
        with _open_gateway({**os.environ, **known}, output) as url:
            assert httpx2.get(f"{url}/nodes", trust_env=False).status_code == 401
            store.start()
            line = re.compile(r"^for people: +(db_first_[0-9a-f]{48})$", re.MULTILINE)
            key = wait_until(lambda: line.search(output.read_text()), what="the first key")
            admin = {"Authorization": f"Bearer {key[1]}"}
            wait_until(lambda: httpx2.get(f"{url}/nodes", headers=admin, trust_env=False).status_code == 200)


def test_a_key_with_a_budget_is_made_and_its_use_is_listed(run: Run) -> None:
    made = run("keys", "create", "--user", "spender", "--scope", "agent", "--budget", "pages=50, minutes=9", "--json")
    assert made.returncode == 0, made.stderr
    budget = json.loads(made.stdout)["budget"]
    assert (budget["limits"], budget["used"]) == ({"pages": 50, "minutes": 9}, {"pages": 0, "minutes": 0})
    listed = run("keys", "list", "--user", "spender", COLUMNS="200")
    assert "0/50 pages, 0/9 minutes" in listed.stdout
    for wrong in ("pages", "pages=many", "pages=0", "page=5", ""):
        refused = run("keys", "create", "--scope", "agent", "--budget", wrong)
        assert refused.returncode == 2, wrong
        assert "pages=500" in refused.stderr
    assert run("keys", "create", "--scope", "admin", "--budget", "pages=5").returncode != 0


def test_a_key_for_projects_is_made_and_listed_with_them(run: Run, environment: dict[str, str]) -> None:
    database = connect(environment["MONGO_URI"])
    ProjectStore(database).put(ProjectConfig(id="news", rev=1, settings_json='{"RETRY_TIMES": 0}'))
    JobStore(database).insert(make_job(project="shop"))
    database.client.close()
    of_projects = ("--project", "shop", "--project", "news")
    made = run("keys", "create", "--user", "carol", "--scope", "read_all", *of_projects, "--json")
    assert made.returncode == 0, made.stderr
    told = json.loads(made.stdout)
    assert (told["projects"], told["scopes"], told["expires_at"]) == (["news", "shop"], ["read_all"], None)
    listed = run("keys", "list", "--user", "carol", COLUMNS="200")
    assert "news, shop" in listed.stdout
    for scope in ("read", "crawl", "admin"):
        refused = run("keys", "create", "--scope", scope, *of_projects)
        assert refused.returncode == 1
        assert "--project: are only for a key whose only scope is read_all" in refused.stderr
    misspelt = run("keys", "create", "--user", "carol", "--scope", "read_all", "--project", "newz")
    assert (misspelt.returncode, misspelt.stdout) == (1, "")
    assert "--project: there is no project 'newz'; did you mean news?" in misspelt.stderr
    unlike = run("keys", "create", "--user", "carol", "--scope", "read_all", "--project", "unlike")
    assert "there is no project 'unlike'; known are default, news" in unlike.stderr
