"""How a command's help looks: commands and options under headings, in two columns that fit a narrow terminal."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup

#: Options that ask for help.
HELP = ("-h", "--help")
#: Headings for commands and options that name none.
_COMMANDS, _OPTIONS = "Commands", "Options"
#: Columns of the widest help.
SETTINGS = {"help_option_names": list(HELP), "max_content_width": 100}

Row = tuple[str, str]

#: What typer adds about values: `NAME <str>`, `[default: 20; 1<=x<=200]`.
_TYPE = re.compile(r" <[a-z|]+(\[[a-z|]+\])?>")
_RANGE, _LEAST = re.compile(r"(\d+)<=x<=(\d+)"), re.compile(r" *\[x>=\d+\]")


def _write(formatter: Any, rows: Iterable[tuple[str, Row]]) -> None:
    """Write rows under their headings, in the order in which the headings first occur."""
    sections = dict[str, list[Row]]()
    for heading, row in rows:
        sections.setdefault(heading, []).append(row)
    for heading, under in sections.items():
        with formatter.section(typer.style(heading, bold=True)):
            formatter.write_dl(under)


def _options(command: TyperCommand | TyperGroup, context: Any) -> Iterator[tuple[str, Row]]:
    """Arguments, then options in the order of their headings; those without one come last."""
    params: list[Any] = command.get_params(context)
    for one in sorted(params, key=lambda param: not _panel(param)):
        if (row := one.get_help_record(context)) is not None:
            yield _panel(one) or _OPTIONS, (_TYPE.sub("", row[0]), _LEAST.sub("", _RANGE.sub(r"\1 to \2", row[1])))


def _panel(param: Any) -> str:
    if param.param_type_name == "argument":
        return "Arguments"
    return getattr(param, "rich_help_panel", None) or ""


def _in_usage(metavar: str, required: bool) -> str:  # noqa: FBT001 - as typer has it
    return metavar if required or metavar.startswith("[") else f"[{metavar}]"


def _first_sentence(command: Any) -> str:
    text = inspect.cleandoc(command.help or "").partition("\n\n")[0].replace("\n", " ")
    return re.split(r"[.;] ", text, maxsplit=1)[0].removesuffix(".")


class CliCommand(TyperCommand):
    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        arguments: list[Any] = [one for one in self.get_params(ctx) if one.param_type_name == "argument"]
        return ["[OPTIONS]", *(_in_usage(one.metavar or one.name.upper(), one.required) for one in arguments)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        _write(formatter, _options(self, ctx))


class CliGroup(TyperGroup):
    #: The commands by their headings, both in this order; if empty, commands keep their own order.
    sections: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    def format_options(self, ctx: Any, formatter: Any) -> None:
        sections = self.sections or {_COMMANDS: tuple(self.list_commands(ctx))}
        commands: dict[str, Any] = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        rows = (
            (heading, (name, _first_sentence(commands[name])))
            for heading, names in sections.items()
            for name in names
        )
        _write(formatter, rows)
        _write(formatter, _options(self, ctx))
