"""Acts on all jobs that a filter names, through `POST /jobs/bulk`: `cancel --spider seo --status pending`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import typer

from gateway.cli.api import Api, ApiError, ExitCode
from gateway.cli.terminal import Record, counted, err, out, print_json, visible

#: Most refused jobs that are named.
_FIRST = 5


class Bulk(NamedTuple):
    """One action on many jobs."""

    #: Its name in `POST /jobs/bulk`.
    action: str
    #: What the user is asked first. `{jobs}` stands for their number.
    question: str
    #: What was done to the jobs, for the final line.
    done: str
    #: Fields that the filter always has.
    filter: Mapping[str, bool] = MappingProxyType({})

    def act(self, api: Api, wanted: Record, *, yes: bool, as_json: bool) -> None:
        """Count the jobs, ask, and act on them. Raises `ApiError`, `Exit`."""
        asked: Record = {"filter": {**wanted, **self.filter}, "action": self.action}
        counted_jobs: Record = api.post("/jobs/bulk", json=asked)
        if not (number := counted_jobs["matched"]):
            err.print(f"there is no such job to {self.action}")
        elif not yes:
            confirm(self.question.format(jobs=counted(number, "job")))
        body = {**asked, "expect": number, "as_of": counted_jobs["as_of"]}
        report = _all(api, body) if number else counted_jobs
        if as_json:
            print_json(report)
        elif number:
            out.print(f"{counted(report['done'], 'job')} {self.done}")
        for one in report["refusals"][:_FIRST]:
            err.print(f"{one['job_id']}: {visible(one['message'])}", soft_wrap=True)
        if report["refused"]:
            raise ApiError(f"{counted(report['refused'], 'job')} could not be acted on")
        if report["stopped"]:
            raise ApiError(f"stopped early: {report['stopped']}; repeat it to go on", ExitCode.ERROR)


def _all(api: Api, body: Record) -> Record:
    """One answer from several calls: each call works for about two seconds."""
    whole: Record = api.post("/jobs/bulk", json=body)
    while whole["next"] and not whole["stopped"]:
        part: Record = api.post("/jobs/bulk", json={**body, "after": whole["next"]})
        sums = {name: whole[name] + part[name] for name in ("done", "refused", "refusals")}
        whole = {**whole, **sums, "next": part["next"], "stopped": part["stopped"]}
    return whole


def confirm(question: str) -> None:
    """Ask on a terminal. Raises `ApiError` if there is none, and `Exit` if the answer is no."""
    if not sys.stdin.isatty():
        raise ApiError(f"{question} Confirm it with --yes")
    if not typer.confirm(question, err=True):
        raise typer.Exit(ExitCode.REFUSED)
