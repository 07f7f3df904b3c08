"""Rules and alerts over HTTP: what each option does, what is refused, and who may see and change them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import httpx2
import pytest
from jobs import make_job

from gateway.clock import utc_now
from gateway.contract.records import Progress
from gateway.jobs.job import Job, JobStatus
from gateway.signals.alert_rules import BUILT_IN, AlertGroup, Grouping
from gateway.signals.alerts import Alert, AlertStore

HOUR = timedelta(hours=1)


class Rules:
    def __init__(self, client: httpx2.Client, user: str) -> None:
        self.client, self.user = client, user

    def call(self, method: str, path: str = "", **more: Any) -> httpx2.Response:
        is_alert = path and not path.startswith("/rules")
        params = {"user_id": self.user} if method != "POST" and not is_alert else {}
        return self.client.request(method, f"/alerts{path}", params={**params, **more.pop("params", {})}, **more)

    def make(self, path: str = "/rules", params: Any = None, **fields: Any) -> Any:
        body = {"name": "a rule", "user_id": self.user, "when": {"measure": "failed"}, **fields}
        answer = self.call("POST", path, json=body, params=params or {})
        assert answer.is_success, answer.text
        return answer.json()

    def refusal(self, method: str, path: str, **more: Any) -> tuple[int, str | None]:
        answer = self.call(method, path, **more)
        return answer.status_code, (answer.json()["error"]["detail"] or {}).get("field")


@pytest.fixture
def rules(gateway: httpx2.Client, user: str) -> Rules:
    return Rules(gateway, user)


def fired(database: Any, user: str, group: str = "shop/prices") -> str:
    """The id of an alert that fires and was told."""
    rule, now = BUILT_IN["crawl-failed"], utc_now()
    alert = Alert.new(rule, user, AlertGroup(Grouping.SPIDER, group), now).fires(now, "it crashed", None, None)
    AlertStore(database).save(alert.model_copy(update={"told": True}), None)
    return alert.id


def test_a_rule_is_made_changed_and_deleted(rules: Rules) -> None:
    when = {"measure": "items", "below": 0.5, "of_usual": 10}
    made = rules.make(when=when, group_by="site", filter={"projects": ["shop"]}, remind_seconds=3600)
    path = f"/rules/{made['rule_id']}"
    assert (made["when"]["of_usual"], made["group_by"], made["all_users"]) == (10, "site", False)
    assert rules.call("GET", path).json() == made
    quiet = {"since": "22:00", "until": "07:00", "timezone": "Europe/Berlin"}
    changed = rules.call("PATCH", path, json={"quiet": quiet, "remind_seconds": None}).json()
    assert (changed["quiet"], changed["remind_seconds"], changed["when"]) == (quiet, None, made["when"])
    assert rules.call("DELETE", path).status_code == 204
    assert rules.refusal("GET", path)[0] == 404


def test_what_everybody_has_is_changed_for_oneself_and_back(rules: Rules) -> None:
    path = "/rules/crawl-failed"
    before = rules.call("GET", path).json()
    assert (before["user_id"], before["paused"]) == ("", False)
    assert rules.call("PATCH", path, json={"paused": True}).json()["paused"]
    mine = {rule["rule_id"]: rule for rule in rules.call("GET", "/rules").json()["rules"]}
    assert (mine["crawl-failed"]["paused"], mine["crawl-failed"]["user_id"]) == (True, rules.user)
    assert set(mine) == set(BUILT_IN)
    others = rules.client.get(f"/alerts{path}", params={"user_id": "somebody-else"}).json()
    assert not others["paused"]
    assert rules.call("DELETE", path).status_code == 204
    assert rules.call("GET", path).json() == before
    assert rules.call("DELETE", path).json()["error"]["message"].startswith("everybody has this rule")


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"when": {"measure": "items"}}, "when"),
        ({"when": {"measure": "items", "above": 1, "below": 2}}, "when"),
        ({"when": {"measure": "failed", "above": 1}}, "when"),
        ({"when": {"measure": "queue", "above": 1, "of_usual": 5}}, "when"),
        ({"when": {"measure": "queue", "above": 1, "runs": 2}}, "when"),
        ({"when": {"measure": "failed", "for_seconds": 2}}, "when"),
        ({"when": {"measure": "luck", "above": 1}}, "when.measure"),
        ({"when": {"measure": "node_down"}}, "when"),
        ({"quiet": {"since": "25:00", "until": "07:00"}}, "quiet.since"),
        ({"quiet": {"since": "22:00", "until": "07:00", "timezone": "Mars/Olympus"}}, "quiet.timezone"),
        ({"quiet": {"since": "22:00", "until": "22:00"}}, "quiet"),
        ({"to": ["0" * 32]}, "to"),
        ({"group_by": "node"}, "group_by"),
        ({"remind_seconds": 1}, "remind_seconds"),
    ],
    ids=str,
)
def test_a_rule_that_cannot_be_is_refused_and_the_field_named(rules: Rules, fields: Any, field: str) -> None:
    body = {"name": "a rule", "user_id": rules.user, "when": {"measure": "failed"}, **fields}
    assert rules.refusal("POST", "/rules", json=body) == (422, field)


def test_what_may_stand_in_a_field_is_said_in_words(rules: Rules) -> None:
    body = {"name": "a rule", "user_id": rules.user, "when": {"measure": "failed"}, "group_by": "node"}
    said = rules.call("POST", "/rules", json=body).json()["error"]["message"]
    assert said == "group_by: Input should be 'spider', 'schedule', 'site', 'project' or 'rule'"


def test_a_change_of_nothing_makes_no_form_of_ones_own(rules: Rules) -> None:
    assert not rules.call("PATCH", "/rules/crawl-failed", json={}).json()["is_changed"]


def test_a_rule_whose_endpoint_is_gone_can_still_be_paused(rules: Rules) -> None:
    body = {"url": "https://example.com/", "user_id": rules.user}
    endpoint = rules.client.post("/endpoints", json=body).json()["endpoint_id"]
    path = f"/rules/{rules.make(to=[endpoint])['rule_id']}"
    rules.client.delete(f"/endpoints/{endpoint}")
    assert rules.call("PATCH", path, json={"paused": True}).json()["paused"]
    assert rules.refusal("PATCH", path, json={"to": [endpoint, "0" * 32]}) == (422, "to")


def test_a_silence_that_is_over_is_none(rules: Rules, database: Any) -> None:
    over, lasting = ((utc_now() + hours * HOUR).isoformat() for hours in (-1, 1))
    path, alert = f"/rules/{rules.make(silenced_until=lasting)['rule_id']}", f"/{fired(database, rules.user)}"
    for until, is_silenced in ((lasting, True), (over, False)):
        seen = rules.call("PATCH", path, json={"silenced_until": until}).json()
        assert (seen["silenced_until"] is not None) == is_silenced
        seen = rules.call("POST", f"{alert}/silence", json={"until": until}).json()
        assert (seen["silenced_until"] is not None) == is_silenced


def test_without_keys_the_rules_of_all_users_are_listed(rules: Rules) -> None:
    made = rules.make(name="made in the console")
    rules.call("PATCH", "/rules/crawl-failed", json={"paused": True})
    listed = rules.client.get("/alerts/rules").json()["rules"]
    assert made["rule_id"] in [one["rule_id"] for one in listed]
    assert [one["paused"] for one in listed if one["rule_id"] == "crawl-failed"] == [False]
    assert "made in the console" in rules.client.get("/console/alerts").text


def test_the_console_says_whether_anybody_is_told(rules: Rules) -> None:
    """Without keys an endpoint of any user counts, because the command line has another user than the console."""
    words = "Nobody gets a message about alerts yet"
    assert words in rules.client.get("/console/alerts").text
    body = {"url": "https://example.com/", "user_id": rules.user, "events": ["alert.firing"]}
    path = f"/endpoints/{rules.client.post('/endpoints', json=body).json()['endpoint_id']}"
    assert words not in rules.client.get("/console/alerts").text
    rules.client.patch(path, json={"paused": True})
    assert words in rules.client.get("/console/alerts").text


def test_nobody_has_too_many(rules: Rules, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.signals.rule_book.MOST_RULES", 1)
    rules.make()
    body = {"name": "b", "user_id": rules.user, "when": {"measure": "failed"}}
    assert rules.refusal("POST", "/rules", json=body)[0] == 409


def test_a_preview_says_what_would_have_been_told(rules: Rules, keep: Callable[[Job], Job]) -> None:
    now = utc_now()
    for hours, (status, items) in enumerate(
        [("error", 0), ("finished", 200), ("finished", 40), ("finished", 30), *[("finished", 200)] * 4], 1
    ):
        ended = now - hours * HOUR
        facts = {"status": JobStatus(status), "live_key": None, "settled": True, "finished_at": ended}
        keep(make_job(user_id=rules.user, project="shop", spider="p", progress=Progress(items_count=items), **facts))
    few = {"measure": "items", "below": 0.5, "of_usual": 3}
    told = rules.make("/rules/preview", when=few)
    assert (told["runs"], told["count"]) == (8, 1)
    assert [(one["group"], one["message"]) for one in told["incidents"]] == [("shop/p", "30 items, usually 200")]
    assert told["incidents"][0]["until"] is not None
    failed = rules.make("/rules/preview")
    assert [(one["message"], one["until"]) for one in failed["incidents"]] == [("failed", None)]
    assert rules.make("/rules/preview", params={"days": 0.01})["runs"] == 0
    assert rules.call("GET", "/rules").json()["rules"][0]["builtin"]
    body = {"name": "b", "user_id": rules.user, "when": {"measure": "queue", "above": 5}}
    assert rules.refusal("POST", "/rules/preview", json=body) == (422, "when")


def test_alerts_are_listed_silenced_and_forgotten(rules: Rules, database: Any) -> None:
    alert_id = fired(database, rules.user)
    (alert,) = rules.call("GET", params={"firing": "true"}).json()["alerts"]
    assert (alert["rule"], alert["group"], alert["firing"]) == ("a crawl failed", "shop/prices", True)
    assert rules.call("GET", params={"firing": "false"}).json()["alerts"] == []
    until = (utc_now() + HOUR).isoformat()
    silenced = rules.call("POST", f"/{alert_id}/silence", json={"until": until}).json()
    assert silenced["silenced_until"] is not None
    ended = rules.call("POST", f"/{alert_id}/silence", json={"until": None}).json()
    assert ended["silenced_until"] is None
    assert rules.call("DELETE", f"/{alert_id}").status_code == 204
    assert rules.refusal("GET", f"/{alert_id}")[0] == 404


def test_what_fires_goes_on_when_the_rule_that_everybody_has_is_silenced(rules: Rules, database: Any) -> None:
    alert_id = fired(database, rules.user)
    until = (utc_now() + HOUR).isoformat()
    rules.call("PATCH", "/rules/crawl-failed", json={"silenced_until": until, "name": "mine"})
    alert = rules.call("GET", f"/{alert_id}").json()
    assert (alert["firing"], alert["rule_id"], alert["rule"]) == (True, "crawl-failed", "mine")


def test_the_operators_form_of_a_rule_is_everybodys_who_has_none(rules: Rules, database: Any) -> None:
    path, other = "/alerts/rules/crawl-failed", {"user_id": "has-its-own"}
    theirs, alerts = rules.client, {user: fired(database, user) for user in (rules.user, "has-its-own")}
    theirs.patch(path, params=other, json={"name": "its own"})
    assert theirs.patch(path, json={"when": {"measure": "failed", "runs": 2}}).is_success
    seen = rules.call("GET", "/rules/crawl-failed").json()
    assert (seen["when"]["runs"], seen["is_changed"]) == (2, False)
    assert theirs.get(path, params=other).json()["when"]["runs"] == 1
    # the alert is gone with the condition that it was judged by: nothing would ever end it
    assert rules.refusal("GET", f"/{alerts[rules.user]}")[0] == 404
    assert theirs.get(f"/alerts/{alerts['has-its-own']}").json()["firing"]
    assert rules.call("DELETE", "/rules/crawl-failed").status_code == 409
    assert rules.call("PATCH", "/rules/crawl-failed", json={"paused": True}).json()["user_id"] == rules.user
    assert not theirs.get(path).json()["paused"]
    for params in ({}, other):
        assert theirs.delete(path, params=params).status_code == 204


def test_a_rule_with_another_condition_begins_anew(rules: Rules, database: Any) -> None:
    alert_id = fired(database, rules.user)
    rules.call("PATCH", "/rules/crawl-failed", json={"when": {"measure": "failed", "runs": 2}})
    assert rules.refusal("GET", f"/{alert_id}")[0] == 404
    other = fired(database, "somebody-else")
    rules.call("PATCH", "/rules/crawl-failed", json={"when": {"measure": "failed", "runs": 3}})
    assert rules.client.get(f"/alerts/{other}").json()["firing"]
