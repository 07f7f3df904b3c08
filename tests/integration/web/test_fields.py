from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import httpx2
import pytest
from jobs import make_job

from gateway.clock import utc_now
from gateway.contract.crawl import CrawlSpec
from gateway.items.fields import FieldCounting, FieldCountStore
from gateway.items.items import Item, ItemStore
from gateway.jobs.job import Attempt, Job, JobStatus, new_job_id
from gateway.jobs.store import JobStore

Keep = Callable[[Job], Job]
Fields = dict[str, Any]


def job_with_attempt(**fields: Any) -> Job:
    attempt = Attempt(attempt=1, node="n1", dispatched_at=utc_now())
    return make_job(**{"status": JobStatus.RUNNING, "attempt": 1, "attempts": {"1": attempt}, **fields})


def ended(**fields: Any) -> Job:
    return job_with_attempt(**{"status": JobStatus.FINISHED, "settled": True, "live_key": None, **fields})


def put(items: ItemStore, job: Job, found: list[Fields], *, first: int = 1) -> None:
    items.insert([Item(job.id, 1, end, data) for end, data in enumerate(found, start=first)])


def by_name(answer: Fields) -> dict[str, Fields]:
    return {field["name"]: field for field in answer["fields"]}


def test_each_field_is_counted_with_its_types_and_an_example(
    gateway: httpx2.Client, items: ItemStore, keep: Keep
) -> None:
    job = keep(job_with_attempt())
    put(items, job, [
        {"url": "a", "price": 1.5, "seller": {"name": "Ann", "rating": 1 << 60}, "tags": []},
        {"url": "b", "price": None, "seller": {"name": " "}, "sold": False},
    ])  # fmt: skip
    items.insert([Item(job.id, 1, 3, None, '{"price": 123456789012345678901234567890, "odd.name": "\\ud800"}')])
    answer = gateway.get(f"/jobs/{job.id}/fields").raise_for_status().json()
    assert (answer["job_id"], answer["attempt"], answer["items"], answer["counted"]) == (job.id, 1, 3, 3)
    assert [field["name"] for field in answer["fields"]] == [
        *("url", "price", "seller", "seller.name", "seller.rating"),
        *("tags", "sold", "odd.name"),
    ]
    found = by_name(answer)
    assert found["price"] == {
        "name": "price",
        "path": ["price"],
        "filled": 2,
        "share": 0.6667,
        "example": "1.5",
        "types": {"number": 1, "null": 1, "integer": 1},
        "share_before": None,
        "lower": False,
        "lower_since": None,
    }
    assert {name: field["filled"] for name, field in found.items()} == {
        "url": 2,
        "price": 2,
        "seller": 2,
        "seller.name": 1,
        "seller.rating": 1,
        "tags": 0,
        "sold": 1,
        "odd.name": 1,
    }
    assert found["seller.rating"]["types"] == {"integer": 1}
    assert found["seller.name"]["path"] == ["seller", "name"]
    assert found["odd.name"]["path"] == ["odd.name"]


def test_what_comes_later_is_added_wherever_it_comes(gateway: httpx2.Client, items: ItemStore, keep: Keep) -> None:
    job = keep(job_with_attempt())
    for found, first, counted in (([{"a": 1}] * 3, 10, 3), ([{"a": ""}] * 2, 20, 5), ([{"b": 1}], 5, 6)):
        put(items, job, found, first=first)
        answer = gateway.get(f"/jobs/{job.id}/fields").json()
        assert answer["counted"] == answer["items"] == counted
    assert {name: field["filled"] for name, field in by_name(answer).items()} == {"a": 3, "b": 1}


def test_fields_beyond_the_limit_are_not_counted(gateway: httpx2.Client, items: ItemStore, keep: Keep) -> None:
    job = keep(job_with_attempt())
    put(items, job, [{f"{number:04d}": "x" * 10_000 for number in range(400)}, {"n" * 201: 1}])
    answer = gateway.get(f"/jobs/{job.id}/fields").json()
    assert (len(answer["fields"]), answer["more_fields"]) == (300, True)
    assert max(len(field["example"]) for field in answer["fields"]) == 120


@pytest.mark.parametrize("same", ["schedule_id", "user_id"])
def test_a_run_is_compared_with_those_before_it(
    gateway: httpx2.Client, items: ItemStore, keep: Keep, same: str
) -> None:
    runs_of, now = {same: new_job_id()}, utc_now()
    # a start URL of its own, because other tests have run the same spider
    own = make_job().spec.model_copy(update={"start_urls": (f"https://{new_job_id()}.example/",)})
    for hours, status, price in ((4, "finished", 1), (3, "error", None), (2, "partial", 1), (-1, "finished", None)):
        # each run has a version of its own, because mostly a new version breaks fields
        spec = own.model_copy(update={"version": str(hours)})
        run = keep(ended(**runs_of, status=status, created_at=now - timedelta(hours=hours), spec=spec))
        put(items, run, [{"url": "a", "price": price, "gone": "x"}])
    elsewhere = make_job().spec.model_copy(update={"start_urls": ("https://example.com/elsewhere",)})
    other = runs_of if same == "user_id" else {}
    put(items, keep(ended(**other, created_at=now - timedelta(hours=1), spec=elsewhere)), [{"url": "c"}])
    job = keep(ended(**runs_of, created_at=now, spec=own))
    put(items, job, [{"url": "a", "price": 1}, {"url": "b", "price": None}])
    answer = gateway.get(f"/jobs/{job.id}/fields", params={"compare": "runs"}).json()
    assert [run["counted"] for run in answer["runs"]] == [1, 1]
    found = by_name(answer)
    assert [found[name]["share_before"] for name in ("url", "price", "gone")] == [1, 1, 1]
    assert [found[name]["share"] for name in ("url", "price", "gone")] == [1, 0.5, 0]
    assert [found[name]["lower"] for name in ("url", "price", "gone")] == [False, True, True]
    assert list(found) == ["url", "price", "gone"]
    alone = by_name(gateway.get(f"/jobs/{job.id}/fields").json())
    assert (list(alone), alone["price"]["share_before"]) == (["url", "price"], None)


def test_without_items_there_are_no_fields(gateway: httpx2.Client, keep: Keep) -> None:
    waiting = keep(make_job(user_id="without-items"))
    answer = gateway.get(f"/jobs/{waiting.id}/fields?compare=runs").json()
    assert (answer["fields"], answer["items"], answer["attempt"]) == ([], 0, None)
    assert gateway.get(f"/jobs/{new_job_id()}/fields").status_code == 404
    refused = gateway.get(f"/jobs/{waiting.id}/fields?attempt=1")
    assert (refused.status_code, refused.json()["error"]["detail"]) == (422, {"field": "attempt"})


def test_counts_go_with_the_items(gateway: httpx2.Client, items: ItemStore, keep: Keep, database: Any) -> None:
    job = keep(ended())
    put(items, job, [{"a": 1}])
    assert gateway.get(f"/jobs/{job.id}/fields").json()["counted"] == 1
    assert database["item_fields"].find_one({"_id": f"{job.id}:0001"})
    items.delete(job.id)
    assert not database["item_fields"].find_one({"_id": f"{job.id}:0001"})
    assert gateway.get(f"/jobs/{job.id}/fields").json()["fields"] == []


def test_what_is_counted_while_the_items_are_removed_is_not_kept(
    gateway: httpx2.Client, items: ItemStore, keep: Keep, database: Any
) -> None:
    job = keep(ended(items_removed_at=utc_now()))
    put(items, job, [{"a": 1}])
    assert gateway.get(f"/jobs/{job.id}/fields").is_success
    assert not database["item_fields"].find_one({"_id": f"{job.id}:0001"})


@pytest.mark.parametrize(("text", "expected"), [("SHOES", [0, 2]), ("7.25", [1]), ("color", []), ("true", [2])])
def test_items_are_searched_by_what_is_in_them(
    gateway: httpx2.Client, items: ItemStore, keep: Keep, text: str, expected: list[int]
) -> None:
    job = keep(job_with_attempt())
    put(items, job, [
        {"n": 0, "color": "Red shoes"}, {"n": 1, "price": 7.25}, {"n": 2, "more": [{"of": ["blue SHOES", True]}]},
    ])  # fmt: skip
    answer = gateway.get(f"/jobs/{job.id}/items", params={"q": text, "limit": 10})
    assert [item["n"] for item in answer.json()["items"]] == expected
    assert (answer.headers["X-Searched"], answer.json()["next"]) == ("3", None)
    lines = gateway.get(f"/jobs/{job.id}/items", params={"q": text, "format": "jsonl", "fields": "n"}).text
    assert [f'{{"n":{number}}}' for number in expected] == lines.splitlines()


def test_pages_of_a_search_follow_each_other(gateway: httpx2.Client, items: ItemStore, keep: Keep) -> None:
    job = keep(job_with_attempt())
    put(items, job, [{"n": number, "is": "odd" if number % 2 else "even"} for number in range(2500)])
    seen, after = list[int](), dict[str, str]()
    while True:
        page = gateway.get(f"/jobs/{job.id}/items", params={"q": "odd", "limit": 400, **after}).json()
        seen += [item["n"] for item in page["items"]]
        if page["next"] is None:
            break
        after = {"after": page["next"]}
    assert seen == [*range(1, 2500, 2)]


def test_a_field_of_an_object_can_be_asked_for(gateway: httpx2.Client, items: ItemStore, keep: Keep) -> None:
    job = keep(job_with_attempt())
    put(items, job, [{"seller": {"name": "Ann", "town": "Ulm"}}, {"seller": "none"}, {"n": 1}])
    items.insert([Item(job.id, 1, 9, None, '{"seller.name": "itself", "seller": {"name": "inner"}}')])
    answer = gateway.get(f"/jobs/{job.id}/items", params={"fields": "n,seller.name"}).json()
    assert answer["items"] == [{"seller.name": "Ann"}, {}, {"n": 1}, {"seller.name": "itself"}]
    table = gateway.get(f"/jobs/{job.id}/items", params={"fields": "n,seller.name", "format": "csv"}).text
    assert table.splitlines() == ["n,seller.name", ",Ann", ",", "1,", ",itself"]


def test_fields_of_a_spiders_runs_and_since_when_and_where_one_is_missing(
    gateway: httpx2.Client, items: ItemStore, keep: Keep
) -> None:
    now, runs = utc_now(), []
    for number, version in enumerate(["1.0", "1.0", "2.0", "2.0"]):
        spec = CrawlSpec(project="shop", spider="over", version=version, start_urls=("http://a.example/",))
        job = keep(ended(spec=spec, created_at=now + timedelta(seconds=number), finished_at=now))
        runs.append(job.id)
        put(items, job, [
            {"url": f"http://a.example/{part}/{one}", "price": None if version == "2.0" and part == "sale" else 5}
            for part in ("sale", "new") for one in range(3)
        ])  # fmt: skip
    keep(ended(spec=CrawlSpec(project="shop", spider="other", start_urls=("http://a.example/",))))
    answer = gateway.get("/spiders/shop/over/fields").raise_for_status().json()
    assert [(run["job_id"], run["version"], run["counted"]) for run in answer["runs"]] == [
        (job_id, version, 6) for job_id, version in zip(runs, ["1.0", "1.0", "2.0", "2.0"], strict=True)
    ]
    assert answer["complete"]
    price, url = answer["fields"]
    assert (price["name"], price["shares"], price["lower_since"]) == ("price", [1.0, 1.0, 0.5, 0.5], runs[2])
    assert price["missing_on"] == [{"place": "/sale", "items": 3, "missing": 3}]
    assert (url["name"], url["lower_since"], url["missing_on"]) == ("url", None, [])
    assert gateway.get("/spiders/shop/over/fields", params={"site": "none"}).json()["runs"] == []
    refused = gateway.get("/spiders/shop/over/fields", params={"schedule_id": "x"})
    assert refused.status_code == 422


def test_a_lost_field_is_said_of_each_broken_run_however_many_there_are(
    gateway: httpx2.Client, items: ItemStore, keep: Keep
) -> None:
    now, spider, runs = utc_now(), new_job_id(), dict[str, list[str]]()
    versions = [*("1.0",) * 3, *("2.0",) * 22, "1.0", "2.0"]
    ids = []
    for number, version in enumerate(versions):
        spec = CrawlSpec(project="shop", spider=spider, version=version, start_urls=("http://a.example/",))
        job = keep(ended(spec=spec, created_at=now + timedelta(seconds=number), finished_at=now))
        ids.append(job.id)
        runs.setdefault(version, []).append(job.id)
        put(items, job, [{"url": "http://a.example/1", "price": None if version == "2.0" else 5}])

    def of_run(job_id: str) -> Fields:
        answer = gateway.get(f"/jobs/{job_id}/fields", params={"compare": "runs"}).raise_for_status().json()
        return by_name(answer)["price"]

    # the last run, one of the first that lost it, and one with none but broken runs among the twenty before it
    for job_id, since in ((ids[-1], ids[-1]), (ids[5], ids[3]), (ids[24], ids[4])):
        price = of_run(job_id)
        assert (price["share_before"], price["lower"], price["lower_since"]) == (1, True, since)
    assert not of_run(ids[-2])["lower"]
    price = by_name(gateway.get(f"/spiders/shop/{spider}/fields").raise_for_status().json())["price"]
    assert price["lower_since"] == ids[-1]
    assert price["lower_in"] == [job_id for job_id in ids[-20:] if job_id in runs["2.0"]]
    page = gateway.get("/console/lost-fields", params={"job_id": [ids[-1], ids[-2], ids[10]]}).text
    assert {job_id: f"lost-{job_id}" in page for job_id in (ids[-1], ids[-2], ids[10])} == {
        ids[-1]: True,
        ids[-2]: False,
        ids[10]: True,
    }


def test_runs_that_were_asked_for_something_else_are_not_compared(
    gateway: httpx2.Client, items: ItemStore, keep: Keep
) -> None:
    now, asked = utc_now(), {"project": "shop", "spider": "general"}
    shop = {"start_urls": ("http://shop.example/",), "params": {"markdown": True}}
    forum = {"start_urls": ("http://forum.example/",)}
    others = {**shop, "params": {}}

    def run(seconds: int, spec: Fields, row: Fields, **more: Any) -> str:
        times = {"created_at": now + timedelta(seconds=seconds), "finished_at": now}
        job = keep(ended(spec=CrawlSpec(**asked, **spec), **times, **more))
        put(items, job, [row])
        return job.id

    priced = [run(0, shop, {"price": 5}), run(1, shop, {"price": 6})]
    scheduled = run(2, shop, {"price": 5}, schedule_id="5f" * 16)
    run(3, others, {"title": "other parameters"})
    last = run(4, forum, {"title": "no price"})

    def told(**query: str) -> tuple[list[str], list[str]]:
        answer = gateway.get("/spiders/shop/general/fields", params=query).raise_for_status().json()
        lower = [one["name"] for one in answer["fields"] if one["lower_since"]]
        return [one["job_id"] for one in answer["runs"]], lower

    assert told() == ([last], [])
    assert told(schedule_id="5f" * 16) == ([scheduled], [])
    empty = run(5, shop, {"price": None})
    assert told() == ([*priced, scheduled, empty], ["price"])


def test_that_all_items_of_a_run_are_counted_is_found_out_without_counting_them_again(
    items: ItemStore, keep: Keep, database: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = keep(ended())
    put(items, job, [{"n": number} for number in range(3)])
    counting = FieldCounting(items, FieldCountStore(database), JobStore(database))
    (first,) = counting.of([(job.id, 1)], {job.id: 3})
    monkeypatch.delattr(ItemStore, "count")
    (again,) = counting.of([(job.id, 1)], {job.id: 3})
    assert (first.items, first.is_complete, again.items, again.is_complete) == (3, True, 3, True)
    items.insert([Item(job.id, 1, 4, {"n": 4})])
    (more,) = counting.of([(job.id, 1)], {job.id: 3})
    assert more.items == 4


# --- the differences of two runs


def test_the_items_of_a_run_are_compared_with_those_of_another(
    gateway: httpx2.Client, items: ItemStore, keep: Keep, user: str
) -> None:
    # spiders of its own, because the caller sees the runs of other tests, too
    own, other = (make_job().spec.model_copy(update={"spider": new_job_id()}) for _ in range(2))
    before = keep(ended(user_id=user, spec=own, created_at=utc_now() - timedelta(hours=1)))
    now, first = keep(ended(user_id=user, spec=own)), keep(ended(user_id=f"{user}-first", spec=other))
    put(items, before, [{"url": "http://a.example/", "price": 1}, {"url": "http://b.example/"}])
    put(items, now, [{"url": "http://a.example/", "price": 2}])
    path = f"/jobs/{now.id}/differences"
    found = gateway.get(path).raise_for_status().json()
    assert found == gateway.get(path, params={"other_job_id": before.id}).json()
    counts = {name: found[name] for name in ("new", "changed", "removed", "same", "compared", "other_compared")}
    assert counts == {"new": 0, "changed": 1, "removed": 1, "same": 0, "compared": 1, "other_compared": 2}
    assert (found["other_job_id"], found["key"], found["is_whole"]) == (before.id, ["url"], True)
    changed, removed = found["differences"]
    assert changed["changes"] == {"price": {"previous": 1, "current": 2}}
    assert removed["item"] == {"url": "http://b.example/"}
    by_price = gateway.get(path, params={"key": "price, url"}).raise_for_status().json()
    assert (by_price["key"], by_price["without_key"]) == (["price", "url"], 1)
    alone = gateway.get(f"/jobs/{first.id}/differences").raise_for_status().json()
    assert (alone["other_job_id"], alone["differences"], alone["compared"]) == (None, [], 0)
    assert gateway.get(path, params={"other_job_id": "0" * 32}).status_code == 404


def test_one_broken_run_before_does_not_lower_what_is_usual(
    gateway: httpx2.Client, items: ItemStore, keep: Keep
) -> None:
    schedule, now = new_job_id(), utc_now()
    for hours, price in ((4, 1), (3, 1), (2, None)):
        run = keep(ended(schedule_id=schedule, created_at=now - timedelta(hours=hours)))
        put(items, run, [{"url": "a", "price": price}])
    job = keep(ended(schedule_id=schedule, created_at=now))
    put(items, job, [{"url": "a", "price": None}])
    found = by_name(gateway.get(f"/jobs/{job.id}/fields", params={"compare": "runs"}).json())
    assert (found["price"]["share_before"], found["price"]["lower"]) == (1, True)


def test_who_sees_all_users_has_a_run_compared_with_those_of_all(
    gateway: httpx2.Client, items: ItemStore, keep: Keep
) -> None:
    spec = make_job().spec.model_copy(update={"spider": new_job_id()})
    before = keep(ended(user_id="operator", spec=spec, created_at=utc_now() - timedelta(hours=1)))
    put(items, before, [{"url": "a", "price": 1}])
    job = keep(ended(user_id="boss", spec=spec))
    put(items, job, [{"url": "a"}])
    found = gateway.get(f"/jobs/{job.id}/fields", params={"compare": "runs"}).json()
    assert [run["job_id"] for run in found["runs"]] == [before.id]
    assert gateway.get(f"/jobs/{job.id}/differences").json()["other_job_id"] == before.id
