"""Figures of the present for alert rules: waiting jobs, nodes that are down, held runs of datasets."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import NamedTuple

from attrs import define

from gateway.datasets.store import DatasetStore, RunStore
from gateway.jobs.queries import JobStatistics
from gateway.nodes.store import NodeStore
from gateway.signals.alert_rules import AlertGroup, AlertMeasure, AlertRule, Grouping
from gateway.signals.events import Subject, subject_of_document
from gateway.signals.node_states import NodeStateStore
from gateway.signals.run_figures import ComparedRun, said
from gateway.stores.mongo import Document

#: At most this many past jobs are read, for at most this many seconds.
_HISTORY, _HISTORY_SECONDS = 20_000, 3.0
_READ = (
    *("user_id", "status", "started_at", "finished_at", "progress", "message", "tags", "schedule_id"),
    *("new_errors", "spec.project", "spec.spider", "spec.site", "spec.dataset.name"),
)
#: At most this many jobs are counted.
_COUNTED = 100_000


class PresentFigure(NamedTuple):
    """A figure that is beyond a rule's bound now."""

    message: str
    #: Since when it has been beyond the bound, if that is known.
    since: datetime | None = None
    subject: Subject | None = None


@define(eq=False, repr=False, slots=False, kw_only=True)
class PresentFigures:
    _statistics: JobStatistics
    _nodes: NodeStore
    _node_states: NodeStateStore
    _datasets: DatasetStore
    _runs: RunStore

    def history(self, rule: AlertRule, since: datetime) -> tuple[list[tuple[Subject, ComparedRun]], bool]:
        """The runs that the rule admits and that ended since `since`, newest first, and whether these are all of
        them: there may be too many to read.
        """
        began, read = time.monotonic(), list[tuple[Subject, ComparedRun]]()
        documents = self._statistics.ended_of(_admitted(rule), since, _READ, _HISTORY)
        for count, document in enumerate(documents, 1):
            # a job that cannot be read is left out; it is reported where the whole job is read
            with suppress(KeyError, TypeError, ValueError):
                if (figures := ComparedRun.of_document(document)) is not None:
                    read.append((subject_of_document(document), figures))
            if count == _HISTORY or time.monotonic() - began > _HISTORY_SECONDS:
                return read, False
        return read, True

    def beyond(self, rule: AlertRule, now: datetime) -> dict[AlertGroup, PresentFigure]:
        """By group: the figures that are beyond the rule's bound now. Raises PyMongo's errors."""
        looks: dict[AlertMeasure, Callable[[AlertRule, datetime], dict[AlertGroup, PresentFigure]]] = {
            AlertMeasure.WAITING: self._waiting,
            AlertMeasure.QUEUE: self._queue,
            AlertMeasure.NODE_DOWN: self._down,
            AlertMeasure.DISK_FULL: self._full,
            AlertMeasure.HELD: self._held,
        }
        return looks[rule.when.measure](rule, now)

    def _waiting(self, rule: AlertRule, now: datetime) -> dict[AlertGroup, PresentFigure]:
        oldest = self._statistics.oldest_free(_admitted(rule), now)
        seconds = (now - oldest).total_seconds() if oldest else 0.0
        if oldest is None or not rule.when.is_beyond(seconds):
            return {}
        since = oldest + timedelta(seconds=rule.when.above or 0.0)
        return {AlertGroup(Grouping.RULE, rule.name): PresentFigure(said(rule.when, seconds), since)}

    def _queue(self, rule: AlertRule, _: datetime) -> dict[AlertGroup, PresentFigure]:
        count = self._statistics.count_pending(_admitted(rule), _COUNTED)
        there = {AlertGroup(Grouping.RULE, rule.name): PresentFigure(said(rule.when, count))}
        return there if rule.when.is_beyond(count) else {}

    def _down(self, rule: AlertRule, _: datetime) -> dict[AlertGroup, PresentFigure]:
        return {
            AlertGroup(rule.grouping, node): PresentFigure("it gives no sign of life", since)
            for node, since in self._node_states.down().items()
        }

    def _full(self, rule: AlertRule, _: datetime) -> dict[AlertGroup, PresentFigure]:
        return {
            AlertGroup(rule.grouping, node.id): PresentFigure(
                f"{(node.free_bytes or 0) >> 20:,} MiB of its disk are free: it takes no new work"
            )
            for node in self._nodes.all(attempts=False)
            if node.disk_full
        }

    def _held(self, rule: AlertRule, _: datetime) -> dict[AlertGroup, PresentFigure]:
        user = None if rule.of_all_users else rule.user_id
        # only the user's datasets are counted, so that other users' held runs do not use up the limit
        counts = self._runs.held(None if user is None else self._datasets.ids_of(user))
        found = {}
        for one in self._datasets.many(list(counts), user):
            subject = Subject(user_id=one.user_id, dataset=one.name)
            if rule.admits(subject):
                count = counts[one.id]
                name = one.name if user else f"{one.user_id}/{one.name}"
                message = "a run is held" if count == 1 else f"{count} runs are held"
                found[AlertGroup(rule.grouping, name)] = PresentFigure(message, subject=subject)
        return found


def _admitted(rule: AlertRule) -> Document:
    """A query for the jobs that the rule admits."""
    query = rule.filter.query()
    return query if rule.of_all_users or not rule.user_id else {**query, "user_id": rule.user_id}
