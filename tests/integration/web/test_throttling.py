"""How many requests one caller may send, and what happens to a caller that tries keys."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import redis
from integration.web.board import Serve, problem
from stack import wait_until
from stores import valkey_server

from gateway.access.key_store import KeyIssue, KeyStore
from gateway.access.keys import Scope
from gateway.settings import Settings
from gateway.stores.mongo import connect

WRONG = (401, "key_invalid")
TOO_MANY = (429, "too_many_requests")


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait longer for Redis, so that it counts each request even on a busy machine. A Redis that is away answers at
    once that it is, so this costs no time.
    """
    monkeypatch.setattr("gateway.access.request_counter._PATIENCE", 30.0)


@pytest.fixture
def own(settings: Settings) -> Settings:
    """Settings with a MongoDB database and a Redis database of their own."""
    name = f"rates-{uuid.uuid4().hex[:8]}"
    return settings.model_copy(
        update={
            "mongo_uri": settings.mongo_uri.replace("/discoverybot", f"/{name}"),
            "redis_url": settings.redis_location.removesuffix("/0") + "/5",
        }
    )


@contextmanager
def opened(serve: Serve, own: Settings, *users: str, **fields: Any) -> Iterator[tuple[httpx2.Client, list[Any]]]:
    """A gateway that has counted no request yet, and headers with a key of each of these users."""
    with redis.Redis.from_url(own.redis_location) as client:
        client.flushdb()
    with closing(connect(own.mongo_uri).client) as mongo:
        issue = KeyIssue(KeyStore(mongo.get_default_database()))
        keys = [{"Authorization": f"Bearer {issue.issue(user, [Scope.READ]).token}"} for user in users]
    with serve(own.model_copy(update=fields)) as http:
        yield http, keys


def left(answer: httpx2.Response) -> int:
    match = re.fullmatch(r'"60s";r=(\d+);t=(\d+)', answer.headers["ratelimit"])
    assert match
    assert 1 <= int(match[2]) <= 60
    return int(match[1])


def test_nobody_is_limited_on_a_laptop(serve: Serve, own: Settings) -> None:
    with opened(serve, own) as (http, _):
        assert "ratelimit" not in http.get("/jobs").raise_for_status().headers


def test_an_address_may_ask_so_often_and_is_told_when_it_may_again(serve: Serve, own: Settings) -> None:
    with opened(serve, own, gateway_rate_limit="3/minute") as (http, _):
        answers = [http.get("/jobs").raise_for_status() for _ in range(3)]
        assert [left(answer) for answer in answers] == [2, 1, 0]
        assert answers[0].headers["ratelimit-policy"] == '"60s";q=3;w=60'
        for refused in (http.get("/jobs"), http.post("/crawl", json={})):
            assert problem(refused) == TOO_MANY
            wait = int(refused.headers["retry-after"])
            assert 1 <= wait <= 60
            assert refused.headers["ratelimit"] == f'"60s";r=0;t={wait}'
            assert "GATEWAY_RATE_LIMIT" in refused.json()["error"]["message"]
        for open_to_all in ("/health/live", "/metrics"):
            assert http.get(open_to_all).status_code == 200
        assert http.get("/health").json()["status"] == "starting"


def test_the_narrower_of_two_limits_holds_and_is_over_soon(serve: Serve, own: Settings) -> None:
    with opened(serve, own, gateway_rate_limit="100/minute;2/second") as (http, _):
        refused = next(answer for answer in (http.get("/jobs") for _ in range(60)) if not answer.is_success)
        assert refused.headers["retry-after"] == "1"
        assert refused.headers["ratelimit-policy"] == '"1s";q=2;w=1, "60s";q=100;w=60'
        assert wait_until(lambda: http.get("/jobs").is_success, what="another second")


def test_a_user_has_a_limit_of_his_own_once_there_are_keys(serve: Serve, own: Settings) -> None:
    with opened(serve, own, "anne", "anne", "bert", gateway_rate_limit="3/minute") as (http, (anne, annes, bert)):
        assert [http.get("/jobs", headers=key).status_code for key in (anne, annes, anne)] == [200] * 3
        assert problem(http.get("/jobs", headers=annes)) == TOO_MANY
        assert left(http.get("/jobs", headers=bert)) == 2


@pytest.mark.parametrize(("setting", "policy"), [(None, '"60s";q=1200;w=60'), ("none", None)])
def test_with_keys_there_is_a_limit_unless_there_shall_be_none(
    serve: Serve, own: Settings, setting: str | None, policy: str | None
) -> None:
    with opened(serve, own, "anne", gateway_rate_limit=setting) as (http, (anne,)):
        assert http.get("/jobs", headers=anne).raise_for_status().headers.get("ratelimit-policy") == policy


def test_without_redis_everybody_is_let_through(serve: Serve, own: Settings, tmp_path: Path) -> None:
    with ExitStack() as stack:
        store = stack.enter_context(valkey_server(tmp_path))
        http, _ = stack.enter_context(opened(serve, own, gateway_rate_limit="2/minute", redis_url=str(store)))
        assert left(http.get("/jobs")) == 1
        store.kill()
        assert [http.get("/jobs").status_code for _ in range(9)] == [200] * 9
        store.start()
        assert wait_until(lambda: not http.get("/jobs").is_success, what="a limit")


def test_who_was_refused_gains_nothing_when_redis_goes(serve: Serve, own: Settings, tmp_path: Path) -> None:
    with ExitStack() as stack:
        store = stack.enter_context(valkey_server(tmp_path))
        fields = {"gateway_rate_limit": "1/minute;1/second", "redis_url": str(store)}
        http, (anne, bert) = stack.enter_context(opened(serve, own, "anne", "bert", **fields))
        http.get("/jobs", headers=anne).raise_for_status()
        told = wait_until(lambda: refusal(http.get("/jobs", headers=anne), more_than=1), what="the minute's refusal")
        store.kill()
        assert http.get("/jobs", headers=bert).status_code == 200
        still = http.get("/jobs", headers=anne)
        assert problem(still) == TOO_MANY
        assert 1 <= int(still.headers["retry-after"]) <= told


def refusal(answer: httpx2.Response, *, more_than: int) -> int | None:
    wait = int(answer.headers.get("retry-after", 0))
    return wait if wait > more_than else None


def answers_until_ignored(guess: Callable[[int], tuple[int, str]]) -> list[tuple[int, str]]:
    """The answers to guesses until one is refused unread. If Redis is too slow to count each guess, these are some
    more than allowed.
    """
    answers = [WRONG]
    while answers[-1] == WRONG and len(answers) < 300:
        answers.append(guess(len(answers)))
    assert answers[-1] == TOO_MANY
    return answers[1:]


def test_who_tries_keys_is_not_listened_to_but_those_beside_him_are(serve: Serve, own: Settings) -> None:
    with opened(serve, own, "anne", "bert") as (http, (anne, bert)):
        http.get("/jobs", headers=anne).raise_for_status()
        wrong = {"Authorization": "Bearer db_0123456789ab_guess"}
        assert answers_until_ignored(lambda _: problem(http.get("/jobs", headers=wrong)))[:60] == [WRONG] * 60
        assert int(http.get("/jobs", headers=wrong).headers["retry-after"]) <= 60
        # the database is not asked whether this key is right
        assert problem(http.get("/jobs", headers=bert)) == TOO_MANY
        assert http.get("/jobs", headers=anne).status_code == 200
        assert http.get("/jobs").status_code == 401


@pytest.mark.parametrize("guessed", ["session", "stream token"])
def test_nor_is_who_tries_what_stands_for_a_key(serve: Serve, own: Settings, guessed: str) -> None:
    with opened(serve, own, "anne") as (http, (anne,)):
        http.post("/session", headers=anne).raise_for_status()
        session = {"Cookie": f"discoverybot_session={http.cookies['discoverybot_session']}"}
        http.cookies.clear()

        def guess(number: int) -> tuple[int, str]:
            if guessed == "session":
                return problem(http.get("/jobs", headers={"Cookie": f"discoverybot_session=cs_{number}_a_9_b"}))
            return problem(http.get(f"/jobs/{'0' * 32}/logs", params={"token": f"st_{number}_9_b"}))

        assert answers_until_ignored(guess)[:60] == [WRONG] * 60
        assert http.get("/jobs", headers=session).status_code == 200


def test_what_other_pages_send_keeps_nobody_from_signing_in(serve: Serve, own: Settings) -> None:
    with opened(serve, own, "anne") as (http, (anne,)):
        elsewhere = {"Sec-Fetch-Site": "cross-site"}
        log = f"/jobs/{'0' * 32}/logs"
        wrong = {"token": "st_a_9_b"}
        sent = answers_until_ignored(lambda _: problem(http.get(log, params=wrong, headers=elsewhere)))
        assert sent[:60] == [WRONG] * 60
        assert problem(http.get(log, params=wrong)) == WRONG
        planted = {"Cookie": "discoverybot_session=cs_a_a_9_b"}
        answers_until_ignored(lambda _: problem(http.get("/jobs", headers=planted)))
        form = {"key": anne["Authorization"].removeprefix("Bearer ")}
        assert http.post("/session", json=form, headers=planted).status_code == 200


def test_what_is_no_key_by_its_shape_is_not_counted(serve: Serve, own: Settings) -> None:
    with opened(serve, own, "anne", "bert") as (http, (anne, bert)):
        log = f"/jobs/{'0' * 32}/logs"
        for _ in range(70):
            assert problem(http.get("/jobs", headers={"Authorization": "Bearer nonsense"})) == WRONG
            assert problem(http.get(log, params={"token": "nonsense"})) == WRONG
        assert http.get("/jobs", headers=anne).status_code == 200
        assert problem(http.get(log, params={"token": "st_a_9_b"})) == WRONG
        form = {"key": bert["Authorization"].removeprefix("Bearer ")}
        with ThreadPoolExecutor(70) as pool:
            tried = list(pool.map(lambda _: problem(http.post("/session", json={"key": "nonsense"})), range(70)))
        assert tried == [WRONG] * 70
        assert http.post("/session", json=form).status_code == 200


def test_no_key_is_named_as_the_question_whether_there_are_any(serve: Serve, own: Settings) -> None:
    with opened(serve, own, "anne") as (http, _):
        assert problem(http.get("/jobs")) == (401, "key_required")
        for told in ({"Authorization": "Bearer db_any key_a"}, {"Cookie": 'discoverybot_session="cs_any key_a_9_b"'}):
            assert problem(http.get("/jobs", headers=told)) == (401, "key_invalid")
