from __future__ import annotations

import pytest
from unit.gateway.cli.conftest import END, JOB, Answer, StandIn, log, stream

from gateway.cli.api import Api, ApiError
from gateway.cli.watching import follow

LOGS = f"/jobs/{JOB}/logs"


def test_everything_is_seen_up_to_the_end(gateway: StandIn) -> None:
    gateway.says(f"GET {LOGS}", stream(("log", "1-10", log("one")), ("end", "1-11", END)))
    assert [event.name for event in follow(Api(gateway.url), JOB)] == ["log", "end"]


def test_a_dropped_connection_is_resumed_after_the_last_event(gateway: StandIn) -> None:
    gateway.says(
        f"GET {LOGS}",
        stream(("log", "1-10", log("one")), ("log", "1-20", log("two")), broken=True),
        stream(("log", "1-30", log("three")), ("end", "1-31", END)),
    )
    events = list(follow(Api(gateway.url), JOB))
    assert [event.data["msg"] for event in events if event.name == "log"] == ["one", "two", "three"]
    assert [request.headers.get("last-event-id") for request in gateway.asked(LOGS)] == [None, "1-20"]


def test_a_stream_closed_without_an_end_is_resumed_as_well(gateway: StandIn) -> None:
    gateway.says(f"GET {LOGS}", stream(("log", "1-10", log("one"))), stream(("end", "1-11", END)))
    assert [event.name for event in follow(Api(gateway.url), JOB)] == ["log", "dropped", "end"]


def test_nothing_more_comes_after_a_204(gateway: StandIn) -> None:
    gateway.says(f"GET {LOGS}", stream(("log", "1-10", log("one"))), Answer(204))
    assert [event.name for event in follow(Api(gateway.url), JOB)] == ["log", "dropped"]


def test_a_gateway_that_cannot_serve_now_is_asked_again(gateway: StandIn) -> None:
    away = Answer(503, {"error": {"message": "away"}})
    gateway.says(f"GET {LOGS}", away, stream(("end", "1-1", END)))
    assert [event.name for event in follow(Api(gateway.url), JOB, sleep=lambda _: None)] == ["dropped", "end"]


def test_a_refusal_is_not_asked_again(gateway: StandIn) -> None:
    gateway.says(f"GET {LOGS}", Answer(404, {"error": {"message": "there is no job"}}))
    with pytest.raises(ApiError, match="there is no job"):
        list(follow(Api(gateway.url), JOB))
    assert len(gateway.asked(LOGS)) == 1


def test_a_gateway_that_stays_away_is_given_up(gateway: StandIn) -> None:
    gateway.says(f"GET {LOGS}", Answer(503, {"error": {"message": "away"}}))
    with pytest.raises(ApiError, match="does not come back: away"):
        list(follow(Api(gateway.url), JOB, patience=0.05, sleep=lambda _: None))
