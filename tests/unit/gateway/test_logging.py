from __future__ import annotations

import io
import json
import logging as stdlib
from collections.abc import Iterator

import pytest
import structlog

from gateway import logging


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = stdlib.getLogger()
    handlers, level = root.handlers[:], root.level
    written = io.StringIO()
    logging.configure("info", stream=written)
    yield written
    root.handlers, root.level = handlers, level
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


def test_each_event_is_one_json_line_with_what_the_context_knows(stream: io.StringIO) -> None:
    structlog.contextvars.bind_contextvars(request_id="r1")
    structlog.get_logger("here").info("job_made", job_id="j1", odd={1: {2, 3}})
    stdlib.getLogger("library").warning("two\nlines")
    ours, theirs = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert (ours["event"], ours["job_id"], ours["request_id"], ours["level"]) == ("job_made", "j1", "r1", "info")
    assert (theirs["event"], theirs["logger"], theirs["request_id"]) == ("two\nlines", "library", "r1")
    assert ours["ts"].endswith("Z")


def test_half_a_surrogate_pair_does_not_cost_the_line(stream: io.StringIO) -> None:
    structlog.get_logger().info("odd", path="/\ud800")
    assert json.loads(stream.getvalue())["path"] == "/?"


def test_what_is_below_the_level_is_left_out(stream: io.StringIO) -> None:
    structlog.get_logger().debug("quiet")
    assert stream.getvalue() == ""


@pytest.mark.parametrize("user", ["", "ada"])
def test_the_password_in_a_url_is_in_no_line(stream: io.StringIO, user: str) -> None:
    structlog.get_logger().warning("away", error=f"no answer from redis://{user}:s3cret@stores.example:6379/0")
    assert json.loads(stream.getvalue())["error"] == f"no answer from redis://{user}:***@stores.example:6379/0"


def test_what_only_looks_a_little_like_a_password_is_left_alone(stream: io.StringIO) -> None:
    plain = "http://site.example:80/a, then mail ada@site.example"
    structlog.get_logger().info("seen", text=plain)
    assert json.loads(stream.getvalue())["text"] == plain
