from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from threading import Event

import pytest
from pymongo.errors import AutoReconnect, NetworkTimeout, ServerSelectionTimeoutError, WriteError
from stack import wait_until

from gateway.clock import deadline, remaining
from gateway.repeated_work import BATCH, LONGEST_DELAY, Isolation, Patience, Shared, Step, Steps


@pytest.fixture
def over() -> Iterator[Event]:
    """Lets all who wait for it go at the end."""
    event = Event()
    yield event
    event.set()


def test_a_step_that_does_not_come_back_delays_no_other_and_is_not_begun_twice(over: Event) -> None:
    begun: list[str] = []

    def never_back(_: Isolation) -> None:
        begun.append("slow")
        over.wait(60)

    steps = Steps((Step("slow", never_back), Step("quick", lambda _: begun.append("quick"))))
    for times in (1, 2, 3):
        steps.begin()
        wait_until(lambda times=times: begun.count("quick") == times, what="the other step")
    assert begun.count("slow") == 1
    steps.close()


def test_a_step_that_failed_is_taken_again() -> None:
    taken: list[int] = []

    def fail(_: Isolation) -> None:
        taken.append(1)
        raise RuntimeError("nobody thought of it")

    steps = Steps((Step("failing", fail),))

    def again() -> bool:
        steps.begin()
        return len(taken) >= 3

    wait_until(again, what="it to be taken again")
    steps.close()


class Things:
    def __init__(self) -> None:
        self.now = 0.0
        self.isolation = Isolation("thing", self.monotonic)
        self.seen: list[str] = []

    def monotonic(self) -> float:
        return self.now

    def see_to(self, names: str, fail: Callable[[str], Exception | None]) -> list[str]:
        """Which were seen to without an error."""

        def one(name: str) -> None:
            if error := fail(name):
                raise error
            self.seen.append(name)

        self.seen = []
        turn = self.isolation.turn({name: name for name in names})
        self.isolation.each(turn.items(), one)
        return self.seen


def test_what_fails_is_late_for_longer_each_time_and_only_it() -> None:
    things, delays = Things(), []
    for _ in range(6):
        assert things.see_to("abc", lambda name: WriteError("refused") if name == "b" else None) == ["a", "c"]
        began = things.now
        while things.isolation.late:
            things.now += 1
        delays.append(things.now - began)
    assert delays == [2, 4, 8, 16, LONGEST_DELAY, LONGEST_DELAY]
    assert things.see_to("abc", lambda _: None) == ["a", "b", "c"]
    assert things.see_to("abc", lambda name: RuntimeError() if name == "b" else None) == ["a", "c"]
    things.now += 2
    assert things.isolation.late == []


def test_only_the_absence_of_mongodb_ends_a_turn_and_the_next_begins_with_another() -> None:
    things = Things()
    with pytest.raises(AutoReconnect):
        things.see_to("abc", lambda name: AutoReconnect() if name == "b" else None)
    assert things.seen == ["a"]
    assert things.see_to("abc", lambda _: None) == ["a", "c"]


def test_each_has_its_turn_however_many_there_are() -> None:
    isolation, names = Isolation("thing"), [f"{number:05d}" for number in range(2 * BATCH + 1)]
    turns = [isolation.turn(dict.fromkeys(names)) for _ in range(3)]
    assert [len(turn) for turn in turns] == [BATCH] * 3
    assert sorted({name for turn in turns for name in turn}) == names


def test_a_turn_ends_with_the_time_of_its_step() -> None:
    things = Things()
    with deadline(0):
        assert things.see_to("abc", lambda _: None) == []


def test_a_round_that_ran_out_of_time_gets_more_until_the_store_is_quick_again_or_away() -> None:
    now, allowed = [0.0], list[float]()
    patience = Patience(monotonic=lambda: now[0])

    def round_of(seconds: float, error: Exception | None = None) -> None:
        with patience.round():
            allowed.append(remaining(1000.0))
            now[0] += seconds
            if error:
                raise error

    for took, error in ((3, NetworkTimeout()), (12, NetworkTimeout()), (26, None), (40, None), (0.1, None)):
        with suppress(NetworkTimeout):
            round_of(took, error)
    for failure in (NetworkTimeout(), ServerSelectionTimeoutError(), RuntimeError()):
        with suppress(NetworkTimeout, ServerSelectionTimeoutError, RuntimeError):
            round_of(3, failure)
    round_of(0)
    assert allowed == pytest.approx([3, 12, 48, 52, 60, 3, 12, 3, 3], abs=1)


def test_what_several_steps_need_is_read_once_for_a_moment_and_anew_after_an_error() -> None:
    times, answers = iter([0.0, 0.0, 0.5, 2.0, 2.0]), iter([None, 1, 2])

    def read() -> int:
        if (answer := next(answers)) is None:
            raise AutoReconnect
        return answer

    shared = Shared(read, lambda: next(times))
    with pytest.raises(AutoReconnect):
        shared()
    assert [shared(), shared(), shared()] == [1, 1, 2]
