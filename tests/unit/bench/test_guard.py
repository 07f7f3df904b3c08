from __future__ import annotations

from bench.guard import judge_all


def test_the_guard_finds_what_breaks_and_lets_good_runs_pass() -> None:
    """A smaller form of the benchmark, with another seed."""
    found = judge_all(7, sites=4, runs=26, breakages=12)
    assert (found.good, found.broken, found.missed, found.late) == (104, 12, [], [])
    # the redesign
    assert len(found.held) == 1, found.held
