from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from pymongo.database import Database
from site_records import make_site, make_target

from gateway.clock import utc_now
from gateway.contract.crawl import FetchOptions
from gateway.errors import SiteExistsError, SiteNotFoundError, TargetNotFoundError
from gateway.sites.store import CounterStore, SiteStore, TargetStore

Documents = Database[dict[str, Any]]


def test_a_number_is_given_out_once(served: Documents) -> None:
    # mongomock's updates are not atomic between threads
    counters = CounterStore(served)
    with ThreadPoolExecutor(4) as pool:
        numbers = list(pool.map(lambda _: counters.next("sites"), range(20)))
    assert sorted(numbers) == list(range(1, 21))
    assert counters.next("targets") == 1


def test_a_site_is_read_as_it_was_written(database: Documents) -> None:
    sites = SiteStore(database)
    site = make_site(
        payload={"a": [1, {"b": None}]},
        selectors={"title": "h2::text"},
        fetch=FetchOptions(headers={"X-A.b": "1", "X-$c": "2"}, retry_codes=(429,)),
        rate_limit="30/m",
    )
    sites.insert(site)
    assert sites.get("board") == site
    with pytest.raises(SiteExistsError):
        sites.insert(make_site())
    with pytest.raises(SiteNotFoundError):
        sites.get("other")


def test_a_site_is_changed_only_from_the_revision_that_was_read(database: Documents) -> None:
    sites = SiteStore(database)
    site = make_site(rate_limit="30/m")
    sites.insert(site)
    changed = site.model_copy(update={"rev": 2, "rate_limit": None})
    assert sites.replace(changed)
    assert not sites.replace(site.model_copy(update={"rev": 2, "enabled": False}))
    assert sites.get("board") == changed
    sites.delete(site.model_copy(update={"number": 9}))
    assert sites.get("board")
    sites.delete(site)
    assert sites.named(["board"]) == {}


def test_sites_are_listed_by_name(database: Documents) -> None:
    sites = SiteStore(database)
    for number, name in enumerate("badce"):
        sites.insert(make_site(name=name, number=number, enabled=name not in "bd"))
    assert [site.name for site in sites.page(3)] == ["a", "b", "c"]
    assert [site.name for site in sites.page(3, "c")] == ["d", "e"]
    assert [site.name for site in sites.page(9, enabled=True)] == ["a", "c", "e"]
    assert [site.name for site in sites.all()] == list("abcde")
    assert set(sites.named(["a", "e", "x", "a"])) == {"a", "e"}


def test_targets_are_found_by_id_and_number_and_listed_by_number(database: Documents) -> None:
    targets = TargetStore(database)
    kept = [make_target(number=number, site="b" if number % 2 else "a") for number in (3, 1, 2, 4)]
    for target in kept:
        targets.insert(target)
    assert targets.get("3") == targets.get(kept[0].id) == kept[0]
    for unknown in ("9", "0", "f" * 32, ""):
        with pytest.raises(TargetNotFoundError):
            targets.get(unknown)
    assert [target.number for target in targets.page(3)] == [1, 2, 3]
    assert [target.number for target in targets.page(3, 1, site="b")] == [3]
    assert [target.number for target in targets.page(3, enabled=False)] == []
    assert [target.number for target in targets.of_site("a")] == [2, 4]
    assert targets.count("a") == 2
    assert set(targets.identified([kept[0].id, "x"])) == {kept[0].id}
    targets.delete(kept[0].id)
    assert targets.count("b") == 1


def test_when_a_target_was_scheduled_outlives_an_edit_and_never_moves_back(database: Documents) -> None:
    targets, now = TargetStore(database), utc_now()
    target, other = make_target(frequency="30"), make_target(number=2)
    targets.insert(target)
    targets.insert(other)
    targets.scheduled([target.number, other.number], now)
    targets.scheduled([other.number], now - timedelta(hours=1))
    assert targets.replace(target.model_copy(update={"rev": 2, "frequency": None, "keywords": "go"}))
    assert not targets.replace(target.model_copy(update={"rev": 2}))
    found = targets.identified([target.id, other.id])
    assert (found[target.id].last_scheduled, found[other.id].last_scheduled) == (now, now)
    assert (found[target.id].frequency, found[target.id].keywords) == (None, "go")
