"""How often the clients of one job are woken."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from typing import Any

import pytest
from jobs import make_job

from gateway.web.event_stream.hub import Feed
from gateway.web.event_stream.log_lines import StreamLimits


@pytest.mark.parametrize(("clients", "tick"), [(0, 0.02), (1, 0.02), (20, 0.02), (100, 0.1), (1000, 0.25)])
def test_many_clients_of_a_job_are_woken_less_often(clients: int, tick: float) -> None:
    history: Any = None  # nothing is read
    feed = Feed(make_job(), history, StreamLimits(tick=0.02, tick_each=0.001, crowd_tick=0.25))
    with ExitStack() as watching:
        for _ in range(clients):
            watching.enter_context(feed.watched_by(asyncio.Event()))
        assert feed.tick == pytest.approx(tick)
    assert feed.tick == 0.02
