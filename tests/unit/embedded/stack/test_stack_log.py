from __future__ import annotations

import io

import pytest

from embedded.stack.child import MARK, StackLog


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _logged(text: str, stream: io.StringIO, *, quiet: bool = False, debug: bool = False) -> str:
    log = StackLog(["beat", "gateway"], quiet=quiet, debug=debug, stream=stream)
    log.line("beat", text)
    log.say("hello")
    return stream.getvalue()


def test_each_line_stands_behind_the_name_of_its_process() -> None:
    lines = _logged("tick", io.StringIO()).splitlines()
    assert [line[9:] for line in lines] == ["beat    | tick", "up      | hello"]


def test_json_lines_are_made_readable() -> None:
    text = '{"event":"fired","level":"info","logger":"beat","ts":"2027","job_id":"5f","color_message":"x"}'
    assert "| INFO [beat] fired job_id=5f\n" in _logged(text, io.StringIO())


@pytest.mark.parametrize("text", ['{"a": 1}', '{"event"', "plain {text}"])
def test_anything_else_stays_as_it_is(text: str) -> None:
    assert f"| {text}\n" in _logged(text, io.StringIO())


def test_a_line_of_scrapyds_has_one_time_stamp() -> None:
    text = "2027-06-01T09:00:01+0000 [scrapyd.app#info] console at http://127.0.0.1:6800/"
    assert "| [scrapyd.app#info] console at" in _logged(text, io.StringIO())
    assert "| [-] Loaded.\n" in _logged("2027-06-01T09:00:01-0330 [-] Loaded.", io.StringIO())


def test_scrapyds_debug_lines_are_for_those_who_ask() -> None:
    text = "2027-06-01T09:00:01+0000 [scrapyd.launcher#debug] Process slot 0 ready"
    assert "slot" not in _logged(text, io.StringIO())
    assert "| [scrapyd.launcher#debug] Process slot 0 ready\n" in _logged(text, io.StringIO(), debug=True)


def test_quiet_leaves_the_supervisors_own_voice() -> None:
    assert _logged("tick", io.StringIO(), quiet=True).endswith("up      | hello\n")
    assert "tick" not in _logged("tick", io.StringIO(), quiet=True)


def test_colour_is_for_terminals_and_for_those_who_want_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert "\x1b[" in _logged("tick", Terminal())
    assert "\x1b[" not in _logged("tick", io.StringIO())
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in _logged("tick", Terminal())


def test_what_is_for_people_is_shown_however_quiet_it_is() -> None:
    text = f"    db_first_{'0' * 48}"
    shown = _logged(f"{MARK}{text}", io.StringIO(), quiet=True)
    assert text in shown
    assert MARK not in shown
    assert MARK not in _logged(f"{MARK}{text}", io.StringIO())
    assert text not in _logged(text, io.StringIO(), quiet=True)


def test_what_others_have_sent_is_shown_and_not_obeyed() -> None:
    text = '{"event":"refused","user":"\\u001b]52;c;YQ==\\u0007\\u009b\\u202e"}'
    assert r"refused user=\x1b]52;c;YQ==\x07\x9b\u202e" in _logged(text, io.StringIO())
