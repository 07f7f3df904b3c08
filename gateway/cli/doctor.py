"""`discoverybot doctor`: what is up, what is wrong, and how to mend it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import typer
from rich.text import Text

from embedded.stack.state import StackState
from gateway.cli import examine
from gateway.cli.console import out
from gateway.cli.examine import Finding, Mark, Patient
from gateway.cli.exit_code import ExitCode
from gateway.cli.gateway_address import gateway_url, home
from gateway.cli.options import Url
from gateway.settings import Settings, SettingsError

_STYLES = {Mark.OK: ("✓", "green"), Mark.INFO: ("·", "blue"), Mark.BROKEN: ("✗", "bold red")}


def doctor(*, url: Url = None) -> None:
    """Look at everything. Exit code 1 if something is broken."""
    findings = list(_findings(url))
    for finding in findings:
        out.print(_line(finding), soft_wrap=True)
    broken = sum(finding.mark is Mark.BROKEN for finding in findings)
    out.print(f"{broken} broken" if broken else "nothing is broken", style="bold red" if broken else "bold green")
    raise typer.Exit(ExitCode.ERROR if broken else ExitCode.OK)


def _findings(url: str | None) -> Iterator[Finding]:
    yield from examine.versions()
    try:
        settings = Settings.load()
    except SettingsError as error:
        yield Finding(Mark.BROKEN, "settings", str(error), "correct the environment variable, or unset it")
        return
    yield Finding(Mark.OK, "settings", "all well-formed")
    yield from examine.host(settings)
    named = url is not None or bool(os.environ.get("DISCOVERYBOT_URL"))
    address = gateway_url(url)
    patient = Patient(settings, home(), StackState.read(home()), address, examine.health(address), named=named)
    for check in examine.CHECKS:
        yield from check(patient)


def _line(finding: Finding) -> Text:
    sign, style = _STYLES[finding.mark]
    line = Text.assemble((f"{sign} ", style), (f"{finding.name:<14}", "bold"), finding.text)
    return line.append(f"\n  {'':<14}→ {finding.remedy}", style="yellow") if finding.remedy else line
