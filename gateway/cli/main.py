"""The `discoverybot` command."""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib import import_module
from importlib.metadata import version
from typing import Annotated, Any, ClassVar, NoReturn

try:
    from gateway.process import quick_imports

    with quick_imports():
        import typer
        from rich.text import Text
        from typer.main import get_command

        from gateway.cli.alerts import ALERTS, RULES
        from gateway.cli.api import ApiError, ExitCode
        from gateway.cli.commands import command, group
        from gateway.cli.crawl import crawl, fields, files, items, logs, open_page, requests, run
        from gateway.cli.datasets import (
            DATASETS,
            accept,
            changes,
            dataset_items,
            dataset_schema,
            delete_dataset,
            export,
            reject,
            set_dataset,
        )
        from gateway.cli.differences import compare
        from gateway.cli.endpoints import ENDPOINTS
        from gateway.cli.errors import ERRORS
        from gateway.cli.help import SETTINGS, CliCommand, CliGroup
        from gateway.cli.nodes import drain
        from gateway.cli.projects import delete_project, deploy, spiders
        from gateway.cli.resources import JOBS, NODES, PROJECTS, RESOURCES, SCHEDULES, VARIABLES
        from gateway.cli.scrape import scrape
        from gateway.cli.skill import skill
        from gateway.cli.terminal import discard, err, out, prepare_output, visible
        from gateway.cli.webhooks import webhook_secret
        from gateway.errors import SettingsError
except KeyboardInterrupt:  # the imports take a moment
    sys.exit(130)


class _Main(CliGroup):
    sections: ClassVar = {
        "Crawls": (
            *("crawl", "scrape", "jobs", "logs", "items", "requests", "files", "open"),
            *("cancel", "pause", "resume", "retry", "repair", "dead", "requeue"),
        ),
        "Schedules and sites": ("schedules", "datasets", "sites", "targets"),
        "Projects": ("deploy", "undeploy", "projects", "spiders", "env", "skill"),
        "Signals": ("errors", "alerts", "alert-rules", "endpoints", "webhook-secret"),
        "Platform": ("up", "demo", "doctor", "nodes", "join", "keys", "audit", "alive"),
    }

    #: Where these commands are defined. Their modules are imported only when the command is used, because importing
    #: PyMongo, the stack or the container takes longer than a call of the API.
    late: ClassVar = {
        "up": "gateway.cli.up:up",
        "demo": "gateway.cli.up:demo",
        "doctor": "gateway.cli.doctor:doctor",
        "alive": "gateway.cli.doctor:alive",
        "join": "gateway.cli.join:join",
        "keys": "gateway.cli.keys:app",
    }

    def list_commands(self, ctx: Any) -> list[str]:
        return [*super().list_commands(ctx), *(name for name in self.late if name not in self.commands)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in self.late and cmd_name not in self.commands:
            self.add_command(_loaded(cmd_name, self.late[cmd_name]), cmd_name)
        return super().get_command(ctx, cmd_name)

    # a reader that closes the pipe is no error, but typer would report one
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


def _loaded(name: str, place: str) -> Any:
    module, _, attribute = place.partition(":")
    with quick_imports():
        found = getattr(import_module(module), attribute)
    if isinstance(found, typer.Typer):
        return get_command(found)
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    alone.command(name, cls=CliCommand)(found)
    return get_command(alone)


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


def reseal() -> None:
    """Seal all secrets again with the first key of SECRETS_KEY, on the server. Remove its other keys then."""
    from gateway.cli.keys import reseal_secrets  # noqa: PLC0415 - late, as `keys`

    reseal_secrets()


for function in (crawl, scrape, logs, items, requests, files, spiders, deploy):
    app.command(cls=CliCommand)(function)
app.command("open", cls=CliCommand)(open_page)
app.command(cls=CliCommand)(skill)
app.command("webhook-secret", cls=CliCommand)(webhook_secret)
for resource in (*RESOURCES, DATASETS, ERRORS, ALERTS, RULES, ENDPOINTS):
    commands = group(resource)
    if resource is JOBS:
        commands.command(cls=CliCommand)(fields)
        commands.command(cls=CliCommand)(compare)
    if resource is SCHEDULES:
        commands.command(cls=CliCommand)(run)
    if resource is NODES:
        commands.command(cls=CliCommand)(drain)
    if resource is PROJECTS:
        commands.command("delete", cls=CliCommand)(delete_project)
    if resource is DATASETS:
        commands.command("changes", cls=CliCommand)(changes)
        commands.command("items", cls=CliCommand)(dataset_items)
        commands.command("schema", cls=CliCommand)(dataset_schema)
        for function in (accept, reject, export):
            commands.command(cls=CliCommand)(function)
        commands.command("set", cls=CliCommand)(set_dataset)
        commands.command("delete", cls=CliCommand)(delete_dataset)
    if resource is VARIABLES:
        commands.command(cls=CliCommand)(reseal)
    app.add_typer(commands, name=resource.group or resource.name)
    for action in resource.actions:
        if action.alone:
            app.command(action.alone, help=action.about, cls=CliCommand)(command(resource, action))
#: Commands with their options, made at import, so that processes forked from this one have them already.
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
    except (LookupError, TypeError, AttributeError) as error:
        if sys.flags.dev_mode:
            raise
        why = f"{type(error).__name__}: {error}"
        _fail(f"an answer is not understood ({why}): is it from a gateway, and of this version?", ExitCode.ERROR)
    finally:
        _flush()


def _fail(message: str, code: ExitCode) -> NoReturn:
    with suppress(OSError):
        err.print(Text.assemble(("error: ", "bold red"), visible(message)), soft_wrap=True)
    sys.exit(code)


def _flush() -> None:
    """Write what is still buffered, or drop it if that fails: otherwise the interpreter would complain
    when it ends.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            discard(stream)


if __name__ == "__main__":
    main()
