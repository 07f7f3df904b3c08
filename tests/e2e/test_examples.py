"""The programs in docs/examples do what they say, as they stand there."""

from __future__ import annotations

import csv
import json
import os
import runpy
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import duckdb
import httpx2
import pytest
import warm
from forms import in_full
from sites.job_board import job_board
from sites.server import Reply, Site, html
from stack import ROOT, Stack, wait_until

pytestmark = [pytest.mark.stack]

EXAMPLES = ROOT / "docs/examples"
#: As quotes.toscrape.com has it.
QUOTES = html("""
<div class="quote"><a class="tag">humor</a><a href="/author/Jane-Austen">about</a></div>
<div class="quote"><a class="tag">life</a><a href="/author/Albert-Einstein">about</a></div>
""")
AUTHORS = {
    f"/author/{name.replace(' ', '-')}": html(
        f'<h3 class="author-title">{name}\n</h3><span class="author-born-date">{born}</span>'
    )
    for name, born in (("Jane Austen", "December 16, 1775"), ("Albert Einstein", "March 14, 1879"))
}


def _environment(stack: Stack) -> dict[str, str]:
    return {**os.environ, "DISCOVERYBOT_URL": stack.url}


def _run(stack: Stack, *command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env=_environment(stack), capture_output=True, text=True, timeout=120, check=False)


def test_the_project_is_deployed_with_what_it_requires_and_crawls(stack: Stack, site: Site, tmp_path: Path) -> None:
    site.pages |= {"/": QUOTES, **AUTHORS}
    done = warm.run("gateway.cli.main", "deploy", str(EXAMPLES / "quotes"), env=_environment(stack))
    assert done.returncode == 0, done.stderr
    assert "as in requirements.txt" in done.stderr
    output = tmp_path / "quotes.jsonl"
    crawl = ("crawl", site.url, "--project", "quotes", "--spider", "quotes", "--output", str(output))
    done = warm.run("gateway.cli.main", *crawl, "--param", "tag=humor", env=_environment(stack))
    assert done.returncode == 0, done.stderr
    (author,) = map(json.loads, output.read_text().splitlines())
    assert (author["name"], author["born"]) == ("Jane Austen", "1775-12-16")


#: As books.toscrape.com has it: three pages of two books each.
BOOKS = {
    path: html(
        "".join(
            f'<article class="product_pod"><img src="/covers/{n}.jpg">'
            f'<h3><a href="/book/{n}" title="Book {n}">…</a></h3>'
            f'<p class="price_color">£{n}.50</p><p class="availability">In stock</p></article>'
            for n in (2 * page, 2 * page + 1)
        )
        + (f'<li class="next"><a href="/page/{page + 1}">next</a></li>' if page < 2 else "")
    )
    for page, path in enumerate(("/", "/page/1", "/page/2"))
}
COVERS = {f"/covers/{n}.jpg": Reply(b"cover of %d" % n, content_type="image/jpeg") for n in (0, 1)}


@pytest.fixture(scope="module")
def books(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The project is deployed, with its secret; without its list of requirements, which is empty, for an environment
    of its own takes longer than all its crawls.
    """
    folder = tmp_path_factory.mktemp("projects") / "books"
    shutil.copytree(EXAMPLES / "books", folder, ignore=shutil.ignore_patterns("requirements.txt"))
    done = warm.run("gateway.cli.main", "deploy", str(folder), env=_environment(stack))
    assert done.returncode == 0, done.stderr
    secret = {"value": "open sesame", "secret": True}
    stack.http.put(f"{stack.url}/projects/books/env/BOOKS_PASSWORD", json=secret).raise_for_status()


def _crawl(stack: Stack, spider: str, url: str, **fields: Any) -> str:
    """The id of the job, when it has ended."""
    settings = {"DOWNLOAD_DELAY": 0}
    job = stack.crawl(url, project="books", spider=spider, settings=settings, ignore_cache=True, **fields)
    stack.wait_final(job)
    return job


def test_a_list_is_read_page_after_page(stack: Stack, site: Site, books: None) -> None:
    site.pages |= BOOKS
    every = stack.items(_crawl(stack, "pagination", site.url))
    assert [(item["title"], item["price"]) for item in every] == [(f"Book {n}", n + 0.5) for n in range(6)]
    assert {(item["in_stock"], item["url"].partition("/book/")[0]) for item in every} == {(True, site.url)}
    assert len(stack.items(_crawl(stack, "pagination", site.url, params={"pages": "2"}))) == 4


@in_full("files of a crawl in eggs/test_files.py")
def test_images_are_kept(stack: Stack, site: Site, books: None) -> None:
    site.pages |= BOOKS | COVERS
    job = _crawl(stack, "images", site.url)
    files = stack.http.get(f"{stack.url}/jobs/{job}/files").raise_for_status().json()["files"]
    kept = {stack.http.get(f"{stack.url}{file['url']}").raise_for_status().content for file in files}
    assert kept == {b"cover of 0", b"cover of 1"}


class _Members(BaseHTTPRequestHandler):
    """As quotes.toscrape.com has it: a form with a token, and quotes for those who have sent it with the password."""

    def do_GET(self) -> None:
        cookie = self.headers.get("Cookie", "")
        if self.path == "/login":
            form = "<input type=hidden name=csrf_token value=t0ken><input name=username><input name=password>"
            self._send(200, html(f"<form method=post>{form}</form>"))
        elif self.path == "/" and "session=member" in cookie:
            quote = '<div class="quote"><span class="text">Go on.</span><span class="author">Anne</span></div>'
            self._send(200, html(f'<a href="/logout">Logout</a>{quote}'))
        else:
            self._send(200 if self.path == "/" else 404, html('<a href="/login">Login</a>'))

    def do_POST(self) -> None:
        sent = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        is_right = sent == {"csrf_token": ["t0ken"], "username": ["reader"], "password": ["open sesame"]}
        self._send(302, "", Location="/", **({"Set-Cookie": "session=member"} if is_right else {}))

    def _send(self, status: int, body: str, **headers: str) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Type": "text/html", "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None:
        """Nobody reads them."""


def test_a_form_is_signed_in_with_the_projects_secret(stack: Stack, books: None) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Members) as members:
        threading.Thread(target=members.serve_forever, args=(0.02,), daemon=True).start()
        try:
            job = _crawl(stack, "login", f"http://127.0.0.1:{members.server_port}/login")
        finally:
            members.shutdown()
    assert [(item["text"], item["author"]) for item in stack.items(job)] == [("Go on.", "Anne")]


@in_full("all of a board in test_job_board.py")
def test_a_job_board_shows_what_is_new(stack: Stack, tmp_path: Path) -> None:
    command = (sys.executable, EXAMPLES / "job_board.py", "board", "Data Engineer", "--seen", tmp_path / "seen.json")
    with job_board(25) as board:
        record = {**board.record("board", "json-ld", "none"), "min_pause_seconds": 0, "max_pause_seconds": 0}
        stack.http.post(f"{stack.url}/sites", json=record).raise_for_status()
        first, again = (_run(stack, *command) for _ in range(2))
        stack.http.delete(f"{stack.url}/sites/board", params={"force": "true"}).raise_for_status()
    assert first.returncode == 0, first.stderr
    found = {line.split("\t")[2] for line in first.stdout.splitlines()}
    assert found == {board.posting_url("json-ld", ad) for ad in board.found("Data Engineer")}
    assert (again.returncode, again.stdout) == (0, "")


@pytest.fixture
def two_runs(stack: Stack, site: Site, books: None) -> Iterator[str]:
    """A schedule with two runs, between which a price has changed; both are in the dataset `books`."""
    crawl = {"user_id": "tester", "project": "books", "spider": "pagination", "start_urls": [site.url]}
    crawl["dataset"] = {"name": "books", "key": ["title"]}
    later = {"interval": "@yearly", "settings": {"DOWNLOAD_DELAY": 0}}
    schedule = stack.http.post(f"{stack.url}/crawl", json=crawl | later).raise_for_status().json()["job_id"]
    site.pages |= BOOKS
    for price in ("£5.50", "£4.20"):
        site.pages["/page/2"] = BOOKS["/page/2"].replace("£5.50", price)
        run = stack.http.post(f"{stack.url}/schedules/{schedule}/run").raise_for_status().json()["job_id"]
        stack.wait_final(run)
    yield schedule
    stack.http.delete(f"{stack.url}/schedules/{schedule}").raise_for_status()
    stack.http.delete(f"{stack.url}/datasets/books").raise_for_status()


def test_two_runs_are_laid_side_by_side(
    stack: Stack, two_runs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISCOVERYBOT_URL", stack.url)
    prices, load = (runpy.run_path(str(EXAMPLES / name)) for name in ("prices_in_pandas.py", "load_with_dlt.py"))
    with httpx2.Client(base_url=stack.url) as client:
        jobs = prices["two_latest"](client, two_runs)
        assert [prices["items"](client, job)[5]["price"] for job in jobs] == [4.2, 5.5]
    assert [item["price"] for item in load["items"](two_runs)][5] == 4.2
    # what the programs make of it, where their packages are installed
    if find_spec("pandas"):
        done = _run(stack, sys.executable, EXAMPLES / "prices_in_pandas.py", two_runs)
        assert done.stdout.split() == ["title", "price_before", "price", "Book", "5", "5.5", "4.2"]
    if find_spec("dlt"):
        monkeypatch.chdir(tmp_path)
        assert _run(stack, sys.executable, EXAMPLES / "load_with_dlt.py", two_runs).returncode == 0
        assert (tmp_path / "discoverybot.duckdb").exists()


@pytest.mark.skipif(find_spec("pyarrow") is None, reason="the gateway writes no Parquet without pyarrow")
def test_items_are_asked_with_sql(stack: Stack, two_runs: str) -> None:
    question = "SELECT count(*), max(price) FROM items WHERE in_stock"
    done = _run(stack, sys.executable, EXAMPLES / "query_with_duckdb.py", two_runs, question)
    assert done.stdout == "6\t4.5\n", done.stderr


def test_what_changes_is_carried_over_to_tables(
    stack: Stack, two_runs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    books = f"{stack.url}/datasets/books"
    wait_until(lambda: stack.http.get(books).json().get("runs") == 2, what="both runs in the dataset")
    keep = (sys.executable, EXAMPLES / "keep_a_table_in_step.py", "books", tmp_path / "books.db")
    assert [_run(stack, *keep).stdout for _ in range(2)] == ["7 changes\n", "0 changes\n"]
    with closing(sqlite3.connect(tmp_path / "books.db")) as database:
        items = [json.loads(item) for (item,) in database.execute("SELECT item FROM items")]
    assert sorted(item["price"] for item in items) == [0.5, 1.5, 2.5, 3.5, 4.2, 4.5]

    monkeypatch.setenv("DISCOVERYBOT_URL", stack.url)
    pandas, load = (
        runpy.run_path(str(EXAMPLES / name)) for name in ("changes_in_pandas.py", "load_changes_with_dlt.py")
    )
    with httpx2.Client(base_url=books) as client:
        found, reached = pandas["changes"](client, 0)
        assert pandas["changes"](client, reached) == ([], reached)
    changed = [row for row in pandas["rows"](found) if row["type"] == "changed"]
    assert [(row["title"], row["field"], row["previous"], row["current"]) for row in changed] == [
        ("Book 5", "price", 5.5, 4.2)
    ]
    assert [row["deleted"] for row in load["changes"]("books", 0)] == [False] * 7
    # what the programs make of it, where their packages are installed
    if find_spec("pandas"):
        done = _run(stack, sys.executable, EXAMPLES / "changes_in_pandas.py", "books")
        assert done.stdout.splitlines()[-1] == f"next time: {reached}", done.stderr
    if find_spec("dlt"):
        monkeypatch.chdir(tmp_path)
        for _ in range(2):
            done = _run(stack, sys.executable, EXAMPLES / "load_changes_with_dlt.py", "books")
            assert done.returncode == 0, done.stderr
        with duckdb.connect(str(tmp_path / "discoverybot_datasets.duckdb")) as loaded:
            prices = loaded.sql("SELECT price FROM datasets.books ORDER BY price").fetchall()
        assert [price for (price,) in prices] == [0.5, 1.5, 2.5, 3.5, 4.2, 4.5]


@in_full("the client below, which it imports")
def test_the_notebook_runs_from_its_first_cell_to_its_last(stack: Stack, site: Site) -> None:
    cells = json.loads((EXAMPLES / "look_at_a_crawl.ipynb").read_text(encoding="utf-8"))["cells"]
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    environment = {**_environment(stack), "SITE": f"{site.url}/tree/4"}
    command = (sys.executable, "-c", code)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:2] == ["finished - 5 pages", "Counter({200: 5})"]


def test_the_client_prints_the_whole_log_and_how_the_crawl_ended(stack: Stack, site: Site) -> None:
    done = _run(stack, sys.executable, EXAMPLES / "follow_a_crawl.py", f"{site.url}/tree/4")
    assert done.returncode == 0, done.stderr
    assert "INFO Spider opened" in done.stdout.splitlines()
    assert done.stdout.splitlines()[-1] == "finished: 5 pages, 5 items"


def test_the_client_fails_where_the_crawl_does(stack: Stack, site: Site) -> None:
    done = _run(stack, sys.executable, EXAMPLES / "follow_a_crawl.py", f"{site.url}/status/404")
    assert (done.returncode, done.stdout.splitlines()[-1].partition(":")[0]) == (1, "error")
    refused = _run(stack, sys.executable, EXAMPLES / "follow_a_crawl.py")
    assert (refused.returncode, "start_urls" in refused.stderr) == (1, True)


def test_the_receiver_saves_the_items_of_a_crawl_that_it_is_called_for(
    stack: Stack, site: Site, tmp_path: Path
) -> None:
    with _receiver(stack, tmp_path) as url:
        forged = stack.http.post(f"{url}/guessed", json={"job_id": "0" * 32})
        job = stack.crawl(f"{site.url}/tree/4", webhook_url=f"{url}/s3cret")
        again = {"job_id": job}
        saved = wait_until(lambda: list(tmp_path.glob("*.csv")), what="the call")
        assert stack.http.post(f"{url}/s3cret", json=again).status_code == 204
    assert (forged.status_code, [path.name for path in saved]) == (404, [f"{job}.csv"])
    assert len(list(csv.DictReader(saved[0].read_text().splitlines()))) == 5


@contextmanager
def _receiver(stack: Stack, folder: Path) -> Iterator[str]:
    command = (sys.executable, EXAMPLES / "webhook_receiver.py", "--port", "0", "--secret", "s3cret", folder)
    with subprocess.Popen(command, env=_environment(stack), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().split()[-1]}"
        finally:
            process.terminate()


def test_the_script_sets_up_one_schedule_and_prints_the_items_of_its_latest_run(stack: Stack, site: Site) -> None:
    command = (EXAMPLES / "crawl_every_morning.sh", f"{site.url}/tree/4")
    first = _run(stack, *command)
    assert (first.returncode, first.stdout) == (0, "")
    done = _run(stack, *command, "now")
    assert done.returncode == 0, done.stderr
    assert len(list(csv.DictReader(done.stdout.splitlines()))) == 5
    again = _run(stack, *command)
    assert (again.stdout, again.stderr) == (done.stdout, done.stderr)
    assert first.stderr.splitlines()[0] == done.stderr.strip()
    stack.http.delete(f"{stack.url}/schedules/{done.stderr.split()[-1]}").raise_for_status()


def test_every_example_is_named_in_its_list() -> None:
    page = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert not [one.name for one in EXAMPLES.iterdir() if f"({one.name})" not in page and one.name != "README.md"]
