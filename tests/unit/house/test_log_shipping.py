"""`deploy/monitoring/fluent-bit.yaml` reads the lines that we write, and ships fields that they have.

There is no Fluent Bit here: its parsers are applied as they are documented.
"""

from __future__ import annotations

import io
import json
import logging as stdlib
import re
from collections.abc import Iterator
from datetime import datetime

import pytest
import structlog
import yaml
from unit.house.sources import ROOT

from embedded.stack.child import StackLog
from gateway import logging
from gateway.jobs.messages import about_message

CONFIG = yaml.safe_load((ROOT / "deploy/monitoring/fluent-bit.yaml").read_text(encoding="utf-8"))
PIPELINE = CONFIG["pipeline"]
PARSERS = {parser["name"]: parser for parser in CONFIG["parsers"]}
(OUTPUT,) = PIPELINE["outputs"]
JOB, REQUEST = "5f0c8e3a9d1b4c7e8f2a6b5d4c3e2f1a", "0b9f6f1c2f0e4c3d9a4f5e6d7c8b9a01"


@pytest.fixture
def line() -> Iterator[str]:
    """A line about a job, as each process writes it to stderr."""
    root = stdlib.getLogger()
    handlers, level = root.handlers[:], root.level
    written = io.StringIO()
    logging.configure("info", stream=written)
    structlog.contextvars.bind_contextvars(request_id=REQUEST, run_id=f"manual_{JOB}", site_name="board")
    with about_message(JOB, REQUEST):
        structlog.get_logger("gateway.jobs.completion").info("job_ended", status="finished", message="3 pages")
    yield written.getvalue()
    root.handlers, root.level = handlers, level
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


def _shipped() -> dict[str, str]:
    """By the name under which it is shipped: the field."""
    named = dict(pair.split("=$") for pair in OUTPUT["structured_metadata"].split(","))
    return named | {"level": OUTPUT["label_keys"].removeprefix("$")}


def test_all_parts_of_the_file_fit_together() -> None:
    tags = {source["tag"] for source in PIPELINE["inputs"]}
    assert {part["match"] for part in PIPELINE["filters"]} == tags
    assert {part["parser"] for part in PIPELINE["filters"]} == set(PARSERS)
    # the whole line stays, of others' lines too
    assert all(part["reserve_data"] and part["preserve_key"] for part in PIPELINE["filters"])


def test_what_is_shipped_of_a_line_of_a_process_is_in_it(line: str) -> None:
    record = json.loads(line)
    shipped = {name: record[field] for name, field in _shipped().items()}
    assert (shipped["job_id"], shipped["request_id"], shipped["correlation_id"]) == (JOB, REQUEST, REQUEST)
    assert (shipped["site_name"], shipped["status"], shipped["event"]) == ("board", "finished", "job_ended")
    parser = PARSERS["discoverybot"]
    # Fluent Bit's %L is what Python calls %f
    assert datetime.strptime(record[parser["time_key"]], parser["time_format"].replace("%L", "%f"))  # noqa: DTZ007


def test_no_field_that_is_shipped_is_unknown_to_the_page() -> None:
    page = (ROOT / "docs/reference/logging.md").read_text(encoding="utf-8")
    table = "\n".join(text for text in page.splitlines() if text.startswith("| `"))
    assert set(_shipped().values()) <= set(re.findall(r"`(\w+)`", table))


def test_what_up_makes_of_a_line_is_read_back(line: str) -> None:
    shown = io.StringIO()
    StackLog(["gateway", "worker"], verbose=True, stream=shown).line("worker", line)
    found = re.search(PARSERS["discoverybot-up"]["regex"].replace("(?<", "(?P<"), shown.getvalue())
    assert found
    record = json.loads(line)
    assert found["process"] == "worker"
    assert found["level"] == record["level"].upper()
    assert {name: found[name] for name in found.re.groupindex if name not in {"process", "level"}} == {
        name: record[name] for name in found.re.groupindex if name not in {"process", "level"}
    }


def test_a_line_without_a_job_is_read_and_one_of_a_spider_is_left_alone() -> None:
    regex = PARSERS["discoverybot-up"]["regex"].replace("(?<", "(?P<")
    found = re.search(regex, "00:01:02 tailer  | INFO [__main__] tailer_started outbox=/data/outbox\n")
    assert found
    assert (found["event"], found["job_id"], found["status"]) == ("tailer_started", None, None)
    assert not re.search(regex, "00:01:02 scrapyd | [twisted.web.server.Site#info] Stopping factory\n")
