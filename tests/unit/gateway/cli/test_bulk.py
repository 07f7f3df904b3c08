"""Several ids, and all jobs that a filter names."""

from __future__ import annotations

import json
from typing import Any

import pytest
from unit.gateway.cli.conftest import JOB, Answer, Run, StandIn

OTHER = JOB[::-1]
AS_OF = "2027-06-01T09:00:00.000Z"
COUNT: dict[str, Any] = {"matched": 3, "as_of": AS_OF, "done": 0, "refused": 0, "refusals": [], "next": None}
COUNT["stopped"] = None
DONE = {**COUNT, "as_of": None}
GONE = Answer(404, {"error": {"message": "there is no such job"}})


@pytest.mark.parametrize("command", [("cancel",), ("jobs", "cancel")], ids=" ".join)
def test_several_ids_are_taken_one_after_the_other(gateway: StandIn, run: Run, command: tuple[str, ...]) -> None:
    for job in (JOB, OTHER):
        gateway.says(f"POST /jobs/{job}/cancel", Answer(200, {"status": "cancelled"}))
    done = run(*command, JOB, OTHER, JOB)
    assert (done.returncode, done.stdout) == (0, f"{JOB}: cancelled\n{OTHER}: cancelled\n")
    assert json.loads(run(*command, JOB, OTHER, "--json").stdout) == [{"status": "cancelled"}] * 2
    assert json.loads(run(*command, JOB, "--json").stdout) == {"status": "cancelled"}


def test_one_that_fails_does_not_keep_it_from_the_others(gateway: StandIn, run: Run) -> None:
    gateway.says(f"POST /jobs/{JOB}/retry", GONE)
    gateway.says(f"POST /jobs/{OTHER}/retry", Answer(200, {"job_id": "new"}))
    done = run("retry", JOB, OTHER)
    assert (done.returncode, done.stdout, done.stderr) == (2, "new\n", f"error: {JOB}: there is no such job\n")


def test_a_filter_names_all_jobs_to_act_on_after_a_confirmation(gateway: StandIn, run: Run) -> None:
    gateway.says("POST /jobs/bulk", Answer(200, COUNT))
    wanted = ("cancel", "--spider", "seo", "--status", "pending")
    refused = run(*wanted)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == "error: Cancel 3 jobs? Confirm it with --yes\n"
    assert [request.body for request in gateway.requests] == [
        {"filter": {"spider": "seo", "status": ["pending"]}, "action": "cancel"}
    ]
    first = {**DONE, "done": 2, "next": f"17-{JOB}"}
    gateway.says("POST /jobs/bulk", Answer(200, COUNT), Answer(200, first), Answer(200, {**DONE, "done": 1}))
    done = run(*wanted, "--yes")
    assert (done.returncode, done.stdout) == (0, "3 jobs cancelled, or asked to stop\n")
    begun, on = (request.body for request in gateway.requests[-2:])
    assert (begun["expect"], begun["as_of"]) == (3, AS_OF)
    assert on == {**begun, "after": f"17-{JOB}"}


def test_what_could_not_be_done_is_said(gateway: StandIn, run: Run) -> None:
    refusals = [{"job_id": JOB, "code": "conflict", "message": "it runs again"}]
    ended = {**DONE, "done": 2, "refused": 1, "refusals": refusals}
    gateway.says("POST /jobs/bulk", Answer(200, COUNT), Answer(200, ended))
    done = run("requeue", "--all", "--yes")
    assert (done.returncode, done.stdout) == (2, "2 jobs run again\n")
    assert f"{JOB}: it runs again\nerror: 1 job could not be acted on\n" in done.stderr
    assert gateway.requests[0].body == {"filter": {"dead": True}, "action": "requeue"}


def test_where_none_fits_nothing_is_done(gateway: StandIn, run: Run) -> None:
    gateway.says("POST /jobs/bulk", Answer(200, {**COUNT, "matched": 0}))
    done = run("jobs", "delete", "--tag", "old")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "there is no such job to delete\n")
    assert len(gateway.requests) == 1


@pytest.mark.parametrize("words", [(), (JOB, "--spider", "seo"), (JOB, "--all")], ids=["none", "both", "both all"])
def test_either_ids_or_a_filter(gateway: StandIn, run: Run, words: tuple[str, ...]) -> None:
    assert run("cancel", *words).returncode == 2
    assert not gateway.requests


def test_a_project_is_deleted_with_all_it_has(gateway: StandIn, run: Run) -> None:
    versions = [{"version": "1.1"}, {"version": "1.0"}]
    gateway.says("GET /projects/shop/versions", Answer(200, {"versions": versions}))
    for version in ("1.1", "1.0"):
        answer = {"version": version, "nodes": [{"node": "n1", "removed": True, "message": None}]}
        gateway.says(f"DELETE /projects/shop/versions/{version}", Answer(200, answer))
    for what in ("env", "settings"):
        gateway.says(f"PUT /projects/shop/{what}", Answer(200, {}))
    refused = run("projects", "delete", "shop")
    assert (refused.returncode, len(gateway.requests)) == (2, 1)
    assert "Delete the project shop with 2 versions" in refused.stderr
    done = run("projects", "delete", "shop", "--yes")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "shop: deleted"), done.stderr
    assert gateway.asked("/projects/shop/env")[0].body == {"variables": {}}
    assert gateway.asked("/projects/shop/settings")[0].body == {"settings": {}}
    one = run("projects", "delete", "shop", "1.0")
    assert (one.returncode, one.stdout) == (0, "✓ n1: removed\nshop 1.0: deleted\n")


def _scheduled(schedule_id: str, site: str | None = None) -> dict[str, Any]:
    return {"schedule_id": schedule_id, "site": site}


def test_the_schedules_that_crawl_a_host_are_paused_with_its_jobs_if_wanted(gateway: StandIn, run: Run) -> None:
    crawling = {"schedules": [_scheduled("s1"), _scheduled("s2"), _scheduled("s3", "acme")], "next": None}
    gateway.says("GET /schedules", Answer(200, crawling))
    gateway.says("POST /jobs/bulk", Answer(200, COUNT))
    one = {"job_id": JOB, "status": "running", "project": "shop", "spider": "offers", "user_id": "anne"}
    gateway.says("GET /jobs", Answer(200, {"jobs": [one], "next": None}))
    asked = run("cancel", "--host", "shop.example", "--and-schedules")
    assert asked.stderr == (
        f"{JOB[:8]}  running  shop/offers  anne\nand 2 more\n"
        "error: Cancel 3 jobs and pause 2 schedules? Confirm it with --yes\n"
    )
    (listed,) = gateway.asked("/jobs")
    assert listed.query == "host=shop.example&status=pending&status=running&status=paused&status=scheduled&limit=5"
    assert gateway.requests[0].query == "host=shop.example&state=active&limit=200"
    gateway.says("POST /jobs/bulk", Answer(200, COUNT), Answer(200, {**DONE, "done": 3}))
    gateway.says("POST /schedules/s1/pause", Answer(200, {}))
    gateway.says("POST /schedules/s2/pause", Answer(200, {}))
    done = run("cancel", "--host", "shop.example", "--and-schedules", "--yes")
    assert done.stdout == "3 jobs cancelled, or asked to stop\n2 schedules paused\n"
    assert "site acme crawls it again: " in done.stderr
    assert "sites disable acme" in done.stderr


@pytest.mark.parametrize("command", [("retry",), ("jobs", "delete")], ids=" ".join)
def test_jobs_that_are_not_cancelled_are_not_taken_for_those_of_a_host_that_go_on(
    gateway: StandIn, run: Run, command: tuple[str, ...]
) -> None:
    gateway.says("POST /jobs/bulk", Answer(200, COUNT))
    refused = run(*command, "--host", "shop.example")
    assert "3 jobs" in refused.stderr
    assert refused.stderr.startswith("error: ")
    assert not gateway.asked("/jobs")


def test_the_schedules_of_a_host_are_named_if_they_are_not_paused(gateway: StandIn, run: Run) -> None:
    active, paused = ({"schedules": found, "next": None} for found in ([_scheduled("s1")], []))
    gateway.says("GET /schedules", Answer(200, active), Answer(200, paused))
    gateway.says("POST /jobs/bulk", Answer(200, {**COUNT, "matched": 0}))
    done = run("cancel", "--host", "shop.example")
    said = "1 schedule crawls shop.example again: --and-schedules pauses it, too"
    assert done.stderr == f"nothing crawls shop.example now\n{said}\n"


def test_a_schedule_that_is_paused_already_is_named(gateway: StandIn, run: Run) -> None:
    active, paused = ({"schedules": found, "next": None} for found in ([], [_scheduled("d491b662" * 4)]))
    gateway.says("GET /schedules", Answer(200, active), Answer(200, paused))
    gateway.says("POST /jobs/bulk", Answer(200, {**COUNT, "matched": 0}))
    said = run("cancel", "--host", "shop.example", "--and-schedules").stderr
    assert said.startswith("nothing crawls shop.example now; 1 schedule paused: `")
    assert "schedules resume d491b662`" in said


@pytest.mark.parametrize("words", [(JOB,), ("--spider", "seo")], ids=["ids", "another filter"])
def test_schedules_are_paused_only_with_a_host(gateway: StandIn, run: Run, words: tuple[str, ...]) -> None:
    assert "--and-schedules" in run("cancel", *words, "--and-schedules").stderr
    assert not gateway.requests
