"""What a channel is told of each event: short, with a link, and without what a chat would carry out."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from gateway.signals.events import EventType, SignalEvent
from gateway.signals.sentences import MAX_MESSAGE, slack_body

JOB = {"project": "shop", "spider": "prices", "attempt": 1, "page_url": "https://crawls.example.com/console/jobs/5f"}
DONE = {"items_count": 1270, "completed_pages": 1, "duration_seconds": 3661.4}
CHANGED = {"dataset": "offers", "new": 4, "changed": 31, "removed": 2}


def event(kind: EventType, **data: Any) -> SignalEvent:
    return SignalEvent("5f" * 16, kind, datetime(2027, 6, 1, tzinfo=UTC), "ada", data)


def sentence(made: SignalEvent) -> str:
    """What is said of it where there is no page to lead to."""
    data = {name: value for name, value in made.data.items() if name != "page_url"}
    return str(json.loads(slack_body(made._replace(data=data)))["text"])


@pytest.mark.parametrize(
    ("kind", "data", "said"),
    [
        (EventType.JOB_STARTED, {}, "shop/prices started"),
        (EventType.JOB_STARTED, {"attempt": 2}, "shop/prices started (attempt 2)"),
        (EventType.JOB_PAUSED, {"message": "paused: by hand"}, "shop/prices paused"),
        (EventType.JOB_RETRIED, {"message": "503"}, "shop/prices failed and is retried: 503"),
        (EventType.JOB_FINISHED, DONE, "shop/prices finished: 1,270 items on 1 page in 1 h 1 min"),
        (EventType.JOB_FINISHED, {}, "shop/prices finished: 0 items on 0 pages in 0 s"),
        (EventType.JOB_PARTIAL, {"message": "1 of 3 pages"}, "shop/prices finished in part: 1 of 3 pages"),
        (EventType.JOB_FAILED, {"message": "12 of 400\npages"}, "shop/prices failed: 12 of 400 pages"),
        (EventType.JOB_CANCELLED, {}, "shop/prices was cancelled"),
        (EventType.DATASET_CHANGED, CHANGED, "shop/prices changed offers: 4 new, 31 changed, 2 removed"),
        (EventType.RUN_HELD, CHANGED | {"message": "half is gone"},
         "shop/prices has a run of offers that is held: half is gone"),
    ],
)  # fmt: skip
def test_each_event_is_one_sentence(kind: EventType, data: dict[str, Any], said: str) -> None:
    assert sentence(event(kind, **{**JOB, **data})) == said


@pytest.mark.parametrize(
    ("kind", "data", "said"),
    [
        (EventType.NODE_DOWN, {"node": "n1", "message": "no sign of life"}, "Node n1 is down: no sign of life"),
        (EventType.DEPLOY_LIVE, {"project": "shop", "version": "1.5"}, "shop 1.5 is live"),
        (EventType.DEPLOY_FAILED, {"project": "shop", "version": "1.5", "node": "n1", "message": "no module"},
         "shop 1.5 could not be deployed: no module"),
        (EventType.SCHEDULE_LATE, {"name": "each morning", "project": "shop", "late_by_seconds": 720.4, "due": "…"},
         "each morning ran 12 min late: it was due at …"),
    ],
)  # fmt: skip
def test_what_is_not_of_a_job_is_named_by_what_it_is_of(kind: EventType, data: dict[str, Any], said: str) -> None:
    assert sentence(event(kind, **data)) == said


@pytest.mark.parametrize("kind", EventType)
def test_every_event_has_a_sentence(kind: EventType) -> None:
    made = event(kind, **JOB, **CHANGED, message="x", due="2027-06-01T09:00:00.000Z", node="n1", version="1")
    assert sentence(made)
    assert json.loads(slack_body(made)).keys() == {"text"}


def test_a_channel_gets_a_link_and_nothing_that_it_would_carry_out() -> None:
    made = event(
        EventType.JOB_FAILED, **{**JOB, "spider": "<!channel>"}, message="<https://evil.example|here> & {more}"
    )
    assert json.loads(slack_body(made))["text"] == (
        "<https://crawls.example.com/console/jobs/5f|shop/&lt;!channel&gt;> failed: "
        "&lt;https://evil.example|here&gt; &amp; {more}"
    )
    long = sentence(event(EventType.JOB_FAILED, **JOB, message="x" * 9999))
    assert len(long) < MAX_MESSAGE + 50


def test_what_is_about_no_job_is_said_without_a_link() -> None:
    made = event(EventType.ENDPOINT_DISABLED, message="it answered 410")
    assert json.loads(slack_body(made)) == {"text": "An endpoint was disabled: it answered 410"}
