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
from typer.core import TyperGroup

from gateway.cli.api import Api, ApiError
from gateway.cli.options import JSON, URL, argument, taking
from gateway.cli.terminal import Cell, Record, gateway_url, given, new_table, out, print_json, visible

#: Pages of a list that are searched for an abbreviated id.
_MOST_PAGES = 20
#: Ids that are named where several begin alike.
_MOST_NAMED = 10
#: Seconds that the shell waits for completions.
_COMPLETION_TIME = 2


class ApiCommand(NamedTuple):
    """One command."""

    name: str
    #: Such as `GET /sites/{id}`; other names in braces are options. A function instead if no gateway is asked.
    call: str | Callable[..., Any]
    about: str
    #: Makes the printed text from the answer and the options: below a list's table, otherwise instead of JSON.
    printed: Callable[[Any, Record], RenderableType | None] | None = None
    options: tuple[Parameter, ...] = ()
    #: Makes the body from the options; a command without a body has them in its query.
    body: Callable[..., Record] = given
    #: Its name outside the group, where it has one.
    alone: str | None = None
    #: A list that is read to its end.
    all_pages: bool = False
    #: Taken out of the list: it has no address of its own.
    picked: bool = False
    #: Options that are ids of other resources, which may be given by their beginnings, too.
    ids: Mapping[str, Resource] = {}

    def has(self, option: str) -> bool:
        return any(one.name == option for one in self.options)


class Resource(NamedTuple):
    """A kind of thing that the API lists, and its commands."""

    #: The name of the list in the API.
    name: str
    one: str
    #: The field that tells them apart.
    key: str
    about: str
    #: The columns in the form that `new_table` reads; `cells` has those that are made of several fields.
    columns: str
    #: Its commands; the first one is the list.
    actions: tuple[ApiCommand, ...]
    cells: Mapping[str, Cell] = {}
    #: The name of its commands, if not that of the list.
    group: str | None = None
    #: Hexadecimal digits of an id, of which the first ones are enough; 0 for names, which are given in full.
    digits: int = 0
    #: Whether a number identifies a record as well as an id does; it is then not the beginning of an id.
    numbered: bool = False
    #: The list takes `q`.
    searched: bool = False
    #: Resources whose ids are accepted as well.
    others: tuple[Resource, ...] = ()

    def find(self, api: Api, text: str) -> str:
        """The id that begins with `text`; `text` itself if there is none. Raises `ApiError` if there are several."""
        is_number = self.numbered and text.isdigit()
        if not 0 < len(text) < self.digits or is_number or not set(text) <= set("0123456789abcdef"):
            return text
        ids = (one for resource in (self, *self.others) for one in resource.ids(api, text))
        found = list(islice(dict.fromkeys(one for one in ids if one.startswith(text)), _MOST_NAMED))
        if len(found) > 1:
            raise ApiError(f"{text!r} is the beginning of several ids: {', '.join(found)}. Give more of the id.")
        return found[0] if found else text

    def ids(self, api: Api, text: str) -> Iterator[str]:
        pages = self._pages(api, text)
        for page in islice(pages, _MOST_PAGES):
            yield from (str(record[self.key]) for record in page[self.name])
        if next(pages, None):
            raise ApiError(f"there are too many {self.name} to look for {text!r}: give the id in full")

    def _pages(self, api: Api, text: str = "", **query: Any) -> Iterator[Record]:
        """The list page by page; if the API can search it, only records that contain `text`."""
        listing = self.actions[0]
        if callable(listing.call):
            yield listing.call(**query)
            return
        query |= {"q": text} if self.searched and text else {}
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
        try:
            page = next(self._pages(Api(gateway_url(context.params.get("url")), _COMPLETION_TIME), incomplete))
        except ApiError:
            return []
        ids = (str(record[self.key]) for record in page[self.name])
        return [one for one in ids if one.startswith(incomplete) and one == visible(one)]

    def parameter(self, name: str = "id") -> Parameter:
        """The argument that names one of them."""
        about = f"The {self.one}'s id, or how it begins." if self.digits else f"The {self.one}'s name."
        complete = None if callable(self.actions[0].call) else self.complete
        return argument(name, "ID" if self.digits else "NAME", about, autocompletion=complete)

    def print_list(self, answer: Record, more: str = "--limit") -> None:
        out.print(new_table(self.columns, answer[self.name], **self.cells))
        if answer.get("next"):
            searched = f"searched back to {answer['searched_to']}; " if answer.get("searched_to") else ""
            out.print(f"{searched}more: {more}", style="dim", soft_wrap=True)


def group(resource: Resource) -> typer.Typer:
    """The commands of a resource."""
    app = typer.Typer(cls=_Group, help=f"{resource.about} Without a command: list them.", add_completion=False)
    for action in resource.actions:
        app.command(action.name, help=action.about)(command(resource, action))
    return app


class _Group(TyperGroup):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        # a shell that completes must get the commands instead
        if not ctx.resilient_parsing and (not args or (args[0].startswith("-") and args[0] != "--help")):
            args = ["list", *args]
        return super().parse_args(ctx, args)


def command(resource: Resource, action: ApiCommand) -> Callable[..., None]:
    """The function from which typer makes a command."""
    takes_id = action.picked or "{id}" in str(action.call)
    named, where = [resource.parameter()] if takes_id else [], [] if callable(action.call) else [URL]
    ids = {**action.ids, **({"id": resource} if takes_id else {})}

    @taking(*named, *action.options, JSON, *where)
    def run(*, as_json: bool, **options: Any) -> None:
        api = Api(gateway_url(options.pop("url", None)))
        for name, of in ids.items():
            options[name] = options[name] and of.find(api, options[name])
        answer = _answer(resource, action, api, options)
        is_list = action is resource.actions[0]
        if as_json or not (is_list or action.printed):
            print_json(answer)
            return
        if is_list:
            resource.print_list(answer, f"--after {answer.get('next')}" if action.has("after") else "--limit")
        if action.printed and (printed := action.printed(answer, {**options, "gateway": api})):
            out.print(printed, soft_wrap=isinstance(printed, str | Text))

    return run


def _answer(resource: Resource, action: ApiCommand, api: Api, options: Record) -> Any:
    if action.all_pages:
        return resource.whole(api, given(**options))
    if action.picked:
        of_it = (one for one in resource.whole(api, {})[resource.name] if one[resource.key] == options["id"])
        if (found := next(of_it, None)) is None:
            raise ApiError(f"there is no {resource.one} {options['id']!r}")
        return found
    if callable(action.call):
        return action.call(**options)
    method, _, path = action.call.partition(" ")
    address = path.format(**{name: quote(str(value), safe="") for name, value in options.items()})
    fields = {one.name: options[one.name] for one in action.options if f"{{{one.name}}}" not in path}
    if method in {"GET", "DELETE"}:
        return api.call(method, address, params=given(**fields))
    body = action.body(**fields)
    if method == "PATCH" and not body:
        raise typer.BadParameter("there is nothing to change: give at least one option")
    return api.call(method, address, json=body or None)
