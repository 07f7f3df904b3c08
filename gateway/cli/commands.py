"""How a row of the table in `resources.py` becomes a command: list, show, add, edit, delete and the like.

Each is one call of the API. The answer is printed as a table, as a line or, with `--json`, as it came.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from inspect import Parameter
from itertools import islice
from typing import Any, NamedTuple
from urllib.parse import quote

import typer
from rich.console import RenderableType
from rich.text import Text

from gateway.cli.api import Api, ApiError, ExitCode
from gateway.cli.bulk import Bulk
from gateway.cli.help import HELP, CliCommand, CliGroup
from gateway.cli.options import JSON, URL, argument, flag, spelled, taking
from gateway.cli.terminal import Cell, Record, err, gateway_url, given, new_table, out, print_json, program, visible

#: Maximum number of pages of a list that are searched for an abbreviated id.
_MOST_PAGES = 20
#: At most this many ids are named if several begin alike.
_MOST_NAMED = 10
#: Seconds that the shell waits for completions.
_COMPLETION_TIME = 2
#: The parameter of lists that finds ids by their beginnings, and the fewest characters that it accepts.
ID_PREFIX = "id_prefix"
_LEAST_DIGITS = 4

_ALL = flag("everything", "All of them, without a filter.", "--all")
YES = flag("yes", "Do it without asking.", "--yes", "-y")


class ApiCommand(NamedTuple):
    """One command."""

    name: str
    #: Such as `GET /sites/{id}`; other names in braces are options. Or a function that takes the gateway and the
    #: options, and returns the answer.
    call: str | Callable[..., Any]
    about: str
    #: Makes the printed text from the answer and the options: below a list's table, otherwise instead of JSON.
    printed: Callable[[Any, Record], RenderableType | None] | None = None
    options: tuple[Parameter, ...] = ()
    #: Makes the body from the options; a command without a body has them in its query.
    body: Callable[..., Record] = given
    #: Its name outside the group, if it has one.
    alone: str | None = None
    #: The list is read to its end.
    all_pages: bool = False
    #: The record is picked from the list, because it has no address of its own.
    picked: bool = False
    #: Called with the options first. Raises `ApiError` for options that the gateway would accept, but that are wrong.
    before: Callable[[Api, Record], None] | None = None
    #: It takes several ids and handles them one after the other.
    many: bool = False
    #: The same action on all jobs that match a filter, if no ids are given.
    bulk: Bulk | None = None
    #: Options that are ids of other resources. Their beginnings are enough, too.
    ids: Mapping[str, Resource] = {}

    def has(self, option: str) -> bool:
        return any(one.name == option for one in self.options)


class Resource(NamedTuple):
    """A kind of thing that the API lists, and its commands."""

    #: The name of the list in the API.
    name: str
    one: str
    #: The field that identifies a record.
    key: str
    about: str
    #: The columns in the form that `new_table` reads; `cells` has those that are made of several fields.
    columns: str
    #: Its commands; the first one is the list.
    actions: tuple[ApiCommand, ...]
    cells: Mapping[str, Cell] = {}
    #: Fields whose columns are left out if no record has them.
    unless_empty: tuple[str, ...] = ()
    #: Fields whose columns are left out if all records have the same.
    unless_same: tuple[str, ...] = ()
    #: The name of its commands, if not that of the list.
    group: str | None = None
    #: Number of hexadecimal digits of an id, of which the first few are enough; 0 for names, which are given in full.
    digits: int = 0
    #: Whether a record can also be identified by its number, which is then not taken for the beginning of an id.
    numbered: bool = False
    #: The parameter of the list that finds ids by their beginning, if it has one.
    searched: str = ""
    #: The message instead of an empty table; `{program}` is our command, other names in braces are options.
    empty: str = ""
    #: Filters that can be given instead of ids.
    filters: tuple[Parameter, ...] = ()
    #: Resources whose ids are accepted as well.
    others: tuple[Resource, ...] = ()

    def find(self, api: Api, text: str) -> str:
        """The id that begins with `text`. Raises `ApiError` if none or several do."""
        is_number = self.numbered and text.isdigit()
        if not 0 < len(text) < self.digits or is_number or not set(text) <= set("0123456789abcdef"):
            return text
        if self.searched == ID_PREFIX and len(text) < _LEAST_DIGITS:
            raise ApiError(f"{text!r} may begin many ids: give at least {_LEAST_DIGITS} characters of it")
        ids = (one for resource in (self, *self.others) for one in resource.ids(api, text))
        found = list(islice(dict.fromkeys(one for one in ids if one.startswith(text)), _MOST_NAMED))
        if len(found) > 1:
            ids_found = "".join(f"\n  {one}" for one in found)
            raise ApiError(
                f"{text!r} is the beginning of several ids; give more of the one that you mean:{ids_found}"
            )
        if not found:
            raise ApiError(f"no {self.one} begins with {text!r}: `{program()} {self.group or self.name}` lists them")
        return found[0]

    def ids(self, api: Api, text: str) -> Iterator[str]:
        pages = self._pages(api, text)
        for page in islice(pages, _MOST_PAGES):
            yield from (str(record[self.key]) for record in page[self.name])
        if next(pages, None):
            raise ApiError(f"there are too many {self.name} to look for {text!r}: give the id in full")

    def _pages(self, api: Api, text: str = "", **query: Any) -> Iterator[Record]:
        """The list page by page; if the API can search it, only records whose id begins with `text`."""
        listing = self.actions[0]
        if callable(listing.call):
            yield listing.call(api, **query)
            return
        if self.searched and len(text) >= _LEAST_DIGITS:
            query[self.searched] = text
        query |= {"limit": 200} if listing.all_pages or listing.has("limit") else {}
        while True:
            yield (page := api.get(listing.call.removeprefix("GET "), **query))
            if not (after := page.get("next")):
                return
            query["after"] = after

    def whole(self, api: Api, query: Record) -> Record:
        """All pages of the list as one."""
        pages = list(self._pages(api, **query))
        return {**pages[-1], self.name: [record for page in pages for record in page[self.name]]}

    def complete(self, context: typer.Context, incomplete: str) -> list[str]:
        """Completions for a shell, which come from the first page alone."""
        return completions(incomplete, lambda: next(self._pages(_asked(context), incomplete))[self.name], self.key)

    def parameter(self, name: str = "id") -> Parameter:
        """The argument that names one of them."""
        about = f"The {self.one}'s id, or how it begins." if self.digits else f"The {self.one}'s name."
        complete = None if callable(self.actions[0].call) else self.complete
        return argument(name, "ID" if self.digits else "NAME", about, autocompletion=complete)

    def parameters(self, action: ApiCommand) -> list[Parameter]:
        """The argument that names several of them, and the filters that can replace it."""
        about = f"The {self.one}s' ids, or how they begin." if self.digits else f"The {self.one}s' names."
        about += " Without one: the filters below say which." if action.bulk else ""
        name, needed = "ID" if self.digits else "NAME", None if action.bulk else ...
        ids = argument(
            "ids", f"[{name}…]" if action.bulk else f"{name}…", about, kind=list[str], default=needed,
            autocompletion=self.complete,
        )  # fmt: skip
        return [ids, *self.filters, *action.bulk.options, _ALL, YES] if action.bulk else [ids]

    def _columns_for(self, records: list[Record]) -> str:
        absent = [name for name in self.unless_empty if all(one.get(name) is None for one in records)]
        absent += [name for name in self.unless_same if len({one.get(name) for one in records}) == 1]
        columns = self.columns.split(", ")
        return ", ".join(one for one in columns if one.rpartition(" ")[2].partition(":")[0] not in absent)

    def print_list(self, answer: Record, more: str = "--limit", options: Record | None = None) -> None:
        if answer[self.name]:
            out.print(new_table(self._columns_for(answer[self.name]), answer[self.name], **self.cells))
        elif not answer.get("next"):
            said = {"limit", "project"} if "{project}" in self.empty else {"limit"}
            narrowed = given(**{**(options or {}), **dict.fromkeys(said)})
            none = f"no {self.name} match" if narrowed else self.empty.format(program=program(), **(options or {}))
            err.print(none.replace("_", " "), soft_wrap=True)
        if answer.get("next"):
            searched = f"searched back to {answer['searched_to']}; " if answer.get("searched_to") else ""
            out.print(f"{searched}more: {more}", style="dim", soft_wrap=True)


def group(resource: Resource) -> typer.Typer:
    """The commands of a resource."""
    app = typer.Typer(
        cls=_Group,
        help=resource.about,
        epilog="Without a command: list.",
        add_completion=False,
        rich_markup_mode=None,
    )
    for action in resource.actions:
        app.command(action.name, help=action.about, cls=CliCommand)(command(resource, action))
    return app


def _asked(context: typer.Context) -> Api:
    return Api(gateway_url(context.params.get("url")), _COMPLETION_TIME)


def completions(incomplete: str, records: Callable[[], list[Record]], key: str) -> list[str]:
    """Completions for a shell; none if no gateway answers."""
    try:
        found = dict.fromkeys(str(record[key]) for record in records())
    except ApiError:
        return []
    return [one for one in found if one.startswith(incomplete) and one == visible(one)]


def complete_spiders(context: typer.Context, incomplete: str) -> list[str]:
    project = context.params.get("project")
    return completions(
        incomplete, lambda: _asked(context).get("/spiders", q=incomplete or None, project=project)["spiders"], "name"
    )


class _Group(CliGroup):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        # a shell that asks for completions must get the commands instead
        if not ctx.resilient_parsing and (not args or (args[0].startswith("-") and args[0] not in HELP)):
            args = ["list", *args]
        return super().parse_args(ctx, args)


def command(resource: Resource, action: ApiCommand) -> Callable[..., None]:
    """The function that typer turns into a command."""
    if action.many:
        return _command_for_many(resource, action)
    takes_id = action.picked or "{id}" in str(action.call)
    named = [resource.parameter()] if takes_id else []
    ids = {**action.ids, **({"id": resource} if takes_id else {})}

    @taking(*named, *action.options, JSON, URL)
    def run(*, as_json: bool, url: str | None, **options: Any) -> None:
        api = Api(gateway_url(url))
        api.is_named = bool(url)
        for name, of in ids.items():
            options[name] = options[name] and of.find(api, options[name])
        if action.before:
            action.before(api, options)
        answer = _answer(resource, action, api, options)
        is_list = action is resource.actions[0]
        if as_json or not (is_list or action.printed):
            print_json(answer)
            return
        if is_list:
            more = f"--after {answer.get('next')}" if action.has("after") else "--limit"
            resource.print_list(answer, more, options)
        if action.printed and (printed := action.printed(answer, {**options, "gateway": api})):
            out.print(printed, soft_wrap=isinstance(printed, str | Text))

    return run


def _command_for_many(resource: Resource, action: ApiCommand) -> Callable[..., None]:
    """As `command`, for a command that takes several ids, or a filter."""

    @taking(*resource.parameters(action), *action.options, JSON, URL)
    def run(*, ids: list[str] | None, as_json: bool, url: str | None, **options: Any) -> None:
        api = Api(gateway_url(url))
        if action.bulk is None:
            _each(resource, action, api, ids or [], options, as_json=as_json)
            return
        everything, yes = options.pop("everything"), options.pop("yes")
        # not of the API: these are for `bulk`
        more = {one.name: options.pop(one.name) for one in action.bulk.options}
        wanted = given(**{one.name: options.pop(one.name) or None for one in resource.filters})
        if bool(ids) is bool(wanted or everything):
            hint = "name one or more, or choose them by options (--all for all of them)"
            raise typer.BadParameter(hint, param_hint="ID" if resource.digits else "NAME")
        for name, of in action.ids.items():
            wanted |= {name: of.find(api, wanted[name])} if name in wanted else {}
        if ids and any(more.values()):
            hint = spelled(action.bulk.options[0], "")
            raise typer.BadParameter("goes with filters, not with ids", param_hint=hint)
        if ids:
            _each(resource, action, api, ids, options, as_json=as_json)
        else:
            action.bulk.act(api, wanted, yes=yes, as_json=as_json, **more)

    return run


def _each(
    resource: Resource, action: ApiCommand, api: Api, ids: list[str], options: Record, *, as_json: bool
) -> None:
    """Handle the ids one after the other, even if one fails. Raises `ApiError`, `Exit`."""
    answers, code = list[Any](), ExitCode.OK
    for text in dict.fromkeys(ids):
        try:
            one = {**options, "id": resource.find(api, text)}
            answers.append(_answer(resource, action, api, one))
        except ApiError as error:
            if len(ids) == 1:
                raise
            err.print(Text.assemble(("error: ", "bold red"), visible(f"{text}: {error}")), soft_wrap=True)
            code = max(code, error.exit_code)
            continue
        if not as_json and action.printed:
            out.print(action.printed(answers[-1], {**one, "gateway": api}), soft_wrap=True)
    if as_json:
        print_json(answers[0] if len(ids) == 1 else answers)
    if code:
        raise typer.Exit(code)


def _answer(resource: Resource, action: ApiCommand, api: Api, options: Record) -> Any:
    if action.all_pages:
        return resource.whole(api, given(**options))
    if action.picked:
        of_it = (one for one in resource.whole(api, {})[resource.name] if one[resource.key] == options["id"])
        if (found := next(of_it, None)) is None:
            raise ApiError(f"there is no {resource.one} {options['id']!r}")
        return found
    if callable(action.call):
        return action.call(api, **options)
    method, _, path = action.call.partition(" ")
    address = path.format(**{name: quote(str(value), safe="") for name, value in options.items()})
    fields = {one.name: options[one.name] for one in action.options if f"{{{one.name}}}" not in path}
    if method in {"GET", "DELETE"}:
        return api.call(method, address, params=given(**fields))
    body = action.body(**fields)
    if method == "PATCH" and not body:
        raise typer.BadParameter("there is nothing to change: give at least one option")
    return api.call(method, address, json=body or None)
