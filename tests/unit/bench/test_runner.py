from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from xml.etree import ElementTree as ET

import psutil
import pytest

from bench import figures, runner
from bench.charts import chart
from bench.effort import Effort
from bench.runner import Benchmark, Result, read, run_one, write
from bench.table import Row, is_met, render

SVG = "{http://www.w3.org/2000/svg}"
ROW = Row("pages", "1/s", 9.0, 10.0, "a peer", 0.9, ">= 0.8")
WRITES = f"import json, sys; json.dump([{ROW._asdict()!r}], open(sys.argv[-1], 'w'))"


def script(text: str) -> tuple[str, ...]:
    return sys.executable, "-c", text


def test_what_it_writes_are_its_rows() -> None:
    result = run_one(script(WRITES), 30)
    assert (result.rows, result.failure, str(result)) == ([ROW], "", "1 rows")


def test_one_that_fails_says_why() -> None:
    result = run_one(script("print('begins'); assert 1 == 2, 'no crawl has ended'"), 30)
    assert (result.rows, str(result)) == ((), "FAILED: AssertionError: no crawl has ended")


def test_one_that_hangs_ends_with_all_that_it_has_started(tmp_path: Path) -> None:
    child = f"import os, time; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    hangs = f"import sys, subprocess as s; s.run([sys.executable, '-c', {child!r}], start_new_session=True)"
    result = run_one(script(hangs), 5)
    assert str(result) == "FAILED: it has not ended after 5 s"
    deadline = time.monotonic() + 10
    while psutil.pid_exists(pid := int((tmp_path / "pid").read_text())):
        assert time.monotonic() < deadline, f"{pid} is still there"
        time.sleep(0.05)


def test_results_of_others_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    write({"one": Result(1, [ROW], ""), "two": Result(1, (), "it failed")}, Effort.TABLE, file)
    write({"two": Result(2, [ROW], "")}, Effort.LONG, file)
    found = read(file)
    assert [(name, one["effort"], one["failure"], one["rows"]) for name, one in found.items()] == [
        ("one", "table", "", [ROW._asdict()]),
        ("two", "long", "", [ROW._asdict()]),
    ]


def test_a_failure_costs_its_own_rows_only(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(runner, "RESULTS", tmp_path / "results.json")
    answers = iter([Result(1, (), "it failed"), Result(2, [ROW._replace(ratio=0.7)], "")])
    monkeypatch.setattr(runner, "run_one", lambda *_: next(answers))
    benchmark = Benchmark(lambda _: [], 1)
    assert not runner.run_all({"one": benchmark, "two": benchmark}, Effort.TABLE)
    first, second, _, *table = capsys.readouterr().out.splitlines()
    assert first.split(maxsplit=3) == ["one", "1", "s", "FAILED: it failed"]
    assert second.split(maxsplit=3) == ["two", "2", "s", "1 rows, 1 beyond what was wanted"]
    assert [line.split()[0] for line in table] == ["what", "pages"]
    assert read(tmp_path / "results.json")["one"]["failure"] == "it failed"


@pytest.mark.parametrize(("wanted", "met"), [(">= 0.9", True), (">= 0.91", False), ("<= 0.9", True), ("", None)])
def test_a_ratio_meets_what_is_wanted_or_does_not(wanted: str, *, met: bool | None) -> None:
    assert is_met(ROW._replace(wanted=wanted)) is met


def test_the_page_has_what_was_measured() -> None:
    text = figures.PAGE.read_text(encoding="utf-8")
    assert figures.page(text, read(runner.RESULTS)) == text, "run `make bench`, or `python -m bench.figures`"
    drawn = {path.stem: path.read_text(encoding="utf-8") for path in figures.CHARTS.iterdir()}
    assert figures.charts(text, read(runner.RESULTS)) == drawn, "run `make bench`, or `python -m bench.figures`"
    assert all(f"(figures/{name}.svg)" in text for name in drawn)


def test_a_chart_shows_both_figures_and_the_target_on_one_scale() -> None:
    row = ROW._replace(what="pages & <more>", ours=30.0, beside=60.0, ratio=0.5, wanted=">= 0.75")
    drawn = ET.fromstring(chart([row]))
    kinds = [(one.get("class"), one.get("width")) for one in drawn.iter(f"{SVG}rect")][-2:]
    assert kinds == [("missed", "165.0"), ("beside", "330.0")]
    assert [one.get("d") for one in drawn.iter(f"{SVG}path")][-1].startswith("M717.5,")
    words = [one.text for one in drawn.iter(f"{SVG}text")]
    assert {"pages & <more>", f"beside: {row.beside_what}", f"30 {row.unit}"} <= set(words)


def test_tables_of_the_page_are_replaced() -> None:
    rows = [ROW._asdict()]
    text = "before\n<!-- bench: one two -->\n```\nold\n```\nafter\n"
    page = figures.page(text, {"one": {"rows": rows}, "two": {"rows": rows}})
    assert page == f"before\n<!-- bench: one two -->\n```\n{render([ROW, ROW])}\n```\nafter\n"
    assert json.loads(json.dumps(rows)) == rows
