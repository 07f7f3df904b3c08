"""Schemathesis checks the API against its own description: there is no 5xx, and no answer that is not described."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import requests
import schemathesis
from forms import FULL, full_or_short
from hypothesis import Phase, given
from hypothesis import settings as hypothesis_settings
from hypothesis.strategies import integers
from integration.web.board import Board, Serve, open_board
from schemathesis.specs.openapi.checks import positive_data_acceptance

from gateway.jobs.job import JobStatus
from gateway.settings import Settings

FOLDER = Path(__file__).parent / "fuzz"
#: Examples for each of some fifty operations; in full these are thousands.
EXAMPLES = full_or_short(40, 2)
PHASES = "examples,coverage,fuzzing" if FULL else "examples,fuzzing"
#: Routes whose answers take as long as a crawl.
STREAMS = "^/events$|/logs$"
#: Left out, because from the first key on no call without a key would succeed.
KEYS = "^/keys$"
STREAMS_OPENED = full_or_short(100, 6)


class Target:
    """A gateway with one of everything."""

    def __init__(self, board: Board) -> None:
        self.url = str(board.http.base_url).rstrip("/")
        crawl = {"user_id": "ada", "spider": "jobs", "start_urls": ["https://example.com"], "ignore_cache": True}
        jobs = [self._post(board, "/crawl", crawl)["job_id"] for _ in range(4)]
        schedules = [self._post(board, "/crawl", {**crawl, "interval": "@daily"})["job_id"] for _ in range(3)]
        target = self._post(board, "/targets", {"site": "board", "keywords": "bees", "frequency": 60})["id"]
        run = board.started(search_term="wasps")
        board.end(run, JobStatus.FINISHED, {"title": "Beekeeper"})
        board.database["jobs"].update_one({"_id": jobs[-1]}, {"$set": {"status": "error", "dead": True}})
        self.known_ids = {
            "job_id": [*jobs, run.id],
            "letter_id": jobs[-1:],
            "schedule_id": schedules,
            "name": ["board"],
            "target_id": [target],
            "run_id": [f"manual_{run.id}"],
        }

    def _post(self, board: Board, path: str, body: dict[str, Any]) -> dict[str, Any]:
        made: dict[str, Any] = board.http.post(path, json=body).raise_for_status().json()
        return made


@pytest.fixture(scope="module")
def target(serve: Serve, settings: Settings) -> Iterator[Target]:
    with open_board(serve, settings, "fuzz", patience=0.5) as board:
        # the document is made at its first use, and Schemathesis waits ten seconds for it: too few on a busy machine
        board.http.get("/openapi.json", timeout=120).raise_for_status()
        yield Target(board)


@pytest.mark.timeout(900)
def test_no_answer_is_an_error_of_ours_or_not_described(target: Target, tmp_path: Path) -> None:
    command = str(Path(sys.executable).with_name("schemathesis"))
    done = subprocess.run(
        [
            *(command, "--config-file", str(FOLDER / "schemathesis.toml")),
            *("run", f"{target.url}/openapi.json", "--checks", "all", "--phases", PHASES),
            *("--max-examples", str(EXAMPLES), "--exclude-path-regex", f"{STREAMS}|{KEYS}"),
            *(() if FULL else ("--generation-deterministic",)),
            *("--continue-on-failure", "--request-timeout", "60", "--no-color", "--warnings", "off"),
        ],
        cwd=tmp_path,
        env={
            **os.environ,
            "SCHEMATHESIS_HOOKS": "known_ids",
            "PYTHONPATH": str(FOLDER),
            "FUZZ_KNOWN_IDS": json.dumps(target.known_ids),
        },
        capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(300)
def test_streams_too_open_or_say_why_not(target: Target) -> None:
    """A stream is closed after its first bytes; the refusal of any other is checked against the description."""
    described = schemathesis.openapi.from_url(f"{target.url}/openapi.json")
    seen: Counter[tuple[str, int]] = Counter()

    def hold(case: schemathesis.Case, number: int) -> None:
        if case.path_parameters:
            case.path_parameters["job_id"] = target.known_ids["job_id"][number]
        request = case.as_transport_kwargs(base_url=target.url)
        with requests.Session() as session, session.request(**request, stream=True, timeout=30) as answer:
            seen[case.path, answer.status_code] += 1
            if answer.status_code == httpx2.codes.OK and "event-stream" in answer.headers["content-type"]:
                assert next(answer.iter_content(64))
            else:
                # a schema does not say which levels and ids there are, so wrong ones may be refused
                case.validate_response(answer, excluded_checks=[positive_data_acceptance])

    for path in ("/jobs/{job_id}/logs", "/events"):
        cases = given(case=described[path]["GET"].as_strategy(), number=integers(0, 4))
        limits = hypothesis_settings(
            max_examples=STREAMS_OPENED, deadline=None, derandomize=True, database=None, phases=[Phase.generate]
        )
        limits(cases(hold))()
        assert seen[path, 200], seen
