"""Whatever a spider writes into its attempt's folder arrives."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import accumulate
from pathlib import Path
from typing import Any

import orjson
import pytest
from relay import MongoRelay, Refuse
from stores import ROOT, StoreProcess
from tailer_node import Node, eventually

from gateway.clock import utc_now
from gateway.contract.outbox import EXIT, PROGRESS, STARTED, write_exclusively
from gateway.contract.records import Progress, SpiderReport
from gateway.jobs.job import JobStatus
from gateway.jobs.outcome import decide
from gateway.jobs.progress import Point
from gateway.tailer.outbox import load_checkpoint
from gateway.tailer.shipping import LEFT_OUT

TailingNode = Callable[..., AbstractContextManager[Node]]


def test_a_crawl_arrives_in_both_stores_and_then_its_exit(node: Node) -> None:
    crawl = node.crawl()
    for number in range(100):
        crawl.log_line(f"line {number}")
        crawl.item(orjson.dumps({"number": number}) + b"\n")
    eventually(lambda: len(node.stream(crawl)) == 100)
    eventually(lambda: node.stored_log(crawl) == crawl.log_file)
    assert node.jobs.get(crawl.id.job_id).attempts["1"].exit is None
    crawl.log_line("the last")
    crawl.end()

    job = node.ended(crawl)
    assert job.attempts["1"].log_end == len(crawl.log_file)
    assert node.stored_log(crawl) == crawl.log_file
    assert [item.data for item in node.stored_items(crawl)] == [{"number": number} for number in range(100)]
    starts, ends, entries = zip(*eventually(lambda: (s := node.stream(crawl)) and len(s) == 101 and s), strict=True)
    assert starts == (0, *ends[:-1])
    assert [entry["msg"] for entry in entries] == [*(f"line {number}" for number in range(100)), "the last"]


def test_a_start_and_its_progress_reach_the_job(node: Node) -> None:
    crawl = node.crawl()
    crawl.progress(Progress(completed_pages=7))
    job = eventually(lambda: (job := node.jobs.get(crawl.id.job_id)).progress and job)
    assert job.progress is not None
    assert job.progress.completed_pages == 7
    assert job.started_at is not None
    crawl.end()


def test_progress_is_kept_as_a_curve_that_another_tailer_goes_on_with(node: Node) -> None:
    crawl = node.crawl()

    def reported() -> list[Point] | None:
        # report again and again, as a spider does: two points of the curve have some time between them
        crawl.progress(Progress(completed_pages=7))
        return node.progress.of_job(crawl.id.job_id, 1).get(1)

    curve = eventually(reported)
    assert [point.completed_pages for point in curve[:2]] == [0, 7]
    node.kill_tailer()
    node.start_tailer()
    last = Progress(completed_pages=9, answered_2xx=8, answered_4xx=1)
    crawl.end(report=SpiderReport(finish_reason="finished", progress=last, ended_at=utc_now()))
    node.ended(crawl)
    curve = node.progress.of_job(crawl.id.job_id, 1)[1]
    counts = [(point.completed_pages, point.answered_4xx) for point in curve]
    assert (counts[0], counts[-1]) == ((0, 0), (9, 1))


def test_lines_of_any_kind_survive(node: Node) -> None:
    crawl = node.crawl()
    crawl.log("2027-06-01T09:00:01.250Z [a] ERROR: café\n".encode("latin-1"))
    crawl.log(b"a traceback\0 that belongs to it\r\n\n")
    crawl.log(b"2027-06-01T09:00:01.250Z [a] INFO: " + b"x" * 2_500_000 + b"\n")
    crawl.log_line("and on")
    crawl.log(b"torn: no newline at the end")
    crawl.end(exit_code=None, signal=9)
    node.ended(crawl)
    assert node.stored_log(crawl) == crawl.log_file
    entries = eventually(lambda: (s := node.stream(crawl)) and s[-1][1] == len(crawl.log_file) and s)
    assert entries[0][2]["msg"] == "caf\N{REPLACEMENT CHARACTER}"
    assert entries[1][2] == {"level": "ERROR", "msg": "a traceback\0 that belongs to it", "cont": True}
    assert max(end - start for start, end, _ in entries) == 1 << 20
    assert entries[-1][2] == {"level": "INFO", "msg": "torn: no newline at the end", "cont": True}
    chunks = node.logs.read(*crawl.id, 0, 1 << 24)
    counted = sum((Counter(chunk.lines) for chunk in chunks), Counter[tuple[str, str]]())
    # a line without a head belongs to the line before, even if that is in the chunk before
    assert [chunk.head_logger for chunk in chunks][:2] == [None, "a"]
    loggers = accumulate((entry.get("logger", "") for _, _, entry in entries), lambda before, own: own or before)
    assert counted == Counter(zip(loggers, (entry["level"] for _, _, entry in entries), strict=True))


def test_a_line_is_shipped_when_it_is_whole(node: Node) -> None:
    crawl = node.crawl()
    crawl.log_line("whole")
    crawl.log(b"2027-06-01T09:00:01.250Z [a] INFO: to")
    eventually(lambda: node.stored_log(crawl))
    assert len(node.stream(crawl)) == 1
    crawl.log(b"rn\n")
    eventually(lambda: len(node.stream(crawl)) == 2)
    assert node.stream(crawl)[1][2]["msg"] == "torn"
    crawl.end()


def test_items_that_bson_cannot_hold_are_kept_as_text_and_in_nobodys_way(node: Node) -> None:
    crawl = node.crawl()
    odd = [
        b'{"too":123456789012345678901234567890}',
        b'{"a.b":1}',
        b'{"$set":1}',
        b'{"nan":NaN}',
        b"[1,2]",
        b"not json",
        b'{"half":"\\ud800"}',
        b'{"deep":' + b"[" * 200 + b"]" * 200 + b"}",
        '{"latin":"é"}'.encode("latin-1"),
    ]
    lines = [line for text in odd for line in (text, b'{"fine":1}')]
    crawl.item(b"\n".join(lines) + b'\n{"torn":')
    crawl.end(signal=9)
    node.ended(crawl)
    stored = node.stored_items(crawl)
    assert [item.raw for item in stored[::2]] == [text.decode("utf-8", "replace") for text in odd]
    assert [item.data for item in stored[1::2]] == [{"fine": 1}] * len(odd)


def test_an_item_that_is_too_large_says_so(node: Node) -> None:
    crawl = node.crawl()
    crawl.item(b'{"before":1}\n{"big":"' + b"x" * 17_000_000 + b'"}\n{"after":1}\n')
    crawl.end()
    node.ended(crawl)
    before, big, after = (item.data for item in node.stored_items(crawl))
    assert (before, after) == ({"before": 1}, {"after": 1})
    assert big is not None
    assert (big["bytes"], big["begin"][:8]) == (17_000_010, '{"big":"')


def test_an_attempt_whose_process_vanished_is_reported_lost(node: Node) -> None:
    crawl = node.crawl()
    crawl.log_line("Spider opened")
    crawl.die()
    facts = node.ended(crawl).attempts["1"].exit
    assert facts is not None
    assert facts.lost
    assert facts.started_at is not None
    assert "Spider opened" in (facts.log_tail or "")


def test_one_that_vanished_after_it_was_asked_to_stop_tells_why(node: Node) -> None:
    crawl = node.crawl()
    (crawl.folder / "stopping").write_text("timeout")
    crawl.die()
    facts = node.ended(crawl).attempts["1"].exit
    assert facts is not None
    assert (facts.lost, facts.stopped_by) == (True, "timeout")
    assert decide(facts).status is JobStatus.PARTIAL
    assert not decide(facts).retryable


def test_an_attempt_that_was_never_started_is_refused_and_can_be_started_no_more(node: Node) -> None:
    crawl = node.crawl(started=False)
    facts = node.ended(crawl).attempts["1"].exit
    assert facts is not None
    assert facts.refused == "stale"
    assert facts.started_at is None
    assert (crawl.folder / "started").exists()
    assert decide(facts).retryable


def test_an_account_that_bson_cannot_hold_keeps_no_job_running(node: Node) -> None:
    crawl = node.crawl()
    stats = {"huge": 2**63, "$set": 1, "nul\0": 1, "": 1, "a.b": 1, "deep": [[1]], "nan": float("nan"), "half": "?"}
    document = {
        "attempt": 1,
        "ended_at": "2027-06-01T09:00:00Z",
        "exit_code": 0,
        "peak_memory_bytes": 2**70,
        "report": {
            "finish_reason": "finished" + "\ud800",
            "progress": {"completed_pages": 2**70},
            "errors": [{"a\0": "b", "url": "u" * 9999}],
            "filled": {"$a": 1, "b": 2**70, **{f"field {number}": 1 for number in range(99)}},
            "stats": stats | {f"stat {number}": "x" * 999 for number in range(5000)},
            "ended_at": "2027-06-01T09:00:00Z",
        },
    }
    write_exclusively(crawl.folder / EXIT, json.dumps(document).encode())
    crawl.die()
    facts = node.ended(crawl).attempts["1"].exit
    assert facts is not None
    assert facts.report is not None
    kept = facts.report.stats
    assert (kept["huge"], kept["_$set"], kept["_"], kept["a.b"], kept["deep"]) == (str(2**63), 1, 1, 1, "[[1]]")
    assert kept[LEFT_OUT] > 4000
    assert len(json.dumps(kept)) < 100_000
    assert facts.report.errors == [{"url": "u" * 2000}]
    filled = facts.report.filled or {}
    assert (filled["_$a"], filled["b"], len(filled)) == (1, 2**63 - 1, 50)
    assert decide(facts).message


@pytest.mark.parametrize("moment", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00"])
def test_times_and_numbers_that_mongodb_has_not_keep_no_attempt_on_its_node(node: Node, moment: str) -> None:
    crawl = node.crawl(started=False)
    write_exclusively(crawl.folder / STARTED, json.dumps({"started_at": moment}).encode())
    progress = {"completed_pages": 3, "at": moment}
    write_exclusively(crawl.folder / PROGRESS, json.dumps(progress).encode())
    report = {"finish_reason": "finished", "progress": progress, "ended_at": moment}
    document = {"attempt": 2**70, "started_at": moment, "ended_at": moment, "exit_code": 0, "report": report}
    write_exclusively(crawl.folder / EXIT, json.dumps(document).encode())
    facts = node.ended(crawl).attempts["1"].exit
    assert facts is not None
    assert facts.report is not None
    assert facts.report.progress.completed_pages == 3
    assert decide(facts).message


def test_an_attempt_of_a_job_that_is_gone_is_let_go(node: Node) -> None:
    crawl = node.crawl(recorded=False)
    crawl.log_line("for nobody")
    crawl.item(b'{"for":"nobody"}\n')
    eventually(lambda: node.stored_log(crawl))
    crawl.end()
    eventually(lambda: load_checkpoint(crawl.folder).acknowledged)
    # removed again, because without a job nobody could find or delete it
    assert (node.stored_log(crawl), node.stored_items(crawl)) == (b"", [])


def refused(code: int) -> Refuse:
    """MongoDB's refusal of the first document of a write, with this code."""
    return Refuse({"ok": 1.0, "n": 0, "writeErrors": [{"index": 0, "code": code, "errmsg": "as told"}]})


@pytest.mark.parametrize(("code", "as_text"), [(262, False), (11601, False), (112, False), (2, True), (17419, True)])
def test_an_item_is_kept_as_text_only_where_mongodb_says_that_the_item_is_bad(
    tmp_path: Path, tailing_node: TailingNode, mongo: StoreProcess, valkey: StoreProcess, code: int, *, as_text: bool
) -> None:
    told = 0

    def fault(command: dict[str, Any]) -> Refuse | None:
        nonlocal told
        if command.get("insert") != "items" or "raw" in command["documents"][0] or (told == 3 and not as_text):
            return None
        told += 1
        return refused(code)

    with MongoRelay.before(mongo).running() as relay, tailing_node(tmp_path, relay.url(mongo), valkey) as node:
        relay.fault = fault
        crawl = node.crawl()
        crawl.item(b'{"number": 1}\n')
        [item] = eventually(lambda: node.stored_items(crawl))
    assert told == (1 if as_text else 3)
    assert (item.data, item.raw) == ((None, '{"number":1}') if as_text else ({"number": 1}, None))


#: Runs a command in a user namespace of its own, in which no inotify instance is allowed.
WITHOUT_INOTIFY = ("unshare", "-Ur", "sh", "-ec", 'echo 0 > /proc/sys/user/max_inotify_instances; exec "$@"', "sh")


def test_a_tailer_without_inotify_instances_ships_all_the_same(
    tmp_path: Path, mongo: StoreProcess, valkey: StoreProcess
) -> None:
    if subprocess.run([*WITHOUT_INOTIFY, "true"], check=False, capture_output=True).returncode:
        pytest.skip("a user namespace of its own is not allowed here")
    node = Node(tmp_path / "home", mongo, valkey)
    with (tmp_path / "tailer.log").open("wb") as output:
        command = [*WITHOUT_INOTIFY, sys.executable, "-m", "gateway.tailer"]
        process = subprocess.Popen(command, env=node.environment, cwd=ROOT, stdout=output, stderr=output)
    try:
        crawl = node.crawl()
        crawl.log_line("the first")
        eventually(lambda: node.stream(crawl))
        crawl.item(b'{"number":1}\n')
        crawl.end()
        assert node.ended(crawl)
        assert len(node.stored_items(crawl)) == 1
        assert "outbox_not_watched" in (tmp_path / "tailer.log").read_text()
    finally:
        process.terminate()
        process.wait(60)
        node.close()
