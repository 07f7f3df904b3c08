from __future__ import annotations

import io
from pathlib import Path

import pytest

from embedded.stack.child import MARK, StackLog
from embedded.stack.process import Process, http_answers


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _logged(text: str, stream: io.StringIO, *, verbose: bool = True, debug: bool = False) -> str:
    log = StackLog(["beat", "gateway"], verbose=verbose, debug=debug, stream=stream)
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


def test_only_the_supervisors_own_voice_is_printed_unless_more_is_asked_for() -> None:
    assert _logged("tick", io.StringIO(), verbose=False).endswith("up      | hello\n")
    assert "tick" not in _logged("tick", io.StringIO(), verbose=False)


@pytest.mark.parametrize(
    ("how", "printed"), [({}, "  beat     started\n  gateway  ready in 0.5 s  http://here\n"), ({"quiet": True}, "")]
)
def test_a_line_says_that_a_part_is_ready(how: dict[str, bool], printed: str) -> None:
    log = StackLog(["beat", "gateway"], stream=(stream := io.StringIO()), **how)
    log.detail("starting beat")
    log.ready(Process("beat", ()), 0.1)
    log.ready(Process("gateway", (), probe=http_answers("http://here"), about="http://here"), 0.52)
    assert stream.getvalue() == printed


def test_what_is_not_printed_is_in_a_file_for_each_process(tmp_path: Path) -> None:
    log = StackLog(["beat"], folder=tmp_path / "logs", stream=io.StringIO())
    log.say("before there is a folder")
    (tmp_path / "logs").mkdir()
    log.line("beat", "tick\x1b[2J")
    log.line("beat", f"{MARK}a key")
    log.detail("stopping beat")
    log.close()
    assert (tmp_path / "logs" / "beat.log").read_text()[25:] == " tick\\x1b[2J\n"
    assert (tmp_path / "logs" / "up.log").read_text()[25:] == " stopping beat\n"


def test_a_file_of_the_log_does_not_grow_without_end(tmp_path: Path) -> None:
    log = StackLog(["beat"], folder=tmp_path, stream=io.StringIO())
    for _ in range(40):
        log.line("beat", "x" * (1 << 20))
    log.close()
    found = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    assert found.keys() == {"beat.log", "beat.log.1"}
    assert sum(found.values()) <= 17 << 20


def test_colour_is_for_terminals_and_for_those_who_want_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert "\x1b[" in _logged("tick", Terminal())
    assert "\x1b[" not in _logged("tick", io.StringIO())
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in _logged("tick", Terminal())


def test_what_is_for_people_is_shown_however_quiet_it_is() -> None:
    text = f"    db_first_{'0' * 48}"
    shown = _logged(f"{MARK}{text}", io.StringIO(), verbose=False)
    assert text in shown
    assert MARK not in shown
    assert MARK not in _logged(f"{MARK}{text}", io.StringIO())
    assert text not in _logged(text, io.StringIO(), verbose=False)


def test_what_others_have_sent_is_shown_and_not_obeyed() -> None:
    text = '{"event":"refused","user":"\\u001b]52;c;YQ==\\u0007\\u009b\\u202e"}'
    assert r"refused user=\x1b]52;c;YQ==\x07\x9b\u202e" in _logged(text, io.StringIO())
