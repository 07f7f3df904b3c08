"""The last release beside today's, on the same stores: as in a roll-out, and as in one that is taken back."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import pymongo
import pytest
from crawl_verifier import CrawlVerifier
from event_source import Event, log_text, read_events
from fault_table import record
from forms import full_or_short, in_full
from releases import FRONT, NODE, TODAY, Part, Release, last_release, parts, shared_stores
from sites.server import Site
from stack import ROOT, wait_until

from gateway.contract.outbox import PROTOCOLS
from gateway.nodes.store import NodeStore

pytestmark = [pytest.mark.stack, pytest.mark.timeout(600)]
#: Two releases side by side.
BESIDE = in_full("documents of both releases in storage/test_document_format.py")

#: So that it is under way while processes are replaced.
SLOWLY: dict[str, float] = {"min_pause_seconds": 0.2, "max_pause_seconds": 0.3}
EVERY_SECOND = {"interval": "every 1s", "jitter": 0, "overlap": "queue", "ignore_cache": True}


#: The processes that the steps of the page mean, by a word of each.
STEPS = {"one node": NODE, "workers": ("worker",), "beats": ("beat",), "gateways": ("gateway",)}
PAGE = ROOT / "docs/how-to/upgrade.md"


class Both(NamedTuple):
    """All of both releases at once."""

    old: Part
    new: Part
    old_node: Part
    new_node: Part
    release: Release

    @property
    def fronts(self) -> tuple[tuple[Part, Part], tuple[Part, Part]]:
        """Each front, with the other."""
        return (self.old, self.new), (self.new, self.old)


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    return last_release(tmp_path_factory.mktemp("release"))


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with shared_stores(tmp_path_factory.mktemp("stores")) as stores:
        yield stores


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory, release: Release, stores: dict[str, str]) -> Iterator[Both]:
    started = {
        "old": (release, FRONT),
        "new": (TODAY, FRONT),
        "old_node": (release, NODE),
        "new_node": (TODAY, NODE),
    }
    with parts(tmp_path_factory.mktemp("both"), stores, **started) as made:
        both = Both(*made, release)
        for front in (both.old, both.new):
            _wait_for_nodes(front, 2)
        yield both


def _wait_for_nodes(front: Part, count: int) -> None:
    def ready() -> bool:
        nodes = front.http.get(f"{front.url}/nodes").json()["nodes"]
        spiders = front.http.get(f"{front.url}/spiders").json()["spiders"]
        return sum(node["state"] == "up" for node in nodes) == count and any(one["name"] == "seo" for one in spiders)

    wait_until(ready, what=f"{count} nodes with spiders")


def _follow(front: Part, job_id: str) -> list[Event]:
    """The stream of its log, to the end."""
    with front.http.stream("GET", f"{front.url}/jobs/{job_id}/logs", timeout=60) as answer:
        return list(read_events(answer))


def _seen(front: Part, job_id: str) -> tuple[Any, ...]:
    status = front.status(job_id)
    return status["status"], status["completed_pages"], front.items(job_id), front.log(job_id)


@BESIDE
def test_the_newer_gateway_names_what_is_older(both: Both) -> None:
    today = version("discoverybot")
    old = both.release.version
    processes = ", ".join(f"1 {kind} ({old})" for kind in ("worker", "beat", "gateway"))
    expected = f"older than {today}, which runs beside them: node old-node ({old}), {processes}"
    wait_until(lambda: _versions(both.new) == expected, what=expected)


def _versions(front: Part) -> str:
    return str(front.http.get(f"{front.url}/health").json()["checks"]["versions"]["message"])


@BESIDE
def test_each_runs_and_shows_the_crawls_of_the_other(both: Both, site: Site) -> None:
    """Crawls are asked for at both gateways and followed at the other one; both tell the same of each."""
    with CrawlVerifier(both.old, site) as asked_old, CrawlVerifier(both.new, site) as asked_new:
        count = full_or_short(100, 5)
        with ThreadPoolExecutor(4) as users:
            begun = [users.submit(one.begin, count) for one in (asked_old, asked_new)]
            for future in begun:
                future.result()
            ids = [(both.new, job_id) for job_id in asked_old.jobs.values()]
            ids += [(both.old, job_id) for job_id in asked_new.jobs.values()]
            streams = list(users.map(lambda one: _follow(*one), ids))
        for verifier in (asked_old, asked_new):
            verifier.wait()
        lost, doubled = (sum(one.verdict()[name] for one in (asked_old, asked_new)) for name in ("lost", "doubled"))
    assert {both.new.status(job_id)["node"] for _, job_id in ids} == {"old-node", "new-node"}
    for (_, job_id), events in zip(ids, streams, strict=True):
        assert _seen(both.old, job_id) == _seen(both.new, job_id)
        assert events[-1].event == "end"
        assert log_text(events).encode() == both.old.log(job_id)
    record("Two releases at once", f"{len(ids)} crawls, each followed at the other gateway", lost=lost,
           doubled=doubled, recovered=None)  # fmt: skip


@BESIDE
def test_a_request_is_the_same_for_both(both: Both, site: Site) -> None:
    for number, (first, second) in enumerate(both.fronts):
        job_id = first.crawl(f"{site.url}/tree/{number + 1}")
        assert second.crawl(f"{site.url}/tree/{number + 1}") == job_id
        first.wait_final(job_id)
        assert second.crawl(f"{site.url}/tree/{number + 1}") == job_id


@BESIDE
def test_a_schedule_of_one_is_fired_once_and_changed_by_the_other(both: Both, site: Site) -> None:
    for number, (one, other) in enumerate(both.fronts):
        url = f"{site.url}/tree/{number + 3}"
        body = {"user_id": "tester", "spider": "seo", "start_urls": [url], **EVERY_SECOND}
        schedule_id = str(one.http.post(f"{one.url}/crawl", json=body).raise_for_status().json()["job_id"])
        path = f"/schedules/{schedule_id}"
        changed = other.http.patch(f"{other.url}{path}", json={"jitter": 0.1}).raise_for_status().json()
        assert changed["jitter"] == one.http.get(f"{one.url}{path}").json()["jitter"] == 0.1
        wait_until(lambda one=one, path=path: len(_fired(one, path)) >= 3, what="three runs")
        other.http.post(f"{other.url}{path}/pause").raise_for_status()
        fired = _fired(one, path)
        assert _fired(other, path) == fired
        assert max(Counter(at for at, _ in fired).values()) == 1
        for _, job_id in fired:
            assert one.wait_final(job_id)["status"] == "finished"


def _fired(front: Part, path: str) -> list[tuple[str, str]]:
    """When, and as which job."""
    entries = front.http.get(f"{front.url}{path}/history").raise_for_status().json()["entries"]
    return [(entry["at"], entry["job_id"]) for entry in entries if entry["kind"] == "fired"]


@BESIDE
def test_a_tailer_ships_what_it_finds_of_another_release(both: Both, site: Site) -> None:
    """It is replaced while crawls run, on the node of the one and on that of the other."""
    with CrawlVerifier(both.new, site) as verifier:
        crawls = verifier.begin(full_or_short(40, 8), at_once=4, fetch=SLOWLY)
        verifier.wait_for_visit(crawls, after=0.0)
        both.old_node.replace(TODAY, "tailer")
        both.new_node.replace(both.release, "tailer")
        verifier.check_each_once()
        # of each what both speak, Scrapyd and the tailer
        common = both.release.protocols & PROTOCOLS
        _wait_for_protocols(both, old_node=common, new_node=common)
        both.old_node.replace(both.release, "tailer")
        both.new_node.replace(TODAY, "tailer")
    _wait_for_protocols(both, old_node=both.release.protocols, new_node=PROTOCOLS)


def _wait_for_protocols(both: Both, **expected: frozenset[int]) -> None:
    """What today's workers take the nodes to speak."""
    with pymongo.MongoClient[dict[str, Any]](both.new.environment()["MONGO_URI"], tz_aware=True) as client:
        nodes = NodeStore(client.get_default_database())
        wanted = {name.replace("_", "-"): spoken for name, spoken in expected.items()}
        wait_until(lambda: {node.id: node.protocols for node in nodes.all()} == wanted, what=str(wanted))


@BESIDE
def test_a_roll_out_and_its_way_back_lose_and_double_nothing(tmp_path: Path, release: Release, site: Site) -> None:
    """Every process is replaced while crawls run, by today's in the order of the page, and by the old one's in the
    opposite order; in the same folders.
    """
    order = _order_of_the_page()
    with (
        shared_stores(tmp_path / "stores") as stores,
        parts(tmp_path, stores, front=(release, FRONT), node=(release, NODE)) as (front, node),
        CrawlVerifier(front, site) as verifier,
    ):
        _wait_for_nodes(front, 1)
        body = {"user_id": "tester", "spider": "seo", "start_urls": [f"{site.url}/tree/2"], **EVERY_SECOND}
        schedule = str(front.http.post(f"{front.url}/crawl", json=body).raise_for_status().json()["job_id"])
        _roll_out(TODAY, order, front, node, verifier)
        newest = f"every process runs {version('discoverybot')}"
        wait_until(lambda: _versions(front) == newest, what=newest)
        _roll_out(release, order[::-1], front, node, verifier)
        front.http.post(f"{front.url}/schedules/{schedule}/pause").raise_for_status()
        fired = _fired(front, f"/schedules/{schedule}")
        for _, job_id in fired:
            assert front.wait_final(job_id)["status"] == "finished"
        doubled = max(Counter(at for at, _ in fired).values()) - 1
        verdict = verifier.verdict(retried=True)
    count = len(verifier.crawls)
    record("Roll-out and its way back", f"each process twice, {count} crawls", lost=verdict["lost"],
           doubled=verdict["doubled"] + doubled, recovered=None)  # fmt: skip


def test_the_page_has_every_process_in_its_order() -> None:
    assert sorted(_order_of_the_page()) == sorted((*FRONT, *NODE))


def _order_of_the_page() -> list[str]:
    steps = re.findall(r"^\d\. Replace (.*)", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return [process for step in steps for word, processes in STEPS.items() if word in step for process in processes]


def _roll_out(another: Release, order: Sequence[str], front: Part, node: Part, verifier: CrawlVerifier) -> None:
    """One after the other while crawls run, which end where it is Scrapyd."""
    for process in order:
        crawls = verifier.begin(full_or_short(20, 2), at_once=2, fetch=SLOWLY)
        verifier.wait_for_visit(crawls, after=0.0)
        (node if process in NODE else front).replace(another, process)
    verifier.wait()
