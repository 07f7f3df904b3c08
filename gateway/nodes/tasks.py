"""Calls of nodes by a worker: one serial task for each node."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

import structlog

from gateway.clock import Clock
from gateway.errors import NodeError, NodeUnreachableError
from gateway.nodes.scrapyd import ScrapydClient
from gateway.nodes.store import Node

log = structlog.get_logger()

#: A node that has answered within this many seconds gets a step without a question first.
FRESH_SECONDS = 1.0
#: How many nodes that have failed are called at once. They have threads of their own, so that they do not delay
#: others.
DOUBTED_PLACES = 2


#: An answer is slow if it takes at least this many seconds. If this many answers in a row are slow, within this many
#: seconds, the connection to the node is slow.
SLOW_ANSWER, _QUESTIONS, _LATELY = 0.3, 3, 60.0


class NodeStep(NamedTuple):
    """One thing to do at a node."""

    #: A step is not added if a step with the same name already waits for the node.
    name: str
    #: Does the step. Raises `NodeError` if the node fails or refuses. Returns `False` if the node was not called.
    carry_out: Callable[[], object]
    #: Called with this error; if the step was not tried at all, with an error that says why.
    failed: Callable[[NodeError], object] = lambda _: None


class _Task:
    def __init__(self, node: Node, step: NodeStep) -> None:
        self.node = node
        #: The steps that wait, by name.
        self.steps = {step.name: step}
        #: When the call that is under way began (monotonic).
        self.since = time.monotonic()


class NodeTasks:
    """Carries out steps that call nodes. Each node has at most one task, which does its steps one after the other.

    A task begins by asking its node a question, and no thread waits for the answer. So nodes that hang occupy no
    thread, and if a node did not answer, it has certainly received no step. After a call that fails because of the
    node, the waiting steps of its task are not tried.
    """

    def __init__(
        self,
        scrapyd: ScrapydClient,
        places: int,
        clock: Clock,
        on_failure: Callable[[Node, NodeError, datetime], object] = lambda *_: None,
        on_end: Callable[[], object] = lambda: None,
    ) -> None:
        """`places`: how many nodes are called at once. `on_failure` is called when a call has failed because of the
        node, with the time at which the call began; `on_end` at the end of each task.
        """
        self._scrapyd, self._clock, self._on_failure, self._on_end = scrapyd, clock, on_failure, on_end
        self._places = ThreadPoolExecutor(places, thread_name_prefix="nodes")
        self._doubted_places = ThreadPoolExecutor(DOUBTED_PLACES, thread_name_prefix="doubted-nodes")
        self._tasks: dict[str, _Task] = {}
        self._changed = threading.Condition()
        #: When each node last answered (monotonic).
        self._answered: dict[str, float] = {}
        #: By node: when it answered its last questions, and how many seconds each answer took.
        self._questions: dict[str, deque[tuple[float, float]]] = {}
        #: Nodes that have failed a step and not succeeded since.
        self._doubted: set[str] = set()

    def busy(self) -> set[str]:
        """The nodes that have a task."""
        with self._changed:
            return set(self._tasks)

    def wait(self, seconds: float) -> bool:
        """Wait up to `seconds` until no node has a task. Returns whether this is so."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._tasks, seconds)

    def add(self, node: Node, step: NodeStep) -> None:
        with self._changed:
            if task := self._tasks.get(node.id):
                task.steps.setdefault(step.name, step)
                return
            task = self._tasks[node.id] = _Task(node, step)
        self._begin(task)

    def slow_nodes(self) -> list[tuple[str, float]]:
        """The nodes whose last answers were all slow, and the seconds that the fastest of these took."""
        lately, answers = time.monotonic() - _LATELY, self._questions.copy()
        found = {node: [took for at, took in tuple(last) if at >= lately] for node, last in answers.items()}
        quickest = [(node, min(took)) for node, took in found.items() if len(took) == _QUESTIONS]
        return [(node, seconds) for node, seconds in quickest if seconds >= SLOW_ANSWER]

    def take_back(self, seconds: float) -> None:
        """Give up the steps that wait behind a call which takes longer than `seconds`: other workers may do them.
        Returns at once; the `failed` of these steps is called later.
        """
        with self._changed:
            slow = [task for task in self._tasks.values() if task.steps and time.monotonic() - task.since > seconds]
        for task in slow:
            why = f"node {task.node.id} has not answered another call for {seconds:g} s"
            self._places.submit(self._give_up, task, why)

    def _begin(self, task: _Task) -> None:
        node, began_at = task.node, self._clock()
        places = self._doubted_places if node.failures or node.id in self._doubted else self._places
        if time.monotonic() - self._answered.get(node.id, float("-inf")) < FRESH_SECONDS:
            places.submit(self._run, task, None, began_at)
        else:
            asked = time.monotonic()
            question = self._scrapyd.question(node.url)
            question.add_done_callback(lambda answer: self._note_answer(node.id, asked, answer))
            question.add_done_callback(lambda answer: places.submit(self._run, task, answer, began_at))

    def _note_answer(self, node: str, asked: float, answer: Future[Any]) -> None:
        if not answer.cancelled() and answer.exception() is None:
            now = time.monotonic()
            self._questions.setdefault(node, deque(maxlen=_QUESTIONS)).append((now, now - asked))

    # --- in the thread of a task

    def _run(self, task: _Task, answer: Future[Any] | None, began_at: datetime) -> None:
        if answer is not None:
            self._carry_out(task, NodeStep("question", answer.result), began_at)
        while (step := self._next(task)) is not None:
            if self._carry_out(task, step, self._clock()):
                self._doubted.discard(task.node.id)
        self._on_end()

    def _next(self, task: _Task) -> NodeStep | None:
        """The next step; `None` if there is none. Then the task is over. A task ends only here."""
        with self._changed:
            task.since = time.monotonic()
            if task.steps:
                return task.steps.pop(next(iter(task.steps)))
            del self._tasks[task.node.id]
            self._changed.notify_all()
            return None

    def _carry_out(self, task: _Task, step: NodeStep, began_at: datetime) -> bool:
        """Do the step, and return whether the node did it. Never raises, because the task must continue in
        any case.
        """
        node = task.node
        try:
            if step.carry_out() is False:
                return False
        except NodeError as error:
            if error.is_nodes_fault:
                self._doubted.add(node.id)
                self._answered.pop(node.id, None)
                _try(node, "on_failure", partial(self._on_failure, node, error, began_at))
            _try(node, step.name, partial(step.failed, error))
            if error.is_nodes_fault:
                self._give_up(task, error.message)
            return False
        except BaseException as error:  # noqa: BLE001 - the node's other steps must not suffer from it
            log.warning("node_step_failed", node=node.id, step=step.name, error=repr(error))
            return False
        self._answered[node.id] = time.monotonic()
        return True

    def _give_up(self, task: _Task, why: str) -> None:
        """Drop the waiting steps, and call their `failed`."""
        with self._changed:
            left, task.steps = task.steps, {}
        for step in left.values():
            _try(task.node, step.name, partial(step.failed, NodeUnreachableError(why, may_have_arrived=False)))


def _try(node: Node, name: str, step: Callable[[], object]) -> None:
    try:
        step()
    except Exception as error:  # noqa: BLE001 - a failed callback must not end the task
        log.warning("node_step_failed", node=node.id, step=name, error=repr(error))
