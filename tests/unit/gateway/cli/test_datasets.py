from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from stack import wait_until
from unit.gateway.cli.conftest import JOB, Answer, Run, StandIn

DATASET: dict[str, Any] = {
    "name": "prices", "user_id": "me", "key": ["sku"], "ignore": [], "confirm_removed": 1, "drop_guard": 0.2,
    "empty_values": [], "may_fail": [], "item_schema": {}, "exports": [],
    "items": 1204, "runs": 31, "last_seq": 2211, "floor_seq": 0, "held": 1, "waiting": 0,
    "head_run": JOB, "complete_at": "2027-06-01T07:05:00.000Z",
}  # fmt: skip
RUN: dict[str, Any] = {
    "job_id": JOB, "state": "published", "incomplete": None, "started_at": "2027-06-01T07:00:00.000Z",
    "ended_at": "2027-06-01T07:05:00.000Z", "first_seq": 2196, "last_seq": 2211, "message": None,
    "counts": {"items": 1204, "new": 3, "changed": 12, "removed": 1, "same": 1189},
}  # fmt: skip
HELD = {**RUN, "state": "held", "message": "600 of 1204 items are missing", "first_seq": None, "last_seq": None}
MISSING = {"error": {"code": "dataset_not_found", "message": "there is no dataset 'prices'", "detail": None}}


def change(seq: int, kind: str = "new", **fields: Any) -> dict[str, Any]:
    return {
        "id": f"{JOB}:{seq}", "seq": seq, "type": kind, "deleted": kind == "removed", "key": {"sku": f"A-{seq}"},
        "item": {"sku": f"A-{seq}", "price": 49}, "changes": None, "run": JOB, "at": "2027-06-01T07:05:00.000Z",
        **fields,
    }  # fmt: skip


def page(*seqs: int, last: int | None = None, at: int | None = None) -> Answer:
    """Changes with these numbers; `at` is where an empty page ends."""
    reached = seqs[-1] if seqs else at or 0
    last = reached if last is None else last
    return Answer(
        200,
        {"changes": [change(n) for n in seqs], "next": reached, "last_seq": last, "pending": last - reached},
    )


def asked(gateway: StandIn, path: str) -> list[dict[str, list[str]]]:
    return [parse_qs(request.query) for request in gateway.asked(path)]


CHANGES = "/datasets/prices/changes"


# --- changes


def test_changes_are_a_table_and_the_way_to_go_on_is_on_standard_error(gateway: StandIn, run: Run) -> None:
    different = {"price": {"previous": 59.0, "current": 49.0}}
    told = [change(7), change(8, "changed", changes=different), change(9, "removed"), change(10, "changed")]
    gateway.says(f"GET {CHANGES}", Answer(200, {"changes": told, "next": 10, "last_seq": 12, "pending": 0}))
    done = run("datasets", "changes", "prices", "--since", "6", "--types", "new,changed", "--wait", "5")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["SEQ", "TYPE", "KEY", "WHAT", "RUN", "AGE"]
    assert lines[1].split()[:5] == ["7", "new", "A-7", "price:", "49"]
    assert "price: 59.0 → 49.0" in lines[2]
    assert lines[3].split()[:3] == ["9", "removed", "A-9"]
    assert done.stderr.strip().endswith("datasets changes prices --since 10")
    (query,) = asked(gateway, CHANGES)
    assert query == {"since": ["6"], "limit": ["200"], "wait": ["5"], "types": ["new", "changed"]}


def test_changes_of_the_last_run_are_listed_with_the_newest_first(gateway: StandIn, run: Run) -> None:
    gateway.says("GET /datasets/prices", Answer(200, {"head_run": "a" * 32, "last_seq": 9}))
    gateway.says(f"GET /datasets/prices/runs/{'a' * 32}", Answer(200, {"first_seq": 8}))
    gateway.says(f"GET {CHANGES}", page(8, 9, last=9))
    done = run("datasets", "changes", "prices", "--last-run")
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["SEQ", "9", "8"]
    assert asked(gateway, CHANGES)[0]["since"] == ["7"]
    assert run("datasets", "changes", "prices", "--last-run", "--follow").returncode == 2


@pytest.mark.parametrize("columns", [60, 80])
def test_no_table_of_changes_or_runs_is_wider_than_the_terminal(gateway: StandIn, run: Run, columns: int) -> None:
    long = change(8, "changed", changes={"text": {"previous": "a" * 500, "current": "b\n" * 500}})
    gateway.says(f"GET {CHANGES}", Answer(200, {"changes": [long], "next": 8, "last_seq": 8, "pending": 0}))
    gateway.says("GET /datasets/prices/runs", Answer(200, {"runs": [HELD, RUN], "next": None}))
    for command, size in (("changes", 2), ("runs", 3)):
        lines = run("datasets", command, "prices", COLUMNS=str(columns)).stdout.splitlines()
        assert len(lines) == size
        assert max(map(len, lines)) <= columns


def test_pages_are_read_until_there_are_enough(gateway: StandIn, run: Run) -> None:
    gateway.says(f"GET {CHANGES}", page(1, 2, last=9), page(at=5, last=9), page(6, 7, last=9))
    done = run("datasets", "changes", "prices", "--limit", "4", "--json")
    answer = json.loads(done.stdout)
    assert [one["seq"] for one in answer["changes"]] == [1, 2, 6, 7]
    assert (answer["next"], answer["pending"]) == (7, 2)
    assert [(query["since"], query["limit"]) for query in asked(gateway, CHANGES)] == [
        (["0"], ["4"]), (["2"], ["2"]), (["5"], ["2"])
    ]  # fmt: skip


def test_changes_since_a_time_go_on_by_their_cursor(gateway: StandIn, run: Run) -> None:
    gateway.says(f"GET {CHANGES}", page(2200, last=2200))
    done = run("datasets", "changes", "prices", "--since", "2027-05-20T00:00Z")
    assert [query["since"] for query in asked(gateway, CHANGES)] == [["2027-05-20T00:00:00+00:00"]]
    assert "--since 2200" in done.stderr


def test_a_download_of_items_warns_of_fields_that_lost_values(gateway: StandIn, run: Run, tmp_path: Path) -> None:
    fields = [
        {"name": "price", "share": 0.0, "share_before": 1.0, "lower": True},
        {"name": "sku", "share": 1.0, "share_before": 1.0, "lower": False},
    ]
    gateway.says("GET /datasets/prices/items", Answer(200, b"sku\r\n"))
    gateway.says("GET /datasets/prices", Answer(200, DATASET))
    gateway.says(f"GET /jobs/{JOB}/fields", Answer(200, {"fields": fields}))
    done = run("datasets", "items", "prices", "-o", str(tmp_path / "all.csv"))
    assert (done.returncode, "sku lost" in done.stderr) == (0, False)
    assert "price lost values: filled in 0% of the items of the last run, usually in 100%" in " ".join(
        done.stderr.split()
    )


@pytest.mark.parametrize("what", ["items", "changes"])
def test_a_file_has_all(gateway: StandIn, run: Run, tmp_path: Path, what: str) -> None:
    gateway.says(f"GET /datasets/prices/{what}", Answer(200, b"a,b\r\n"))
    file = tmp_path / "all.csv"
    done = run("datasets", what, "prices", "-o", str(file))
    assert (done.returncode, file.read_bytes()) == (0, b"a,b\r\n")
    (query,) = asked(gateway, f"/datasets/prices/{what}")
    assert query["format"] == ["csv"]
    assert run("datasets", what, "prices", "-o", str(file), "--limit", "5").returncode == 2
    assert run("datasets", what, "prices", "-o", str(tmp_path / "all.doc")).returncode == 2


def test_a_cursor_that_has_expired_is_an_error_with_the_words_of_the_gateway(gateway: StandIn, run: Run) -> None:
    error = {"code": "cursor_expired", "message": "changes up to 40 are no longer kept: read the items", "detail": {}}
    gateway.says(f"GET {CHANGES}", Answer(410, {"error": error}))
    done = run("datasets", "changes", "prices", "--follow")
    assert (done.returncode, done.stdout) == (2, "")
    assert "error: changes up to 40 are no longer kept" in done.stderr


def _following(gateway: StandIn, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "gateway.cli.main", "datasets", "changes", "prices", "--follow", *arguments]
    environment = {**os.environ, "DISCOVERYBOT_URL": gateway.url, "COLUMNS": "200"}
    return subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_following_goes_on_after_an_interruption_and_says_how_far_it_came(gateway: StandIn) -> None:
    away = Answer(503, {"error": {"code": "unavailable", "message": "starting", "detail": None}})
    # the last answer is there for ever
    gateway.says(f"GET {CHANGES}", page(1, 2), away, Answer(200, b"{", broken=True), page(3), page(at=3))
    with _following(gateway) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(3)]
        wait_until(lambda: len(gateway.asked(CHANGES)) > 5, what="another question")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert [line.split()[:3] for line in lines] == [[str(n), "new", f"A-{n}"] for n in (1, 2, 3)]
    assert process.returncode == 130
    assert errors.count("connection lost") == 1
    assert errors.splitlines()[-1].endswith("datasets changes prices --follow --since 3")
    queries = asked(gateway, CHANGES)
    assert [query["since"] for query in queries[:5]] == [["0"], ["2"], ["2"], ["2"], ["3"]]
    assert all(int(query["wait"][0]) > 0 for query in queries)


def test_what_was_not_printed_is_not_behind_the_cursor(gateway: StandIn) -> None:
    gateway.says(f"GET {CHANGES}", page(*range(1, 401)), page(at=400))
    with _following(gateway, "--json") as process:
        assert process.stdout is not None
        first = [json.loads(process.stdout.readline())["seq"] for _ in range(2)]
        process.stdout.close()
        assert process.stderr is not None
        errors = process.stderr.read()
        process.wait(60)
    assert (first, process.returncode) == ([1, 2], 0)
    assert int(errors.split()[-1]) < 400


# --- items


def _record(sku: str) -> dict[str, Any]:
    return {"key_hash": "0" * 32, "key": {"sku": sku}, "item": {"sku": sku, "note": "ü\u001b"}, "seq": 7}


def test_items_are_lines_of_all_pages(gateway: StandIn, run: Run) -> None:
    first = {"items": [_record("a")], "next": "0" * 32, "seq": 9}
    gateway.says("GET /datasets/prices/items", Answer(200, first), Answer(200, {**first, "next": None, "seq": 12}))
    done = run("datasets", "items", "prices", "--search", "a", "--removed")
    assert [json.loads(line) for line in done.stdout.splitlines()] == [_record("a")["item"]] * 2
    # what has changed while they were read is told again
    assert done.stderr.strip().endswith("datasets changes prices --since 9")
    queries = asked(gateway, "/datasets/prices/items")
    assert [query.get("after") for query in queries] == [None, ["0" * 32]]
    assert (queries[0]["q"], queries[0]["removed"]) == (["a"], ["true"])


def test_items_of_the_past_are_one_document_on_request(gateway: StandIn, run: Run) -> None:
    answer = {"items": [_record("a")], "next": "0" * 32, "seq": 5}
    gateway.says("GET /datasets/prices/items", Answer(200, answer))
    done = run("datasets", "items", "prices", "--as-of", "5", "--limit", "1", "--json")
    assert json.loads(done.stdout) == answer
    assert asked(gateway, "/datasets/prices/items") == [{"limit": ["1"], "as_of": ["5"]}]


# --- options


def test_options_are_set_and_the_dataset_is_made_if_it_is_missing(gateway: StandIn, run: Run) -> None:
    gateway.says("PATCH /datasets/prices", Answer(404, MISSING))
    gateway.says("PUT /datasets/prices", Answer(201, DATASET))
    done = run("datasets", "set", "prices", "--key", "sku, color", "--ignore", "", "--drop-guard", "0.5")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "prices: key sku; ignore -; confirm removed 1; drop guard 0.2; item schema -; exports -\n"
    body = {"key": ["sku", "color"], "ignore": [], "drop_guard": 0.5}
    assert [request.body for request in gateway.asked("/datasets/prices")] == [body, body]
    assert gateway.asked("/datasets/prices")[1].query.startswith("user_id=")
    run("datasets", "set", "prices", "--key", "sku", "--defaults", "--user", "anne", DISCOVERYBOT_KEY="k")
    assert (gateway.requests[-1].query, gateway.requests[-1].body) == ("user_id=anne", {"key": ["sku"]})


def test_a_schema_is_printed_and_set_with_exports(gateway: StandIn, run: Run, tmp_path: Path) -> None:
    schema = {"type": "object", "required": ["price"]}
    gateway.says("GET /datasets/prices/schema", Answer(200, schema))
    printed = run("datasets", "schema", "prices")
    assert json.loads(printed.stdout) == schema
    (file := tmp_path / "s.json").write_text(printed.stdout)
    orders = [{"to": "s3://lake/prices", "format": "parquet"}, {"to": "a", "format": "csv", "what": "changes"}]
    made = {**DATASET, "item_schema": schema, "exports": [{"what": "snapshot", **one} for one in orders]}
    gateway.says("PATCH /datasets/prices", *[Answer(200, made)] * 2)
    exports = ["--export", "to=s3://lake/prices,format=parquet", "--export", "to=a,format=csv,what=changes"]
    done = run("datasets", "set", "prices", "--item-schema", f"@{file}", *exports)
    assert "exports snapshot as parquet to s3://lake/prices, changes as csv to a" in done.stdout
    run("datasets", "set", "prices", "--item-schema", "", "--export", "")
    asked = [request.body for request in gateway.asked("/datasets/prices")]
    assert asked == [{"item_schema": schema, "exports": orders}, {"item_schema": {}, "exports": []}]
    refused = run("datasets", "set", "prices", "--export", "s3://lake")
    assert (refused.returncode, "to=FOLDER,format=parquet" in refused.stderr) == (2, True)


def test_the_last_run_is_exported_unless_one_is_named(gateway: StandIn, run: Run) -> None:
    gateway.says("GET /datasets/prices", Answer(200, DATASET))
    gateway.says(f"POST /datasets/prices/runs/{JOB}/export", *[Answer(202, RUN)] * 2)
    assert run("datasets", "export", "prices").returncode == 0
    assert run("datasets", "export", "prices", JOB).returncode == 0
    gateway.says("GET /datasets/prices", Answer(200, {**DATASET, "head_run": None}))
    assert "no run of prices is published" in run("datasets", "export", "prices").stderr


def test_an_option_that_is_refused_is_named(gateway: StandIn, run: Run) -> None:
    error = {
        "code": "invalid_request",
        "message": "drop_guard: must be at most 1",
        "detail": {"field": "drop_guard", "problems": []},
    }
    gateway.says("PATCH /datasets/prices", Answer(422, {"error": error}))
    done = run("datasets", "set", "prices", "--drop-guard", "3")
    assert (done.returncode, done.stderr) == (2, "error: --drop-guard: must be at most 1\n")
    nothing = run("datasets", "set", "prices")
    assert (nothing.returncode, "at least one option" in nothing.stderr) == (2, True)


def test_a_dataset_is_deleted_once_that_is_confirmed(gateway: StandIn, run: Run) -> None:
    gateway.says("GET /datasets/prices", Answer(200, DATASET))
    gateway.says("DELETE /datasets/prices", Answer(204))
    refused = run("datasets", "delete", "prices")
    assert (refused.returncode, "1204 items" in refused.stderr) == (2, True)
    assert run("datasets", "delete", "prices", "--yes").stdout == "prices: deleted\n"


# --- held runs


def test_runs_are_listed_with_what_they_have_changed(gateway: StandIn, run: Run) -> None:
    gateway.says("GET /datasets/prices/runs", Answer(200, {"runs": [HELD, RUN], "next": None}))
    done = run("datasets", "runs", "prices", "--state", "held", "--state", "published")
    assert done.stdout.splitlines()[0].split() == [
        "RUN", "STATE", "STARTED", "NEW", "CHANGED", "REMOVED", "SAME", "COMPLETE", "WHY"
    ]  # fmt: skip
    assert "600 of 1204" in done.stdout
    why = "1 of 9 requests failed (the first: http://shop.example/broken: 500)"
    partial = {**RUN, "incomplete": "not_finished", "incomplete_message": why}
    gateway.says("GET /datasets/prices/runs", Answer(200, {"runs": [partial], "next": None}))
    done = run("datasets", "runs", "prices", COLUMNS="200")
    assert done.stdout.splitlines()[1].endswith(f"no        {why}")
    assert f"run {JOB[:8]} is not complete: {why}. So nothing that it has not found counts as removed" in done.stderr
    assert "datasets set NAME --may-fail URL" in done.stderr
    assert asked(gateway, "/datasets/prices/runs")[0]["state"] == ["held", "published"]
    gateway.says("GET /datasets/prices/runs", Answer(200, {"runs": [], "next": None}))
    assert run("datasets", "runs", "prices").stderr.startswith("no runs")


@pytest.mark.parametrize("named", [(), (JOB[:6],), (JOB,)])
def test_the_held_run_is_accepted_by_the_beginning_of_its_id_or_without(
    gateway: StandIn, run: Run, named: tuple[str, ...]
) -> None:
    gateway.says("GET /datasets/prices/runs", Answer(200, {"runs": [HELD], "next": None}))
    gateway.says(f"POST /datasets/prices/runs/{JOB}/accept", Answer(200, HELD))
    done = run("datasets", "accept", "prices", *named, "--new-normal")
    assert (done.returncode, done.stdout.startswith(f"{JOB}: accepted")) == (0, True), done.stderr
    assert gateway.requests[-1].query == "new_normal=true"


def test_a_run_that_is_not_named_clearly_is_not_decided_on(gateway: StandIn, run: Run) -> None:
    other = {**HELD, "job_id": JOB[::-1]}
    gateway.says("GET /datasets/prices/runs", Answer(200, {"runs": [HELD, other], "next": None}))
    several = run("datasets", "reject", "prices")
    assert several.returncode == 2
    assert {JOB, JOB[::-1]} <= set(several.stderr.split())
    assert "begins with 'ffff'" in run("datasets", "reject", "prices", "ffff").stderr
    gateway.says(f"POST /datasets/prices/runs/{JOB}/reject", Answer(200, RUN))
    assert run("datasets", "reject", "prices", JOB[:4]).stdout == f"{JOB}: rejected\n"


def test_what_is_normal_is_shown_measure_by_measure(gateway: StandIn, run: Run) -> None:
    measure = {"measure": "filled", "field": "price", "value": 0.5, "normal": 0.99123, "lower": 0.9, "upper": None}
    health = {"stage": "holding", "runs": 12, "run": HELD, "measures": [{**measure, "within": False}]}
    gateway.says("GET /datasets/prices/health", Answer(200, health))
    done = run("datasets", "health", "prices")
    assert done.stdout.splitlines()[1].split() == ["filled", "price", "0.5", "0.9912", "0.9", "-", "no"]
    assert done.stderr == "holding: 12 complete runs so far\n"
