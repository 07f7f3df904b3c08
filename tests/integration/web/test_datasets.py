"""`/datasets`: options, the feed of changes, present and earlier items, runs, and who may decide on runs."""

from __future__ import annotations

import csv
import io
import itertools
import json
import runpy
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import openpyxl
import pytest
from dataset_runs import DatasetRuns, exporting_parts
from jobs import make_job
from pymongo.database import Database
from stores import ROOT

from gateway.datasets.dataset import DatasetRun, RunState, change_id
from gateway.datasets.run_exports import MOST_FAILURES, Exporting
from gateway.datasets.store import ChangeStore, DatasetStore, RunStore
from gateway.jobs.job import JobStatus

_NAME = {"name": "prices", "key": ["sku"]}
FEW = 3
#: Items of a run. If the next run lacks most of them, it is held (`drop_guard`).
MANY = [f"s{n:02}" for n in range(20)]


@pytest.fixture
def runs(database: Database[dict[str, Any]], gateway: httpx2.Client, user: str) -> DatasetRuns:
    # the gateway has made the indexes
    del gateway
    return DatasetRuns(database, user)


class Prices:
    """One user's calls about the dataset `prices`."""

    def __init__(self, client: httpx2.Client, user: str) -> None:
        self.client = client
        self.user = user

    def call(self, method: str, path: str = "", **more: Any) -> httpx2.Response:
        params = {"user_id": self.user, **more.pop("params", {})}
        return self.client.request(method, f"/datasets/prices{path}", params=params, **more)

    def get(self, path: str = "", **query: Any) -> Any:
        answer = self.call("GET", path, params=query)
        assert answer.is_success, answer.text
        return answer.json()

    def refusal(self, method: str, path: str = "", **more: Any) -> tuple[int, str, str | None]:
        """Status, code and field of a refused call."""
        answer = self.call(method, path, **more)
        error = answer.json()["error"]
        return answer.status_code, error["code"], (error["detail"] or {}).get("field")

    @contextmanager
    def events(self, last: int | None = None, **query: Any) -> Iterator[Iterator[tuple[int, dict[str, Any]]]]:
        """The cursors and changes that the stream sends."""
        headers = {"Accept": "text/event-stream", **({} if last is None else {"Last-Event-ID": str(last)})}
        params = {"user_id": self.user, **query}
        with self.client.stream("GET", "/datasets/prices/changes", params=params, headers=headers) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            yield _events(answer.iter_lines())


def _events(lines: Iterator[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    cursor = 0
    for line in lines:
        name, _, value = line.partition(": ")
        if name == "id":
            cursor = int(value)
        elif name == "data":
            yield cursor, json.loads(value)


@pytest.fixture
def prices(gateway: httpx2.Client, user: str) -> Prices:
    return Prices(gateway, user)


def offers(*skus: str, price: int = 1) -> list[dict[str, Any]]:
    return [{"sku": sku, "price": price} for sku in skus]


def told(answer: Any) -> list[tuple[str, str]]:
    return [(change["type"], change["key"]["sku"]) for change in answer["changes"]]


# --- options


def test_a_dataset_is_made_read_changed_and_deleted(prices: Prices) -> None:
    assert prices.refusal("GET") == (404, "dataset_not_found", None)
    made = prices.call("PUT", json={"key": ["sku"], "ignore": ["scraped_at"]})
    assert (made.status_code, made.json()["key"], made.json()["drop_guard"]) == (201, ["sku"], 0.2)
    assert prices.get() == made.json()
    assert prices.call("PUT", json={"key": ["sku"], "ignore": ["scraped_at"]}).status_code == 200

    edited = prices.call("PATCH", json={"drop_guard": 0.5}).raise_for_status().json()
    assert (edited["drop_guard"], edited["ignore"]) == (0.5, ["scraped_at"])
    # options that are left out get their defaults
    whole = prices.call("PUT", json={"key": ["sku"]}).json()
    assert (whole["drop_guard"], whole["ignore"]) == (0.2, [])

    assert prices.call("DELETE").status_code == 204
    assert prices.refusal("GET")[0] == prices.refusal("DELETE")[0] == 404
    assert prices.call("PUT", json={}).status_code == 201


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"drop_guard": 2}, "drop_guard"),
        ({"confirm_removed": 0}, "confirm_removed"),
        ({"confirm_removed": "1"}, "confirm_removed"),
        ({"key": "sku"}, "key"),
        ({"key": [""]}, "key.0"),
        ({"color": "red"}, "color"),
    ],
)
def test_an_option_that_is_wrong_is_named(prices: Prices, method: str, body: dict[str, Any], field: str) -> None:
    prices.call("PUT", json={}).raise_for_status()
    assert prices.refusal(method, json=body) == (422, "invalid_request", field)


def test_the_key_of_a_dataset_with_items_stays(prices: Prices, runs: DatasetRuns) -> None:
    runs.run(offers("a"))
    assert prices.refusal("PATCH", json={"key": ["url"]}) == (422, "invalid_request", "key")
    assert prices.call("PATCH", json={"key": ["sku"], "ignore": ["seen"]}).is_success


def test_datasets_are_listed_page_by_page(gateway: httpx2.Client, user: str) -> None:
    for name in ("one", "two", "three"):
        gateway.put(f"/datasets/{name}", params={"user_id": user}, json={}).raise_for_status()
    query: dict[str, Any] = {"user_id": user, "limit": 2}
    first = gateway.get("/datasets", params=query).json()
    second = gateway.get("/datasets", params={**query, "after": first["next"]}).json()
    assert [one["name"] for one in (*first["datasets"], *second["datasets"])] == ["three", "two", "one"]
    assert second["next"] is None


def test_a_name_that_several_users_have_needs_the_user(gateway: httpx2.Client, user: str) -> None:
    name = user.replace("-", "_")
    for one in (user, f"other-{user}"):
        gateway.put(f"/datasets/{name}", params={"user_id": one}, json={}).raise_for_status()
    answer = gateway.get(f"/datasets/{name}")
    assert (answer.status_code, answer.json()["error"]["detail"]["field"]) == (422, "user_id")


def test_a_crawl_that_names_other_options_than_the_dataset_has_is_refused(
    gateway: httpx2.Client, prices: Prices, crawl: dict[str, Any]
) -> None:
    prices.call("PUT", json={"key": ["sku"]}).raise_for_status()
    answer = gateway.post("/crawl", json={**crawl, "dataset": {"name": "prices", "key": ["url"]}})
    assert (answer.status_code, answer.json()["error"]["detail"]["field"]) == (422, "dataset.key")
    assert gateway.post("/crawl", json={**crawl, "dataset": _NAME}).is_success


# --- the feed


def test_the_feed_tells_each_change_once_page_by_page(prices: Prices, runs: DatasetRuns) -> None:
    runs.run(offers("a", "b", "c"))
    runs.run([*offers("a"), *offers("b", price=2), *offers("d")])
    whole = prices.get("/changes")
    assert sorted(told(whole)) == sorted(runs.told())
    assert (whole["next"], whole["pending"]) == (whole["last_seq"], 0)
    assert len({change["id"] for change in whole["changes"]}) == len(whole["changes"])

    since, pages = 0, list[Any]()
    while True:
        page = prices.get("/changes", since=since, limit=2)
        if not page["changes"]:
            break
        pages += page["changes"]
        since = page["next"]
    assert pages == whole["changes"]


def test_large_items_make_shorter_pages(prices: Prices, runs: DatasetRuns) -> None:
    def pages(path: str, name: str, cursor: str) -> list[list[str]]:
        page, found = prices.get(path, limit=12), list[list[str]]()
        while page[name]:
            found.append([one["key"]["sku"] for one in page[name]])
            if page["next"] is None:
                break
            page = prices.get(path, **{cursor: page["next"]}, limit=12)
        return found

    runs.run([{"sku": str(n), "text": "x" * (1 << 21)} for n in range(12)])
    for found in (pages("/changes", "changes", "since"), pages("/items", "items", "after")):
        assert 2 <= len(found) <= 6
        assert sorted(sku for page in found for sku in page) == sorted(map(str, range(12)))
    assert prices.call("GET", "/items", params={"format": "csv"}).text.count("\n") == 13


@pytest.mark.parametrize("batch", [1, 2, 3])
@pytest.mark.parametrize("plan", ["0", "~"], ids=["before it", "after it"])
def test_no_change_is_lost_where_a_read_ends_within_its_number(
    prices: Prices, runs: DatasetRuns, monkeypatch: pytest.MonkeyPatch, batch: int, plan: str
) -> None:
    runs.run(offers(*"abcde"))
    whole = runs.changes()
    left = [one.model_copy(update={"id": change_id(one.dataset, one.seq, plan), "plan": plan}) for one in whole]
    runs.parts[ChangeStore].write(left)
    monkeypatch.setattr("gateway.datasets.feed._BATCH", batch)
    assert told(prices.get("/changes")) == [("new", one.key["sku"]) for one in whole]
    assert told(prices.get("/changes", since=1, limit=2)) == [("new", one.key["sku"]) for one in whole[1:3]]


def test_a_change_says_what_is_different(prices: Prices, runs: DatasetRuns) -> None:
    runs.run(offers("a", "b", "c"))
    since = prices.get()["last_seq"]
    runs.run(offers("a", price=2) + offers("b"))
    by_type = {change["type"]: change for change in prices.get("/changes", since=since)["changes"]}
    assert by_type.keys() == {"changed", "removed"}
    assert by_type["changed"]["changes"] == {"price": {"previous": 1, "current": 2}}
    removed = by_type["removed"]
    assert (removed["deleted"], removed["item"], removed["changes"]) == (True, offers("c")[0], None)


def test_the_feed_can_be_limited_to_types(prices: Prices, runs: DatasetRuns) -> None:
    runs.run(offers("a", "b"))
    runs.run(offers("a", price=2))
    assert told(prices.get("/changes", types="removed")) == [("removed", "b")]
    both = prices.get("/changes", types=["removed", "changed"])
    assert sorted(told(both)) == [("changed", "a"), ("removed", "b")]
    # `next` is after the changes that the filter leaves out, too
    assert both["next"] == prices.get()["last_seq"]
    assert prices.refusal("GET", "/changes", params={"types": "moved"})[::2] == (422, "types.0")


@pytest.mark.parametrize("path", ["/changes", "/items"])
def test_a_cursor_beyond_the_last_change_is_refused(prices: Prices, runs: DatasetRuns, path: str) -> None:
    runs.run(offers("a"))
    name = "since" if path == "/changes" else "as_of"
    assert prices.refusal("GET", path, params={name: 10**6}) == (422, "invalid_request", name)


def test_who_waits_gets_the_next_run_as_soon_as_it_is_published(prices: Prices, runs: DatasetRuns) -> None:
    runs.run(offers("a"))
    since = prices.get()["last_seq"]
    later = threading.Timer(0.3, runs.run, [offers("a", "b")])
    later.start()
    began = time.monotonic()
    page = prices.get("/changes", since=since, wait=30)
    assert time.monotonic() - began < 15
    later.join()
    assert told(page) == [("new", "b")]
    # if no change comes, the page is empty when the time is over
    assert prices.get("/changes", since=page["next"], wait=1)["changes"] == []


def test_who_waits_for_a_type_passes_changes_of_others(prices: Prices, runs: DatasetRuns) -> None:
    runs.run(offers("a"))
    since = prices.get()["last_seq"]
    later = threading.Timer(0.3, runs.run, [offers("a", "b")])
    later.start()
    page = prices.get("/changes", since=since, wait=30, types="removed")
    later.join()
    assert (page["changes"], page["next"] > since) == ([], True)


def test_the_stream_goes_on_after_the_last_event(prices: Prices, runs: DatasetRuns) -> None:
    runs.run(offers("a", "b"))
    with prices.events() as events:
        first = list(itertools.islice(events, 2))
        runs.run(offers("a", "b", "c"))
        first.append(next(events))
    assert [cursor for cursor, _ in first] == [change["seq"] for _, change in first]
    with prices.events(last=first[0][0]) as events:
        assert list(itertools.islice(events, 2)) == first[1:]
    with prices.events(since=first[1][0]) as events:
        assert next(events) == first[2]


def test_a_stream_of_one_type_ends_at_the_cursor_that_it_came_to(prices: Prices, runs: DatasetRuns) -> None:
    runs.run(offers("a", "b"))
    last = prices.get()["last_seq"]
    headers, params = {"Accept": "text/event-stream"}, {"user_id": prices.user, "types": "removed"}
    with prices.client.stream("GET", "/datasets/prices/changes", params=params, headers=headers) as answer:
        assert next(line for line in answer.iter_lines() if line.startswith("id:")) == f"id: {last}"


def test_a_cursor_that_is_no_longer_kept_is_gone_and_says_how_to_go_on(
    prices: Prices, runs: DatasetRuns, database: Database[dict[str, Any]]
) -> None:
    runs.run(offers("a", "b"))
    runs.run(offers("a", price=2))
    floor = prices.get()["last_seq"] - 1
    DatasetStore(database).raise_floor(runs.dataset, floor)
    for path, name in (("/changes", "since"), ("/items", "as_of")):
        answer = prices.call("GET", path, params={name: floor - 1})
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (410, "cursor_expired")
        assert error["detail"] == {"snapshot": "/datasets/prices/items", "since": prices.get()["last_seq"]}
    with prices.client.stream(
        "GET",
        "/datasets/prices/changes",
        params={"user_id": prices.user},
        headers={"Accept": "text/event-stream", "Last-Event-ID": "1"},
    ) as answer:
        assert answer.status_code == 410
    assert len(prices.get("/changes", since=floor)["changes"]) == 1
    assert prices.get("/items")["seq"] == floor + 1


def test_a_table_is_kept_in_step_also_after_its_cursor_has_expired(
    prices: Prices, runs: DatasetRuns, database: Database[dict[str, Any]]
) -> None:
    keep = runpy.run_path(str(ROOT / "docs/examples/keep_a_table_in_step.py"))
    with closing(sqlite3.connect(":memory:")) as table:
        table.executescript(keep["TABLES"])
        about = httpx2.Client(
            base_url=prices.client.base_url.join("/datasets/prices"), params={"user_id": prices.user}
        )
        with about as client:
            for step, rows in enumerate((offers("a", "b", "c"), offers("b", price=2), offers("b", "d"))):
                runs.run(rows)
                if step == 2:
                    DatasetStore(database).raise_floor(runs.dataset, prices.get()["last_seq"] - 1)
                keep["catch_up"](client, table)
                kept = {
                    item["sku"]: item
                    for (text,) in table.execute("SELECT item FROM items")
                    if (item := json.loads(text))
                }
                assert kept == runs.snapshot()
            assert keep["catch_up"](client, table) == 0


# --- the items


def test_items_come_page_by_page_and_as_they_were(prices: Prices, runs: DatasetRuns) -> None:
    runs.run(offers("a", "b", "c"))
    before = prices.get("/items")
    runs.run([*offers("a"), *offers("b", price=2), *offers("d")])
    now = prices.get("/items")
    assert {one["key"]["sku"]: one["item"]["price"] for one in now["items"]} == {"a": 1, "b": 2, "d": 1}
    latest = {change["key_hash"]: change["seq"] for change in prices.get("/changes")["changes"]}
    assert {one["key_hash"]: one["seq"] for one in now["items"]}.items() <= latest.items()
    assert (now["seq"], now["next"]) == (prices.get()["last_seq"], None)

    assert prices.get("/items", as_of=before["seq"]) == before
    assert prices.get("/items", as_of=0)["items"] == []

    paged, after = list[Any](), None
    while page := prices.get("/items", limit=2, **({"after": after} if after else {})):
        paged += page["items"]
        if (after := page["next"]) is None:
            break
    assert paged == now["items"]


def test_items_are_searched_and_removed_ones_shown_on_request(prices: Prices, runs: DatasetRuns) -> None:
    runs.run([{"sku": "a", "title": "Red shoe"}, {"sku": "b", "title": "Blue boot"}])
    runs.run([{"sku": "a", "title": "Red shoe"}])
    assert [one["key"]["sku"] for one in prices.get("/items", q="SHOE")["items"]] == ["a"]
    assert prices.get("/items", q="boot")["items"] == []
    (removed,) = prices.get("/items", q="boot", removed="true")["items"]
    assert (removed["removed"], removed["key"]) == (True, {"sku": "b"})


def test_what_is_not_applied_yet_is_no_past_that_could_be_read(
    prices: Prices, runs: DatasetRuns, database: Database[dict[str, Any]]
) -> None:
    runs.run(offers("a", "b"))
    applied = prices.get()["last_seq"]
    runs.run(offers("a", "b", "c"))
    head = prices.get()["last_seq"]
    # as if the second run were just being applied
    database["datasets"].update_one({"_id": runs.dataset.id}, {"$set": {"applied_seq": applied}})
    assert prices.refusal("GET", "/items", params={"as_of": head})[:2] == (409, "conflict")
    assert len(prices.get("/items", as_of=applied)["items"]) == 2
    DatasetStore(database).raise_floor(runs.dataset, head)
    detail = prices.call("GET", "/changes").json()["error"]["detail"]
    assert detail["since"] == prices.get("/items")["seq"] == applied


# --- runs, and what is decided on them

# --- files


def table(answer: httpx2.Response) -> list[dict[str, Any]]:
    answer.raise_for_status()
    return list(csv.DictReader(io.StringIO(answer.text)))


def test_items_and_changes_are_files_too(prices: Prices, runs: DatasetRuns) -> None:
    runs.run(offers("a", "b", "=c"))
    runs.run([*offers("a", price=2), *offers("b", "d")])
    items = prices.call("GET", "/items", params={"format": "csv"})
    assert prices.call("GET", "/items/download", params={"format": "csv"}).content == items.content
    assert sorted(table(items), key=str) == [
        {"sku": "a", "price": "2"}, {"sku": "b", "price": "1"}, {"sku": "d", "price": "1"},
    ]  # fmt: skip
    assert items.headers["content-disposition"].startswith('attachment; filename="prices-2')
    before = prices.call("GET", "/items", params={"format": "jsonl", "as_of": 3}).text.splitlines()
    assert sorted(json.loads(line)["sku"] for line in before) == ["=c", "a", "b"]

    changes = table(prices.call("GET", "/changes", params={"format": "csv", "since": 3}))
    assert table(prices.call("GET", "/changes/download", params={"format": "csv", "since": 3})) == changes
    assert sorted((row["_change"], row["sku"], row["_previous"]) for row in changes) == [
        ("changed", "a", '{"price":1}'), ("new", "d", ""), ("removed", "'=c", ""),
    ]  # fmt: skip
    assert list(changes[0])[:5] == ["_change", "_at", "_seq", "_run", "_previous"]
    new = table(prices.call("GET", "/changes", params={"format": "csv", "types": "new", "fields": "sku,_change"}))
    assert sorted((row["_change"], row["sku"]) for row in new) == [("new", sku) for sku in ("'=c", "a", "b", "d")]
    assert list(new[0]) == ["sku", "_change"]


def test_a_file_has_all_however_many_there_are(prices: Prices, runs: DatasetRuns) -> None:
    skus = [f"s{number:04}" for number in range(1203)]
    runs.run(offers(*skus))
    book = openpyxl.load_workbook(io.BytesIO(prices.call("GET", "/items", params={"format": "xlsx"}).content))
    rows = list(book.active.iter_rows(values_only=True))
    assert (rows[0], sorted(row[0] for row in rows[1:])) == (("sku", "price"), skus)
    lines = prices.call("GET", "/changes", params={"format": "jsonl"}).text.splitlines()
    assert [json.loads(line)["_seq"] for line in lines] == list(range(1, 1204))


def test_exports_are_an_option_and_say_what_came_of_them(prices: Prices, runs: DatasetRuns, tmp_path: Path) -> None:
    exports = [{"to": "prices", "format": "csv"}, {"to": "prices", "format": "jsonl", "what": "changes"}]
    made = prices.call("PUT", json={"key": ["sku"], "exports": exports}).raise_for_status().json()
    assert [(one["to"], one["what"], one["each"]) for one in made["exports"]] == [
        ("prices", "snapshot", "run"), ("prices", "changes", "run"),
    ]  # fmt: skip
    assert prices.call("PUT", json={"key": ["sku"], "exports": exports}).json() == made
    runs.run(offers("a"))
    parts = exporting_parts(runs.database, tmp_path)
    run = parts[RunStore].claim_exports(60)
    assert run is not None
    parts[Exporting].export(run)
    (told_of,) = prices.get("/runs")["runs"]
    assert [(one["what"], one["rows"], one["problem"]) for one in told_of["exports"]] == [
        ("snapshot", 1, None), ("changes", 1, None),
    ]  # fmt: skip
    # no file is written for a held run
    prices.call("PATCH", json={"exports": exports[:1]}).raise_for_status()
    runs.run(offers(*MANY))
    assert runs.run(offers("a")) is RunState.HELD
    due = {"dataset": runs.dataset.id, "exports_due": {"$exists": True}}
    assert runs.database["dataset_runs"].count_documents(due) == 1
    assert prices.call("PATCH", json={"exports": []}).json()["exports"] == []


def test_an_export_that_cannot_be_written_is_tried_again_and_then_given_up(
    prices: Prices, runs: DatasetRuns, tmp_path: Path
) -> None:
    prices.call("PUT", json={"key": ["sku"], "exports": [{"to": "prices", "format": "csv"}]}).raise_for_status()
    job = runs.crawl(offers("a"))
    runs.fold()
    parts = exporting_parts(runs.database, tmp_path)
    (tmp_path / "out").write_text("no folder")
    tries = 0
    while runs.database["dataset_runs"].find_one({"_id": job, "exports_due": {"$exists": True}}):
        if (run := parts[RunStore].claim_exports(0)) is not None:
            told_of = parts[Exporting].export(run)
            if run.job_id == job:
                tries += 1
                assert [one.problem is None for one in told_of] == [False]
    assert tries == MOST_FAILURES
    assert prices.get("/runs")["runs"][0]["exports"][0]["problem"]


def test_an_export_waits_for_its_run_to_be_applied_and_for_whoever_dies_of_it(
    prices: Prices, runs: DatasetRuns, tmp_path: Path
) -> None:
    prices.call("PUT", json={"key": ["sku"], "exports": [{"to": "prices", "format": "csv"}]}).raise_for_status()
    job = runs.crawl(offers("a"))
    runs.fold()
    parts, store = exporting_parts(runs.database, tmp_path), RunStore(runs.database)
    found = runs.database["dataset_runs"].find_one({"_id": job})
    run = DatasetRun.model_validate(found)
    runs.database["datasets"].update_one({"_id": runs.dataset.id}, {"$set": {"applied_seq": 0}})
    assert parts[Exporting].export(run.model_copy(update={"exports_failures": 1})) == []
    noted = store.get(job)
    assert noted is not None
    assert (noted.exports_due is None, noted.exports_failures) == (False, 0)
    runs.database["datasets"].update_one({"_id": runs.dataset.id}, {"$set": {"applied_seq": 1}})
    # as if the export had killed each worker that tried it
    assert parts[Exporting].export(run.model_copy(update={"exports_failures": MOST_FAILURES + 1})) == []
    given_up = store.get(job)
    assert given_up is not None
    assert given_up.exports_due is None


@pytest.mark.parametrize(
    ("exports", "field"),
    [
        ([{"to": "s3://elsewhere/x", "format": "csv"}], "exports.0.to"),
        ([{"to": "../up", "format": "csv"}], "exports.0.to"),
        ([{"to": "a", "format": "doc"}], "exports.0.format"),
        ([{"to": "a", "format": "csv"}, {"to": "a", "format": "jsonl"}], "exports"),
        ("a", "exports"),
    ],
)
def test_an_export_that_cannot_be_is_refused(prices: Prices, exports: Any, field: str) -> None:
    status, code, named = prices.refusal("PUT", json={"exports": exports})
    assert (status, named) == (422, field), code


def test_a_run_is_exported_again_on_request(prices: Prices, runs: DatasetRuns, tmp_path: Path) -> None:
    job_id = runs.crawl([{"sku": "a", "price": 1}], dataset=_NAME)
    runs.fold()
    ask = f"/runs/{job_id}/export"
    # the dataset has no place to write to yet
    assert prices.refusal("POST", ask)[:2] == (409, "conflict")
    runs.parts[DatasetStore].change(runs.dataset, {"exports": [{"to": "prices", "format": "jsonl"}]})
    assert [prices.call("POST", ask).status_code for _ in range(2)] == [202, 202]
    parts = exporting_parts(runs.database, tmp_path)
    run = parts[RunStore].claim_exports(60)
    assert run is not None
    parts[Exporting].export(run)
    (export,) = prices.get(f"/runs/{job_id}")["exports"]
    assert (export["rows"], export["problem"]) == (1, None)
    failed = runs.crawl([{"sku": "a"}], dataset=_NAME, status="error")
    runs.fold()
    assert prices.refusal("POST", f"/runs/{failed}/export")[:2] == (409, "conflict")
    assert prices.refusal("POST", f"/runs/{'0' * 32}/export")[0] == 404


# --- the schema


def test_the_schema_is_learned_until_one_is_pinned(prices: Prices, runs: DatasetRuns) -> None:
    prices.call("PUT", json={"key": ["sku"]})
    empty = prices.get("/schema")
    assert (empty["type"], empty["properties"], empty["required"]) == ("object", {}, [])
    rows = [{"sku": "a", "price": 1.5, "tags": ["x"]}, {"sku": "b", "price": "sold out", "tags": []}]
    for _ in range(2):
        runs.run(rows, dataset=_NAME)
    answer = prices.call("GET", "/schema")
    assert answer.headers["content-type"] == "application/schema+json"
    learned = answer.json()
    assert learned["$comment"] == "learned from 2 complete runs with 4 items"
    assert learned["required"] == ["sku", "price"]
    assert learned["properties"] == {
        "sku": {"type": ["string"]}, "price": {"type": ["string", "number"]}, "tags": {"type": ["array", "null"]}
    }  # fmt: skip
    pinned = {**learned, "properties": {**learned["properties"], "price": {"type": "number", "minimum": 1}}}
    assert prices.call("PATCH", json={"item_schema": pinned}).json()["item_schema"] == pinned
    assert (prices.get("/schema"), prices.get("/schema", learned=True)) == (pinned, learned)
    job_id = runs.crawl(rows, dataset=_NAME)
    runs.fold()
    run = prices.get(f"/runs/{job_id}")
    assert run["counts"]["set_apart"] == 1
    assert [(one["field"], one["rule"]) for one in run["schema_breaks"]] == [("price", "type")]
    assert prices.call("PATCH", json={"item_schema": {}}).json()["item_schema"] == {}
    assert prices.get("/schema")["properties"] == learned["properties"]


_CIRCLE = {"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"}
#: Each definition leads to the next one twice.
_DOUBLING = {
    "$defs": {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(30)} | {"d30": {"type": "null"}},
    "$ref": "#/$defs/d0",
}


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "nothing"}, "is not valid"),
        ({"$ref": "https://elsewhere.test/schema.json"}, "outside"),
        ({"$ref": "file:///etc/passwd"}, "outside"),
        (_CIRCLE, "leads back to itself"),
        (_DOUBLING, "more than 5000"),
        ({"properties": {"a": {"pattern": "(a+)+$", "patternProperties": {"(a+)+$": {}}}}}, "patternProperties"),
        ({"title": "x" * (64 << 10)}, "larger than 64 KB"),
        ([], "dictionary"),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused(prices: Prices, schema: Any, words: str) -> None:
    answer = prices.call("PUT", json={"item_schema": schema})
    error = answer.json()["error"]
    assert (answer.status_code, error["detail"]["field"]) == (422, "item_schema")
    assert words in error["message"]
    assert prices.call("GET").status_code == 404


def test_changes_begin_at_a_time_too(prices: Prices, runs: DatasetRuns) -> None:
    runs.run(offers("a"))
    runs.run(offers("a", "b"))
    ended = prices.get("/runs")["runs"][0]["ended_at"]
    assert told(prices.get("/changes", since=ended)) == [("new", "b")]
    assert told(prices.get("/changes", since="2020-01-01T00:00:00Z")) == [("new", "a"), ("new", "b")]
    assert prices.get("/changes", since="2900-01-01T00:00:00Z")["changes"] == []


@pytest.mark.parametrize(
    ("path", "query", "field"),
    [
        ("/items", {"format": "csv", "limit": 5}, "limit"),
        ("/items", {"format": "csv", "after": "0" * 32}, "after"),
        ("/items", {"fields": "sku"}, "fields"),
        ("/items", {"format": "doc"}, "format"),
        ("/items", {"format": "jsonl", "bom": "true"}, "bom"),
        ("/changes", {"format": "csv", "wait": 5}, "wait"),
        ("/changes", {"since": "yesterday"}, "since"),
        ("/changes", {"since": "2026-06-01T00:00:00"}, "since"),
    ],
)
def test_an_option_that_does_not_fit_is_named(
    prices: Prices, runs: DatasetRuns, path: str, query: dict[str, Any], field: str
) -> None:
    runs.run(offers("a"))
    status, code, named = prices.refusal("GET", path, params=query)
    assert (status, code) == (422, "invalid_request")
    assert named is not None
    assert named.split(".")[0] == field


def test_the_page_of_a_dataset_says_which_page_kept_the_last_run_from_being_complete(
    prices: Prices, runs: DatasetRuns
) -> None:
    why = "1 of 9 requests failed (the first: https://shop.test/broken: 500)"
    runs.run(offers("a"), status=JobStatus.PARTIAL, message=why, errors=[{"url": "https://shop.test/broken"}])
    for path in ("", "/normal"):
        text = prices.client.get(f"/console/datasets/prices{path}", params={"owner": prices.user}).text
        assert f"The last run is not complete:</strong> <bdi>{why}</bdi>" in text
        assert "datasets set prices --may-fail URL" in text
    assert prices.get("/health")["run"]["incomplete_message"] == why


def test_the_page_of_a_dataset_says_that_the_last_run_lost_the_values_of_a_field(
    prices: Prices, runs: DatasetRuns
) -> None:
    def lost(**query: str) -> str:
        answer = prices.client.get("/console/datasets/prices/lost", params={"owner": prices.user, **query})
        return answer.raise_for_status().text

    good = runs.crawl(offers("a", "b"))
    runs.fold()
    assert "lost values" not in lost()
    broken = runs.crawl([{"sku": "a", "price": None}, {"sku": "b", "price": None}])
    runs.fold()
    for text in (lost(), lost(run=broken)):
        assert "<bdi>price</bdi> is filled in 0 % of its items, usually in 100 %" in text
    assert "lost values" not in lost(run=good)
    assert "/console/datasets/prices/lost" in prices.client.get(f"/console/datasets/prices?owner={prices.user}").text
    prices.client.delete(f"/jobs/{broken}").raise_for_status()
    assert "lost values" not in lost()


def test_runs_say_what_they_have_changed(prices: Prices, runs: DatasetRuns) -> None:
    runs.run(offers("a", "b"))
    second = runs.crawl([*offers("a", price=2), {"price": 3}], finish_reason="shutdown")
    runs.fold()
    listed = prices.get("/runs")
    assert listed["runs"][0]["job_id"] == second
    run = prices.get(f"/runs/{second}")
    assert run == listed["runs"][0]
    assert (run["state"], run["incomplete"]) == ("published", "ended_early")
    counts = run["counts"]
    assert (counts["changed"], counts["removed"], counts["without_key"]) == (1, 0, 1)
    assert run["left_out"] == ['{"price":3}']
    assert prices.get("/runs", state="held")["runs"] == []
    assert prices.refusal("GET", f"/runs/{'0' * 32}")[:2] == (404, "dataset_run_not_found")
    page = prices.get("/runs", limit=1)
    assert prices.get("/runs", limit=1, after=page["next"])["runs"] == listed["runs"][1:]


def held(runs: DatasetRuns) -> str:
    """The job id of a run that is held, because it would remove half of the items."""
    runs.run(offers(*MANY))
    job_id = runs.crawl(offers(*MANY[:10], price=7))
    assert runs.fold() == [RunState.HELD]
    return job_id


def test_a_held_run_is_published_once_it_is_accepted(prices: Prices, runs: DatasetRuns) -> None:
    job_id = held(runs)
    dataset = prices.get()
    assert (dataset["held"], dataset["items"]) == (1, 20)
    run = prices.get(f"/runs/{job_id}")
    assert (run["state"], run["findings"][0]["code"], run["first_seq"]) == ("held", "removals", None)
    assert prices.get("/changes", since=dataset["last_seq"])["changes"] == []

    for _ in range(2):
        assert prices.call("POST", f"/runs/{job_id}/accept").is_success
    assert prices.get()["waiting"] == 1
    assert runs.fold() == [RunState.PUBLISHED]
    assert (prices.get()["items"], prices.get()["held"]) == (10, 0)
    assert len(prices.get("/changes", since=dataset["last_seq"])["changes"]) == 20
    for action in ("accept", "reject"):
        assert prices.refusal("POST", f"/runs/{job_id}/{action}")[:2] == (409, "conflict")


def test_a_rejected_run_changes_nothing(prices: Prices, runs: DatasetRuns) -> None:
    job_id = held(runs)
    before = prices.get("/items")
    for _ in range(2):
        rejected = prices.call("POST", f"/runs/{job_id}/reject")
        assert (rejected.status_code, rejected.json()["state"]) == (200, "rejected")
    assert runs.fold() == []
    assert prices.get("/items") == before
    assert prices.refusal("POST", f"/runs/{job_id}/accept")[:2] == (409, "conflict")


# --- others


def test_what_is_anothers_is_not_there(gateway: httpx2.Client, runs: DatasetRuns) -> None:
    job_id = held(runs)
    other = Prices(gateway, f"other-{runs.user}")
    of_run = f"/runs/{job_id}"
    for path in ("", "/changes", "/items", "/runs", "/health", of_run):
        assert other.refusal("GET", path)[:2] == (404, "dataset_not_found")
    for method, path in (("POST", f"{of_run}/accept"), ("POST", f"{of_run}/reject"), ("DELETE", "")):
        assert other.refusal(method, path)[:2] == (404, "dataset_not_found")
    # the other user does not see them either after making a dataset of the same name
    other.call("PUT", json={}).raise_for_status()
    assert other.get("/changes")["changes"] == other.get("/items")["items"] == other.get("/runs")["runs"] == []
    assert other.refusal("GET", of_run)[:2] == (404, "dataset_run_not_found")
    assert other.refusal("POST", f"{of_run}/accept")[:2] == (404, "dataset_run_not_found")


def test_a_job_of_no_dataset_is_no_run(prices: Prices, runs: DatasetRuns, keep: Any) -> None:
    runs.run(offers("a"))
    job = keep(make_job(user_id=runs.user))
    assert prices.refusal("GET", f"/runs/{job.id}")[:2] == (404, "dataset_run_not_found")
