"""The week of the schedules' calendar, where only some of a day's runs are known."""

from __future__ import annotations

from gateway.console.schedules import WeekRun, _day

COMING = WeekRun("00:01", "scheduled", "upcoming", None, "", "")
PAST = WeekRun("23:59", "finished", "ran", "0" * 32, "", "")


def test_a_day_that_is_cut_says_so_even_if_few_of_its_runs_are_known() -> None:
    assert _day([COMING], is_first=False, is_last=True).counts == [("scheduled", "or more upcoming", 1)]
    assert _day([PAST, PAST], is_first=True, is_last=False).counts == [("finished", "or more ran", 2)]
    assert _day([PAST, COMING], is_first=False, is_last=False).runs == [PAST, COMING]
