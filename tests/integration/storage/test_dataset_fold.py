"""Runs folded into a dataset, on a real store: what is told, what is held, and what no crash can change."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from dataset_runs import BEGAN, DatasetRuns, exporting_parts

from gateway.contract.outbox import STATS_LEFT_OUT
from gateway.contract.reasons import Reason
from gateway.contract.seen_pages import SKIPPED_SEEN
from gateway.datasets import fold, fold_threads, run_exports
from gateway.datasets.dataset import SHOWN, ChangeType, RunState, change_id
from gateway.datasets.fold_queue import FoldQueue
from gateway.datasets.fold_threads import AT_ONCE, Folding
from gateway.datasets.run_exports import Exporting
from gateway.datasets.service import Datasets
from gateway.datasets.store import ChangeStore, DatasetStore, RecordStore, RunStore
from gateway.items.items import Item, ItemStore
from gateway.jobs.job import JobStatus
from gateway.stores.indexes import ensure_indexes


@pytest.fixture
def runs(served: Any) -> DatasetRuns:
    ensure_indexes(served)
    return DatasetRuns(served)


def offers(*skus: str, price: int = 1) -> list[dict[str, Any]]:
    return [{"sku": sku, "price": price} for sku in skus]


def test_a_run_tells_what_is_new_changed_and_gone(runs: DatasetRuns) -> None:
    assert runs.run(offers("a", "b", "c")) is RunState.PUBLISHED
    assert runs.told() == [("new", "a"), ("new", "b"), ("new", "c")]
    runs.run([*offers("a"), *offers("b", price=2), *offers("d")])
    assert runs.told()[0] == ("changed", "b")
    assert runs.snapshot() == {"a": {"sku": "a", "price": 1}, "b": {"sku": "b", "price": 2}, "d": offers("d")[0]}
    assert runs.replayed() == runs.snapshot()
    (changed,) = [one for one in runs.changes() if one.type is ChangeType.CHANGED]
    assert [one.model_dump() for one in changed.differences or ()] == [
        {"field": "price", "previous": 1, "current": 2}
    ]


def test_large_items_are_read_a_few_at_a_time(runs: DatasetRuns, served: Any) -> None:
    def large(price: int) -> list[dict[str, Any]]:
        return [{"sku": f"{n}", "price": price, "text": "x" * (6 << 20)} for n in range(5)]

    assert runs.run(large(1)) is RunState.PUBLISHED
    runs.run(large(2))
    assert runs.told()[:5] == [("changed", f"{n}") for n in range(5)]
    assert [one.seq for one in runs.changes()] == list(range(1, 11))
    assert {item["price"] for item in runs.snapshot().values()} == {2}
    items, job_id = ItemStore(served), runs.changes()[0].run
    found: list[Item] = []
    while page := items.page(job_id, None, found[-1].id if found else None, 500):
        # however many a server sends at once: what is read at a time is decoded while nothing else runs
        assert len(page) == 1
        assert items.of([item.id for item in page]) is not None
        found += page
    assert len(found) == 5
    assert items.of([item.id for item in found]) is None


def test_the_same_again_is_no_change(runs: DatasetRuns) -> None:
    runs.run(offers("a", "b"))
    before = runs.dataset.head_seq
    runs.run([{"price": 1.0, "sku": " a "}, {"sku": "b", "price": 1}])
    assert runs.dataset.head_seq == before
    assert runs.dataset.runs == 2


@pytest.mark.parametrize(
    "facts",
    [
        {"status": JobStatus.PARTIAL, "reason": Reason.REQUESTS_FAILED},
        {"reason": Reason.OWN_LIMIT, "finish_reason": "closespider_itemcount"},
        {"finish_reason": "shutdown"},
        {"stats": {SKIPPED_SEEN: 0}},
        {"stats": {STATS_LEFT_OUT: 9000}},
    ],
)
def test_an_incomplete_run_removes_nothing(runs: DatasetRuns, facts: dict[str, Any]) -> None:
    runs.run(offers("a", "b"))
    assert runs.run(offers("c"), **facts) is RunState.PUBLISHED
    assert runs.snapshot().keys() == {"a", "b", "c"}


BROKEN = "https://shop.test/broken"
FAILED = {"status": JobStatus.PARTIAL, "reason": Reason.SITE_FAILED, "message": f"1 of 9 requests failed ({BROKEN})"}


@pytest.fixture
def excusing(runs: DatasetRuns) -> DatasetRuns:
    runs.run(offers("a", "b"), dataset={"name": "prices", "key": ["sku"], "may_fail": [BROKEN]})
    return runs


def test_a_run_in_which_only_pages_failed_that_may_is_complete(excusing: DatasetRuns) -> None:
    job_id = excusing.crawl(offers("c"), errors=[{"url": BROKEN, "reason": "500"}], **FAILED)
    excusing.fold()
    run = excusing.parts[RunStore].get(job_id)
    assert run is not None
    assert (run.incomplete, run.incomplete_message, run.excused) == (None, None, [BROKEN])
    assert excusing.snapshot().keys() == {"c"}
    assert excusing.parts[RunStore].figures(excusing.dataset, 9) != []


@pytest.mark.parametrize(
    "facts",
    [
        {"errors": [{"url": BROKEN}, {"url": "https://shop.test/b"}]},
        {"errors": [{"url": BROKEN}, {"url": BROKEN, "kind": "item"}]},
        {"errors": [{"url": BROKEN}], "reason": Reason.EXPECTATION_BROKEN},
        {"errors": [{"url": BROKEN}], "finish_reason": "closespider_timeout"},
        {"errors": [{"url": BROKEN}], "stats": {SKIPPED_SEEN: 1}},
        {"errors": []},
    ],
)
def test_a_run_in_which_anything_else_failed_removes_nothing(excusing: DatasetRuns, facts: dict[str, Any]) -> None:
    job_id = excusing.crawl(offers("c"), **{**FAILED, **facts})
    excusing.fold()
    run = excusing.parts[RunStore].get(job_id)
    assert run is not None
    assert run.incomplete is not None
    assert excusing.snapshot().keys() == {"a", "b", "c"}


def test_a_run_says_which_page_kept_it_from_being_complete(runs: DatasetRuns) -> None:
    job_id = runs.crawl(offers("a"), errors=[{"url": BROKEN}], **FAILED)
    runs.fold()
    run = runs.parts[RunStore].get(job_id)
    assert run is not None
    assert (run.incomplete, run.incomplete_message) == ("not_finished", FAILED["message"])


def test_an_item_of_a_page_that_failed_is_not_removed_though_the_page_may_fail(runs: DatasetRuns) -> None:
    options = {"name": "prices", "key": ["sku"], "may_fail": [BROKEN]}
    runs.run([{"sku": "a", "page": BROKEN}, *offers("b")], dataset=options)
    runs.run(offers("c"), errors=[{"url": BROKEN}], dataset=options, **FAILED)
    assert runs.snapshot().keys() == {"a", "c"}


def test_a_failed_run_changes_nothing(runs: DatasetRuns) -> None:
    runs.run(offers("a"))
    assert runs.run(offers("a", price=9), status=JobStatus.ERROR) is RunState.SKIPPED
    assert runs.snapshot() == {"a": offers("a")[0]}


def test_a_run_of_another_scope_removes_nothing(runs: DatasetRuns) -> None:
    runs.run(offers("a", "b"))
    runs.run(offers("b", "c"), start_urls=("https://shop.test/shoes",))
    assert runs.snapshot().keys() == {"a", "b", "c"}
    runs.run(offers("a"))
    # `b` is gone from the one and still in the other
    assert runs.snapshot().keys() == {"a", "b", "c"}
    runs.run(offers("c"), start_urls=("https://shop.test/shoes",))
    assert runs.snapshot().keys() == {"a", "c"}


def test_a_run_that_skips_what_was_seen_is_of_the_scope_of_those_that_look_at_all(runs: DatasetRuns) -> None:
    runs.run(offers("a", "b"))
    skipping = {"settings": {"SKIP_SEEN": "1h"}, "stats": {SKIPPED_SEEN: 2}}
    assert runs.run(offers("c"), **skipping) is RunState.PUBLISHED
    assert runs.snapshot().keys() == {"a", "b", "c"}
    # a whole run speaks for what only the other has seen, too
    runs.run(offers("a"))
    assert runs.snapshot().keys() == {"a"}


def test_an_item_is_removed_once_enough_runs_have_missed_it(runs: DatasetRuns) -> None:
    careful = {"name": "prices", "key": ["sku"], "confirm_removed": 3}
    runs.run(offers("a", "b"), dataset=careful)
    for _ in range(2):
        runs.run(offers("a"), dataset=careful)
    runs.run(offers("a", "b"), dataset=careful)
    for _ in range(2):
        runs.run(offers("a"), dataset=careful)
        assert runs.snapshot().keys() == {"a", "b"}
    runs.run(offers("a"), dataset=careful)
    assert runs.snapshot().keys() == {"a"}
    assert runs.told() == [("new", "a"), ("new", "b"), ("removed", "b")]


def test_an_item_that_comes_back_is_new_with_its_first_date(runs: DatasetRuns) -> None:
    runs.run(offers("a", "b"))
    runs.run(offers("a"))
    runs.run(offers("a", "b"))
    first, again = (one for one in runs.changes() if one.key["sku"] == "b" and one.type is ChangeType.NEW)
    assert again.first_seen == first.first_seen
    assert again.seq > first.seq


def test_of_two_items_with_one_key_the_last_counts(runs: DatasetRuns) -> None:
    job_id = runs.crawl([*offers("a", price=1), *offers("a", price=2), {"price": 3}])
    runs.fold()
    assert runs.snapshot() == {"a": {"sku": "a", "price": 2}}
    run = runs.parts[RunStore].get(job_id)
    assert run is not None
    assert (run.counts.items, run.counts.repeated, run.counts.without_key) == (1, 1, 1)
    assert run.left_out == ['{"price":3}']


PRICED = {
    "type": "object",
    "required": ["price"],
    "properties": {"price": {"type": "number"}, "offers": {"type": "array", "items": {"type": "string"}}},
}


def test_items_that_break_the_schema_are_set_apart_and_spoil_nothing(runs: DatasetRuns) -> None:
    runs.run(offers("a", "b", "c"))
    runs.parts[Datasets].change(runs.dataset, {"item_schema": PRICED})
    broken = [
        {"sku": "a", "price": "sold out"},
        {"sku": "b"},
        {"sku": "e", "price": 1, "offers": ["x", 1]},
        {"sku": "f", "price": 1, "offers": [2, "y"]},
    ]
    job_id = runs.crawl([*broken, *offers("d", price=4)])
    assert runs.fold() == [RunState.PUBLISHED]
    # `a` and `b` are as they were, `c` alone is gone, `e` and `f` never were
    assert runs.snapshot() == {"a": offers("a")[0], "b": offers("b")[0], "d": offers("d", price=4)[0]}
    assert runs.replayed() == runs.snapshot()
    run = runs.parts[RunStore].get(job_id)
    assert run is not None
    counts = run.counts
    assert (counts.items, counts.new, counts.removed, counts.same, counts.set_apart) == (1, 1, 1, 0, 4)
    assert [(one.field, one.rule, one.items) for one in run.schema_breaks] == [
        ("price", "type", 1), (None, "required", 1), ("offers", "type", 2)
    ]  # fmt: skip
    assert run.schema_breaks[0].message == "'sold out' is not of type 'number'"
    assert run.schema_breaks[0].example == '{"sku":"a","price":"sold out"}'
    # they were seen, so the next run removes them only if it misses them
    assert runs.run(offers("a", "b", "d", price=4)) is RunState.PUBLISHED
    assert runs.snapshot() == {one["sku"]: one for one in offers("a", "b", "d", price=4)}


@pytest.mark.parametrize("order", [1, -1])
def test_of_two_items_with_one_key_the_one_that_fits_counts(runs: DatasetRuns, order: int) -> None:
    runs.parts[DatasetStore].ensure(runs.user, "prices", {"key": ["sku"]})
    runs.parts[Datasets].change(runs.dataset, {"item_schema": PRICED})
    both = [*offers("a", price=2), {"sku": "a", "price": "-"}]
    assert runs.run(both[::order]) is RunState.PUBLISHED
    assert runs.snapshot() == {"a": {"sku": "a", "price": 2}}


def test_an_item_that_is_set_apart_counts_as_seen(runs: DatasetRuns) -> None:
    careful = {"name": "prices", "key": ["sku"], "confirm_removed": 2}
    runs.run(offers("a", "b"), dataset=careful)
    runs.parts[Datasets].change(runs.dataset, {"item_schema": PRICED})
    for rows in (offers("a"), [*offers("a"), {"sku": "b"}], offers("a")):
        runs.run(rows, dataset=careful)
    assert runs.snapshot().keys() == {"a", "b"}
    runs.run(offers("a"), dataset=careful)
    assert runs.snapshot().keys() == {"a"}


def test_a_run_that_would_remove_too_much_is_held(runs: DatasetRuns) -> None:
    many = [f"s{n}" for n in range(20)]
    runs.run(offers(*many))
    job_id = runs.crawl(offers(*many[:10], price=7))
    assert runs.fold() == [RunState.HELD]
    assert runs.snapshot() == {one["sku"]: one for one in offers(*many)}
    job = runs.database["jobs"].find_one({"_id": job_id})
    assert job["dataset_held"] is True
    # a good run goes on, and the held one is not needed any more
    assert runs.run(offers(*many, price=2)) is RunState.PUBLISHED
    assert runs.parts[RunStore].get(job_id).state is RunState.SUPERSEDED  # type: ignore[union-attr]
    assert "dataset_held" not in runs.database["jobs"].find_one({"_id": job_id})


def test_an_accepted_run_is_folded_as_it_is(runs: DatasetRuns) -> None:
    many = [f"s{n}" for n in range(20)]
    runs.run(offers(*many))
    job_id = runs.crawl(offers(*many[:10]))
    runs.fold()
    run = runs.parts[RunStore].get(job_id)
    assert run is not None
    runs.parts[RunStore].change(run, RunState.HELD, accepted=True, accepted_by="anne")
    runs.parts[FoldQueue].again(job_id)
    assert runs.fold() == [RunState.PUBLISHED]
    assert len(runs.snapshot()) == 10


def test_a_run_that_began_before_the_published_one_is_not_folded(runs: DatasetRuns) -> None:
    runs.run(offers("a", price=2), started_at=BEGAN + timedelta(hours=10))
    assert runs.run(offers("a", price=1), started_at=BEGAN + timedelta(hours=9)) is RunState.SUPERSEDED
    assert runs.snapshot() == {"a": offers("a", price=2)[0]}


def test_other_fields_to_ignore_change_nothing_by_themselves(runs: DatasetRuns) -> None:
    runs.run([{"sku": "a", "price": 1, "at": "1"}])
    runs.parts[DatasetStore].change(runs.dataset, {"ignore": ["at"]})
    runs.run([{"sku": "a", "price": 1, "at": "2"}])
    assert runs.told() == [("new", "a")]
    (record,) = runs.parts[RecordStore].page(runs.dataset.id, "", 10)[0]
    assert record.hashed_by == runs.dataset.hashing


def test_what_another_plan_has_left_is_never_shown(runs: DatasetRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    # a run may have a million changes, which no store looks through in one step
    monkeypatch.setattr(fold, "_SWEPT", 2)
    runs.run(offers("a"))
    dataset, change = runs.dataset, runs.changes()[0]
    left = {"plan": "stale", "key_hash": "f" * 32}
    runs.parts[ChangeStore].write(
        [change.model_copy(update={"id": f"{dataset.id}:{n:015d}:stale", "seq": n, **left}) for n in range(2, 8)]
    )
    runs.run(offers(*"abcdef"))
    assert runs.told() == [("new", sku) for sku in "abcdef"]
    # the last one lies beyond what is published: the next run looks through its number
    kept, _ = runs.parts[ChangeStore].page(dataset.id, change_id(dataset.id, 1), 10, 100)
    assert [one.seq for one in kept if one.plan == "stale"] == [7]
    runs.run(offers(*"abcdefg"))
    kept, _ = runs.parts[ChangeStore].page(dataset.id, change_id(dataset.id, 1), 10, 100)
    assert all(one.plan != "stale" for one in kept)


def test_items_without_url_or_key_are_known_by_their_content(runs: DatasetRuns) -> None:
    runs.run([{"x": 1}, {"x": 2}, {"url": "https://Shop.test/a?b=1#c"}], dataset="prices")
    records = runs.parts[RecordStore].page(runs.dataset.id, "", 10)[0]
    assert len(records) == 3
    assert {"https://shop.test/a?b=1#c"} == {one.key["url"] for one in records if "url" in one.key}


def test_marks_are_never_shown(runs: DatasetRuns) -> None:
    assert {ChangeType.SEEN, ChangeType.MISSED}.isdisjoint(SHOWN)


def test_runs_of_a_deleted_dataset_are_not_folded_into_the_next_of_that_name(runs: DatasetRuns) -> None:
    """Neither one that is due nor one that is held; what they have found may go."""
    runs.run(offers(*"abcdefghij"))
    held = runs.crawl(offers("a"))
    assert runs.fold() == [RunState.HELD]
    due = runs.crawl(offers("old"))
    runs.parts[Datasets].delete(runs.dataset)
    later = runs.crawl(offers("new"), finished_at=BEGAN + timedelta(days=366))
    queue, folding = runs.parts[FoldQueue], runs.parts[Folding]
    while (run := queue.next_due()) is not None:
        folding.fold_next(run)
    assert [run.job_id for run in runs.parts[RunStore].of_dataset(runs.dataset.id, 10)[0]] == [later]
    assert runs.snapshot() == {"new": {"sku": "new", "price": 1}}
    while runs.parts[DatasetStore].deleted(1):
        folding.look()
    for job in runs.database["jobs"].find({"_id": {"$in": [held, due]}}):
        assert not job.keys() & {"dataset_due", "dataset_held"}


def test_a_deleted_dataset_is_removed_once_nobody_writes_to_it(runs: DatasetRuns) -> None:
    runs.run(offers("a"))
    store = runs.parts[DatasetStore]
    leased = store.claim(runs.dataset.id, 60)
    assert leased is not None
    runs.parts[Datasets].delete(leased)
    assert store.deleted(1) == []
    assert not store.renew(leased, 60)
    store.release(leased)
    assert [one.id for one in store.deleted(1)] == [leased.id]
    assert store.claim(leased.id, 60) is None


class Begun(Executor):
    """Carries out what it was given when it is told to."""

    def __init__(self) -> None:
        self.steps: list[partial[Any]] = []

    def submit(self, step: Callable[..., Any], /, *args: Any, **options: Any) -> Future[Any]:
        self.steps.append(partial(step, *args, **options))
        return Future()

    def carry_out(self) -> int:
        steps, self.steps = self.steps, []
        for step in steps:
            step()
        return len(steps)


@pytest.fixture
def begun(runs: DatasetRuns, monkeypatch: pytest.MonkeyPatch) -> Begun:
    begun = Begun()
    monkeypatch.setattr(runs.parts[Folding], "_threads", begun)
    return begun


def test_runs_that_cannot_be_taken_keep_none_of_others_waiting(runs: DatasetRuns, begun: Begun) -> None:
    """As many datasets as there are places: of each the first run has failed, and later ones are due."""
    queue = runs.parts[FoldQueue]
    behind = [DatasetRuns(runs.database) for _ in range(AT_ONCE)]
    for one in behind:
        queue.again(one.crawl(offers("a")), timedelta(hours=1), failures=1)
        one.crawl(offers("b"))
    # the others have been due for longer
    queue.again(runs.crawl(offers("a")))
    for _ in range(2):
        runs.parts[Folding].look()
        begun.carry_out()
    assert runs.snapshot() == {"a": {"sku": "a", "price": 1}}
    assert runs.database["dataset_runs"].count_documents({}) == 1


def test_a_dataset_that_another_worker_is_at_is_left_to_it_for_a_moment(
    runs: DatasetRuns, begun: Begun, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs.run(offers("a"))
    leased = runs.parts[DatasetStore].claim(runs.dataset.id, 60)
    assert leased is not None
    runs.crawl(offers("a", "b"))
    monkeypatch.setattr(fold_threads, "ELSEWHERE_SECONDS", 0.3)
    runs.parts[Folding].look()
    assert begun.carry_out() == 1
    runs.parts[Folding].look()
    assert begun.carry_out() == 0
    runs.parts[DatasetStore].release(leased)
    time.sleep(0.3)  # what is tested is that time passes
    runs.parts[Folding].look()
    assert begun.carry_out() == 1
    assert set(runs.snapshot()) == {"a", "b"}


def test_runs_that_cannot_be_read_are_set_aside_however_many_there_are(runs: DatasetRuns) -> None:
    lost = [runs.crawl(offers("a")) for _ in range(3)]
    runs.database["jobs"].update_many({"_id": {"$in": lost}}, {"$set": {"spec.dataset": 5}})
    own = runs.crawl(offers("a"))
    due = runs.parts[FoldQueue].next_due()
    assert due is not None
    assert due.job_id == own
    assert runs.database["jobs"].count_documents({"_id": {"$in": lost}, "set_aside": True}) == 3


def test_exports_of_one_user_that_hang_keep_none_of_others_waiting(
    runs: DatasetRuns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts, begun = exporting_parts(runs.database, tmp_path, runs.parts.clock), Begun()
    monkeypatch.setattr(parts[Exporting], "_threads", begun)
    other = DatasetRuns(runs.database)
    for user in (runs,) * run_exports.AT_ONCE + (other,):
        job_id = user.crawl(offers("a"))
        user.fold()
        runs.database["dataset_runs"].update_one({"_id": job_id}, {"$set": {"exports_due": BEGAN}})
    parts[Exporting].look()
    # none of what has begun ends
    assert [step.args[1] for step in begun.steps] == [*[runs.user] * run_exports.OF_ONE_USER, other.user]
    begun.carry_out()
    parts[Exporting].look()
    assert [step.args[1] for step in begun.steps] == [runs.user] * run_exports.OF_ONE_USER
