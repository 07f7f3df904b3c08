"""`discoverybot datasets`: what is known across runs, what has changed, and decisions about held runs."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote

import typer
from attrs import define, field
from rich.text import Text

from gateway.cli.api import PATIENCE, Api, ApiError, ExitCode
from gateway.cli.bulk import confirm
from gateway.cli.commands import YES, ApiCommand, Resource, completions
from gateway.cli.crawl import FORMATS, check_writable, format_of, save
from gateway.cli.options import (
    AFTER,
    JSON,
    LIMIT,
    URL,
    USER,
    argument,
    flag,
    one_of,
    option,
    read_moment,
    read_object,
    taking,
    under,
)
from gateway.cli.terminal import (
    Record,
    RecordTable,
    counted,
    err,
    gateway_url,
    given,
    new_table,
    out,
    print_json,
    program,
    stdout_bytes,
    visible_json,
)
from gateway.sites.site import OPERATOR

_TYPE_STYLES = {"new": "green", "changed": "yellow", "removed": "red"}
_STATE_STYLES = {"published": "green", "held": "yellow", "paused": "yellow", "failed": "red"}
_STATES = ("planned", "published", "held", "paused", "rejected", "superseded", "skipped", "failed")
#: Maximum number of characters of a value in the line of a change.
_SHOWN = 40
#: Items and changes that are read at a time.
_PAGE = 500
#: Seconds that one request waits for a change, and seconds between two tries to reach the gateway.
_WAIT, _RETRY = 30, 2.0

_OWNER = option("user_id", "Whose it is, where several users have one of this name.", "--user", metavar="USER")


def _path(name: str, further: str = "") -> str:
    return f"/datasets/{quote(name, safe='')}{further}"


# --- tables of lists

#: Why a run is not complete, so that it removes no items.
_WHY_INCOMPLETE = {
    "not_finished": "some pages failed",
    "items_lost": "some items were lost",
    "own_limit": "its own limit ended it before it had seen all",
    "seen_skipped": "it skipped pages that it had seen before",
    "ended_early": "it ended before it had seen all",
}


def _runs(answer: Record, _: Record) -> RecordTable | None:
    if not answer["runs"]:
        err.print("no runs match, or there are none so far")
        return None
    _say_incomplete(answer["runs"][0])
    return new_table(
        "RUN job_id:id, STATE state, 3STARTED started_at:time, >NEW new, >CHANGED changed, >REMOVED removed, "
        "1>SAME same, 2COMPLETE complete, *WHY why",
        answer["runs"],
        state=lambda run: Text(run["state"], style=_STATE_STYLES.get(run["state"], "")),
        complete=lambda run: "no" if run["incomplete"] else "yes",
        why=lambda run: run["message"] or _why_incomplete(run),
        **{name: _count(name) for name in ("new", "changed", "removed", "same")},
    )


def _why_incomplete(run: Record) -> str:
    return run.get("incomplete_message") or _WHY_INCOMPLETE.get(run["incomplete"], run["incomplete"] or "")


def _say_incomplete(run: Record | None) -> None:
    """Say of the last run what it means that it is not complete, and what to do."""
    if run is None or not run["incomplete"] or run["state"] != "published":
        return
    err.print(
        f"run {run['job_id'][:8]} is not complete: {_why_incomplete(run)}. So nothing that it has not found counts "
        "as removed, and nothing is learned from it",
        soft_wrap=True,
    )
    if run["incomplete"] == "not_finished":
        todo = f"`{program()} datasets set NAME --may-fail URL` for a page that has no items and leads to none"
        err.print(
            f"to do: mend what failed (`{program()} requests {run['job_id'][:8]} --failed`), or {todo}",
            soft_wrap=True,
        )


def _count(name: str) -> Any:
    return lambda run: run["counts"][name]


def _health(answer: Record, _: Record) -> RecordTable | None:
    err.print(f"{answer['stage']}: {counted(answer['runs'], 'complete run')} so far")
    _say_incomplete(answer.get("run"))
    if not answer["measures"]:
        return None
    return new_table(
        "*MEASURE measure, *FIELD field, >HERE value, >NORMAL normal, 1>FROM lower, 1>TO upper, FINE within:yes",
        answer["measures"],
        **{name: _rounded(name) for name in ("value", "normal", "lower", "upper")},
    )


def _rounded(name: str) -> Any:
    return lambda measure: "-" if measure[name] is None else f"{measure[name]:.4g}"


DATASETS = Resource(
    name="datasets",
    one="dataset",
    key="name",
    about="Datasets: what is known across runs, and what has changed.",
    columns="*DATASET name, >ITEMS items, >RUNS runs, >HELD held, 1>WAITING waiting, 2>CURSOR last_seq, "
    "3COMPLETE complete_at:time, *KEY key",
    empty="no datasets: `{program} crawl URL --every 1d --dataset NAME` makes one",
    cells={
        "key": lambda dataset: " ".join(dataset["key"]) or "url, or the content",
        "held": lambda dataset: Text(str(dataset["held"]), style="yellow" if dataset["held"] else ""),
    },
    actions=(
        ApiCommand("list", "GET /datasets", "The latest datasets, newest first.", options=(USER, LIMIT, AFTER)),
        ApiCommand("show", "GET /datasets/{id}", "One dataset with its options, as JSON.", options=(_OWNER,)),
        ApiCommand(
            "runs",
            "GET /datasets/{id}/runs",
            "What each run has changed; which are held, and why.",
            _runs,
            (
                option(
                    "state", "Only those in this state; repeatable.", kind=list[str], metavar="STATE",
                    words=_STATES,
                ),
                LIMIT,
                AFTER,
                _OWNER,
            ),
        ),
        ApiCommand(
            "health",
            "GET /datasets/{id}/health",
            "What is normal, and how the last run compares.",
            _health,
            (_OWNER,),
        ),
    ),
)  # fmt: skip


# --- options


def _split(text: str | None) -> list[str] | None:
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]


_EXPORT = "to=FOLDER,format=parquet[,what=changes]"
_EXPORT_WORDS = {"to", "format", "what"}


@taking(
    DATASETS.parameter("name"),
    *under(
        "Options of the dataset",
        option("key", "The fields that say which items are the same.", metavar="A,B,…"),
        option("ignore", "Fields whose difference is no change; '' for none.", metavar="A,B,…"),
        option("confirm_removed", "Remove an item after this many complete runs without it.", kind=int),
        option("drop_guard", "Hold a run that would remove more than this share: 0 to 1.", kind=float),
        option("empty_values", "Texts that count as empty; '' for none.", metavar="'N/A,-'"),
        option(
            "may_fail",
            "A page that may fail, as it has no items: a run without it is complete. Repeat it for several: they "
            "replace all. '' for none.",
            kind=list[str],
            metavar="URL",
        ),
        option("item_schema", "A JSON Schema that each item has to fit; '' for none.", metavar="JSON|@FILE"),
        option(
            "exports",
            "Also write each run there. Repeat it for several: they replace all exports. '' for none.",
            "--export",
            kind=list[str],
            metavar="to=…,format=…",
        ),
        flag("defaults", "Reset all other options to their defaults. Otherwise they stay.", "--defaults"),
    ),
    _OWNER,
    JSON,
    URL,
)
def set_dataset(
    *, name: str, defaults: bool, user_id: str | None, as_json: bool, url: str | None, **options: Any
) -> None:
    """Set options of a dataset; it is made if it does not exist."""
    lists = {name: _split(options.pop(name)) for name in ("key", "ignore", "empty_values")}
    item_schema, exports, may_fail = (options.pop(name) for name in ("item_schema", "exports", "may_fail"))
    if item_schema is not None:
        options["item_schema"] = read_object("item-schema", item_schema) if item_schema else {}
    if exports:
        options["exports"] = [_export(one) for one in exports if one]
    if may_fail:
        options["may_fail"] = [one for one in may_fail if one]
    api, body = Api(gateway_url(url)), given(**lists, **options)
    if not (body or defaults):
        raise typer.BadParameter("there is nothing to set: give at least one option")
    made = None if defaults else _patched(api, name, body, user_id)
    if made is None:
        owner = user_id or (None if api.key else OPERATOR)
        made = api.call("PUT", _path(name), params=given(user_id=owner), json=body)
    if as_json:
        print_json(made)
        return
    key = " ".join(made["key"]) or "url, or the content"
    exports = ", ".join(f"{one['what']} as {one['format']} to {one['to']}" for one in made["exports"])
    out.print(
        f"{name}: key {key}; ignore {' '.join(made['ignore']) or '-'}; confirm removed {made['confirm_removed']}; "
        f"drop guard {made['drop_guard']:g}; item schema {'yes' if made['item_schema'] else '-'}; "
        f"exports {exports or '-'}",
        soft_wrap=True,
    )


def _export(text: str) -> Record:
    """The export that `text` describes. Raises `BadParameter`."""
    pairs = [part.partition("=") for part in text.split(",")]
    order = {name.strip(): value.strip() for name, _, value in pairs}
    if not order.keys() <= _EXPORT_WORDS or not {"to", "format"} <= order.keys():
        raise typer.BadParameter(f"{text!r} is not of the form {_EXPORT}", param_hint="--export")
    return order


@taking(
    DATASETS.parameter("name"), flag("learned", "Print the learned schema even if another is pinned."), _OWNER, URL
)
def dataset_schema(*, name: str, learned: bool, user_id: str | None, url: str | None) -> None:
    """The JSON Schema of the items: the pinned one, else what its runs have in common.

    To set apart items that do not fit, change it and pin it: `discoverybot datasets set NAME --item-schema @FILE`.
    """
    query = given(user_id=user_id, learned="true" if learned else None)
    print_json(Api(gateway_url(url)).get(_path(name, "/schema"), **query))


def _patched(api: Api, name: str, body: Record, user_id: str | None) -> Any:
    """The answer to a change of the dataset; `None` if there is no such dataset."""
    try:
        return api.call("PATCH", _path(name), params=given(user_id=user_id), json=body)
    except ApiError as error:
        if error.code != "dataset_not_found":
            raise
        return None


@taking(DATASETS.parameter("name"), _OWNER, YES, JSON, URL)
def delete_dataset(*, name: str, user_id: str | None, yes: bool, as_json: bool, url: str | None) -> None:
    """Delete a dataset with its items and changes; the jobs stay."""
    api, query = Api(gateway_url(url)), given(user_id=user_id)
    if not yes:
        dataset = api.get(_path(name), **query)
        confirm(f"Delete {name} with {counted(dataset['items'], 'item')} and {dataset['last_seq']} numbered changes?")
    answer = api.call("DELETE", _path(name), params=query)
    if as_json:
        print_json(answer)
    else:
        out.print(f"{name}: deleted")


# --- held runs


def _complete_held(context: typer.Context, incomplete: str) -> list[str]:
    api, name = Api(gateway_url(context.params.get("url")), 2), context.params.get("name")
    return completions(incomplete, lambda: _held(api, str(name), context.params.get("user_id")), "job_id")


def _held(api: Api, name: str, user_id: str | None) -> list[Record]:
    found: list[Record] = api.get(_path(name, "/runs"), state="held", limit=200, user_id=user_id)["runs"]
    return found


def _held_run(api: Api, name: str, text: str | None, user_id: str | None) -> str:
    """The id of the held run that begins with `text`; without a text, the only held run. Raises `ApiError`."""
    if text and len(text) == DIGITS:
        return text
    found = [run["job_id"] for run in _held(api, name, user_id) if run["job_id"].startswith(text or "")]
    if len(found) == 1:
        return str(found[0])
    if not found:
        raise ApiError(
            f"RUN: no held run of {name} begins with {text!r}" if text else f"RUN: no run of {name} is held"
        )
    raise ApiError(f"RUN: several runs of {name} are held; name one:" + "".join(f"\n  {one}" for one in found))


#: Hexadecimal digits of a job's id.
DIGITS = 32

_RUN = argument(
    "run", "[RUN]", "The run's job, or how its id begins. Default: the only one that is held.", default=None,
    autocompletion=_complete_held,
)  # fmt: skip


@taking(
    DATASETS.parameter("name"),
    _RUN,
    flag("new_normal", "From this run on, learn again what is normal."),
    _OWNER,
    JSON,
    URL,
)
def accept(
    *, name: str, run: str | None, new_normal: bool, user_id: str | None, as_json: bool, url: str | None
) -> None:
    """Publish a held run, because it is correct."""
    api = Api(gateway_url(url))
    job_id = _held_run(api, name, run, user_id)
    query = given(user_id=user_id, new_normal="true" if new_normal else None)
    answer = api.post(_path(name, f"/runs/{quote(job_id, safe='')}/accept"), params=query)
    if as_json:
        print_json(answer)
    else:
        out.print(f"{job_id}: accepted; its changes are visible within a few seconds")


@taking(DATASETS.parameter("name"), _RUN, _OWNER, JSON, URL)
def reject(*, name: str, run: str | None, user_id: str | None, as_json: bool, url: str | None) -> None:
    """Discard a held run. It then changes nothing."""
    api = Api(gateway_url(url))
    job_id = _held_run(api, name, run, user_id)
    answer = api.post(_path(name, f"/runs/{quote(job_id, safe='')}/reject"), params=given(user_id=user_id))
    if as_json:
        print_json(answer)
    else:
        out.print(f"{job_id}: rejected")


@taking(
    DATASETS.parameter("name"),
    argument("run", "[RUN]", "The run's job. Default: the last published one.", default=None),
    _OWNER,
    JSON,
    URL,
)
def export(*, name: str, run: str | None, user_id: str | None, as_json: bool, url: str | None) -> None:
    """Write a run's exports that are not there yet: `datasets set --export` says where."""
    api, query = Api(gateway_url(url)), given(user_id=user_id)
    job_id = run or api.get(_path(name), **query)["head_run"]
    if job_id is None:
        raise ApiError(f"RUN: no run of {name} is published yet")
    answer = api.post(_path(name, f"/runs/{quote(job_id, safe='')}/export"), params=query)
    if as_json:
        print_json(answer)
    else:
        out.print(f"{job_id}: is being exported; {program()} datasets runs {name} --json shows the result")


# --- items

_FILE = option(
    "output",
    f"Save all as a file: {', '.join(f'.{form}' for form in FORMATS)}.",
    "--output",
    "-o",
    metavar="FILE",
)


def _download(api: Api, path: str, output: str, query: Record, odd: Record) -> None:
    """Save all as a file. Raises `ApiError`, and `BadParameter` also if an option in `odd`, which has no effect on a
    file, is given.
    """
    if given := [option for option, value in odd.items() if value]:
        raise typer.BadParameter("choose one of it and --output: a file has all", param_hint=given[0])
    check_writable(output)
    save(api, path, format_of(output), output, **query)


@taking(
    DATASETS.parameter("name"),
    *under(
        "Which items",
        option("limit", "The first so many. Default: all.", "--limit", "-n", kind=int, min=1),
        option(
            "as_of", "The items as they were right after this change.", "--as-of", kind=int, metavar="CURSOR", min=0
        ),
        option("q", "Only those with this text.", "--search"),
        flag("removed", "Also removed items, as they were last."),
    ),
    _FILE,
    _OWNER,
    flag("as_json", "One document, in which each item has its key, seq and dates.", "--json"),
    URL,
)
def dataset_items(
    *, name: str, limit: int | None, removed: bool, output: str | None, as_json: bool, url: str | None, **query: Any
) -> None:
    """The items of a dataset, one a line, as JSON, or as a file."""
    api, query = Api(gateway_url(url)), {**query, "removed": "true" if removed else None}
    if output is not None:
        _download(api, _path(name, "/items"), output, query, {"--limit": limit, "--json": as_json})
        _say_lost(api, name, query["user_id"])
        return
    pages = _item_pages(api, name, limit, query)
    if as_json:
        found = list(pages)
        records = [record for page in found for record in page["items"]]
        print_json({**found[-1], "items": records, "seq": found[0]["seq"]})
        return
    seq = None
    with stdout_bytes() as file:
        show = visible_json if sys.stdout.isatty() else str
        for page in pages:
            seq = page["seq"] if seq is None else seq
            lines = (json.dumps(record["item"], ensure_ascii=False) for record in page["items"])
            file.write("".join(f"{show(line)}\n" for line in lines).encode("utf-8", "surrogatepass"))
    _say_lost(api, name, query["user_id"])
    if query["as_of"] is None:
        err.print(f"what changes from now on: {program()} datasets changes {name} --since {seq}", soft_wrap=True)


def _say_lost(api: Api, name: str, user_id: str | None) -> None:
    """Warn of fields that lost values in the last run: the items have these empty values now."""
    try:
        job_id = api.get(_path(name), user_id=user_id)["head_run"]
        fields = api.get(f"/jobs/{job_id}/fields", compare="runs")["fields"] if job_id else []
    except ApiError:  # the job may be deleted, and the items are there without it
        return
    for one in (one for one in fields if one["lower"]):
        said = f"filled in {one['share']:.0%} of the items of the last run, usually in {one['share_before']:.0%}"
        err.print(f"{one['name']} lost values: {said} (`{program()} jobs fields {job_id[:8]}`)", style="yellow")


def _item_pages(api: Api, name: str, limit: int | None, query: Record) -> Iterator[Record]:
    after, left = None, limit
    while True:
        size = _PAGE if left is None else min(_PAGE, left)
        yield (page := api.get(_path(name, "/items"), **query, limit=size, after=after))
        left = None if left is None else left - len(page["items"])
        if (after := page["next"]) is None or left == 0:
            return


# --- changes


def _where(text: str | None) -> int | str:
    """A cursor, or a time, as the API reads it. Raises `BadParameter`."""
    if text is None or (text.isascii() and text.isdigit()):
        return int(text or 0)
    return str(read_moment(text, "--since"))


def _types(text: str | None) -> list[str] | None:
    chosen = _split(text)
    if wrong := [one for one in chosen or () if one not in _TYPE_STYLES]:
        raise typer.BadParameter(f"{wrong[0]!r} is none of {', '.join(_TYPE_STYLES)}", param_hint="--types")
    return chosen


_CHANGES = "SEQ seq, TYPE type, *KEY key, *WHAT what, 2RUN run:id, 1>AGE at:age"


@taking(
    DATASETS.parameter("name"),
    *under(
        "Which changes",
        option("since", "Only those after this one, or of runs that ended since.", metavar="CURSOR|TIME|1d"),
        flag("last_run", "Only those of the last published run, the newest first."),
        option("types", "new, changed or removed; several with commas.", metavar="TYPE,…",
               autocompletion=one_of(_TYPE_STYLES)),
        option("limit", "How many at most. Default: 200, or all.", "--limit", "-n", kind=int, min=1, max=100_000),
    ),
    flag("follow", "Go on: print changes as they come, until Ctrl-C.", "--follow", "-f"),
    option("wait", "If there is none yet, wait up to N seconds.", kind=int, metavar="N", min=0, max=60),
    _FILE,
    _OWNER,
    flag("as_json", "One document; with --follow, one change a line.", "--json"),
    URL,
)  # fmt: skip
def changes(
    *, name: str, since: str | None, last_run: bool, types: str | None, limit: int | None, follow: bool,
    wait: int | None, output: str | None, user_id: str | None, as_json: bool, url: str | None,
) -> None:  # fmt: skip
    """What has changed, in order. The last line on standard error shows how to continue."""
    if last_run and (since or follow or wait):
        raise typer.BadParameter("goes without --since, --follow and --wait", param_hint="--last-run")
    chosen, api = _types(types), Api(gateway_url(url))
    cursor = _before_last_run(api, name, user_id) if last_run else _where(since)
    if output is not None:
        query = {"since": cursor, "types": chosen, "user_id": user_id}
        odd = {"--limit": limit, "--follow": follow, "--wait": wait, "--json": as_json}
        _download(api, _path(name, "/changes"), output, query, odd)
        return
    feed = FollowedFeed(api, name, cursor, given(types=chosen, user_id=user_id))
    if follow:
        _follow(feed, as_json=as_json)
        return
    answer = feed.read(limit or _FEW, wait)
    if as_json:
        print_json(answer)
        return
    if answer["changes"]:
        shown = answer["changes"][::-1] if last_run else answer["changes"]
        out.print(new_table(_CHANGES, shown, type=_type, key=_key, what=_what))
    else:
        err.print("no changes match" if types or cursor else "no changes so far")
    more = f"{answer['pending']} more; " if answer["pending"] else ""
    _go_on(feed, more, "")


#: Maximum number of changes that are printed unless more are asked for.
_FEW = 200


def _before_last_run(api: Api, name: str, user_id: str | None) -> int:
    """The cursor before the changes of the last published run; the last cursor if it has made none."""
    dataset = api.get(_path(name, ""), user_id=user_id)
    if not dataset["head_run"]:
        return 0
    run = api.get(_path(name, f"/runs/{dataset['head_run']}"), user_id=user_id)
    return int(dataset["last_seq"] if run["first_seq"] is None else run["first_seq"] - 1)


def _follow(feed: FollowedFeed, *, as_json: bool) -> None:
    try:
        for change in feed.follow():
            out.print(visible_json(json.dumps(change)) if as_json else _line(change), soft_wrap=True)
            # only printed changes count as read
            feed.cursor = change["seq"]
    finally:
        _go_on(feed, "", " --follow")


def _go_on(feed: FollowedFeed, more: str, how: str) -> None:
    err.print(
        f"{more}to go on: {program()} datasets changes {feed.name}{how} --since {feed.cursor}",
        style="dim",
        soft_wrap=True,
    )


@define(eq=False, repr=False, slots=False)
class FollowedFeed:
    """The changes of a dataset after a cursor."""

    _api: Api
    name: str
    #: The last change that was read; before the first answer it may be a time.
    cursor: int | str
    _query: Record
    _heard: float = field(init=False, factory=time.monotonic)

    def read(self, limit: int, wait: int | None) -> Record:
        """Up to `limit` changes, as one answer. Raises `ApiError`."""
        answer = self._page(min(limit, _PAGE), wait)
        while answer["pending"] and len(answer["changes"]) < limit:
            further = self._page(min(limit - len(answer["changes"]), _PAGE), None)
            answer = {**further, "changes": [*answer["changes"], *further["changes"]]}
        return answer

    def follow(self) -> Iterator[Record]:
        """Changes as they come, without an end. A gateway that does not answer is asked again.

        Raises `ApiError` if the gateway refuses, or does not answer for `PATIENCE` seconds.
        """
        is_away = False
        while True:
            start = self.cursor
            try:
                page = self._page(_PAGE, _WAIT)
            except ApiError as error:
                if error.exit_code is not ExitCode.ERROR or time.monotonic() - self._heard > PATIENCE:
                    raise
                if not is_away:
                    err.print("connection lost, asking again", style="blue")
                is_away = True
                time.sleep(_RETRY)
                continue
            is_away, self._heard = False, time.monotonic()
            reached, self.cursor = self.cursor, start
            yield from page["changes"]
            self.cursor = reached

    def _page(self, limit: int, wait: int | None) -> Record:
        query = {**self._query, "since": self.cursor, "limit": limit, "wait": wait}
        answer: Record = self._api.get(_path(self.name, "/changes"), **query)
        self.cursor = answer["next"]
        return answer


# --- how a change is shown


def _type(change: Record) -> Text:
    return Text(change["type"], style=_TYPE_STYLES[change["type"]])


def _key(change: Record) -> str:
    return " ".join(_short(value).removeprefix("https://") for value in change["key"].values())


def _what(change: Record) -> str:
    """The differences of a changed item; the fields of a new or removed item."""
    if change["type"] == "changed":
        fields: Iterable[tuple[str, Record]] = (change["changes"] or {}).items()
        return ", ".join(f"{name}: {_short(one['previous'])} → {_short(one['current'])}" for name, one in fields)
    rest = {name: value for name, value in change["item"].items() if name not in change["key"]}
    return ", ".join(f"{name}: {_short(value)}" for name, value in rest.items())


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def _line(change: Record) -> Text:
    kind = Text(f"{change['type']:<8}", style=_TYPE_STYLES[change["type"]])
    return Text("  ").join((Text(str(change["seq"])), kind, Text(_key(change)), Text(_what(change), style="dim")))
