"""A schedule followed by its own id: the run under way, or the one before; before the first, the wait for it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from datetime import timedelta
from typing import Any

import anyio

from gateway.domain.clock import Clock, to_iso
from gateway.domain.errors import JobNotFoundError, UnavailableError
from gateway.domain.job import Job
from gateway.domain.schedule import Schedule, ScheduleState
from gateway.services.job_or_schedule import JobOrSchedule, RunOf
from gateway.web.event_stream.history import History
from gateway.web.event_stream.limits import StreamLimits
from gateway.web.event_stream.sse import FAREWELL, RETRY, event
from gateway.web.schemas.schedule_status import ScheduleStatusView

_ID = b"\nid: "
#: Position of the end of a schedule that never ran.
NEVER_RAN = "1-1"


async def of_run(chunks: AsyncGenerator[bytes], run: str) -> AsyncIterator[bytes]:
    """The chunks with the run's job in each event's id: a schedule's streams go on with the run that was followed.

    Data is JSON in one line, so a line that begins with `id: ` is an id.
    """
    with_run = _ID + run.encode() + b"."
    async with aclosing(chunks) as encoded:
        async for chunk in encoded:
            yield chunk.replace(_ID, with_run)


class Waiting:
    """The stream of a schedule that has not run yet."""

    def __init__(
        self, history: History, named: JobOrSchedule, limits: StreamLimits, clock: Clock, shutdown: anyio.Event
    ) -> None:
        self._history = history
        self._named = named
        self._limits = limits
        self._clock = clock
        self._shutdown = shutdown

    async def events(
        self, schedule: Schedule, opening: bytes, follow: Callable[[Job], AsyncIterator[bytes]]
    ) -> AsyncGenerator[bytes]:
        """Says when it will run, whenever that changes; then whatever `follow` makes of the first run. Ends with the
        schedule.
        """
        told = standing(schedule)
        yield RETRY + opening + event("status", told)
        found: RunOf | None = RunOf(schedule, None)
        while found is not None and not self._shutdown.is_set():
            if found.job is not None:
                async for chunk in follow(found.job):
                    yield chunk
                return
            if found.schedule.state is ScheduleState.ENDED:
                yield _end(found.schedule)
                return
            if standing(found.schedule) != told:
                told = standing(found.schedule)
                yield event("status", told)
            found = await self._look_again(found)
        if found is not None:
            yield FAREWELL

    async def _look_again(self, found: RunOf) -> RunOf | None:
        """After a while, which is short when a run is near; `None` if the schedule is gone."""
        with anyio.move_on_after(self._pause(found.schedule)):
            await self._shutdown.wait()
        try:
            again = await self._history.ask(self._named.find, found.schedule.id)
        except UnavailableError:
            return found
        except JobNotFoundError:
            return None
        return again if isinstance(again, RunOf) else None

    def _pause(self, schedule: Schedule) -> float:
        near = self._clock() + timedelta(seconds=self._limits.refresh)
        is_near = schedule.next_run is not None and schedule.next_run <= near
        return self._limits.poll if is_near else self._limits.refresh


def standing(schedule: Schedule) -> dict[str, Any]:
    """Data of its `status` event."""
    data: dict[str, Any] = {"status": "scheduled", "attempt": 0, "state": schedule.state.value}
    if schedule.next_run is not None:
        data["next_run"] = to_iso(schedule.next_run)
    return data


def _end(schedule: Schedule) -> bytes:
    data = ScheduleStatusView.of_schedule(schedule, None).model_dump(mode="json")
    return event("end", data).replace(b"event: end", b"event: end" + _ID + f"{schedule.id}.{NEVER_RAN}".encode(), 1)
