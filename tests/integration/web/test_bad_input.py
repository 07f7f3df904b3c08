"""Bad input gets a 4xx that names the field, and leaves nothing behind; nothing at all gets a 5xx."""

from __future__ import annotations

import json
import string
from typing import Any

import httpx2
import pytest
import redis
from forms import full_or_short
from hypothesis import HealthCheck, given
from hypothesis import settings as limits
from hypothesis import strategies as st
from pymongo.database import Database

from gateway.settings import Settings

Crawl = dict[str, Any]
JSON = {"Content-Type": "application/json"}

WRONG: list[tuple[str, dict[str, Any], int]] = [
    ("user_id", {"user_id": "a b"}, 422),
    ("spider", {"spider": "nope"}, 422),
    ("project", {"project": "nope"}, 422),
    ("start_urls.1", {"start_urls": ["https://example.com", "ftp://example.com"]}, 422),
    ("start_urls.0", {"start_urls": ["http://2130706433/"]}, 403),
    ("start_urls.0", {"start_urls": ["http://[::ffff:127.0.0.1]/"]}, 403),
    ("start_urls.0", {"start_urls": ["http://169.254.169.254/latest/meta-data/"]}, 403),
    ("start_urls.0", {"start_urls": ["file:///etc/passwd"]}, 422),
    ("start_urls.0", {"start_urls": ["http://[::1"]}, 422),
    ("start_urls.0", {"start_urls": ["http://example.com:99999"]}, 422),
    ("start_urls.0", {"start_urls": ["http://user:pw@example.com/"]}, 422),
    ("start_urls.0", {"start_urls": [""]}, 422),
    ("depth", {"depth": "2"}, 422),
    ("ignore_cache", {"ignore_cache": 0}, 422),
    ("params.colour", {"params": {"colour": "red"}}, 422),
    ("params.robots", {"params": {"robots": "no"}}, 422),
    ("params", {"params": {"$where": 1}}, 422),
    ("webhook_url", {"webhook_url": "http://localhost/hook"}, 403),
    ("deptth", {"deptth": 2}, 422),
    ("version", {"version": "1"}, 422),
    ("project", {"project": "nope", "version": "1"}, 422),
    ("max_items", {"max_items": 0}, 422),
    ("expect.min_items", {"expect": {"min_items": 0}}, 422),
    ("expect.min_items", {"expect": {"min_items": 6}, "max_items": 5}, 422),
    ("expect.fields.title", {"expect": {"fields": {"title": 1.5}}}, 422),
    ("expect.title", {"expect": {"title": 0.9}}, 422),
    ("expect", {"expect": {"min_items": 5, "stop_early_after": 5}}, 422),
    ("expect.min_items", {"interval": "@daily", "expect": {"min_items": 6}, "max_items": 5}, 422),
    # schedules
    ("schedule_at", {"schedule_at": "2020-01-01T00:00:00Z"}, 422),
    ("schedule_at", {"schedule_at": "2127-06-01T09:00:00"}, 422),
    ("schedule_at", {"schedule_at": "9999-12-31T23:59:59Z"}, 422),
    ("schedule_at", {"schedule_at": 4_000_000_000}, 422),
    ("schedule_at", {"schedule_at": "2020-01-01T00:00:00Z", "interval": "@daily"}, 422),
    ("interval", {"interval": "0 0 30 2 *"}, 422),
    ("interval", {"interval": "0 0 9 * * *"}, 422),
    ("interval", {"interval": "0 9 * * MON#6"}, 422),
    ("interval", {"interval": "sometimes"}, 422),
    ("interval", {"interval": "every 0s"}, 422),
    ("interval", {"interval": "every 500d"}, 422),
    ("timezone", {"interval": "@daily", "timezone": "Europe/Atlantis"}, 422),
    ("timezone", {"timezone": "Europe/Paris"}, 422),
    ("jitter", {"interval": "@daily", "jitter": 0.51}, 422),
    ("jitter", {"schedule_at": "2127-06-01T09:00:00Z", "jitter": 0.1}, 422),
    ("overlap", {"interval": "@daily", "overlap": "sometimes"}, 422),
    ("ends_at", {"interval": "@daily", "ends_at": "2020-01-01T00:00:00Z"}, 422),
    (
        "ends_at",
        {"interval": "@daily", "schedule_at": "2127-01-02T00:00:00Z", "ends_at": "2127-01-01T00:00:00Z"},
        422,
    ),
    (
        "ends_at",
        {"interval": "@yearly", "schedule_at": "2127-01-02T00:00:00Z", "ends_at": "2127-01-03T00:00:00Z"},
        422,
    ),
    ("max_runs", {"interval": "@daily", "max_runs": 0}, 422),
    ("start_urls.0", {"interval": "@daily", "start_urls": ["http://10.0.0.1/"]}, 403),
    ("webhook_url", {"interval": "@daily", "webhook_url": "http://localhost/hook"}, 403),
    ("params.colour", {"interval": "@daily", "params": {"colour": "red"}}, 422),
    ("spider", {"schedule_at": "2127-06-01T09:00:00Z", "spider": "nope"}, 422),
    # how pages are fetched
    ("fetch.proxy", {"fetch": {"proxy": "http://169.254.169.254:3128"}}, 403),
    ("fetch.proxy", {"interval": "@daily", "fetch": {"proxy": "http://localhost:3128"}}, 403),
    ("fetch.concurrency", {"fetch": {"concurrency": "3"}}, 422),
    ("fetch.obey_robots", {"fetch": {"obey_robots": 1}}, 422),
    ("fetch.colour", {"fetch": {"colour": "red"}}, 422),
]


@pytest.mark.parametrize(("field", "change", "status"), WRONG)
def test_what_is_wrong_is_named_and_leaves_nothing_behind(
    *,
    gateway: httpx2.Client,
    database: Database[dict[str, Any]],
    settings: Settings,
    crawl: Crawl,
    field: str,
    change: dict[str, Any],
    status: int,
) -> None:
    response = gateway.post("/crawl", json={**crawl, **change})
    error = response.json()["error"]
    assert (response.status_code, error["detail"]["field"]) == (status, field)
    assert error["message"].startswith(field)
    assert response.json()["request_id"] == response.headers["X-Request-ID"]
    for collection in ("jobs", "schedules"):
        assert database[collection].find_one({"user_id": crawl["user_id"]}) is None
    with redis.Redis.from_url(settings.redis_location) as client:
        assert client.keys(f"crawl:{crawl['user_id']}:*") == []


def test_an_unknown_spider_is_answered_with_those_there_are(gateway: httpx2.Client, crawl: Crawl) -> None:
    assert gateway.post("/crawl", json={**crawl, "spider": "nope"}).json()["error"]["detail"]["known"] == ["seo"]


@pytest.mark.parametrize(
    ("name", "meant"),
    [("cron", "interval"), ("schedule", "interval"), ("urls", "start_urls"), ("max_page", "max_pages")],
)
def test_a_field_of_another_name_is_answered_with_ours(
    gateway: httpx2.Client, crawl: Crawl, name: str, meant: str
) -> None:
    error = gateway.post("/crawl", json={**crawl, name: "@daily"}).json()["error"]
    assert error["message"] == f"{name}: there is no such field; did you mean {meant}?"
    unknown = gateway.post("/crawl", json={**crawl, "colour": 1}).json()["error"]
    assert unknown["message"] == "colour: there is no such field"
    # no hint at a field of another body
    assert gateway.post("/views", json={"cron": 1}).json()["error"]["message"].count("did you mean") == 0


@pytest.mark.parametrize(
    "body",
    [b"", b"null", b"[]", b"{", b"\xff\xfe", b"[" * 100_000, b'{"depth": ' + b"9" * 5000 + b"}", b'{"\\ud800": 1}'],
)
def test_a_body_that_is_no_crawl_is_refused_as_such(gateway: httpx2.Client, body: bytes) -> None:
    response = gateway.post("/crawl", content=body, headers=JSON)
    assert (response.status_code, response.json()["error"]["detail"]["field"]) == (422, "body")


def test_text_of_a_wrong_length_is_told_in_characters(gateway: httpx2.Client, crawl: Crawl) -> None:
    answers = [gateway.post("/crawl", json=crawl | {"spider": text}).json() for text in ("", "x" * 101)]
    told = ["spider: must not be empty", "spider: must have at most 100 characters"]
    assert [answer["error"]["message"] for answer in answers] == told


def test_a_body_of_another_type_is_answered_with_the_type_to_send(gateway: httpx2.Client, crawl: Crawl) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    response = gateway.post("/crawl", content=json.dumps(crawl), headers=form)
    assert response.status_code == 422
    assert "Content-Type: application/json" in response.json()["error"]["message"]


def test_a_body_over_256_kib_is_refused(gateway: httpx2.Client, crawl: Crawl) -> None:
    response = gateway.post("/crawl", json={**crawl, "params": {"a": "x" * (256 << 10)}})
    assert (response.status_code, response.json()["error"]["code"]) == (413, "body_too_large")


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/jobs?staus=running", "staus"),
        ("/jobs?status=done", "status.0"),
        ("/jobs?limit=201", "limit"),
        ("/jobs?limit=x", "limit"),
        ("/jobs?after=1-2", "after"),
        ("/jobs?after=%00", "after"),
        ("/jobs?since=2027-01-01", "since"),
        ("/jobs?since=1700000000", "since"),
        ("/jobs?since=2027-01-01T00:00:00", "since"),
        ("/jobs?until=0001-01-01T00:00:00%2B23:59", "until"),
        ("/jobs?until=2027-13-01T00:00:00Z", "until"),
        ("/jobs?q=%00", "q"),
        ("/jobs?user_id=a:b", "user_id"),
        ("/spiders?nmae=seo", "nmae"),
        ("/spiders?version=", "version"),
        ("/jobs?schedule_id=x", "schedule_id"),
        ("/schedules?state=asleep", "state"),
        ("/schedules?after=1-2", "after"),
        ("/schedules?limit=0", "limit"),
        (f"/schedules/{'0' * 32}/next?count=101", "count"),
        (f"/schedules/{'0' * 32}/history?limit=x", "limit"),
        (f"/schedules/{'0' * 32}/items?run=first", "run"),
        (f"/jobs/{'0' * 32}/items?format=xml", "format"),
        (f"/jobs/{'0' * 32}/items?after=1:2", "after"),
        (f"/jobs/{'0' * 32}/items?attempt=0", "attempt"),
        (f"/jobs/{'0' * 32}/items?limit=1001", "limit"),
        (f"/jobs/{'0' * 32}/items?q=", "q"),
        (f"/jobs/{'0' * 32}/fields?attempt=all", "attempt"),
        (f"/jobs/{'0' * 32}/fields?compare=all", "compare"),
    ],
)
def test_a_query_is_as_strict_as_a_body(gateway: httpx2.Client, path: str, field: str) -> None:
    response = gateway.get(path)
    assert (response.status_code, response.json()["error"]["detail"]["field"]) == (422, field)


@pytest.mark.parametrize("key", ["a b", "x" * 256, "\xe9"])
def test_an_odd_idempotency_key_is_refused_by_name(gateway: httpx2.Client, crawl: Crawl, key: str) -> None:
    response = gateway.post("/crawl", json=crawl, headers={b"Idempotency-Key": key.encode("latin-1")})
    assert (response.status_code, response.json()["error"]["detail"]["field"]) == (422, "Idempotency-Key")


@pytest.mark.parametrize(
    "path",
    ["/jobs/x", "/jobs/%00", "/jobs/%ff", f"/jobs/{'0' * 32}", f"/jobs/{'0' * 31};/items", f"/jobs/{'0' * 32}/items"],
)
def test_an_id_that_nobody_gave_is_not_found(gateway: httpx2.Client, path: str) -> None:
    response = gateway.get(path)
    assert (response.status_code, response.json()["error"]["code"]) == (404, "job_not_found")


@pytest.mark.parametrize(("name", "allowed"), [("health", "GET"), ("sites", "GET"), ("scrape", "POST")])
def test_what_stands_beside_jobs_is_taken_for_the_id_of_none(gateway: httpx2.Client, name: str, allowed: str) -> None:
    for method in {"GET", "POST", "PUT", "PATCH", "DELETE"} - {allowed}:
        refused = gateway.request(method, f"/jobs/{name}")
        assert (refused.status_code, refused.headers["Allow"]) == (405, allowed), method


def test_other_addresses_and_methods_are_refused_in_the_same_format(gateway: httpx2.Client) -> None:
    nothing, wrong = gateway.get("/nothing"), gateway.put("/jobs")
    assert (nothing.status_code, nothing.json()["error"]["code"]) == (404, "not_found")
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (405, "method_not_allowed")
    assert wrong.headers["allow"] == "GET"
    assert gateway.options(f"/jobs/{'0' * 32}").headers["allow"] == "DELETE, GET"
    assert gateway.post("/jobs/health").headers["allow"] == "GET"
    assert gateway.put("/health").headers["allow"] == "GET, HEAD"


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
fields = st.sampled_from(
    ["user_id", "spider", "start_urls", "depth", "params", "priority", "tags", "max_pages", "timeout", "max_retries",
     "webhook_url", "project", "version", "max_items", "ignore_cache", "schedule_at", "interval", "timezone",
     "jitter", "overlap", "catch_up", "ends_at", "max_runs", "fetch", "expect", "odd"]
)  # fmt: skip
urls = st.lists(st.builds("{}://{}".format, st.sampled_from(["http", "https"]), st.text(max_size=20)), max_size=2)
slow_machines = limits(max_examples=full_or_short(60, 20), deadline=None, suppress_health_check=list(HealthCheck))


@slow_machines
@given(change=st.dictionaries(fields, anything, max_size=3), start_urls=urls)
def test_no_body_makes_the_gateway_fail(gateway: httpx2.Client, change: Crawl, start_urls: list[str]) -> None:
    body = {"user_id": "fuzz", "spider": "seo", "start_urls": start_urls, **change}
    response = gateway.post("/crawl", content=json.dumps(body), headers=JSON)
    assert response.status_code < 500


timings = st.fixed_dictionaries(
    {},
    optional={
        "interval": st.text("0123456789*/-,# LW@everysmhdwMONJAN?", max_size=20),
        "schedule_at": st.datetimes().map(lambda moment: f"{moment.isoformat()}Z"),
        "ends_at": st.datetimes().map(lambda moment: f"{moment.isoformat()}+02:00"),
        "timezone": st.sampled_from(["UTC", "Europe/Paris", "EST5EDT", "../etc/passwd", "Europe", "\ud800"]),
        "jitter": st.floats() | st.integers(-1, 1),
        "max_runs": st.integers() | st.booleans(),
    },
)


@slow_machines
@given(change=st.dictionaries(fields, anything, max_size=2) | timings)
def test_no_schedule_and_no_change_of_one_makes_the_gateway_fail(gateway: httpx2.Client, change: Crawl) -> None:
    body = {"user_id": "fuzz", "spider": "seo", "start_urls": ["https://example.com/"], "interval": "@daily"}
    schedule_id = gateway.post("/crawl", json=body).json()["job_id"]
    for method, url, content in (
        ("POST", "/crawl", {**body, **change}),
        ("POST", "/schedules", {**body, **change}),
        ("PATCH", f"/schedules/{schedule_id}", change),
    ):
        response = gateway.request(method, url, content=json.dumps(content), headers=JSON)
        assert response.status_code < 500, response.text
    assert gateway.get(f"/schedules/{schedule_id}/next").status_code == 200


@slow_machines
@given(
    name=st.sampled_from(
        ["user_id", "status", "spider", "tag", "since", "until", "q", "limit", "after", "state", "site"]
    ),
    value=st.text() | st.text(string.printable, max_size=9),
    path=st.sampled_from(["/jobs", f"/jobs/{'1' * 32}/items", "/crawl", "/schedules"]),
)
def test_no_query_makes_the_gateway_fail(gateway: httpx2.Client, name: str, value: str, path: str) -> None:
    assert gateway.get(path, params={name: value}).status_code < 500


ID = "0" * 32


@pytest.mark.parametrize(
    ("method", "path"),
    [
        *(("GET", path) for path in ("/health", "/health/live", "/spiders", "/nodes")),
        *(("GET", path) for path in ("/events", "/jobs", "/jobs/health", "/schedules")),
        *(("GET", f"/schedules/{ID}{rest}") for rest in ("", "/next", "/history", "/items")),
        *(("POST", f"/schedules/{ID}/{action}") for action in ("pause", "resume", "run")),
        *(("GET", f"/jobs/{ID}{rest}") for rest in ("", "/status", "/logs", "/items")),
        *(("POST", path) for path in (f"/jobs/{ID}/cancel", f"/jobs/{ID}/retry", "/crawl", "/projects/x/versions")),
        ("DELETE", f"/jobs/{ID}"),
        ("HEAD", "/health"),
    ],
)  # fmt: skip
def test_a_query_parameter_nobody_knows_is_refused(gateway: httpx2.Client, method: str, path: str) -> None:
    response = gateway.request(method, path, params={"levle": "INFO"})
    assert response.status_code == 422
    if method != "HEAD":
        assert response.json()["error"]["detail"]["field"] == "levle"
        assert response.json()["error"]["message"] == "levle: there is no such parameter"


def test_every_parameter_of_a_log_is_known(gateway: httpx2.Client) -> None:
    query = {"level": "INFO", "q": "x", "attempt": "1", "last_event_id": "1-0"}
    headers = {"Accept": "text/plain"}
    assert gateway.get(f"/jobs/{ID}/logs", params=query, headers=headers).status_code == 404
