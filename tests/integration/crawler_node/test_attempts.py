from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest
from forms import in_full
from hostile import plant

from gateway.clock import utc_now
from gateway.tailer.heartbeat import _tell_time


def test_an_attempt_runs_and_its_end_is_accounted_for(node: Any) -> None:
    folder = node.run("quick")
    report = node.exit_of(folder)
    assert (report["attempt"], report["exit_code"]) == (1, 0)
    assert report["started_at"] <= report["ended_at"]
    assert report["cpu_seconds"] > 0
    assert report["peak_memory_bytes"] > 1 << 20
    assert (folder / "crawl.log").read_text() == report["log_tail"] == "quick begins\ndone\n"


def test_the_spiders_own_account_becomes_part_of_the_report(node: Any) -> None:
    report = node.exit_of(node.run("reporting"))
    assert report["report"]["progress"]["completed_pages"] == 3
    assert "log_tail" not in report


def test_an_attempt_that_is_posted_many_times_at_once_runs_once(node: Any) -> None:
    spec = node.spec("quick")
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(node.post, [spec] * 8))
    assert {answer["status"] for answer in answers} == {"ok"}
    folder = node.outbox / answers[0]["jobid"]
    node.exit_of(folder)
    assert node.post(spec)["status"] == "ok"
    node.wait_until_idle()
    assert node.runs(folder) == 1


def test_an_attempt_that_comes_too_late_is_refused(node: Any) -> None:
    spec = node.spec("quick", not_after=(datetime.now(UTC) - timedelta(seconds=1)).isoformat())
    answer = node.post(spec)
    assert answer["status"] == "error"
    assert "stale" in answer["message"]
    assert answer["fault"] == "node"
    assert not (node.outbox / f"{spec['job_id']}-1").exists()


def test_a_node_whose_clock_is_off_starts_what_may_be_started_and_nothing_else(node_that_is_off: Any) -> None:
    node = node_that_is_off.start()
    # its tailer's part
    _tell_time(node.home / "node", utc_now())
    assert node.exit_of(node.run("quick"))["exit_code"] == 0
    late = node.post(node.spec("quick", not_after=(datetime.now(UTC) - timedelta(seconds=1)).isoformat()))
    assert "stale" in late["message"]
    # and what is queued in time, and has no slot before it is too late
    busy = [node.run_until_ready("polite") for _ in range(3)]
    not_after = datetime.now(UTC) + timedelta(seconds=2)
    waiting = node.run("quick", not_after=not_after.isoformat())
    time.sleep(max(0, (not_after - datetime.now(UTC)).total_seconds()))  # its time has to pass
    for folder in busy:
        node.cancel(folder)
    assert node.exit_of(waiting)["refused"] == "stale"


@pytest.mark.skipif(sys.platform != "linux", reason="the limits of another process are Linux's")
def test_a_node_that_has_no_file_handle_left_says_that_this_is_its_own_fault(new_node: Any) -> None:
    node = new_node().start()
    node.exit_of(node.run("quick"))
    scrapyd = psutil.Process(node.process.pid)
    soft, hard = scrapyd.rlimit(psutil.RLIMIT_NOFILE)
    # the connection that it answers by is open
    scrapyd.rlimit(psutil.RLIMIT_NOFILE, (1, hard))
    answer = node.post(node.spec("quick"))
    scrapyd.rlimit(psutil.RLIMIT_NOFILE, (soft, hard))
    assert (answer["status"], answer["fault"]) == ("error", "node")
    assert "Too many open files" in answer["message"]
    node.exit_of(node.run("quick"))


def test_a_node_whose_disk_is_nearly_full_says_that_this_is_its_own_fault(new_node: Any) -> None:
    node = new_node(NODE_MIN_FREE_BYTES=str(1 << 60)).start()
    answer = node.post(node.spec("quick"))
    assert (answer["status"], answer["fault"]) == ("error", "node")
    assert "nearly full" in answer["message"]


def test_an_attempt_that_has_waited_too_long_for_a_slot_is_refused_by_the_launcher(node: Any) -> None:
    busy = [node.run_until_ready("polite") for _ in range(3)]
    not_after = datetime.now(UTC) + timedelta(seconds=2)
    late = node.run("quick", not_after=not_after.isoformat())
    time.sleep(max(0, (not_after - datetime.now(UTC)).total_seconds()))  # its time has to pass
    for folder in busy:
        node.cancel(folder)
    report = node.exit_of(late)
    assert (report["refused"], report["fault"]) == ("stale", "node")
    assert node.runs(late) == 0
    node.wait_until_idle()


def test_a_spider_is_stopped_at_its_time_limit(node: Any) -> None:
    folder = node.run("polite", timeout=1)
    report = node.exit_of(folder)
    assert (report["stopped_by"], report["exit_code"]) == ("timeout", 0)
    assert (folder / "asked").read_text() == "x"


def test_a_spider_that_does_not_stop_is_killed_after_the_grace(node: Any) -> None:
    report = node.exit_of(node.run("stubborn", timeout=1))
    assert (report["stopped_by"], report["signal"]) == ("timeout", signal.SIGKILL)


def test_a_spider_is_stopped_at_the_memory_limit(node: Any) -> None:
    report = node.exit_of(node.run("hungry"))
    assert report["stopped_by"] == "memory"
    assert report["peak_memory_bytes"] > 400 << 20


def test_what_a_spider_leaves_running_ends_with_it(node: Any) -> None:
    folder = node.run("parent")
    assert node.exit_of(folder)["exit_code"] == 0
    child = int((folder / "child").read_text())
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE


def test_the_traceback_of_a_spider_that_does_not_import_is_in_log_and_report(node: Any) -> None:
    folder = node.run("not_importable")
    report = node.exit_of(folder)
    assert report["exit_code"] == 1
    assert "ModuleNotFoundError" in report["log_tail"]
    assert "ModuleNotFoundError" in (folder / "crawl.log").read_text()


def test_a_spider_sees_none_of_the_platforms_secrets(node: Any) -> None:
    folder = node.run("environ")
    node.exit_of(folder)
    environ = json.loads((folder / "environ.json").read_text())
    assert "hidden" not in json.dumps(environ)
    assert "not-a-secret" not in json.dumps(environ)
    assert environ["SCRAPY_PROJECT"] == "default"
    assert environ["DISCOVERYBOT_HOME"] == str(node.home)
    assert set(environ) <= set(node.environ) | {
        "SCRAPY_PROJECT",
        "SCRAPY_SETTINGS_MODULE",
        "DISCOVERYBOT_ATTEMPT_DIR",
        "DISCOVERYBOT_CONTINUES",
        "DISCOVERYBOT_MARK_FD",
        "DISCOVERYBOT_NODE",
        "PYTHONUNBUFFERED",
        "TMPDIR",
        "LC_CTYPE",  # Python sets it where there is no locale
    }


def test_an_attempt_goes_on_from_no_frontier_that_is_out_of_date(node: Any) -> None:
    first = node.run("quick")
    node.exit_of(first)
    (first / "state").mkdir(exist_ok=True)
    (first / "state" / "frontier").touch()
    job = first.name.rpartition("-")[0]
    told = []
    # an attempt on another node may have run in between
    for attempt, since in ((3, 1), (4, 2)):
        folder = node.run("environ", job_id=job, attempt=attempt, frontier_since=since)
        node.exit_of(folder)
        told.append(json.loads((folder / "environ.json").read_text())["DISCOVERYBOT_CONTINUES"])
    assert told == [str(first), ""]


def test_a_running_attempt_is_cancelled_whatever_the_case_of_its_project(node: Any) -> None:
    for project in ("default", "DISCOVERYBOT", "Default"):
        folder = node.run_until_ready("polite")
        assert node.cancel(folder, project) == "running"
        assert node.exit_of(folder)["stopped_by"] == "cancel"


def test_an_attempt_says_that_it_was_stopped_for_a_pause_and_knows_no_other_reasons(node: Any) -> None:
    folder = node.run_until_ready("polite")
    form = {"project": "discoverybot", "job": folder.name, "why": "shutdown"}
    assert "why 'shutdown' is unknown" in node.client.post("/cancel.json", data=form).json()["message"]
    node.cancel(folder, why="pause")
    assert node.exit_of(folder)["stopped_by"] == "pause"


def test_what_was_withdrawn_before_its_order_arrives_never_starts(node: Any) -> None:
    spec = node.spec("polite")
    form = {"project": "discoverybot", "job": f"{spec['job_id']}-1"}
    assert [node.client.post("/withdraw.json", data=form).json()["taken"] for _ in range(2)] == [False, False]
    assert node.post(spec)["status"] == "ok"
    node.wait_until_idle()
    folder = node.outbox / form["job"]
    assert (node.exit_of(folder)["refused"], (folder / "spec.json").exists()) == ("stale", False)


def test_what_was_taken_is_not_withdrawn(node: Any) -> None:
    folder = node.run_until_ready("polite")
    form = {"project": "discoverybot", "job": folder.name}
    assert node.client.post("/withdraw.json", data=form).json()["taken"] is True
    assert node.cancel(folder) == "running"


def test_a_second_cancellation_sends_no_second_signal_and_kill_kills(node: Any) -> None:
    folder = node.run_until_ready("stubborn")
    node.cancel(folder)
    node.cancel(folder)
    node.cancel(folder, signal="KILL")
    report = node.exit_of(folder)
    assert (report["stopped_by"], report["signal"]) == ("cancel", signal.SIGKILL)


def test_a_waiting_attempt_is_cancelled_or_paused_and_never_runs(node: Any) -> None:
    busy = [node.run_until_ready("polite") for _ in range(3)]
    for why, refused in (("cancel", "cancelled"), ("pause", "paused")):
        waiting = node.spec("quick")
        node.post(waiting)
        folder = node.outbox / f"{waiting['job_id']}-1"
        assert node.cancel(folder, why=why) == "pending"
        report = node.exit_of(folder)
        assert (report["refused"], report["stopped_by"]) == (refused, why)
    assert node.post(waiting)["status"] == "ok"
    for running in busy:
        node.cancel(running)
    node.wait_until_idle()
    assert node.runs(folder) == 0


@pytest.mark.parametrize(
    ("break_it", "fault"),
    [
        pytest.param(lambda folder: (folder / "crawl.log").mkdir(), "job", id="the log cannot be opened"),
        pytest.param(lambda folder: os.mkfifo(folder / "crawl.log"), "job", id="the log is a FIFO"),
        pytest.param(lambda folder: (folder / "spec.json").write_text("{"), "job", id="the spec cannot be read"),
        pytest.param(lambda folder: plant(folder / "spec.json", "fifo"), "job", id="the spec is a FIFO"),
        pytest.param(lambda folder: (folder / "spec.json").unlink(), "node", id="the spec is gone"),
        pytest.param(shutil.rmtree, None, id="the folder is gone"),
    ],
)
def test_a_failed_launch_frees_its_slot(node: Any, break_it: Any, fault: str | None) -> None:
    busy = [node.run_until_ready("polite") for _ in range(3)]
    doomed = node.run("quick")
    break_it(doomed)
    for folder in busy:
        node.cancel(folder)
    node.wait_until_idle()
    if doomed.exists():
        report = node.exit_of(doomed)
        assert report["refused"].startswith("spawn_failed")
        assert report["fault"] == fault
    for folder in [node.run("polite") for _ in range(3)]:
        node.cancel(folder)
    node.wait_until_idle()


def test_a_spider_that_leaves_fifos_in_its_folder_keeps_nobody_waiting(node: Any) -> None:
    folder = node.run_until_ready("hostile")
    quick = node.run("quick")
    assert node.exit_of(quick)["exit_code"] == 0
    assert node.client.get(f"/logs/default/quick/{quick.name}.log").text == "quick begins\ndone\n"
    shown = node.client.get(f"/logs/default/hostile/{folder.name}.log")
    assert shown.status_code == httpx2.codes.FORBIDDEN
    report = node.exit_of(folder)
    assert (report["exit_code"], report.get("report"), report.get("log_tail")) == (0, None, None)


def test_a_crawl_that_removes_its_folder_has_ended_by_its_own_fault(node: Any) -> None:
    for spider in ("gone", "gone_and_busy"):
        report = node.exit_of(node.run(spider))
        assert report["items_lost"] == "the crawl has removed the folder of its attempt"
        assert not {"exit_code", "signal", "stopped_by"} & report.keys()
    node.wait_until_idle()
    node.exit_of(node.run("quick"))


@pytest.mark.parametrize("jobid", ["../../x", "a/b", "", "x" * 101, "a b", "ü", "a.b"])
def test_a_job_id_that_could_be_a_path_is_refused(node: Any, jobid: str) -> None:
    answer = node.client.post("/schedule.json", data={"project": "default", "spider": "quick", "jobid": jobid}).json()
    assert answer["status"] == "error"
    assert "jobid is invalid" in answer["message"]


@pytest.mark.parametrize(
    ("changes", "fields", "said"),
    [
        ({}, {"spec": "{"}, "spec"),
        ({}, {"spec": '{"job_id": 1}'}, "spec.spider"),
        ({"start_urls": "x"}, {}, "spec.start_urls"),
        ({}, {"spider": "environ"}, "another"),
        ({}, {"jobid": "0" * 32 + "-7"}, "another"),
        ({}, {"setting": "LOG_ENABLED=0"}, "no settings"),
        ({}, {"argument": "x"}, "no settings or arguments"),
        ({"spider": "unheard_of"}, {}, "spider 'unheard_of' not found"),
        ({"project": "unheard_of"}, {}, "project 'unheard_of' not found"),
        ({"version": "1"}, {}, "version '1' not found"),
        ({}, {"jobid": "plain"}, "not an attempt's"),
    ],
)
def test_an_attempt_that_makes_no_sense_is_refused_and_leaves_nothing(
    node: Any, changes: dict[str, Any], fields: dict[str, str], said: str
) -> None:
    before = set(node.outbox.iterdir())
    answer = node.post({**node.spec("quick"), **changes}, **fields)
    assert (answer["status"], answer["fault"]) == ("error", "job")
    assert said in answer["message"]
    assert set(node.outbox.iterdir()) == before


def test_an_attempt_without_a_spec_is_refused(node: Any) -> None:
    data = {"project": "default", "spider": "quick", "jobid": "0" * 32 + "-1"}
    answer = node.client.post("/schedule.json", data=data).json()
    assert "spec: is required" in answer["message"]


def test_a_spec_of_a_megabyte_and_more_is_taken(node: Any) -> None:
    urls = [f"http://127.0.0.1/{'x' * 1000}/{number}" for number in range(1500)]
    node.exit_of(node.run("quick", start_urls=urls))


def test_a_plain_scrapyd_job_runs_with_settings_and_arguments_and_has_a_log(node: Any) -> None:
    data = {"project": "default", "spider": "quick", "jobid": "plain-1", "setting": "A=b", "colour": "red"}
    assert node.client.post("/schedule.json", data=data).json()["jobid"] == "plain-1"
    node.wait_until_idle()
    log = node.home / "node/logs/default/quick/plain-1.log"
    assert log.read_text() == "quick begins -s A=b -a _job=plain-1 -a colour=red\ndone\n"
    assert node.client.get("/status.json", params={"job": "plain-1"}).json()["currstate"] == "finished"
    assert not (node.outbox / "plain-1").exists()


def test_an_argument_that_no_command_line_takes_is_refused_instead_of_vanishing(node: Any) -> None:
    data = {"project": "default", "spider": "quick", "start": "x" * 140_000}
    assert "too long" in node.client.post("/schedule.json", data=data).json()["message"]


def test_the_console_shows_jobs_and_their_logs(node: Any) -> None:
    folder = node.run("quick")
    node.exit_of(folder)
    link = f"/logs/default/quick/{folder.name}.log"
    wait = 'href="' + link + '"'
    node.wait_until_idle()
    assert wait in node.client.get("/jobs").text
    assert node.client.get(link).text == "quick begins\ndone\n"
    dangling = node.home / "node/logs/default/quick/dangling.log"
    dangling.symlink_to("nowhere")
    listing = node.client.get("/logs/default/quick/")
    assert listing.status_code == 200
    assert folder.name in listing.text
    assert "dangling" not in listing.text
    assert "default" in node.client.get("/").text


@in_full("its like here")
def test_a_queue_that_is_broken_for_a_while_does_not_stop_the_node(node: Any) -> None:
    path = node.home / "node/dbs/default.db"
    for message in ("'not JSON'", """'{"_job": "without a spider"}'"""):
        _sql(path, f"INSERT INTO spider_queue (priority, message) VALUES (9, CAST({message} AS BLOB))")
    _sql(path, "ALTER TABLE spider_queue RENAME TO elsewhere")
    assert node.status()["status"] == "error"
    failures = node.log().count("cannot poll the queue")
    node.wait_for(lambda: node.log().count("cannot poll the queue") > failures + 1)
    _sql(path, "ALTER TABLE elsewhere RENAME TO spider_queue")
    node.wait_for(lambda: node.status().get("pending") == 0)
    node.exit_of(node.run("quick"))


def _sql(path: Path, statement: str) -> None:
    code = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute(sys.argv[2]); c.commit(); c.close()"
    subprocess.run(["python3", "-c", code, str(path), statement], check=True)


def test_what_is_meant_for_another_machine_of_the_same_name_is_refused(node: Any) -> None:
    answer = node.post(node.spec("quick", instance="0" * 32))
    assert (answer["status"], answer["fault"]) == ("error", "node")
    assert "meant for another machine" in answer["message"]
    own = (node.outbox.parent / "instance").read_text()
    assert node.post(node.spec("quick", instance=own))["status"] == "ok"
