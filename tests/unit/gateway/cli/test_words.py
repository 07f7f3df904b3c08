"""The words of options: a misspelt one is not sent, and some have names of their own here."""

from __future__ import annotations

import pytest
from unit.gateway.cli.conftest import Answer, Run, StandIn

JOB = "5f0c8e3a9d1b4c7e8f2a6b5d4c3e2f1a"


@pytest.mark.parametrize(
    ("command", "meant"),
    [
        (("jobs", "list", "--status", "canceled"), "cancelled"),
        (("errors", "list", "--state", "Resolved"), "resolved"),
        (("keys", "create", "--scope", "read-all"), "read_all"),
    ],
)
def test_a_misspelt_word_is_refused_with_the_one_that_is_meant(
    gateway: StandIn, run: Run, command: tuple[str, ...], meant: str
) -> None:
    done = run(*command)
    assert done.returncode == 2
    assert f"did you mean {meant}?" in done.stderr
    assert not gateway.asked("/jobs")


def test_a_word_that_is_like_none_is_left_to_the_gateway(gateway: StandIn, run: Run) -> None:
    gateway.says("GET /jobs", Answer(422, {"error": {"code": "validation_error", "message": "status: wrong"}}))
    done = run("jobs", "list", "--status", "xyz")
    assert gateway.asked("/jobs")[0].query == "status=xyz&limit=20"
    assert done.returncode == 2


def test_the_slowest_requests_come_first(gateway: StandIn, run: Run) -> None:
    gateway.says(f"GET /jobs/{JOB}/requests", Answer(200, {"requests": [], "next": None}))
    for word in ("slowest", "-ms"):
        assert run("requests", JOB, "--sort", word).returncode == 0
    assert [call.query for call in gateway.asked(f"/jobs/{JOB}/requests")] == ["sort=-ms&limit=20"] * 2


def test_users_are_shown_where_there_are_several(gateway: StandIn, run: Run) -> None:
    gateway.says("GET /jobs", Answer(200, {"jobs": [job("anne"), job("bert")], "next": None}))
    assert run("jobs").stdout.split().count("USER") == 1
    gateway.says("GET /jobs", Answer(200, {"jobs": [job("anne"), job("anne")], "next": None}))
    assert "USER" not in run("jobs").stdout


def job(user: str) -> dict[str, object]:
    counts = dict.fromkeys(("completed_pages", "items_count", "errors_count"), 0)
    return {
        "job_id": JOB, "user_id": user, "status": "finished", "project": "default", "spider": "seo", **counts,
        "started_at": None, "finished_at": None, "created_at": "2027-06-01T09:03:41.000Z", "queue_position": None,
        "waiting_reason": None, "start_urls": [], "start_urls_count": 1,
    }  # fmt: skip
