from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from stack import wait_until

from gateway.errors import TooManyError
from gateway.web.call_queue import CallQueue, Threads, Visitor, set_visitor, shared_context

PLACES, EACH = 5, 2
USERS = st.sampled_from(["anne", "bert", "cleo", "dora"])


class Gone(Exception):  # noqa: N818 - it is what is said, not a fault
    pass


class Store:
    is_away = False

    def check(self) -> None:
        if self.is_away:
            raise Gone


class CallQueueMachine(RuleBasedStateMachine):
    """Beside the queue, this keeps only lists: who has which place, who waits with what, and since which turn."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = CallQueue[int](PLACES, EACH)
        self.made = 0
        self.has_place: dict[int, str] = {}
        self.waits: dict[int, str] = {}
        #: Calls of others that got a place since the user has waited with a free place of its own.
        self.passed_over: Counter[str] = Counter()

    @rule(user=USERS)
    def enter(self, user: str) -> None:
        self.made += 1
        (self.has_place if self.queue.enter(user, self.made) else self.waits)[self.made] = user

    @precondition(lambda self: self.has_place)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        user = self.has_place.pop(data.draw(st.sampled_from(sorted(self.has_place))))
        following = self.queue.leave(user)
        if following is None:
            return
        taker, call = following
        assert self.waits.pop(call) == taker
        assert call < min((one for one, whose in self.waits.items() if whose == taker), default=self.made + 1)
        self.has_place[call] = taker
        for other in self._may_begin():
            self.passed_over[other] += 1
        self.passed_over[taker] = 0

    @precondition(lambda self: self.waits)
    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        call = data.draw(st.sampled_from(sorted(self.waits)))
        self.queue.forget(self.waits.pop(call), call)

    @precondition(lambda self: self.has_place)
    @rule(data=st.data())
    def forget_what_has_a_place(self, data: st.DataObject) -> None:
        call = data.draw(st.sampled_from(sorted(self.has_place)))
        self.queue.forget(self.has_place[call], call)

    def _may_begin(self) -> set[str]:
        running = Counter(self.has_place.values())
        return {user for user in self.waits.values() if running[user] < EACH}

    @invariant()
    def nobody_has_more_than_its_places(self) -> None:
        assert self.queue.running == Counter(self.has_place.values())
        assert len(self.has_place) <= PLACES
        assert all(count <= EACH for count in self.queue.running.values())

    @invariant()
    def nobody_waits_beside_a_free_place(self) -> None:
        waiting = {user: sum(whose == user for whose in self.waits.values()) for user in set(self.waits.values())}
        assert {user: len(calls) for user, calls in self.queue.waiting.items()} == waiting
        assert len(self.has_place) == PLACES or not self._may_begin()

    @invariant()
    def nobody_is_passed_over_twice_by_each_of_the_others(self) -> None:
        for user in set(self.passed_over) - self._may_begin():
            self.passed_over[user] = 0
        assert max(self.passed_over.values(), default=0) < 4


TestCallQueue = CallQueueMachine.TestCase


@contextmanager
def opened(each: int = 1, store: Store | None = None) -> Iterator[Threads]:
    threads = Threads(each, (store or Store()).check)
    yield threads
    threads.close()


class Visit:
    """Calls of one visitor, each of which waits for its release."""

    def __init__(self, threads: Threads, name: str, *, reads: bool = True) -> None:
        self.threads = threads
        self.visitor = Visitor(name, reads)
        self.release = threading.Event()
        self.ran: list[int] = []

    def _held(self, number: int) -> int:
        self.ran.append(number)
        self.release.wait(60)
        return number

    def ask(self, number: int) -> asyncio.Task[int]:
        async def asking() -> int:
            set_visitor(self.visitor)
            return await self.threads.run(self._held, number)

        return asyncio.create_task(asking())

    async def quick(self) -> str:
        set_visitor(self.visitor)
        return await self.threads.run(lambda: "there")


async def began(visit: Visit, count: int) -> None:
    async with asyncio.timeout(60):
        while len(visit.ran) < count:  # noqa: ASYNC110 - threads have no event for it
            await asyncio.sleep(0.01)


async def test_what_is_queued_when_the_store_goes_away_is_refused_and_so_is_what_comes_later() -> None:
    store, calls = Store(), []
    with opened(1, store) as threads:
        visit = Visit(threads, "anne")
        held = visit.ask(1)
        await began(visit, 1)
        queued = visit.ask(2)
        await asyncio.sleep(0)
        store.is_away = True
        with pytest.raises(Gone):
            await threads.run(calls.append, "later")
        visit.release.set()
        assert await held == 1
        with pytest.raises(Gone):
            await queued
        store.is_away = False
        await threads.run(calls.append, "back")
        assert calls == ["back"]
        assert visit.ran == [1]


async def test_one_user_has_so_many_places_and_the_others_do_not_wait_for_them() -> None:
    with opened(2) as threads:
        anne, bert = Visit(threads, "anne"), Visit(threads, "bert")
        asked = [anne.ask(number) for number in range(50)]
        await began(anne, 2)
        async with asyncio.timeout(60):
            assert await asyncio.create_task(bert.quick()) == "there"
        assert anne.ran == [0, 1]
        anne.release.set()
        assert await asyncio.gather(*asked) == list(range(50))
        # of two that have a place each, the later one may be the quicker one
        assert sorted(anne.ran) == list(range(50))


async def test_reads_changes_and_looks_at_one_document_do_not_wait_for_each_other() -> None:
    with opened() as threads:
        reads, changes = Visit(threads, "anne"), Visit(threads, "anne", reads=False)
        held = [reads.ask(1), changes.ask(1)]
        await began(reads, 1)
        await began(changes, 1)
        async with asyncio.timeout(60):
            assert await threads.look(lambda: "there") == "there"
        for visit in (reads, changes):
            visit.release.set()
        assert await asyncio.gather(*held) == [1, 1]


async def test_a_call_too_many_is_refused_but_not_in_the_middle_of_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.web.call_queue.MOST_WAITING", 2)
    with opened() as threads:
        anne = Visit(threads, "anne")
        held = [anne.ask(number) for number in range(3)]
        await began(anne, 1)
        newcomer = Visit(threads, "anne")
        with pytest.raises(TooManyError, match="2 of your calls wait") as refused:
            await asyncio.create_task(newcomer.quick())
        assert refused.value.retry_after > 0
        further = anne.ask(3)
        anne.release.set()
        assert await asyncio.gather(*held, further) == [0, 1, 2, 3]
        assert await asyncio.create_task(newcomer.quick()) == "there"


async def test_what_waits_for_a_client_that_is_gone_is_not_done() -> None:
    with opened() as threads:
        anne, other = Visit(threads, "anne"), Visit(threads, "anne")
        first = anne.ask(1)
        await began(anne, 1)
        gone, stays = anne.ask(2), other.ask(3)
        await asyncio.sleep(0)
        anne.visitor.leave()
        with pytest.raises(asyncio.CancelledError):
            await gone
        for visit in (anne, other):
            visit.release.set()
        assert await asyncio.gather(first, stays) == [1, 3]
        assert anne.ran == [1]


async def test_what_others_wait_for_too_is_done_though_the_client_that_asked_first_is_gone() -> None:
    with opened() as threads:
        anne = Visit(threads, "anne")
        first = anne.ask(1)
        await began(anne, 1)

        async def share() -> asyncio.Task[str]:
            set_visitor(anne.visitor)
            return asyncio.create_task(threads.run(lambda: "there"), context=shared_context())

        shared = await asyncio.create_task(share())
        await asyncio.sleep(0)
        anne.visitor.leave()
        anne.release.set()
        assert (await first, await shared) == (1, "there")


async def test_errors_and_cancellations_give_their_places_back() -> None:
    with opened() as threads:
        anne = Visit(threads, "anne")

        def fail() -> None:
            raise ZeroDivisionError

        for _ in range(20):
            with pytest.raises(ZeroDivisionError):
                await threads.run(fail)
        held = anne.ask(1)
        await began(anne, 1)
        waiting = [anne.ask(number) for number in range(2, 22)]
        await asyncio.sleep(0)
        for one in (held, *waiting):
            one.cancel()
        await asyncio.wait([held, *waiting])
        anne.release.set()
        async with asyncio.timeout(60):
            assert await asyncio.create_task(Visit(threads, "anne").quick()) == "there"
        assert anne.ran == [1]


async def test_calls_that_wait_at_the_end_are_cancelled() -> None:
    with opened() as threads:
        anne = Visit(threads, "anne")
        held, waiting = anne.ask(1), anne.ask(2)
        await began(anne, 1)
        threads.close()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        anne.release.set()
        assert await held == 1


class Found:
    """Stands for a page of items, of megabytes."""


@pytest.fixture
def uncollected() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("uncollected")
async def test_what_a_call_has_found_is_gone_with_the_last_who_needs_it() -> None:
    """Also where it had to wait; the garbage collector may not come for minutes."""
    found: list[weakref.ref[Found]] = []
    go_on = threading.Event()

    def find() -> Found:
        assert go_on.wait(60)
        one = Found()
        found.append(weakref.ref(one))
        return one

    with opened() as threads:
        calls = asyncio.gather(*(threads.run(find) for _ in range(3)))
        await asyncio.sleep(0)
        go_on.set()
        assert len(await calls) == 3
        del calls
        # a thread may have it for a moment longer
        await asyncio.to_thread(wait_until, lambda: not any(one() for one in found), what="their end")
