"""Which version is the latest, and to which one one goes back."""

from __future__ import annotations

from typing import Any

import mongomock
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.contract.crawl import Egg
from gateway.errors import ConflictError, VersionNotFoundError
from gateway.projects.eggs import Content, EggCopies, EggStore
from gateway.projects.versions import ProjectVersions, Releases, VersionStore

ALL = ["1.9", "1.10", "1.2"]


class Shop:
    """One project that is deployed, in a database of its own."""

    def __init__(self) -> None:
        database: Any = mongomock.MongoClient(tz_aware=True)["shop"]
        self.eggs, self.copies, self.versions = EggStore(database), EggCopies(database), VersionStore(database)
        self.releases = Releases(self.eggs, self.copies, self.versions)

    def deploy(self, *versions: str, sha256: str = "a") -> None:
        for version in versions:
            egg = Egg("shop", version)
            assert self.releases.release(egg, Content(version, sha256, 1), self.eggs.get(egg))

    @property
    def known(self) -> ProjectVersions:
        return self.versions.get("shop")

    def latest(self) -> str | None:
        return self.known.latest(ALL)


@pytest.fixture
def shop() -> Shop:
    return Shop()


def test_the_version_that_was_deployed_last_is_the_latest_whatever_its_name(shop: Shop) -> None:
    shop.deploy(*ALL)
    assert (shop.latest(), shop.known.previous(ALL)) == ("1.2", "1.10")
    assert shop.known.order({"1.10", "1.2", "1.9"}) == ALL
    shop.deploy("1.9", sha256="b")
    assert shop.latest() == "1.9"
    assert shop.known.order(ALL) == ["1.10", "1.2", "1.9"]


def test_each_rollback_goes_one_further_back_and_ends_at_the_first(shop: Shop) -> None:
    shop.deploy(*ALL)
    for expected in ("1.10", "1.9"):
        shop.releases.roll_back("shop", ALL)
        assert shop.latest() == expected
    with pytest.raises(ConflictError, match="was the latest before"):
        shop.releases.roll_back("shop", ALL)
    assert shop.known.order(ALL) == ALL, "it changes what runs, not what was deployed"


def test_after_a_rollback_the_next_deployment_goes_back_to_what_was_good(shop: Shop) -> None:
    shop.deploy("1.9", "1.10")
    shop.releases.roll_back("shop", ALL)
    shop.deploy("1.2")
    shop.releases.roll_back("shop", ALL)
    assert shop.latest() == "1.9"


def test_a_version_is_made_the_latest_by_its_name(shop: Shop) -> None:
    shop.deploy(*ALL)
    shop.releases.activate(Egg("shop", "1.9"), ALL)
    assert shop.latest() == "1.9"
    shop.releases.activate(Egg("shop", "1.2"), ALL)
    assert (shop.latest(), shop.known.previous(ALL)) == ("1.2", "1.9")
    with pytest.raises(VersionNotFoundError):
        shop.releases.activate(Egg("shop", "7"), ALL)


def test_when_the_latest_is_deleted_the_one_before_it_is_the_latest(shop: Shop) -> None:
    shop.deploy(*ALL)
    shop.releases.delete(Egg("shop", "1.2"), shop.eggs.get(Egg("shop", "1.2")))
    assert shop.known.latest(["1.9", "1.10"]) == "1.10"
    assert "1.2" not in shop.known.deployed


def test_what_was_deployed_before_this_was_noted_comes_first_and_by_name(shop: Shop) -> None:
    for version in ("1.10", "1.9"):
        assert shop.eggs.put(Egg("shop", version), Content(version, "a", 1), None)
        assert shop.eggs.put(Egg("shop2", version), Content(version, "a", 1), None)
    assert shop.latest() == "1.10"
    assert shop.known.previous(["1.9", "1.10"]) == "1.9"
    shop.deploy("1.2")
    assert shop.known.deployed == ("1.9", "1.10", "1.2")
    shop.releases.roll_back("shop", ALL)
    assert shop.latest() == "1.10"


def test_whoever_has_read_the_spiders_can_tell_that_something_was_deployed_since(shop: Shop) -> None:
    seen = [shop.versions.revision()]
    shop.deploy("1.9")
    seen.append(shop.versions.revision())
    shop.releases.repeat(Egg("shop", "1.9"), "a")
    seen.append(shop.versions.revision())
    shop.deploy("1.10")
    shop.releases.roll_back("shop", ALL)
    seen.append(shop.versions.revision())
    assert seen == sorted(set(seen))
    assert "shop" in shop.versions.all()


def test_two_deployments_of_one_project_at_the_same_moment_are_both_noted(shop: Shop) -> None:
    shop.deploy("1.9")

    def and_another(known: ProjectVersions) -> ProjectVersions:
        if "1.10" not in shop.known.deployed:
            shop.deploy("1.10")
        return known.with_deployed("1.2")

    shop.versions.change("shop", and_another)
    assert shop.known.deployed == ("1.9", "1.10", "1.2")


def test_a_node_with_other_content_of_the_version_is_outdated_at_once(shop: Shop) -> None:
    egg = Egg("shop", "1.9")
    shop.deploy("1.9")
    for node, sha256 in (("old", "a"), ("new", "b")):
        shop.copies.agree(node, egg, sha256)
    shop.copies.agree("old", Egg("shop", "1.10"), "a")
    shop.deploy("1.9", sha256="b")
    assert shop.copies.outdated(["old", "new"]) == [("old", egg)]
    assert shop.copies.outdated(["new"]) == []


STEPS = st.lists(
    st.tuples(st.sampled_from(["deploy", "activate", "back", "delete"]), st.sampled_from(["1", "2", "3", "4"]))
)


@given(STEPS)
def test_the_latest_is_always_one_that_is_there_and_the_last_one_asked_for(steps: list[tuple[str, str]]) -> None:
    known, there = ProjectVersions("shop"), set[str]()
    for step, version in steps:
        match step:
            case "deploy":
                known, there = known.with_deployed(version), there | {version}
            case "activate" if version in there:
                known = known.with_latest(version)
            case "back" if (before := known.previous(there)) is not None:
                known, version = known.with_latest(before), before  # noqa: PLW2901 - what it has led to
            case "delete":
                known, there = known.without(version), there - {version}
                continue
            case _:
                continue
        assert known.latest(there) == version
    assert (known.latest(there) is None) == (not there)
    assert known.previous(there) in {None, *there} - {known.latest(there)} | ({None} if not there else set())
