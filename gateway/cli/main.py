"""The `discoverybot` command."""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Annotated, NoReturn

import typer
from rich.text import Text

from gateway.cli.api import ApiError, ExitCode
from gateway.cli.console import err, out, visible
from gateway.cli.crawl import crawl, items
from gateway.cli.doctor import alive, doctor
from gateway.cli.jobs import cancel, dead, jobs, logs, requeue
from gateway.cli.keys import app as keys
from gateway.cli.keys import audit
from gateway.cli.nodes import app as nodes
from gateway.cli.projects import deploy, spiders, undeploy
from gateway.cli.schedules import app as schedules
from gateway.cli.scrape import scrape
from gateway.cli.sites import app as sites
from gateway.cli.sites import targets_app as targets
from gateway.cli.up import demo, up
from gateway.settings import SettingsError

app = typer.Typer(
    help="A self-hosted crawl platform: POST a crawl, watch it live, collect the results.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _tell_version(asked: bool) -> None:  # noqa: FBT001 - as typer calls it
    if asked:
        out.print(f"discoverybot {version('discoverybot')}")
        raise typer.Exit


@app.callback()
def options(
    *,
    _: Annotated[
        bool, typer.Option("--version", help="Say which version this is.", callback=_tell_version, is_eager=True)
    ] = False,
) -> None:
    """Take what stands before the command."""


for command in (
    up,
    crawl,
    scrape,
    jobs,
    logs,
    items,
    cancel,
    dead,
    requeue,
    spiders,
    deploy,
    undeploy,
    doctor,
    audit,
    demo,
    alive,
):
    app.command()(command)
app.add_typer(keys, name="keys")
app.add_typer(nodes, name="nodes")
app.add_typer(schedules, name="schedules")
app.add_typer(sites, name="sites")
app.add_typer(targets, name="targets")


def main() -> None:
    """Run the command line; every foreseeable failure is one line, never a traceback."""
    try:
        app(prog_name="discoverybot")
    except ApiError as error:
        _fail(str(error), error.exit_code)
    except SettingsError as error:
        _fail(str(error), ExitCode.REFUSED)


def _fail(message: str, code: ExitCode) -> NoReturn:
    err.print(Text.assemble(("error: ", "bold red"), visible(message)), soft_wrap=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
