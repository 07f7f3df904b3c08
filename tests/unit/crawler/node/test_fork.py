"""How many environments are kept warm."""

from __future__ import annotations

from pathlib import Path

import pytest

from crawler.node import fork
from crawler.node.fork import WARM_BYTES, room_for_warm


@pytest.mark.parametrize(("limit", "room"), [(8 * 10 * WARM_BYTES, 10), (1, 1)])
def test_what_is_kept_warm_takes_an_eighth_of_the_containers_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int, room: int
) -> None:
    monkeypatch.setattr(fork, "_CGROUP_LIMIT", tmp_path / "memory.max")
    (tmp_path / "memory.max").write_text(f"{limit}\n")
    assert room_for_warm() == room


def test_where_nothing_limits_it_the_machines_memory_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork, "_CGROUP_LIMIT", tmp_path / "memory.max")
    without = room_for_warm()
    (tmp_path / "memory.max").write_text("max\n")
    assert room_for_warm() == without >= 1
