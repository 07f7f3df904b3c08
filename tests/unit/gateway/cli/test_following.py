from __future__ import annotations

import pytest
from unit.gateway.cli.conftest import END, JOB, Answer, Run, StandIn, log, stream

from gateway.cli.api import Api, ApiError

LOGS = f"/jobs/{JOB}/logs"


def test_everything_is_seen_up_to_the_end(gateway: StandIn) -> None:
    gateway.says(f"GET {LOGS}", stream(("log", "1-10", log("one")), ("end", "1-11", END)))
    assert [event.name for event in Api(gateway.url).follow(JOB)] == ["log", "end"]


def test_a_dropped_connection_is_resumed_after_the_last_event(gateway: StandIn) -> None:
    gateway.says(
        f"GET {LOGS}",
        stream(("log", "1-10", log("one")), ("log", "1-20", log("two")), broken=True),
        stream(("log", "1-30", log("three")), ("end", "1-31", END)),
    )
    events = list(Api(gateway.url).follow(JOB))
    assert [event.data["msg"] for event in events if event.name == "log"] == ["one", "two", "three"]
    assert [request.headers.get("last-event-id") for request in gateway.asked(LOGS)] == [None, "1-20"]


def test_a_stream_closed_without_an_end_is_resumed_as_well(gateway: StandIn) -> None:
    gateway.says(f"GET {LOGS}", stream(("log", "1-10", log("one"))), stream(("end", "1-11", END)))
    assert [event.name for event in Api(gateway.url).follow(JOB)] == ["log", "dropped", "end"]


def test_nothing_more_comes_after_a_204(gateway: StandIn) -> None:
    gateway.says(f"GET {LOGS}", stream(("log", "1-10", log("one"))), Answer(204))
    assert [event.name for event in Api(gateway.url).follow(JOB)] == ["log", "dropped"]


def test_a_refusal_is_not_asked_again(gateway: StandIn) -> None:
    gateway.says(f"GET {LOGS}", Answer(404, {"error": {"message": "there is no job"}}))
    with pytest.raises(ApiError, match="there is no job"):
        list(Api(gateway.url).follow(JOB))
    assert len(gateway.asked(LOGS)) == 1


def test_an_interruption_is_told_once_and_nothing_is_lost(gateway: StandIn, run: Run) -> None:
    gateway.says(f"GET /jobs/{JOB}/status", Answer(200, END))
    cut = stream(("log", "1-10", log("one")), broken=True)
    gateway.says(f"GET {LOGS}", cut, stream(), stream(("log", "1-20", log("two")), ("end", "1-21", END)))
    done = run("logs", "-f", JOB)
    assert (done.returncode, done.stdout.count("connection lost, reconnecting")) == (0, 1)
    assert done.stdout.count("INFO") == 2


def test_a_gateway_that_stays_away_is_given_up(gateway: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.cli.api.PATIENCE", 0)
    gateway.says(f"GET {LOGS}", Answer(200, b"", content_type="text/event-stream"))
    with pytest.raises(ApiError, match="the stream was closed before its end"):
        list(Api(gateway.url).follow(JOB))
