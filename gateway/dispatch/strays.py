"""Attempts that run and should not: their jobs have gone on without them, or no longer exist."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from gateway.contract.crawl import DEFAULT_PROJECT
from gateway.contract.outbox import AttemptId
from gateway.dispatch.steps import BATCH
from gateway.jobs.job import Job
from gateway.jobs.queries import JobSweeps
from gateway.nodes.store import Node


class Stray(NamedTuple):
    node: Node
    #: Under which it may run there.
    project: str
    attempt: AttemptId


def strays(sweeps: JobSweeps, nodes: Sequence[Node]) -> Iterator[Stray]:
    """Those that these nodes say are alive; no more than `BATCH` are looked at."""
    if not any(node.alive for node in nodes):
        return
    wanted = {str(one.id) for one in sweeps.live_attempts()}
    unwanted = ((node, AttemptId.parse(name)) for node in nodes for name in node.alive if name not in wanted)
    found = list(islice(((node, attempt) for node, attempt in unwanted if attempt), BATCH))
    job_ids = {attempt.job_id for _, attempt in found}
    jobs, there = (sweeps.jobs(job_ids), sweeps.existing(job_ids)) if found else ({}, set[str]())
    for node, attempt in found:
        if attempt.job_id in there:
            yield from _of_job(node, attempt, jobs)
        else:
            # the job was deleted, so it had ended on another node; this node was away for long and does not know that
            for project in sorted({DEFAULT_PROJECT, *(egg.project for egg in node.eggs)}):
                yield Stray(node, project, attempt)


def _of_job(node: Node, attempt: AttemptId, jobs: Mapping[str, Job]) -> Iterator[Stray]:
    """Unless the attempt is still needed, or the job cannot be read."""
    job = jobs.get(attempt.job_id)
    record = job.attempts.get(str(attempt.attempt)) if job else None
    was_lost = record is not None and record.exit is not None and record.exit.lost
    if job is not None and (attempt.attempt < job.attempt or was_lost):
        yield Stray(node, job.spec.project, attempt)
