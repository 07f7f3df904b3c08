"""Runs commands in turns, all writes of a turn in one transaction, and answers when it is committed.

One thread is the only one that touches the store, so a step of a command is atomic. With many clients a turn holds
many commands, and they share the cost of a commit ("group commit").
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

from embedded.mongo.commands import Commands
from embedded.mongo.errors import Code, MongoError
from embedded.mongo.paths import Document
from embedded.mongo.steps import Answer
from embedded.mongo.store import Store

logger = logging.getLogger(__name__)

#: How long a command may work before the others get their turn, in seconds.
_SLICE = 0.005

Reply = Callable[[Document], None]


@dataclass
class _Task:
    begin: Callable[[], Document | Answer]
    reply: Reply
    deadline: float
    steps: Answer | None = None


class Executor:
    def __init__(self, store: Store, commands: Commands) -> None:
        self._store = store
        self._commands = commands
        self._waiting: list[_Task] = []
        self._is_scheduled = False
        self._is_stopped = False

    def stop(self) -> None:
        """What is not answered by now will not be, and nothing of it is kept."""
        self._is_stopped = True

    def submit(self, command: Document, reply: Reply) -> None:
        """`reply` is called once, with the answer or the error, when it is durable."""
        limit = command.get("maxTimeMS")
        deadline = monotonic() + limit / 1000 if isinstance(limit, int) and limit > 0 else float("inf")
        self._add(_Task(lambda: self._commands.run(command), reply, deadline))

    def expire(self) -> None:
        """Sweep expired documents and cursors, in turns like any command."""
        self._add(_Task(self._commands.expire, _ignore, float("inf")))

    def _add(self, task: _Task) -> None:
        self._waiting.append(task)
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._is_scheduled = False
        if self._is_stopped:
            return
        tasks, self._waiting = self._waiting, []
        answers: list[tuple[_Task, Document]] = []
        try:
            for task in tasks:
                answer = _advance(task)
                if answer is None:
                    self._waiting.append(task)
                else:
                    answers.append((task, answer))
            self._store.commit()
        except Exception as error:
            # whatever it was, nothing of this turn is kept, and nothing of it was acknowledged
            logger.exception("a turn of %d commands failed", len(tasks))
            answers = [(task, _failure(error)) for task in tasks]
            self._waiting = []
            self._store.rollback()
            self._commands.forget()
        for task, answer in answers:
            task.reply(answer)
        if self._waiting:
            self._schedule()


def _advance(task: _Task) -> Document | None:
    """The answer, if the task came to it within its slice."""
    try:
        reply = _work(task)
    except StopIteration as done:
        reply = done.value
    except MongoError as error:
        return error.as_reply()
    return None if reply is None else {**reply, "ok": 1.0}


def _work(task: _Task) -> Document | None:
    """The reply of a command without steps. Raises `StopIteration` with the reply of one that has some."""
    now = monotonic()
    if now > task.deadline:
        raise MongoError(Code.MaxTimeMSExpired, "operation exceeded time limit")
    if task.steps is None:
        begun = task.begin()
        if isinstance(begun, dict):
            return begun
        task.steps = begun
    while monotonic() - now < _SLICE:
        next(task.steps)
    return None


def _failure(error: Exception) -> Document:
    code = Code.InternalError
    if isinstance(error, sqlite3.OperationalError) and "full" in str(error):
        code = Code.OutOfDiskSpace
    return MongoError(code, f"{type(error).__name__}: {error}").as_reply()


def _ignore(_: Document) -> None:
    """Nobody asked."""
