"""What attempts occupy: never more than may, whatever is repeated."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pymongo.database import Database
from stores import REAL_BACKENDS

from gateway.nodes.holds import HoldStore, Usage, Wish

#: mongomock does not follow the bulk writes of PyMongo.
pytestmark = pytest.mark.parametrize("database", REAL_BACKENDS, indirect=True)

Documents = Database[dict[str, Any]]
NODE, USER, SITE = "node:n1", "user:ada", "site:a"
A, B, C = (f"{letter * 32}-1" for letter in "abc")


@pytest.fixture
def holds(database: Documents) -> HoldStore:
    return HoldStore(database)


def held(holds: HoldStore) -> dict[str, set[str]]:
    return {one.resource: {holder.attempt for holder in one.holders} for one in holds.all() if one.holders}


def test_each_resource_gives_as_much_as_it_has_to_those_who_come_first(holds: HoldStore) -> None:
    wishes = [Wish(NODE, A, 2), Wish(NODE, B, 2), Wish(NODE, C, 2), Wish(USER, A), Wish(USER, C), Wish(SITE, A, 1)]
    taken = holds.take(wishes, "t")
    assert taken == {(NODE, A), (NODE, B), (USER, A), (USER, C), (SITE, A)}
    assert held(holds) == {NODE: {A, B}, USER: {A, C}, SITE: {A}}
    assert holds.usage([NODE, USER, "node:none"]) == {NODE: Usage(2, 2), USER: Usage(2, 2)}
    assert holds.used_by_kind("user:") == {USER: 2}


def test_an_attempt_holds_a_resource_once_and_for_one_worker(holds: HoldStore) -> None:
    assert holds.take([Wish(NODE, A, 2)], "mine") == {(NODE, A)}
    assert holds.take([Wish(NODE, A, 2)], "theirs") == set()
    holds.give_back([(NODE, A)], "theirs")
    assert holds.holders([NODE]) == {NODE: {A}}
    for _ in range(2):
        holds.give_back([(NODE, A)], "mine")
    assert holds.usage([NODE])[NODE].used == 0
    assert holds.take([Wish(NODE, A, 2)], "theirs") == {(NODE, A)}


def test_what_is_over_is_freed_however_often_it_is_said(holds: HoldStore) -> None:
    holds.take([Wish(NODE, A, 1), Wish(SITE, A, 1)], "t")
    assert holds.take([Wish(NODE, B, 1)], "t") == set()
    for _ in range(3):
        holds.free(A, [NODE, SITE, USER])
    assert held(holds) == {}
    assert holds.free_of([NODE, SITE, "site:b"]) == {NODE, SITE, "site:b"}
    assert holds.take([Wish(NODE, B, 1)], "t") == {(NODE, B)}
    assert holds.free_of([NODE, SITE]) == {SITE}


def test_what_several_held_is_freed_of_each_also_if_one_of_them_holds_it_no_more(holds: HoldStore) -> None:
    holds.take([Wish(NODE, A, 9), Wish(NODE, B, 9), Wish(USER, A)], "t")
    holds.free_all([(A, [NODE, USER]), (B, [NODE]), (f"{'c' * 32}-1", [NODE])])
    assert held(holds) == {}
    assert holds.usage([NODE])[NODE].used == 0


def test_a_resource_without_room_gives_nothing(holds: HoldStore) -> None:
    assert holds.take([Wish(NODE, A, 0)], "t") == set()
    assert held(holds) == {}


def test_a_closed_resource_gives_nothing_more(holds: HoldStore) -> None:
    holds.take([Wish(NODE, A, 9)], "t")
    for resource in (NODE, "node:n2"):
        holds.close(resource)
        assert holds.take([Wish(resource, B, 9)], "t") == set()
    assert held(holds) == {NODE: {A}}
    holds.forget([NODE, "node:n2"])
    assert holds.take([Wish("node:n2", B, 9)], "t") == set()
    holds.open("node:n2")
    assert holds.take([Wish("node:n2", B, 9)], "t") == {("node:n2", B)}


def test_what_nobody_holds_is_forgotten(holds: HoldStore) -> None:
    holds.take([Wish(SITE, A, 1), Wish(USER, A)], "t")
    holds.free(A, [SITE])
    holds.forget([SITE, USER])
    assert {one.resource for one in holds.all()} == {USER}


def test_many_who_take_and_free_at_once_never_have_more_than_may(holds: HoldStore) -> None:
    most, over = 3, Counter[int]()

    def work(seed: int) -> None:
        for turn in range(30):
            attempt = f"{seed:032x}-{turn + 1}"
            if holds.take([Wish(NODE, attempt, most), Wish(USER, attempt)], str(seed)) >= {(NODE, attempt)}:
                over[len(holds.holders([NODE])[NODE])] += 1
            holds.free(attempt, [NODE, USER])

    with ThreadPoolExecutor(6) as threads:
        for done in [threads.submit(work, seed) for seed in range(6)]:
            done.result()
    assert over
    assert max(over) <= most
    assert held(holds) == {}
    assert holds.usage([NODE])[NODE].used == 0
