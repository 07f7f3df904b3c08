"""The `discoverybot` command."""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Annotated, NoReturn

import typer
from rich.text import Text
from typer.main import get_command

from gateway.cli.api import ApiError, ExitCode
from gateway.cli.commands import command, group
from gateway.cli.crawl import crawl, files, items, logs, open_page, run
from gateway.cli.doctor import alive, doctor
from gateway.cli.join import join
from gateway.cli.keys import app as keys
from gateway.cli.keys import reseal
from gateway.cli.nodes import drain
from gateway.cli.projects import deploy, spiders
from gateway.cli.resources import NODES, RESOURCES, SCHEDULES, VARIABLES
from gateway.cli.scrape import scrape
from gateway.cli.terminal import err, out, visible
from gateway.cli.up import demo, up
from gateway.settings import SettingsError

app = typer.Typer(
    help="A self-hosted crawl platform: POST a crawl, watch it live, collect the results.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _print_version(asked: bool) -> None:  # noqa: FBT001 - as typer calls it
    if asked:
        out.print(f"discoverybot {version('discoverybot')}")
        raise typer.Exit


@app.callback()
def options(
    *,
    _: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Options before the command."""


for function in (up, join, crawl, scrape, logs, items, files, spiders, deploy, doctor, demo, alive):
    app.command()(function)
app.command("open")(open_page)
app.add_typer(keys, name="keys")
for resource in RESOURCES:
    commands = group(resource)
    if resource is SCHEDULES:
        commands.command()(run)
    if resource is NODES:
        commands.command()(drain)
    if resource is VARIABLES:
        commands.command()(reseal)
    app.add_typer(commands, name=resource.group or resource.name)
    for action in resource.actions:
        if action.alone:
            app.command(action.alone, help=action.about)(command(resource, action))
#: All commands with their options, made at import, so that forks of a process that has imported this have them.
_command = get_command(app)


def main() -> None:
    """Run the command line; every foreseeable failure is one line, never a traceback."""
    try:
        _command(prog_name="discoverybot")
    except ApiError as error:
        _fail(str(error), error.exit_code)
    except SettingsError as error:
        _fail(str(error), ExitCode.REFUSED)


def _fail(message: str, code: ExitCode) -> NoReturn:
    err.print(Text.assemble(("error: ", "bold red"), visible(message)), soft_wrap=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
