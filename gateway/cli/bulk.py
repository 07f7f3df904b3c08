"""Acts on all jobs that a filter names, through `POST /jobs/bulk`: `cancel --spider seo --status pending`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from inspect import Parameter
from types import MappingProxyType
from typing import NamedTuple, Self

import typer

from gateway.cli.api import Api, ApiError, ExitCode
from gateway.cli.terminal import ID_SHOWN, Record, counted, err, out, print_json, program, visible

#: At most this many refused jobs are named.
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
    #: Further options of the command: arguments of `act`.
    options: tuple[Parameter, ...] = ()

    def act(self, api: Api, wanted: Record, *, yes: bool, as_json: bool, and_schedules: bool = False) -> None:
        """Count the jobs, ask, and act on them. Raises `ApiError`, `Exit`."""
        if and_schedules and "host" not in wanted:
            raise typer.BadParameter("says what to do about the schedules of a --host", param_hint="--and-schedules")
        crawling = (
            CrawlsAgain.of(api, wanted) if self.action == "cancel" and "host" in wanted else CrawlsAgain([], [])
        )
        pausing = crawling.schedules if and_schedules else []
        asked: Record = {"filter": {**wanted, **self.filter}, "action": self.action}
        counted_jobs: Record = api.post("/jobs/bulk", json=asked)
        if not (number := counted_jobs["matched"]):
            self._say_none(api, wanted)
        if (number or pausing) and not yes:
            if number and self.action == "cancel" and "host" in wanted:
                self._name_some(api, wanted, number)
            confirm(self._question(number, len(pausing)))
        # first, so that none of them begins a run that is not counted
        for one in pausing:
            api.post(f"/schedules/{one}/pause")
        body = {**asked, "expect": number, "as_of": counted_jobs["as_of"]}
        report = _all(api, body) if number else counted_jobs
        if as_json:
            print_json({**report, **({"schedules_paused": pausing} if and_schedules else {})})
        else:
            self._say(report, number, pausing)
        crawling.tell(wanted.get("host", ""), is_paused=and_schedules)
        _fail_if_refused(report)

    def _say_none(self, api: Api, wanted: Record) -> None:
        if set(wanted) != {"host"} or self.action != "cancel":
            err.print(f"there is no such job to {self.action}")
            return
        host = visible(wanted["host"])
        paused: list[Record] = api.get("/schedules", host=wanted["host"], state="paused", limit=200)["schedules"]
        words = [one["schedule_id"][:ID_SHOWN] for one in paused[:_FIRST]]
        again = f"; {counted(len(paused), 'schedule')} paused: `{program()} schedules resume {' '.join(words)}`"
        err.print(f"nothing crawls {host} now{again if paused else ''}", soft_wrap=True, markup=False)

    def _name_some(self, api: Api, wanted: Record, number: int) -> None:
        """Say which jobs these are: a host alone does not tell whose crawls they are."""
        states = wanted.get("status") or ["pending", "running", "paused", "scheduled"]
        found: list[Record] = api.get("/jobs", **{**wanted, "status": states}, limit=_FIRST)["jobs"]
        for one in found:
            about = f"{one['job_id'][:8]}  {one['status']}  {one['project']}/{one['spider']}  {one['user_id']}"
            err.print(visible(about), soft_wrap=True, markup=False)
        if number > len(found):
            err.print(f"and {number - len(found)} more", style="dim")

    def _question(self, jobs: int, schedules: int) -> str:
        pausing = f"pause {counted(schedules, 'schedule')}?"
        if not jobs:
            return pausing.capitalize()
        question = self.question.format(jobs=counted(jobs, "job"))
        return f"{question.removesuffix('?')} and {pausing}" if schedules else question

    def _say(self, report: Record, number: int, paused: list[str]) -> None:
        if number:
            out.print(f"{counted(report['done'], 'job')} {self.done}")
        if paused:
            out.print(f"{counted(len(paused), 'schedule')} paused")


class CrawlsAgain(NamedTuple):
    """The active schedules that crawl a host: those that can be paused, and the sites that have the others."""

    schedules: list[str]
    sites: list[str]

    @classmethod
    def of(cls, api: Api, wanted: Record) -> Self:
        asked = {name: wanted.get(name) for name in ("host", "user_id")}
        found, after = list[Record](), None
        while True:
            page: Record = api.get("/schedules", **asked, state="active", limit=200, after=after)
            found += page["schedules"]
            if not (after := page["next"]):
                break
        sites = sorted({one["site"] for one in found if one["site"]})
        return cls([one["schedule_id"] for one in found if not one["site"]], sites)

    def tell(self, host: str, *, is_paused: bool) -> None:
        """Say what will crawl the host again."""
        if self.schedules and not is_paused:
            many = len(self.schedules) > 1
            crawl, them = ("crawl", "them") if many else ("crawls", "it")
            said = f"{counted(len(self.schedules), 'schedule')} {crawl} {visible(host)} again: --and-schedules pauses"
            err.print(f"{said} {them}, too", soft_wrap=True)
        for site in self.sites[:_FIRST]:
            name = visible(site)
            err.print(f"site {name} crawls it again: {program()} sites disable {name} stops that", soft_wrap=True)


def _fail_if_refused(report: Record) -> None:
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
