"""A row that tells of a loss stands in the table, and fails its test."""

from __future__ import annotations

from pathlib import Path

import pytest
from fault_table import Row, main, record


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "table"
    monkeypatch.setenv("FAULT_TABLE", str(path))
    return path


def test_rows_are_printed_as_markdown(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record("Broker away", "10 s, 30 crawls", lost=0, doubled=0, recovered=1.26)
    record("Edits", "anywhere", lost=0, doubled=0, recovered=None)
    assert main(table) == 0
    assert capsys.readouterr().out.strip().splitlines() == [
        "| Scenario | Injected | Lost | Doubled | Seconds to recover |",
        "|---|---|--:|--:|--:|",
        "| Broker away | 10 s, 30 crawls | 0 | 0 | 1.3 |",
        "| Edits | anywhere | 0 | 0 | – |",
    ]


@pytest.mark.parametrize("found", [{"lost": 1, "doubled": 0}, {"lost": 0, "doubled": 2}])
def test_a_loss_and_a_double_fail_their_test_and_the_whole(table: Path, found: dict[str, int]) -> None:
    with pytest.raises(AssertionError):
        record("Broker away", "10 s", recovered=1.0, **found)
    assert [Row.read(line) for line in table.read_text().splitlines()] == [
        Row("Broker away", "10 s", recovered=1.0, **found)
    ]
    assert main(table) == 1


def test_without_a_table_there_is_only_the_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FAULT_TABLE", raising=False)
    record("Broker away", "10 s", lost=0, doubled=0, recovered=1.0)
    with pytest.raises(AssertionError):
        record("Broker away", "10 s", lost=1, doubled=0, recovered=1.0)
