from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import httpx2
import openpyxl
import pyarrow.parquet as pq
import pytest
from jobs import make_job

from gateway.clock import utc_now
from gateway.items import table_files
from gateway.items.items import Item, ItemStore
from gateway.items.table_files import TABLES
from gateway.jobs.job import Attempt, Job, JobStatus
from gateway.jobs.store import JobStore
from gateway.settings import Settings

COUNT = 1234


@pytest.fixture(scope="module")
def job(gateway: httpx2.Client, database: object) -> Job:
    """A job that runs its second attempt, with items of both attempts."""
    attempts = {str(n): Attempt(attempt=n, node="n1", dispatched_at=utc_now()) for n in (1, 2)}
    job = make_job(status=JobStatus.RUNNING, attempt=2, attempts=attempts)
    JobStore(database).insert(job)  # type: ignore[arg-type] # the fixture's type is the conftest's business
    store = ItemStore(database)  # type: ignore[arg-type] # the same
    store.insert([Item(job.id, 1, 10 * (n + 1), {"n": -n, "old": True}) for n in range(3)])
    store.insert(
        [Item(job.id, 2, 10 * (n + 1), {"n": n, "url": f"https://e/{n}", "more": [n]}) for n in range(COUNT)]
    )
    store.insert([Item(job.id, 2, 10 * COUNT + 10, None, '{"n": 1e400, "url": "raw"}')])
    return job


def numbers(text: str) -> list[int | None]:
    return [json.loads(line)["n"] for line in text.splitlines()]


def test_all_items_of_the_attempt_that_counts_come_in_order_while_it_runs(gateway: httpx2.Client, job: Job) -> None:
    response = gateway.get(f"/jobs/{job.id}/items")
    assert response.headers["content-type"] == "application/json"
    day = f"{job.created_at:%Y-%m-%d}"
    assert response.headers["content-disposition"] == f'attachment; filename="{job.spec.spider}-{day}.json"'
    document = response.json()
    assert [item["n"] for item in document["items"]][:COUNT] == [*range(COUNT)]
    assert len(document["items"]) == COUNT + 1
    assert document["next"] is None


@pytest.mark.parametrize("form", ["json", "jsonl", "csv"])
def test_a_file_has_an_address_of_its_own(gateway: httpx2.Client, job: Job, form: str) -> None:
    query = {"format": form, "fields": "n,url", "q": "e/12", "attempt": "2"}
    file = gateway.get(f"/jobs/{job.id}/items/download", params=query)
    there = gateway.get(f"/jobs/{job.id}/items", params=query)
    assert (file.status_code, file.content) == (200, there.content)
    for name in ("content-type", "content-disposition"):
        assert file.headers[name] == there.headers[name]
    assert gateway.get(f"/jobs/{job.id}/items/download?attempt=1").text.count("\n") == 3
    assert gateway.get(f"/jobs/{job.id}/items/download?limit=5").status_code == 422


@pytest.mark.parametrize("form", ["json", "jsonl"])
def test_pages_follow_each_other_without_gap_or_repeat(gateway: httpx2.Client, job: Job, form: str) -> None:
    after: dict[str, str] = {}
    seen: list[int] = []
    pages = 0
    while True:
        response = gateway.get(f"/jobs/{job.id}/items", params={"format": form, "limit": 500, "fields": "n", **after})
        rows = (
            response.json()["items"] if form == "json" else [json.loads(line) for line in response.text.splitlines()]
        )
        following = response.json()["next"] if form == "json" else response.headers.get("X-Next")
        assert response.headers.get("X-Next") == following
        seen += [row["n"] for row in rows]
        pages += 1
        if following is None:
            break
        after = {"after": following}
    assert (seen[:COUNT], len(seen), pages) == ([*range(COUNT)], COUNT + 1, 3)


def test_a_page_that_ends_with_the_last_item_has_none_after_it(gateway: httpx2.Client, job: Job) -> None:
    page = gateway.get(f"/jobs/{job.id}/items", params={"attempt": "1", "limit": 3}).json()
    assert (len(page["items"]), page["next"]) == (3, None)


def test_json_lines_are_one_item_each(gateway: httpx2.Client, job: Job) -> None:
    response = gateway.get(f"/jobs/{job.id}/items?format=jsonl&attempt=1")
    assert response.headers["content-type"] == "application/x-ndjson"
    assert numbers(response.text) == [0, -1, -2]


def test_every_attempt_can_be_asked_for(gateway: httpx2.Client, job: Job) -> None:
    everything = gateway.get(f"/jobs/{job.id}/items?format=jsonl&attempt=all").text
    assert numbers(everything)[:5] == [0, -1, -2, 0, 1]
    assert len(everything.splitlines()) == COUNT + 4
    refused = gateway.get(f"/jobs/{job.id}/items?attempt=7")
    assert (refused.status_code, refused.json()["error"]["detail"]) == (422, {"field": "attempt"})


def test_a_csv_can_be_opened_as_a_table(gateway: httpx2.Client, job: Job) -> None:
    response = gateway.get(f"/jobs/{job.id}/items?format=csv")
    assert response.headers["content-type"] == "text/csv; charset=utf-8"
    rows = list(csv.DictReader(io.StringIO(response.text, newline="")))
    assert rows[7] == {"n": "7", "url": "https://e/7", "more": "[7]"}
    assert len(rows) == COUNT + 1


def test_all_pages_of_a_csv_have_one_header(
    gateway: httpx2.Client, items: ItemStore, keep: Callable[[Job], Job]
) -> None:
    attempt = Attempt(attempt=1, node="n1", dispatched_at=utc_now())
    job = keep(make_job(status=JobStatus.RUNNING, attempt=1, attempts={"1": attempt}))
    found = [{"url": "a"}, {"url": "b", "title": "B"}, {"title": "C", "url": "c"}, {"price": 4}]
    items.insert([Item(job.id, 1, number + 1, data) for number, data in enumerate(found)])
    rows: list[str] = []
    after: dict[str, str] = {}
    for _ in range(2):
        page = gateway.get(f"/jobs/{job.id}/items", params={"format": "csv", "limit": "2", **after})
        header, *lines = page.text.splitlines()
        assert header == "url,title,price"
        rows += lines
        after = {"after": page.headers.get("X-Next", "")}
    assert rows == ["a,,", "b,B,", "c,C,", ",,4"]
    past_the_end = gateway.get(f"/jobs/{job.id}/items?format=csv&limit=2&after=1-4")
    assert past_the_end.text == "url,title,price\r\n"


def test_named_fields_are_the_columns_in_their_order(gateway: httpx2.Client, job: Job) -> None:
    text = gateway.get(f"/jobs/{job.id}/items?format=csv&fields=url,n&limit=2").text
    assert text == "url,n\r\nhttps://e/0,0\r\nhttps://e/1,1\r\n"


def test_a_job_that_never_ran_has_no_items(gateway: httpx2.Client, keep: Callable[[Job], Job]) -> None:
    waiting = keep(make_job())
    assert gateway.get(f"/jobs/{waiting.id}/items").json() == {"items": [], "next": None}


def test_large_items_make_shorter_pages(gateway: httpx2.Client, items: ItemStore, keep: Callable[[Job], Job]) -> None:
    attempt = Attempt(attempt=1, node="n1", dispatched_at=utc_now())
    job = keep(make_job(status=JobStatus.RUNNING, attempt=1, attempts={"1": attempt}))
    for n in range(12):
        items.insert([Item(job.id, 1, n + 1, {"n": n, "text": "x" * (1 << 20)})])
    page = gateway.get(f"/jobs/{job.id}/items?limit=12").json()
    rest = gateway.get(f"/jobs/{job.id}/items?limit=12&after={page['next']}").json()
    assert 1 <= len(page["items"]) < 12
    assert [item["n"] for item in page["items"] + rest["items"]] == [*range(12)]


def test_of_a_job_whose_items_were_removed_it_is_told_when(gateway: httpx2.Client, database: object) -> None:
    job = make_job(status=JobStatus.FINISHED, items_removed_at=datetime(2027, 6, 1, 9, tzinfo=UTC), live_key=None)
    JobStore(database).insert(job)  # type: ignore[arg-type] # the fixture's type is the conftest's business
    answer = gateway.get(f"/jobs/{job.id}/items")
    assert answer.json() == {"items": [], "next": None}
    assert answer.headers["X-Removed-At"] == gateway.get(f"/jobs/{job.id}").json()["items_removed_at"]


def test_a_csv_runs_no_formula_unless_its_reader_wants_the_text_as_it_is(
    gateway: httpx2.Client, database: Any
) -> None:
    job = make_job(
        status=JobStatus.FINISHED,
        attempt=1,
        attempts={"1": Attempt(attempt=1, node="n1", dispatched_at=utc_now())},
        spider="Läden: offers",
        created_at=datetime(2027, 6, 1, tzinfo=UTC),
    )
    JobStore(database).insert(job)
    ItemStore(database).insert([Item(job.id, 1, 10, {"name": "=1+1", "n": -5})])
    address = f"/jobs/{job.id}/items?format=csv"
    plain = gateway.get(address)
    assert plain.content == b"name,n\r\n'=1+1,-5\r\n"
    assert plain.headers["content-disposition"] == (
        "attachment; filename=\"L_den_ offers-2027-06-01.csv\"; filename*=UTF-8''L%C3%A4den_%20offers-2027-06-01.csv"
    )
    assert gateway.get(f"{address}&bom=true").content == b"\xef\xbb\xbf" + plain.content
    assert gateway.get(f"{address}&escape_formulas=false").content == b"name,n\r\n=1+1,-5\r\n"
    for name in ("escape_formulas", "bom"):
        refused = gateway.get(f"/jobs/{job.id}/items?{name}=true")
        assert (refused.status_code, refused.json()["error"]["detail"]["field"]) == (422, name)


# --- XLSX and Parquet


def of_parquet(response: httpx2.Response) -> list[dict[str, Any]]:
    assert response.headers["content-type"] == "application/vnd.apache.parquet"
    assert int(response.headers["content-length"]) == len(response.content)
    found: list[dict[str, Any]] = pq.read_table(io.BytesIO(response.content)).to_pylist()
    return found


def test_parquet_has_all_items(gateway: httpx2.Client, job: Job) -> None:
    response = gateway.get(f"/jobs/{job.id}/items?format=parquet")
    rows = of_parquet(response)
    assert (len(rows), rows[7]) == (COUNT + 1, {"n": 7.0, "url": "https://e/7", "more": [7]})
    assert ".parquet" in response.headers["content-disposition"]


def test_a_sheet_has_all_items_or_those_that_are_asked_for(gateway: httpx2.Client, job: Job) -> None:
    def rows(**query: Any) -> list[Any]:
        response = gateway.get(f"/jobs/{job.id}/items", params={"format": "xlsx", **query})
        sheet = openpyxl.load_workbook(io.BytesIO(response.content), read_only=True).active
        return list(sheet.iter_rows(values_only=True))  # type: ignore[union-attr]  # there is a sheet

    assert len(rows()) == COUNT + 2
    assert rows(fields="url,n", q="e/123") == [("url", "n"), ("https://e/123", 123), *(
        (f"https://e/{n}", n) for n in range(1230, COUNT)
    )]  # fmt: skip


def test_pages_of_a_table_follow_each_other(gateway: httpx2.Client, job: Job) -> None:
    address = f"/jobs/{job.id}/items?format=parquet&limit=700&fields=n"
    first = gateway.get(address)
    second = gateway.get(f"{address}&after={first.headers['X-Next']}")
    found = [row["n"] for row in of_parquet(first) + of_parquet(second)]
    assert (found[:COUNT], len(found), second.headers.get("X-Next")) == ([*range(COUNT)], COUNT + 1, None)


def test_more_rows_than_a_sheet_has_are_refused_at_once(
    gateway: httpx2.Client, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(TABLES, "xlsx", TABLES["xlsx"]._replace(most_rows=COUNT))
    refused = gateway.get(f"/jobs/{job.id}/items?format=xlsx")
    error = refused.json()["error"]
    assert (refused.status_code, error["code"]) == (422, "too_many_rows")
    assert "csv" in error["message"]
    assert gateway.get(f"/jobs/{job.id}/items?format=xlsx&q=e/12").is_success


def test_without_the_extra_parquet_is_refused(
    gateway: httpx2.Client, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_files, "find_spec", lambda _: None)
    refused = gateway.get(f"/jobs/{job.id}/items?format=parquet")
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "extra_missing")


def test_tables_leave_nothing_on_the_gateways_disk(gateway: httpx2.Client, job: Job, settings: Settings) -> None:
    for query in ("format=xlsx", "format=parquet&limit=5", "format=xlsx&bom=true"):
        gateway.get(f"/jobs/{job.id}/items?{query}")
    assert not list(settings.tables_folder.iterdir())
