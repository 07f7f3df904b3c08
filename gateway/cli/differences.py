"""`discoverybot jobs compare`: which items of a run are new, changed or gone since another run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from typing import Any

import typer
from rich.text import Text

from gateway.cli.api import Api, ApiError
from gateway.cli.options import JSON, URL, argument, flag, option, taking
from gateway.cli.resources import JOBS
from gateway.cli.terminal import Cell, Record, counted, err, gateway_url, new_table, out, print_json

_DIFFERENT = "CHANGE type, *ITEM item, *DIFFERENT different"
#: How many fields of a new or removed item are shown.
_FEW_FIELDS = 4
#: Runs among which one of the same crawl is looked for.
_LOOKED_AT = 20
_STYLES_OF_CHANGES = {"new": "green", "changed": "yellow", "removed": "red"}


@taking(
    JOBS.parameter("job_id"),
    argument("other", "[OTHER]", "The run to compare it with. Default: the good run before it.", default=None),
    flag("yesterday", "With the last good run of the day before, or of an earlier day."),
    option("key", "The fields that make two items the same item. Default: the dataset's key, or url.", metavar="a,b"),
    option("limit", "How many of each kind.", "--limit", "-n", kind=int, default=20, min=1, max=200),
    JSON,
    URL,
)
def compare(*, job_id: str, other: str | None, yesterday: bool, as_json: bool, url: str | None, **query: Any) -> None:
    """Which items of a run are new, changed or gone since another one."""
    if other and yesterday:
        raise typer.BadParameter("choose one of --yesterday and another run", param_hint="--yesterday")
    api = Api(gateway_url(url))
    job_id = JOBS.find(api, job_id)
    other_job_id = _of_the_day_before(api, job_id) if yesterday else JOBS.find(api, other) if other else None
    answer = api.get(f"/jobs/{job_id}/differences", other_job_id=other_job_id, **query)
    if as_json:
        print_json(answer)
        return
    if answer["other_job_id"] is None:
        words = "there is no earlier run of the same crawl that you may see and that ended well"
        err.print(f"{words}: name one to compare it with", soft_wrap=True)
        return
    if answer["differences"]:
        cells: dict[str, Cell] = {"type": _change, "item": _key_or_item, "different": _what_differs}
        out.print(new_table(_DIFFERENT, answer["differences"], **cells))
    counts = ", ".join(f"{answer[name]} {name}" for name in ("changed", "new", "removed", "same"))
    err.print(f"{counts}, by {', '.join(answer['key'])}, since run {answer['other_job_id'][:8]}", soft_wrap=True)
    for words in _not_compared(answer):
        err.print(words, style="dim", soft_wrap=True)


def _of_the_day_before(api: Api, job_id: str) -> str:
    """The last good run of the same crawl before the day of the job (local time). Raises `ApiError`."""
    job = api.get(f"/jobs/{job_id}")
    # a date has no offset: that of its own midnight is found
    day = datetime.fromisoformat(job["created_at"]).astimezone().date().isoformat()
    spec, schedule = job["spec"], job["schedule_id"]
    asked = {"project": spec["project"], "spider": spec["spider"], "schedule_id": schedule}
    until = datetime.fromisoformat(day).astimezone().isoformat()
    found = api.get("/jobs", **asked, status=["finished", "partial"], until=until, limit=_LOOKED_AT)["jobs"]
    for one in found:
        if schedule or _asked(api.get(f"/jobs/{one['job_id']}")["spec"]) == _asked(spec):
            return str(one["job_id"])
    raise ApiError(f"no run of the same crawl before {day} ended well")


def _asked(spec: Record) -> Record:
    return {name: spec[name] for name in ("start_urls", "params")}


def _change(one: Record) -> Text:
    return Text(one["type"], style=_STYLES_OF_CHANGES.get(one["type"], ""))


def _key_or_item(one: Record) -> str:
    return ", ".join(map(str, one["key"].values())) or _text(one["item"])


def _what_differs(one: Record) -> str:
    if one["type"] != "changed":
        # what the item has besides its key
        facts = ((name, value) for name, value in one["item"].items() if name not in one["key"])
        return "; ".join(f"{name} {_text(value)}" for name, value in islice(facts, _FEW_FIELDS))
    if one["changes"] is None:
        return "too much to be shown"
    values = one["changes"].items()
    return "; ".join(f"{name} {_text(value['previous'])} → {_text(value['current'])}" for name, value in values)


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _not_compared(answer: Record) -> Iterator[str]:
    if not answer["is_whole"]:
        both = f"the first {answer['other_compared']} items with the first {answer['compared']}"
        yield f"compared {both}: what seems new or removed may only come later in the other run"
    if answer["repeated"]:
        yield f"{counted(answer['repeated'], 'item')} with a key that came before: choose other fields with --key"
    if answer["without_key"]:
        yield f"{counted(answer['without_key'], 'item')} without the key"
