"""What `discoverybot skill` prints: each command that it names is there, with its options."""

from __future__ import annotations

import re
from typing import Any

import pytest
from typer.main import get_command

from gateway.cli.main import app, main

_NAMED = re.compile(r"`discoverybot ([a-z][^`]*)`")


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    monkeypatch.setattr("sys.argv", ["discoverybot", "skill"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    return capsys.readouterr().out


def test_it_names_commands_and_options_that_are_there(printed: str) -> None:
    named = _NAMED.findall(printed)
    assert len(named) >= 15
    for words in named:
        command: Any = get_command(app)
        for word in words.partition(">")[0].split():
            if hasattr(command, "commands") and (found := command.get_command(None, word)):
                command = found
            elif word.startswith("--"):
                options = {option for one in command.params for option in one.opts}
                assert word in options | {"--json"}, words
        assert command.name != "discoverybot", words
