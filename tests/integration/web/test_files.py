"""`GET /jobs/{id}/files`, and each file: who may fetch it, in parts, and without harm to a browser."""

from __future__ import annotations

import hashlib
from typing import Any
from urllib.parse import quote

import httpx2
import pytest
from jobs import make_job

from gateway.clock import utc_now
from gateway.contract.outbox import AttemptId
from gateway.contract.records import ExitReport, FilesKept
from gateway.files.store import FileBytes, FileRecord, FilesPlace, FileStore
from gateway.jobs.job import Attempt, Job, JobStatus
from gateway.jobs.store import JobStore
from gateway.settings import Settings

PAGE = b"<script>alert(1)</script>"
LARGE = bytes(range(256)) * 10_000
ODD = 'x\r\nSet-Cookie: a="b\N{RIGHT-TO-LEFT OVERRIDE}gnp.html'
FILES = {
    1: {"a.txt": b"old", "images/full/1.jpg": b"jpg"},
    2: {"a.txt": b"new", "page.html": PAGE, "large.bin": LARGE, "empty": b"", ODD: b"odd"},
}


@pytest.fixture(scope="module")
def store(database: Any, settings: Settings) -> FileStore:
    return FileStore(database, FileBytes(FilesPlace(settings.files_location)))


@pytest.fixture(scope="module")
def job(gateway: httpx2.Client, database: Any, store: FileStore) -> Job:
    """A job that has ended, with files of both of its attempts."""
    end = ExitReport(attempt=2, ended_at=utc_now(), files=FilesKept(count=5))
    attempts = {
        "1": Attempt(attempt=1, node="n1", dispatched_at=utc_now()),
        "2": Attempt(attempt=2, node="n1", dispatched_at=utc_now(), exit=end),
    }
    job = make_job(status=JobStatus.FINISHED, attempt=2, attempts=attempts, settled=True, finished_at=utc_now())
    JobStore(database).insert(job)
    for attempt, files in FILES.items():
        for name, content in files.items():
            keep(store, AttemptId(job.id, attempt), name, content)
    return job


def keep(store: FileStore, attempt: AttemptId, name: str, content: bytes) -> None:
    store.keep(attempt, name, [content] if content else [])
    facts = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    store.note(FileRecord.of(attempt, name, modified_at=utc_now(), stored_at=utc_now(), **facts))


def names(gateway: httpx2.Client, job: Job, **query: Any) -> list[tuple[str, int]]:
    found = gateway.get(f"/jobs/{job.id}/files", params=query).json()["files"]
    return [(one["name"], one["attempt"]) for one in found]


def test_the_latest_of_each_name_is_listed_by_name(gateway: httpx2.Client, job: Job) -> None:
    assert names(gateway, job) == [
        ("a.txt", 2), ("empty", 2), ("images/full/1.jpg", 1), ("large.bin", 2), ("page.html", 2), (ODD, 2),
    ]  # fmt: skip
    assert names(gateway, job, attempt=1) == [("a.txt", 1), ("images/full/1.jpg", 1)]
    assert names(gateway, job, attempt=3) == []
    answer = gateway.get(f"/jobs/{job.id}/files").json()
    assert (answer["next"], answer["pending"], answer["removed_at"]) == (None, False, None)
    first = answer["files"][0]
    assert (first["size"], first["type"]) == (3, "text/plain")
    assert first["sha256"] == hashlib.sha256(b"new").hexdigest()


def test_every_listed_file_can_be_fetched_by_its_url(gateway: httpx2.Client, job: Job) -> None:
    for one in gateway.get(f"/jobs/{job.id}/files").json()["files"]:
        answer = gateway.get(one["url"])
        assert answer.status_code == 200
        assert answer.content == FILES[one["attempt"]][one["name"]]
        assert hashlib.sha256(answer.content).hexdigest() == one["sha256"]


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_pages_follow_each_other_without_gap_or_repeat(gateway: httpx2.Client, job: Job, limit: int) -> None:
    seen, after = [], {}
    while after is not None:
        answer = gateway.get(f"/jobs/{job.id}/files", params={"limit": limit, **after}).json()
        seen += [(one["name"], one["attempt"]) for one in answer["files"]]
        after = {"after": answer["next"]} if answer["next"] else None
    assert seen == names(gateway, job)


def test_a_browser_saves_a_page_and_runs_nothing_of_it(gateway: httpx2.Client, job: Job) -> None:
    answer = gateway.get(f"/jobs/{job.id}/files/page.html")
    assert answer.content == PAGE
    assert answer.headers["content-type"] == "text/html"
    assert answer.headers["content-disposition"] == "attachment; filename*=UTF-8''page.html"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-security-policy"].startswith("sandbox;")


@pytest.mark.parametrize("name", ["a.js", "a.mjs", "a.css"])
def test_no_page_of_ours_takes_a_script_or_a_style_from_a_spider(
    gateway: httpx2.Client, job: Job, store: FileStore, name: str
) -> None:
    keep(store, AttemptId(job.id, 2), f"assets/{name}", b"alert(1)")
    answer = gateway.get(f"/jobs/{job.id}/files/assets/{name}")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/octet-stream")
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_no_name_reaches_the_headers_as_it_is(gateway: httpx2.Client, job: Job) -> None:
    answer = gateway.get(f"/jobs/{job.id}/files/{quote(ODD, safe='')}")
    assert answer.content == b"odd"
    assert "set-cookie" not in answer.headers
    assert answer.headers["content-disposition"] == f"attachment; filename*=UTF-8''{quote(ODD, safe='')}"


@pytest.mark.parametrize(
    ("wanted", "start", "end"),
    [
        ("bytes=0-9", 0, 10),
        ("bytes=2559990-", 2559990, 2560000),
        ("bytes=-10", 2559990, 2560000),
        ("bytes=1000000-2500000", 1000000, 2500001),
        ("bytes=5-99999999", 5, 2560000),
        ("bytes=-99999999", 0, 2560000),
    ],
)
def test_a_part_can_be_fetched(gateway: httpx2.Client, job: Job, wanted: str, start: int, end: int) -> None:
    answer = gateway.get(f"/jobs/{job.id}/files/large.bin", headers={"Range": wanted})
    assert answer.status_code == 206
    assert answer.content == LARGE[start:end]
    assert answer.headers["content-range"] == f"bytes {start}-{end - 1}/{len(LARGE)}"
    assert answer.headers["content-length"] == str(end - start)


@pytest.mark.parametrize("wanted", ["bytes=1-2,4-5", "bytes=9-1", "lines=1-2", "bytes=a-b", "bytes=-", "x" * 1000])
def test_any_other_range_is_answered_with_the_whole_file(gateway: httpx2.Client, job: Job, wanted: str) -> None:
    answer = gateway.get(f"/jobs/{job.id}/files/a.txt", headers={"Range": wanted})
    assert (answer.status_code, answer.content) == (200, b"new")


@pytest.mark.parametrize(("name", "wanted"), [("a.txt", "bytes=3-"), ("a.txt", "bytes=-0"), ("empty", "bytes=0-")])
def test_a_part_behind_the_end_is_refused_with_the_size(
    gateway: httpx2.Client, job: Job, name: str, wanted: str
) -> None:
    answer = gateway.get(f"/jobs/{job.id}/files/{name}", headers={"Range": wanted})
    assert answer.status_code == 416
    assert answer.headers["content-range"] == f"bytes */{len(FILES[2][name])}"
    assert answer.json()["error"]["code"] == "range_not_satisfiable"


def test_who_has_the_file_is_sent_nothing_and_goes_on_only_with_the_same(gateway: httpx2.Client, job: Job) -> None:
    url = f"/jobs/{job.id}/files/large.bin"
    tag = gateway.get(url).headers["etag"]
    assert gateway.get(url, headers={"If-None-Match": tag}).status_code == 304
    assert gateway.get(url, headers={"Range": "bytes=0-1", "If-Range": tag}).status_code == 206
    assert gateway.get(url, headers={"Range": "bytes=0-1", "If-Range": '"other"'}).content == LARGE


@pytest.mark.parametrize("name", ["nothing", "%2e%2e%2fa.txt", "a.txt%00", "%ff", "a.txt//000002", "images"])
def test_what_is_not_there_is_404(gateway: httpx2.Client, job: Job, name: str) -> None:
    answer = gateway.get(f"/jobs/{job.id}/files/{name}")
    assert answer.status_code == 404
    assert gateway.get(f"/jobs/{job.id}/files/a.txt?attempt=3").json()["error"]["code"] == "file_not_found"
    assert gateway.get(f"/jobs/{'0' * 32}/files/a.txt").json()["error"]["code"] == "job_not_found"


def test_a_file_that_the_store_has_lost_is_said_to_be(gateway: httpx2.Client, job: Job, store: FileStore) -> None:
    attempt = AttemptId(job.id, 9)
    facts = {"size": 1, "sha256": "", "modified_at": utc_now(), "stored_at": utc_now()}
    store.note(FileRecord.of(attempt, "lost", **facts))
    answer = gateway.get(f"/jobs/{job.id}/files/lost")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "file_not_stored")
    assert "FILES_URL" in answer.json()["error"]["message"]


def test_files_go_with_their_job(gateway: httpx2.Client, database: Any, store: FileStore, settings: Settings) -> None:
    job = make_job(status=JobStatus.FINISHED, settled=True, finished_at=utc_now())
    JobStore(database).insert(job)
    keep(store, AttemptId(job.id, 1), "images/a", b"a")
    keep(store, AttemptId(job.id, 1), "~", b"b")
    # a tailer that is killed leaves such a file
    (settings.discoverybot_home / "files" / job.id / "1" / "images" / "b#1").write_bytes(b"half")
    assert gateway.delete(f"/jobs/{job.id}").status_code == 204
    assert store.find(job.id, None, "images/a") is None
    assert not (settings.discoverybot_home / "files" / job.id).exists()
