"""Jobs that have no retries left: they are listed, run again, and removed from the list."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from jobs import make_job

from gateway.contract.crawl import CrawlSpec
from gateway.jobs.job import Attempt, Job, JobStatus, Trigger
from gateway.jobs.store import JobStore

Keep = Callable[[Job], Job]


def dead_letter(user: str, **fields: Any) -> Job:
    """A job that has failed for good."""
    ended = {"status": JobStatus.ERROR, "message": "nothing was fetched", "settled": True, "live_key": None}
    return make_job(user_id=user, dead=True, **ended, **fields)


def listed(gateway: httpx2.Client, user: str, **query: Any) -> list[str]:
    page = gateway.get("/dead-letters", params={"user_id": user, **query}).raise_for_status().json()
    return [letter["id"] for letter in page["dead_letters"]]


def test_only_jobs_that_are_out_of_retries_are_dead_letters(gateway: httpx2.Client, keep: Keep, user: str) -> None:
    attempt = Attempt(attempt=1, node="n1", dispatched_at=make_job().created_at)
    spec = CrawlSpec(spider="seo", start_urls=("http://site.example/",), site="board")
    letter = keep(dead_letter(user, spec=spec, attempt=1, attempts={"1": attempt}, trigger=Trigger.SCHEDULED))
    keep(make_job(user_id=user, status=JobStatus.FINISHED, settled=True, live_key=None))
    keep(make_job(user_id=user))
    (told,) = gateway.get("/dead-letters", params={"user_id": user}).json()["dead_letters"]
    assert (told["id"], told["run_id"], told["site"]) == (letter.id, f"sched_{letter.id}", "board")
    assert (told["message"], told["attempts"]) == ("nothing was fetched", 1)
    assert gateway.get(told["job_url"]).json()["dead"] is True


def test_the_list_is_paged_newest_first_and_filtered(gateway: httpx2.Client, keep: Keep, user: str) -> None:
    letters = [keep(dead_letter(user, spider=f"spider{number % 2}")).id for number in range(5)]
    first = gateway.get("/dead-letters", params={"user_id": user, "limit": 3}).json()
    rest = listed(gateway, user, limit=3, after=first["next"])
    assert {*(letter["id"] for letter in first["dead_letters"]), *rest} == set(letters)
    assert len(rest) == 2
    assert set(listed(gateway, user, spider="spider0")) == {letters[0], letters[2], letters[4]}
    assert listed(gateway, user, id_prefix=letters[1][:8]) == [letters[1]]
    assert gateway.get("/dead-letters", params={"id_prefix": "5f0"}).status_code == 422
    assert gateway.get("/dead-letters", params={"status": "error"}).status_code == 422


def test_requeueing_makes_a_new_linked_job_and_answers_the_letter(
    gateway: httpx2.Client, keep: Keep, jobs: JobStore, user: str
) -> None:
    letter = keep(dead_letter(user))
    receipt = gateway.post(f"/dead-letters/{letter.id}/requeue").raise_for_status().json()
    new = jobs.get(receipt["job_id"])
    assert (receipt["retry_of"], new.retry_of, new.status) == (letter.id, letter.id, JobStatus.PENDING)
    assert listed(gateway, user) == []
    assert jobs.get(letter.id).status is JobStatus.ERROR
    again = gateway.post(f"/dead-letters/{letter.id}/requeue")
    assert (again.status_code, again.json()["error"]["code"]) == (404, "dead_letter_not_found")


def test_a_run_of_a_site_is_requeued_as_a_run_of_it(
    gateway: httpx2.Client, keep: Keep, jobs: JobStore, user: str
) -> None:
    ran = {"trigger": Trigger.SCHEDULED, "exclusive": "site:board", "schedule_id": "5" * 32}
    letter = keep(dead_letter(user, **ran))
    new = jobs.get(gateway.post(f"/dead-letters/{letter.id}/requeue").json()["job_id"])
    assert (new.trigger, new.exclusive, new.schedule_id) == ("manual", "site:board", "5" * 32)
    assert gateway.get(f"/jobs/scrape/manual_{new.id}").json()["status"] == "queued"


def test_a_run_of_a_site_is_not_requeued_while_the_site_is_disabled(
    gateway: httpx2.Client, keep: Keep, user: str
) -> None:
    site = {"name": f"board-{user}", "search_url": "https://jobs.example.com/", "spider": "seo", "enabled": False}
    gateway.post("/sites", json=site).raise_for_status()
    spec = CrawlSpec(spider="seo", start_urls=("https://jobs.example.com/",), site=site["name"])
    letter = keep(dead_letter(user, spec=spec, trigger=Trigger.MANUAL))
    for refused in (f"/dead-letters/{letter.id}/requeue", f"/jobs/{letter.id}/retry"):
        answer = gateway.post(refused)
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "site_disabled")
    assert listed(gateway, user) == [letter.id]
    gateway.delete(f"/sites/{site['name']}").raise_for_status()
    gateway.post(f"/dead-letters/{letter.id}/requeue").raise_for_status()


def test_a_letter_requeued_by_many_at_once_is_run_again_once(gateway: httpx2.Client, keep: Keep, user: str) -> None:
    letter = keep(dead_letter(user))
    answers: list[int] = []

    def requeue() -> None:
        answers.append(gateway.post(f"/dead-letters/{letter.id}/requeue").status_code)

    threads = [threading.Thread(target=requeue) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers.count(200) == 1
    assert set(answers) <= {200, 404, 409}
    jobs = gateway.get("/jobs", params={"user_id": user}).json()["jobs"]
    assert len([job for job in jobs if job["status"] == "pending"]) == 1


def test_a_letter_that_cannot_be_run_again_stays(gateway: httpx2.Client, keep: Keep, user: str) -> None:
    letter = keep(dead_letter(user))
    keep(make_job(user_id=user, fingerprint=letter.fingerprint))
    assert gateway.post(f"/dead-letters/{letter.id}/requeue").status_code == 409
    assert listed(gateway, user) == [letter.id]


def test_a_letter_that_is_let_go_leaves_the_list_and_its_job_stays(
    gateway: httpx2.Client, keep: Keep, user: str
) -> None:
    letter = keep(dead_letter(user))
    gone = gateway.delete(f"/dead-letters/{letter.id}")
    assert (gone.status_code, gone.content) == (204, b"")
    assert listed(gateway, user) == []
    assert gateway.get(f"/jobs/{letter.id}").json()["dead"] is False
    assert gateway.delete(f"/dead-letters/{letter.id}").status_code == 404


@pytest.mark.parametrize("letter_id", ["f" * 32, "not-an-id"])
def test_nothing_can_be_done_about_a_letter_that_is_not_there(gateway: httpx2.Client, letter_id: str) -> None:
    for answer in (gateway.post(f"/dead-letters/{letter_id}/requeue"), gateway.delete(f"/dead-letters/{letter_id}")):
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "dead_letter_not_found")


def test_a_living_job_is_no_dead_letter(gateway: httpx2.Client, keep: Keep, user: str) -> None:
    job = keep(make_job(user_id=user))
    assert gateway.post(f"/dead-letters/{job.id}/requeue").status_code == 404
    assert gateway.delete(f"/dead-letters/{job.id}").status_code == 404
