"""Runs commands in turns, all writes of a turn in one transaction, and answers when it is committed.

Only one thread touches the store, so a step of a command is atomic. With many clients a turn holds many commands, and
they share the cost of a commit ("group commit"). A command that fails is undone alone.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

from embedded.mongo.commands import Commands
from embedded.mongo.cursors import Answer
from embedded.mongo.errors import Code, MongoError
from embedded.mongo.paths import Document
from embedded.mongo.store import Store

logger = logging.getLogger(__name__)

#: How long a command may work before the others get their turn, in seconds.
_SLICE = 0.005

Encode = Callable[[Document], bytes]
Reply = Callable[[bytes], None]


@dataclass
class _Task:
    begin: Callable[[], Document | Answer]
    encode: Encode
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
        """Stop. A command without an answer by now gets none, and nothing that it wrote is kept."""
        self._is_stopped = True

    def submit(self, command: Document, encode: Encode, reply: Reply) -> None:
        """`reply` is called once, with the encoded answer or error, when it is durable. An answer that cannot be
        encoded is an error of its command.
        """
        limit = command.get("maxTimeMS")
        deadline = monotonic() + limit / 1000 if isinstance(limit, int) and limit > 0 else float("inf")
        self._waiting.append(_Task(lambda: self._commands.run(command), encode, reply, deadline))
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
        answers: list[tuple[_Task, bytes]] = []
        try:
            for task in tasks:
                answer = self._advance(task)
                if answer is None:
                    self._waiting.append(task)
                else:
                    answers.append((task, answer))
            self._store.commit()
        except Exception as error:
            # after any failure nothing of this turn is kept, and nothing of it was acknowledged
            logger.exception("a turn of %d commands failed", len(tasks))
            answers = [(task, task.encode(_failure(error))) for task in tasks]
            self._waiting = []
            self._store.rollback()
            self._commands.forget()
        for task, answer in answers:
            # each by itself: a client that cannot be answered must not keep the answers from the others
            asyncio.get_running_loop().call_soon(task.reply, answer)
        if self._waiting:
            self._schedule()

    def _advance(self, task: _Task) -> bytes | None:
        """The encoded answer, if the task reached it within its slice.

        A command that fails in a way that MongoDB does not know is undone and answered as an error, and the turn
        goes on. Raises if SQLite has undone the other commands' writes with it.
        """
        try:
            reply = _answer(task)
            encoded = None if reply is None else task.encode(reply)
        except Exception as error:
            if not self._store.undo():
                raise
            logger.exception("a command failed")
            return task.encode(_failure(error))
        self._store.keep()
        return encoded


def _answer(task: _Task) -> Document | None:
    try:
        reply = _work(task)
    except StopIteration as done:
        reply = done.value
    except MongoError as error:
        return error.as_reply()
    return None if reply is None else {**reply, "ok": 1.0}


def _work(task: _Task) -> Document | None:
    """The reply of a command without steps. Raises `StopIteration` with the reply of a command that has steps."""
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
    if isinstance(error, MongoError):
        return error.as_reply()
    code = Code.InternalError
    if isinstance(error, sqlite3.OperationalError) and "full" in str(error):
        code = Code.OutOfDiskSpace
    return MongoError(code, f"{type(error).__name__}: {str(error)!a}").as_reply()
