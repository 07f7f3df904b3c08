"""How an attempt gets to its node, in every order in which two workers and the sweep can take their steps.

This is a model of the protocol. A step is what one command does to one document. A worker may sleep for ever between
any two of its steps. All jobs want the same resource, which one crawl at a time may hold. The rule: in every state
that can be reached, a crawl that runs holds the resource, and all jobs can still end, though one worker sleeps on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pytest


class Rules(NamedTuple):
    hold_first: bool = True
    use_up_first: bool = True
    #: A worker gives back what it holds for an attempt only if the job has not come to that attempt: not because
    #: another token is on it, for the assignment may have been taken over.
    attempt_tells: bool = True


class Job(NamedTuple):
    #: The newest attempt that was assigned, or used up.
    attempt: int = 0
    status: str = "pending"
    #: Of the assignment.
    token: int | None = None

    @property
    def waits(self) -> bool:
        return self.status == "pending" and self.token is None

    def lives(self, attempt: int) -> bool:
        return self.attempt == attempt and (self.status == "running" or self.token is not None)


class Actor(NamedTuple):
    """A worker or the sweep: the step that comes next, and which attempt of which job it is about."""

    step: str = ""
    job: int = 0
    attempt: int = 0


IDLE = Actor()
Attempt = tuple[int, int]


class State(NamedTuple):
    jobs: tuple[Job, ...]
    #: The workers, and last the sweep.
    actors: tuple[Actor, ...]
    #: Who holds the resource: attempts, and the worker that took it for them.
    holders: frozenset[tuple[Attempt, int]] = frozenset()
    #: On the node.
    running: frozenset[Attempt] = frozenset()
    #: Those that the node will not start (again): they have run, or it is too late.
    over: frozenset[Attempt] = frozenset()

    def job(self, index: int, job: Job) -> State:
        return self._replace(jobs=(*self.jobs[:index], job, *self.jobs[index + 1 :]))

    def actor(self, index: int, step: str, job: int = 0, attempt: int = 0) -> State:
        return self._replace(
            actors=(*self.actors[:index], Actor(step, job, attempt) if step else IDLE, *self.actors[index + 1 :])
        )

    def free(self, attempt: Attempt, token: int | None = None) -> State:
        """By its number, or what was taken under this token only."""
        kept = {one for one in self.holders if one[0] != attempt or token not in {None, one[1]}}
        return self._replace(holders=frozenset(kept))

    @property
    def is_sound(self) -> bool:
        return self.running <= {attempt for attempt, _ in self.holders} and len(self.running) <= 1

    @property
    def is_done(self) -> bool:
        return not self.holders and all(job.status == "ended" for job in self.jobs)


def choose(state: State, me: int, rules: Rules, attempts: int) -> Iterator[State]:
    """A worker finds something to do."""
    for index, job in enumerate(state.jobs):
        if job.waits and job.attempt < attempts:
            yield state.actor(me, "take" if rules.hold_first else "assign", index, job.attempt + 1)
        elif job.token not in {None, me}:
            # no answer for long: it takes the assignment over
            yield state.job(index, job._replace(token=me)).actor(me, "post again", index, job.attempt)


def assign(state: State, me: int, rules: Rules) -> Iterator[State]:
    """A worker takes the hold, assigns the attempt, and finds out whether it has."""
    step, index, number = state.actors[me]
    job, attempt = state.jobs[index], (index, number)
    if step == "take":
        taken = state._replace(holders=state.holders | {(attempt, me)})
        following = "assign" if rules.hold_first else "post"
        yield state.actor(me, "") if state.holders else taken.actor(me, following, index, number)
    elif step == "assign":
        won = job.waits and job.attempt == number - 1
        after = state.job(index, job._replace(attempt=number, token=me)) if won else state
        yield after.actor(me, "ask", index, number)
    elif (job.attempt, job.token) == (number, me):
        yield state.actor(me, "post" if rules.hold_first else "take", index, number)
    else:
        is_lost = job.attempt < number or not rules.attempt_tells
        yield state.actor(me, "give back" if is_lost else "", index, number)


def finish(state: State, me: int) -> Iterator[State]:
    """A worker gives back what was not used, or posts; a first posting may be refused."""
    step, index, number = state.actors[me]
    job, attempt = state.jobs[index], (index, number)
    if step == "give back":
        state = state.free(attempt, me)
    elif step == "release" and (job.attempt, job.token) == (number, me):
        state = state.job(index, job._replace(token=None))
    elif step in {"post", "post again"}:
        if step == "post" and attempt not in state.running | state.over:
            yield state.actor(me, "release", index, number)
        state = state._replace(running=state.running | ({attempt} - state.over))
    yield state.actor(me, "")


def worker(state: State, me: int, rules: Rules, attempts: int) -> Iterator[State]:
    step = state.actors[me].step
    if not step:
        return choose(state, me, rules, attempts)
    return assign(state, me, rules) if step in {"take", "assign", "ask"} else finish(state, me)


def sweep(state: State, rules: Rules) -> Iterator[State]:
    me = len(state.actors) - 1
    step, index, number = state.actors[me]
    if not step:
        for (holder, attempt), _ in state.holders:
            job = state.jobs[holder]
            is_open = attempt > job.attempt and job.status != "ended" and rules.use_up_first
            if not job.lives(attempt):
                yield state.actor(me, "use up" if is_open else "free", holder, attempt)
        return
    job = state.jobs[index]
    if step == "use up":
        if job.status == "pending" and job.attempt == number - 1:
            yield state.job(index, job._replace(attempt=number)).actor(me, "free", index, number)
        else:
            yield state.actor(me, "")
    elif step == "free":
        yield state.free((index, number)).actor(me, "")


def events(state: State, attempts: int) -> Iterator[State]:
    """What the node does, what is recorded of it, and what follows: by whoever is there."""
    for attempt in state.running:
        yield state._replace(running=state.running - {attempt}, over=state.over | {attempt})
    for attempt in state.over:
        yield state.free(attempt)
    for index, job in enumerate(state.jobs):
        attempt = (index, job.attempt)
        if job.token is not None and attempt in state.running | state.over:
            yield state.job(index, job._replace(status="running", token=None))
        elif job.token is not None:
            # too late to start it: given up
            yield state.job(index, job._replace(token=None))._replace(over=state.over | {attempt})
        elif job.status == "running" and attempt in state.over:
            yield state.job(index, job._replace(status="ended"))
            yield state.job(index, job._replace(status="pending"))
        elif job.waits and job.attempt == attempts:
            yield state.job(index, job._replace(status="ended"))


def explore(jobs: int, attempts: int, rules: Rules) -> tuple[list[State], bool]:
    """The steps to the first state that is not sound, if there is one; and whether all can end from everywhere."""
    states = [State((Job(),) * jobs, (IDLE,) * 3)]
    numbers, came_from = {states[0]: 0}, [0]
    #: For each state, from which others a step leads there that is not worker 0's.
    before: list[list[int]] = [[]]
    for number, state in enumerate(states):
        if not state.is_sound:
            return _way(states, came_from, number), False
        steps = [(who, after) for who in (0, 1) for after in worker(state, who, rules, attempts)]
        steps += [(2, after) for after in (*sweep(state, rules), *events(state, attempts))]
        for who, after in steps:
            found = numbers.setdefault(after, len(states))
            if found == len(states):
                states.append(after)
                came_from.append(number)
                before.append([])
            if who:
                before[found].append(number)
    return [], _can_end(states, before)


def _way(states: Sequence[State], came_from: Sequence[int], number: int) -> list[State]:
    return [*(_way(states, came_from, came_from[number]) if number else ()), states[number]]


def _can_end(states: Sequence[State], before: Sequence[Sequence[int]]) -> bool:
    """Whether from every state one can be reached in which all is done, though worker 0 takes no step any more. The
    workers are alike, so it does not matter which of them sleeps.
    """
    found = {number for number, state in enumerate(states) if state.is_done}
    todo = list(found)
    while todo:
        earlier = set(before[todo.pop()]) - found
        found |= earlier
        todo += earlier
    return len(found) == len(states)


@pytest.mark.parametrize(("jobs", "attempts"), [(1, 2), (2, 1)])
def test_a_crawl_that_runs_holds_what_it_needs_and_all_can_end(jobs: int, attempts: int) -> None:
    assert explore(jobs, attempts, Rules()) == ([], True)


@pytest.mark.parametrize(
    "rules",
    [
        pytest.param(Rules(use_up_first=False), id="freed before it is used up"),
        pytest.param(Rules(hold_first=False), id="assigned before it holds anything"),
        pytest.param(Rules(attempt_tells=False), id="given back after another worker took it over"),
    ],
)
def test_by_other_rules_a_crawl_runs_without_what_it_needs(rules: Rules) -> None:
    way, _ = explore(2, 2, rules)
    assert way
    assert not way[-1].is_sound
