"""A project's variables: secrets are stored sealed, and only the project's attempts get them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from conftest import Platform
from node_story import submitted

from gateway.contract.crawl import CrawlSpec, Egg
from gateway.contract.records import NodeSpec
from gateway.errors import InvalidRequestError, SecretsKeyError, VariableNotFoundError
from gateway.jobs.job import JobStatus
from gateway.projects.environment import NewVariable

KEY = "k" * 32
EGG = Egg("shop", "1.0")


def spec(project: str = "shop", **fields: Any) -> CrawlSpec:
    return CrawlSpec(project=project, version="1.0", spider="offers", start_urls=("https://a.example/",), **fields)


def posted(platform: Platform) -> list[tuple[NodeSpec, dict[str, str]]]:
    """What the node was sent: spec and variables."""
    forms = [form for path, form in platform.double.requests if path == "/schedule.json"]
    return [(NodeSpec.model_validate_json(form["spec"]), json.loads(form.get("env", "{}"))) for form in forms]


def test_a_secret_is_sealed_in_the_database_and_handed_over_beside_the_spec(platform: Platform) -> None:
    platform.environment.set("Shop", "API_KEY", "topsecret", secret=True)
    platform.environment.set("shop", "REGION", "eu", secret=False)
    assert "topsecret" not in str(list(platform.database["projects"].find()))
    platform.heartbeat(eggs=(EGG,))
    (job,) = submitted(platform, spec=spec(env={"REGION": "us", "MORE": "x"}))
    platform.dispatch.fill()
    ((sent, env),) = posted(platform)
    assert env == {"API_KEY": "topsecret", "REGION": "us", "MORE": "x"}
    assert (sent.has_env, sent.env) == (True, {})
    collections = map(platform.database.__getitem__, platform.database.list_collection_names())
    assert "topsecret" not in str([list(collection.find()) for collection in collections])
    assert platform.jobs.get(job.id).status is JobStatus.RUNNING


def test_another_project_and_our_own_get_none_of_it(platform: Platform) -> None:
    platform.environment.set("shop", "API_KEY", "topsecret", secret=True)
    platform.environment.set_settings("shop", {"DOWNLOAD_DELAY": 3})
    platform.heartbeat(eggs=(EGG._replace(project="rival"),))
    submitted(platform, spec=spec("rival"))
    submitted(platform)
    platform.dispatch.fill()
    assert [(sent.has_env, sent.settings, env) for sent, env in posted(platform)] == [(False, {}, {})] * 2


def test_an_attempt_that_shows_no_sign_of_life_is_posted_again_with_its_variables(platform: Platform) -> None:
    platform.environment.set("shop", "API_KEY", "topsecret", secret=True)
    platform.heartbeat(eggs=(EGG,))
    (job,) = submitted(platform, spec=spec())
    platform.dispatch.fill()
    platform.dispatch.post_again(platform.jobs.get(job.id))
    assert [env for _, env in posted(platform)] == [{"API_KEY": "topsecret"}] * 2


def test_the_settings_of_a_crawl_go_over_those_of_its_project(platform: Platform) -> None:
    settings = {"ITEM_PIPELINES": {"shop.pipelines.Prices": 300}, "DOWNLOAD_DELAY": 3}
    platform.environment.set_settings("shop", settings, ["SHOP_PAGES"])
    platform.heartbeat(eggs=(EGG,))
    submitted(platform, spec=spec(settings={"DOWNLOAD_DELAY": 0, "SHOP_PAGES": 2}))
    platform.dispatch.fill()
    ((sent, _),) = posted(platform)
    assert sent.settings == {**settings, "DOWNLOAD_DELAY": 0, "SHOP_PAGES": 2}


def test_where_the_key_is_missing_the_job_waits_and_says_why_and_no_node_is_blamed(platform: Platform) -> None:
    platform.environment.set("shop", "API_KEY", "topsecret", secret=True)
    platform.keys[:] = ["another" * 5]
    platform.heartbeat(eggs=(EGG,))
    (job,) = submitted(platform, spec=spec())
    platform.dispatch.fill()
    waiting = platform.jobs.get(job.id)
    assert waiting.status is JobStatus.PENDING
    assert "SECRETS_KEY" in (waiting.message or "")
    assert "topsecret" not in (waiting.message or "")
    assert not posted(platform)
    assert not platform.nodes.all()[0].failures
    platform.keys[:] = [KEY]
    platform.ahead += waiting.not_before - platform.clock()
    platform.dispatch.fill()
    assert platform.jobs.get(job.id).status is JobStatus.RUNNING


def test_keys_are_changed_by_sealing_anew(platform: Platform) -> None:
    platform.environment.set("shop", "API_KEY", "topsecret", secret=True)
    platform.environment.set("shop", "REGION", "eu", secret=False)
    platform.keys[:] = ["n" * 32, KEY]
    assert platform.environment.seal_anew() == 1
    assert platform.environment.seal_anew() == 0
    platform.keys[:] = ["n" * 32]
    assert platform.environment.handed_over(spec()).env == {"API_KEY": "topsecret", "REGION": "eu"}


def test_a_secret_whose_key_is_lost_can_be_replaced_and_removed(platform: Platform) -> None:
    platform.environment.set("shop", "API_KEY", "topsecret", secret=True)
    platform.environment.set("shop", "TOKEN", "topsecret", secret=True)
    platform.keys[:] = ["n" * 32]
    with pytest.raises(SecretsKeyError):
        platform.environment.handed_over(spec())
    platform.environment.unset("shop", "TOKEN")
    platform.environment.set("shop", "API_KEY", "new", secret=True)
    assert platform.environment.handed_over(spec()).env == {"API_KEY": "new"}


def test_what_is_secret_stays_so_until_it_is_removed(platform: Platform) -> None:
    platform.environment.set("shop", "API_KEY", "one", secret=True)
    assert platform.environment.set("shop", "API_KEY", "two", secret=False).env["API_KEY"].is_secret
    with pytest.raises(InvalidRequestError, match=r"variables\.API_KEY: is secret"):
        platform.environment.replace("shop", {"API_KEY": NewVariable(None)})
    platform.environment.unset("shop", "API_KEY")
    assert not platform.environment.set("shop", "API_KEY", "three", secret=False).env["API_KEY"].is_secret


def test_all_are_replaced_and_those_without_a_value_keep_theirs(platform: Platform) -> None:
    for name in ("API_KEY", "TOKEN"):
        platform.environment.set("shop", name, f"secret of {name}", secret=True)
    platform.environment.set("shop", "REGION", "eu", secret=False)
    wanted = {"API_KEY": NewVariable(None, secret=True), "REGION": NewVariable(None, secret=True)}
    platform.environment.replace("shop", {**wanted, "MODE": NewVariable("fast")})
    env = platform.environment.handed_over(spec()).env
    assert env == {"API_KEY": "secret of API_KEY", "REGION": "eu", "MODE": "fast"}
    assert platform.environment.get("shop").env["REGION"].is_secret
    with pytest.raises(InvalidRequestError, match=r"variables\.TOKEN: has no value yet"):
        platform.environment.replace("shop", {"TOKEN": NewVariable(None, secret=True)})


def test_what_cannot_be_is_refused_and_changes_nothing(platform: Platform) -> None:
    for name, value in (("LD_PRELOAD", "x"), ("A", "x" * 40_000), ("A", "a\0b")):
        with pytest.raises(InvalidRequestError):
            platform.environment.set("shop", name, value, secret=True)
    platform.environment.set("shop", "A", "x" * 20_000, secret=True)
    with pytest.raises(InvalidRequestError, match="all variables together"):
        platform.environment.set("shop", "B", "x" * 20_000, secret=True)
    with pytest.raises(VariableNotFoundError):
        platform.environment.unset("shop", "B")
    with pytest.raises(InvalidRequestError, match="project: "):
        platform.environment.set("DiscoveryBot", "A", "x", secret=False)
    assert [*platform.environment.get("shop").env] == ["A"]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"settings": {"JOBDIR": "x"}}, "settings.JOBDIR"),
        ({"settings": {"SHOP_PAGES": 1, "SHOP_OTHER": 1}}, "settings.SHOP_OTHER"),
        ({"settings": {"RETRY_TIMES": 99}}, "settings.RETRY_TIMES"),
        ({"env": {"PYTHONPATH": "/tmp"}}, "env.PYTHONPATH"),
        ({"env": {"A": "b", "API_URL": "https://elsewhere.example"}}, "env.API_URL"),
        ({"project": "default", "env": {"A": "b"}}, "env"),
        ({"project": "default", "settings": {"SHOP_PAGES": 1}}, "settings.SHOP_PAGES"),
    ],
)
def test_a_crawl_may_set_only_what_is_harmless_or_opened(platform: Platform, fields: Any, field: str) -> None:
    platform.environment.set_settings("shop", {}, ["SHOP_PAGES"], ["A"])
    platform.environment.check(spec(settings={"RETRY_TIMES": 0, "SHOP_PAGES": 1}, env={"A": "b"}))
    with pytest.raises(InvalidRequestError) as refused:
        platform.environment.check(spec(**fields))
    assert refused.value.field == field
