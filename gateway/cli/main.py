"""The `discoverybot` command."""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib.metadata import version
from typing import Annotated, Any, ClassVar, NoReturn

import typer
from rich.text import Text
from typer.main import get_command

from gateway.cli.api import ApiError, ExitCode
from gateway.cli.commands import command, group
from gateway.cli.crawl import crawl, files, items, logs, open_page, requests, run
from gateway.cli.doctor import alive, doctor
from gateway.cli.help import SETTINGS, Command, Group
from gateway.cli.join import join
from gateway.cli.keys import app as keys
from gateway.cli.keys import reseal
from gateway.cli.nodes import drain
from gateway.cli.projects import delete_project, deploy, spiders
from gateway.cli.resources import NODES, PROJECTS, RESOURCES, SCHEDULES, VARIABLES
from gateway.cli.scrape import scrape
from gateway.cli.terminal import discard, err, out, prepare_output, visible
from gateway.cli.up import demo, up
from gateway.settings import SettingsError


class _Main(Group):
    sections: ClassVar = {
        "Crawls": (
            *("crawl", "scrape", "jobs", "logs", "items", "requests", "files", "open"),
            *("cancel", "pause", "resume", "retry", "dead", "requeue"),
        ),
        "Schedules and sites": ("schedules", "sites", "targets"),
        "Projects": ("deploy", "undeploy", "projects", "spiders", "env"),
        "Platform": ("up", "demo", "doctor", "nodes", "join", "keys", "audit", "alive"),
    }

    # a reader that has seen enough is no error; typer would make one of it
    def make_context(self, *args: Any, **more: Any) -> Any:
        try:
            return super().make_context(*args, **more)
        except BrokenPipeError:
            out.on_broken_pipe()

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            out.on_broken_pipe()


app = typer.Typer(
    help="A self-hosted crawl platform: ask for a crawl, watch it live, collect the results.",
    epilog="Ids may be cut short: `discoverybot logs 5f0c8e3a`. `discoverybot COMMAND -h` says more.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    cls=_Main,
    context_settings=SETTINGS,
    rich_markup_mode=None,
)


def _print_version(asked: bool) -> None:  # noqa: FBT001 - as typer calls it
    if asked:
        out.print(f"discoverybot {version('discoverybot')}")
        raise typer.Exit


@app.callback()
def options(
    *,
    _: Annotated[
        bool,
        typer.Option("--version", "-V", help="Print the version.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    """Options before the command."""


for function in (up, join, crawl, scrape, logs, items, requests, files, spiders, deploy, doctor, demo, alive):
    app.command(cls=Command)(function)
app.command("open", cls=Command)(open_page)
app.add_typer(keys, name="keys")
for resource in RESOURCES:
    commands = group(resource)
    if resource is SCHEDULES:
        commands.command(cls=Command)(run)
    if resource is NODES:
        commands.command(cls=Command)(drain)
    if resource is PROJECTS:
        commands.command("delete", cls=Command)(delete_project)
    if resource is VARIABLES:
        commands.command(cls=Command)(reseal)
    app.add_typer(commands, name=resource.group or resource.name)
    for action in resource.actions:
        if action.alone:
            app.command(action.alone, help=action.about, cls=Command)(command(resource, action))
#: All commands with their options, made at import, so that forks of a process that has imported this have them.
_command = get_command(app)


def main() -> None:
    """Run the command line; every foreseeable failure is one line, never a traceback."""
    prepare_output()
    try:
        _command(prog_name="discoverybot")
    except ApiError as error:
        _fail(str(error), error.exit_code)
    except SettingsError as error:
        _fail(str(error), ExitCode.REFUSED)
    except OSError as error:
        _fail(f"the output cannot be written: {error.strerror or error}", ExitCode.ERROR)
    except KeyboardInterrupt:
        sys.exit(ExitCode.INTERRUPTED)
    finally:
        _flush()


def _fail(message: str, code: ExitCode) -> NoReturn:
    with suppress(OSError):
        err.print(Text.assemble(("error: ", "bold red"), visible(message)), soft_wrap=True)
    sys.exit(code)


def _flush() -> None:
    """Write what is left, or drop it where nothing can be written: the interpreter would complain at its end."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            discard(stream)


if __name__ == "__main__":
    main()
