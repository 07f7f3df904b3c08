"""What is normal for a dataset, and which runs are not."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import bson
import pytest

from gateway.datasets.figures import MAX_FIELDS, WINDOW, RunFigures
from gateway.datasets.judging import (
    HOLDS_AFTER,
    LEARNED_RUNS,
    SPEAKS_AFTER,
    FindingCode,
    Measure,
    Normal,
    RunFinding,
    Severity,
    Stage,
    compare,
    judge,
    judge_running,
    learn,
)

Item = dict[str, Any]


def item(at: int, chance: random.Random) -> Item:
    """Every fifth one lacks a rating, and all on the first pages do."""
    rated = {"rating": chance.choice((3, 4.5))} if at >= 60 and at % 5 else {}
    return {"title": f"title {at}", "price": chance.uniform(5, 50), "tags": ["a"], **rated}


def run(
    items: int = 400, *, seed: int = 0, change: Callable[[int, Item], Item] = lambda _, item: item, **counts: Any
) -> RunFigures:
    chance = random.Random(seed)
    figures = RunFigures()
    for at in range(items):
        figures.observe(change(at, item(at, chance)))
    pages = {"pages": 500, "failed": 0, "responses": 500, "refused": 10} | counts
    figures.seconds = pages.pop("seconds", 60.0)
    figures.answered(**pages)
    return figures


@pytest.fixture(scope="module")
def normal() -> Normal:
    return learn([run(380 + 10 * (seed % 5), seed=seed) for seed in range(12)])


def codes(findings: list[RunFinding]) -> list[tuple[FindingCode, str | None]]:
    return [(finding.code, finding.field) for finding in findings]


# --- when it speaks


@pytest.mark.parametrize(
    ("runs", "stage", "says", "holds"),
    [
        (0, Stage.LEARNING, 0, False),
        (SPEAKS_AFTER - 1, Stage.LEARNING, 0, False),
        (SPEAKS_AFTER, Stage.OBSERVING, 1, False),
        (HOLDS_AFTER - 1, Stage.OBSERVING, 1, False),
        (HOLDS_AFTER, Stage.HOLDING, 1, True),
    ],
)
def test_it_first_learns_then_says_then_holds(runs: int, stage: Stage, says: int, holds: bool) -> None:  # noqa: FBT001 - a parameter
    normal = learn([run(seed=seed) for seed in range(runs)])
    findings = judge(run(40), normal)
    assert (normal.stage, len({finding.code for finding in findings if finding.field is None})) == (stage, says)
    assert normal.holds(findings) == holds


def test_a_run_like_the_others_is_good(normal: Normal) -> None:
    assert judge(run(seed=99), normal) == []
    assert all(one.bound is None for one in compare(run(seed=99), normal))


# --- what is found at the end


def _without(name: str) -> Callable[[int, Item], Item]:
    return lambda _, item: {key: value for key, value in item.items() if key != name}


@pytest.mark.parametrize(
    ("broken", "found"),
    [
        (run(200), (FindingCode.ITEMS_DROPPED, None)),
        (run(0), (FindingCode.ITEMS_DROPPED, None)),
        (run(1300), (FindingCode.ITEMS_RISEN, None)),
        (run(failed=100), (FindingCode.FAILURES_UP, None)),
        (run(refused=100), (FindingCode.BLOCK_PAGES, None)),
        (run(seconds=600.0), (FindingCode.SLOWER, None)),
        (run(change=_without("price")), (FindingCode.FIELD_COLLAPSED, "price")),
        (run(change=_without("rating")), (FindingCode.FIELD_COLLAPSED, "rating")),
        (run(change=lambda at, one: one | {"tags": ["a"] if at % 5 else []}), (FindingCode.FIELD_LOWER, "tags")),
        (run(change=lambda _, item: item | {"price": str(item["price"])}), (FindingCode.TYPE_FLIPPED, "price")),
        (run(change=lambda _, item: item | {"tags": "a"}), (FindingCode.TYPE_FLIPPED, "tags")),
        (run(change=lambda _, item: item | {"price": item["price"] * 100}), (FindingCode.VALUES_SHIFTED, "price")),
        (run(change=lambda _, item: item | {"price": 0}), (FindingCode.VALUES_SHIFTED, "price")),
        (run(change=lambda _, item: item | {"title": "Just a moment…"}), (FindingCode.VALUES_SAME, "title")),
        (run(change=lambda at, one: one if at < 345 else one | {"tags": []}), (FindingCode.FIELD_COLLAPSED, "tags")),
    ],
)  # fmt: skip
def test_what_has_broken_is_found_and_said(
    normal: Normal, broken: RunFigures, found: tuple[FindingCode, str | None]
) -> None:
    findings = judge(broken, normal)
    assert found in codes(findings)
    assert normal.holds(findings) == (found[0] is not FindingCode.SLOWER)
    for finding in findings:
        assert finding.sentence.endswith(".")
        assert (finding.field or "") in finding.sentence


def test_a_sentence_has_the_figures(normal: Normal) -> None:
    (finding,) = judge(run(200), normal)
    assert (finding.severity, finding.value) == (Severity.HOLD, 200)
    assert finding.sentence == (
        f"The run has 200 items (normal: {finding.normal:.0f}, minimum: {finding.bound:.0f})."
    )


def test_a_comparison_has_each_field(normal: Normal) -> None:
    compared = {(one.measure, one.field): one for one in compare(run(), normal)}
    coverage = compared[Measure.COVERAGE, "price"]
    assert (coverage.value, coverage.normal, coverage.upper) == (1.0, 1.0, None)
    assert 0.8 < (coverage.lower or 0) < 0.95
    size = compared[Measure.SIZE, "price"]
    assert (size.lower or 0) < size.value < (size.upper or 0)


# --- what is found while it runs


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (_without("price"), (FindingCode.FIELD_COLLAPSED, "price")),
        (lambda _, item: item | {"price": "€5"}, (FindingCode.TYPE_FLIPPED, "price")),
        (lambda _, item: item | {"tags": "a"}, (FindingCode.TYPE_FLIPPED, "tags")),
    ],
)
@pytest.mark.parametrize("first", [0, 137, 300])
def test_what_breaks_is_seen_within_fifty_items(
    normal: Normal, change: Callable[[int, Item], Item], found: tuple[FindingCode, str], first: int
) -> None:
    def broken(at: int, item: Item) -> Item:
        return change(at, item) if at >= first else item

    assert found in codes(judge_running(run(first + WINDOW, change=broken), normal))
    assert judge_running(run(max(first, WINDOW - 1), change=broken), normal) == []


def test_first_pages_that_are_unlike_later_ones_stop_nothing(normal: Normal) -> None:
    assert judge_running(run(60), normal) == []


def test_a_storm_of_block_pages_stops_a_run(normal: Normal) -> None:
    figures = run(100, responses=500, refused=10)
    assert judge_running(figures, normal) == []
    figures.answered(pages=500, failed=0, responses=560, refused=65)
    assert codes(judge_running(figures, normal)) == [(FindingCode.BLOCK_PAGES, None)]


# --- what changes in good ways


def test_slow_growth_is_followed() -> None:
    runs = [run(int(100 * 1.02**number), seed=number) for number in range(60)]
    assert [judge(runs[number], learn(runs[:number])) for number in range(10, 60, 7)] == [[]] * 8


def test_weekends_are_learned() -> None:
    runs = [run(400 if number % 7 < 5 else 260, seed=number) for number in range(28)]
    assert [judge(runs[number], learn(runs[:number])) for number in range(14, 28)] == [[]] * 14


def test_only_the_newest_runs_count() -> None:
    old, new = [run(1000)] * LEARNED_RUNS, [run(100)] * LEARNED_RUNS
    assert learn([*old, *new]) == learn(new)


def test_a_field_is_judged_only_where_it_is_known(normal: Normal) -> None:
    before = [run(change=_without("price"), seed=number) for number in range(8)]
    few = learn([*before, *[run(seed=number) for number in range(SPEAKS_AFTER - 1)]])
    assert "price" not in few.fields
    enough = learn([*before, *[run(seed=number) for number in range(SPEAKS_AFTER)]])
    assert codes(judge(run(change=_without("price")), enough)) == [(FindingCode.FIELD_COLLAPSED, "price")]


def test_fields_that_could_not_be_counted_are_not_missing(normal: Normal) -> None:
    others = {f"field {number}": 1 for number in range(MAX_FIELDS)}
    figures = run(change=lambda _, item: others | item)
    assert figures.is_full
    assert judge(figures, normal) == []


def test_it_is_kept_and_read_again(normal: Normal) -> None:
    assert Normal.from_dict(bson.decode(bson.encode(normal.to_dict()))) == normal
    assert Normal.from_dict(Normal(3).to_dict()) == Normal(3)
