"""Nodes of other versions get no job that they cannot understand."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import timedelta

import pytest
from conftest import DEAD_AFTER, Platform
from jobs import make_job
from node_story import node, running_on, state, submitted

from gateway.contract.crawl import CrawlSpec, Egg, Expect
from gateway.contract.outbox import PROTOCOLS
from gateway.jobs.job import Assignment, Job, WaitingReason
from gateway.jobs.queries import JobStatistics
from gateway.jobs.queue import Candidate
from gateway.nodes.health import report_on
from gateway.nodes.node import NodeState
from gateway.status.health import IdleSlots

NEWEST = max(PROTOCOLS)


SHOP = Egg("Shop", "1.0")


def _beats(
    platform: Platform,
    name: str,
    *protocols: int,
    version: str = "9.9.9",
    slots: int = 2,
    eggs: Collection[Egg] = (),
) -> None:
    platform.nodes.heartbeat(
        name,
        url=platform.double.url,
        max_slots=slots,
        alive=(),
        present=(),
        beating_since=platform.clock(),
        version=version,
        protocols=protocols,
        eggs=eggs,
    )


@pytest.mark.parametrize(("protocol", "age"), [(0, "old"), (NEWEST + 1, "new")])
def test_a_node_that_speaks_no_protocol_of_ours_is_named_and_gets_nothing(
    platform: Platform, protocol: int, age: str
) -> None:
    _beats(platform, "n1", protocol)
    (job,) = submitted(platform)
    assert platform.dispatch.fill(job.id) == 0
    assert platform.jobs.get(job.id).waiting_reason is WaitingReason.NO_NODE
    told = report_on(node(platform), platform.clock(), DEAD_AFTER)
    assert told.state is NodeState.INCOMPATIBLE
    assert f"9.9.9 is too {age}: it speaks protocol {protocol}" in (told.why or "")
    # after an upgrade the node is like any other
    _beats(platform, "n1", NEWEST)
    assert (state(platform), platform.dispatch.fill(job.id)) == (NodeState.UP, 1)


def test_a_newer_node_that_speaks_an_older_protocol_as_well_gets_work(platform: Platform) -> None:
    _beats(platform, "n1", NEWEST, NEWEST + 1)
    submitted(platform)
    assert platform.dispatch.fill() == 1


def test_a_node_of_0_1_0_gets_only_what_it_knows(platform: Platform) -> None:
    """A node of 0.1.0 silently ignores settings, variables and expectations."""
    _beats(platform, "n1", 1, version="0.1.0")
    (plain,) = submitted(platform, user_id="bob")
    (expecting,) = submitted(platform, user_id="ada", spec=_expecting(make_job()))
    assert platform.dispatch.fill(expecting.id) == 1
    assert running_on(platform, [plain, expecting], "n1") == [plain.id]
    assert platform.jobs.get(expecting.id).waiting_reason is WaitingReason.NO_NODE
    _beats(platform, "n2", 1, 2)
    assert platform.dispatch.fill() == 1
    assert running_on(platform, [expecting], "n2") == [expecting.id]


def _expecting(job: Job) -> CrawlSpec:
    return job.spec.model_copy(update={"expect": Expect(min_items=1)})


def test_a_job_that_no_node_may_have_holds_up_no_other_job_of_its_user(platform: Platform) -> None:
    _beats(platform, "n1", 1, version="0.1.0")
    (expecting,) = submitted(platform, user_id="ada", spec=_expecting(make_job()), priority=9)
    (plain,) = submitted(platform, user_id="ada")
    assert platform.dispatch.fill(expecting.id, plain.id) == 1
    assert running_on(platform, [plain, expecting], "n1") == [plain.id]
    assert platform.jobs.get(expecting.id).waiting_reason is WaitingReason.NO_NODE
    # the older node also gets a job if there is a newer node, but without a free slot
    _beats(platform, "n2", 1, 2, slots=0)
    (another,) = submitted(platform, user_id="ada")
    assert platform.dispatch.fill() == 1
    assert running_on(platform, [another, expecting], "n1") == [another.id]
    platform.ahead += timedelta(seconds=3)
    platform.reconcile()
    assert platform.jobs.get(expecting.id).waiting_reason is WaitingReason.CAPACITY


def _of_shop() -> CrawlSpec:
    return CrawlSpec(project="Shop", version="1.0", spider="teller", start_urls=("http://site.example/",))


def _has_settings(platform: Platform) -> None:
    platform.environment.set_settings("shop", {"DOWNLOAD_DELAY": 1})


def _has_a_secret(platform: Platform) -> None:
    platform.environment.set("shop", "API_KEY", "x", secret=True)


@pytest.mark.parametrize("give", [_has_settings, _has_a_secret])
def test_what_a_project_gives_its_crawls_counts_as_what_they_ask_for_themselves(
    platform: Platform, give: Callable[[Platform], None]
) -> None:
    _beats(platform, "n1", 1, version="0.1.0", eggs=(SHOP,))
    (before,) = submitted(platform, spec=_of_shop())
    assert platform.dispatch.fill() == 1
    (job,) = submitted(platform, spec=_of_shop())
    give(platform)
    assert platform.dispatch.fill(job.id) == 0
    assert platform.jobs.get(job.id).waiting_reason is WaitingReason.NO_NODE
    _beats(platform, "n2", 1, 2)
    platform.reconcile()
    assert platform.jobs.get(job.id).waiting_reason is WaitingReason.NO_SUCH_PROJECT
    _beats(platform, "n2", 1, 2, eggs=(SHOP,))
    platform.ahead += timedelta(seconds=2)
    assert platform.dispatch.fill() == 1
    assert running_on(platform, [before, job], "n2") == [job.id]


def test_a_free_slot_that_a_waiting_job_may_not_have_is_not_held_against_the_workers(platform: Platform) -> None:
    idle = IdleSlots(
        statistics=JobStatistics(platform.database), projects=platform.projects, dead_after=DEAD_AFTER,
        clock=platform.clock, monotonic=platform.monotonic,
    )  # fmt: skip
    submitted(platform, spec=_of_shop())
    _has_a_secret(platform)

    def is_well() -> bool:
        checks = []
        for _ in range(2):
            platform.ahead += timedelta(seconds=6)
            _beats(platform, "n1", 1, eggs=(SHOP,))
            checks.append(idle.check(platform.nodes.all()).ok)
        return all(checks)

    assert is_well()
    platform.environment.unset("shop", "API_KEY")
    assert not is_well()


def test_a_project_that_gets_variables_after_the_choice_of_an_older_node_has_its_crawl_wait(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    _beats(platform, "n1", 1, version="0.1.0", eggs=(SHOP,))
    (job,) = submitted(platform, spec=_of_shop())
    assign = platform.queue.assign

    def meanwhile(wanted: Sequence[tuple[Candidate, Assignment]]) -> list[Job]:
        _has_a_secret(platform)
        return assign(wanted)

    monkeypatch.setattr(platform.queue, "assign", meanwhile)
    assert (platform.dispatch.fill(), platform.double.posted) == (0, [])
    waiting = platform.jobs.get(job.id)
    assert (waiting.assignment, platform.slots(), node(platform).failures) == (None, [], 0)
    assert waiting.message == "node n1 does not speak protocol 2, which the crawl needs"


def test_a_job_that_cannot_be_read_hides_no_reason_of_others_and_ends_no_sweep(platform: Platform) -> None:
    _beats(platform, "n1", 1, slots=0)
    front, behind = submitted(platform, 2)
    platform.dispatch.fill(front.id, behind.id)
    platform.explain()
    assert platform.jobs.get(behind.id).waiting_reason is WaitingReason.CAPACITY
    platform.database["jobs"].update_one({"_id": behind.id}, {"$unset": {"spec": ""}})
    platform.database["nodes"].delete_many({})
    # so much later that the nodes are read again
    platform.ahead += timedelta(seconds=1)
    platform.reconcile()
    assert platform.jobs.get(front.id).waiting_reason is WaitingReason.NO_NODE


def test_a_tailer_of_0_1_0_that_takes_over_speaks_its_own_protocol(platform: Platform) -> None:
    """A tailer of 0.1.0 reports no protocols, and does not remove those that the tailer before it has reported."""
    _beats(platform, "n1", 1, 2)
    assert node(platform).speaks(2)
    platform.ahead += timedelta(seconds=2)
    beaten = {"heartbeat_at": platform.clock(), "version": "0.1.0"}
    platform.database["nodes"].update_one({"_id": "n1"}, {"$set": beaten})
    assert (node(platform).speaks(1), node(platform).speaks(2)) == (True, False)
