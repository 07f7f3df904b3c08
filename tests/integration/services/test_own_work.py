"""What a real worker process does by itself, and while nodes hang. The nodes are doubles."""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import warm
from conftest import Platform
from forms import full_or_short
from jobs import make_job
from node_double import NodeDouble, node_double
from relay import MongoRelay
from stack import ROOT, wait_until

from gateway.contract.crawl import CrawlSpec, Egg
from gateway.dispatch.egg_delivery import OF_ONE
from gateway.jobs.job import Job, JobStatus
from gateway.jobs.messages import ENQUEUE_CRAWL, create_producer
from gateway.jobs.queue import Capacity, JobQueue
from gateway.jobs.store import JobStore
from gateway.projects.eggs import EggCopies, EggStore
from gateway.stores.mongo import connect

#: Seconds within which a node with a free slot gets a crawl, even on a busy machine. A node that hangs takes longer.
PROMPT = 15.0
#: Seconds within which another node gets a crawl if the first one does not work.
ELSEWHERE_WITHIN = full_or_short(5.0, PROMPT)
QUEUE = "own-work"


@pytest.fixture(scope="module")
def database(mongo_uri: str) -> Iterator[Any]:
    database = connect(mongo_uri).client[uuid.uuid4().hex]
    yield database
    database.client.close()


@pytest.fixture(scope="module")
def worker_url(
    redis_url: str, mongo_uri: str, database: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The URL of a broker that a worker listens to."""
    home: Path = tmp_path_factory.mktemp("worker")
    own = {
        "MONGO_URI": f"{mongo_uri.rpartition('/')[0]}/{database.name}", "REDIS_URL": redis_url,
        "BROKER_URL": redis_url, "QUEUE_NAME": QUEUE, "DISCOVERYBOT_HOME": str(home),
    }  # fmt: skip
    worker = warm.start(
        "celery.__main__", "--quiet", "-A", "celery_app", "worker", env={**os.environ, **own}, cwd=ROOT,
        stdout=home / "worker.log",
    )  # fmt: skip
    try:
        wait_until(database["heartbeats"].find_one, what=f"the worker's sign of life ({home})")
        yield redis_url
    finally:
        worker.kill()
        worker.wait(60)


@pytest.fixture
def works(platform: Platform, worker_url: str) -> Platform:
    """A platform with a worker, and without nodes, jobs and eggs."""
    assert worker_url
    for name in ("nodes", "jobs", "holds", "eggs", "egg_chunks", "egg_copies"):
        platform.database[name].delete_many({})
    return platform


def node(works: Platform, name: str, url: str, *, slots: int, eggs: tuple[Egg, ...] = ()) -> None:
    since = works.clock() - timedelta(hours=1)
    works.nodes.heartbeat(name, url=url, max_slots=slots, alive=(), present=(), beating_since=since, eggs=eggs)


def submitted(works: Platform, count: int = 1, **fields: Any) -> list[Job]:
    jobs = [make_job(**fields) for _ in range(count)]
    for job in jobs:
        works.jobs.insert(job)
    return jobs


def wait(condition: Callable[[], object], what: str) -> float:
    """Seconds until the condition holds."""
    began = time.monotonic()
    wait_until(condition, timeout=PROMPT, what=what)
    return time.monotonic() - began


def runs(works: Platform, *jobs: Job) -> bool:
    return all(works.jobs.get(job.id).status is JobStatus.RUNNING for job in jobs)


def test_a_crawl_of_which_no_message_tells_is_started_and_stopped_all_the_same(
    works: Platform, double: NodeDouble
) -> None:
    node(works, "n1", double.url, slots=1)
    (job,) = submitted(works)
    wait(lambda: runs(works, job), "its start")
    works.jobs.request_cancel(job.id)
    wait(lambda: double.cancelled == [f"{job.id}-1"], "the call that stops it")


def test_a_crawl_whose_retry_is_due_is_started_though_nobody_sweeps(works: Platform, double: NodeDouble) -> None:
    node(works, "n1", double.url, slots=1)
    double.mode = "refuse"
    (job,) = submitted(works)
    wait(lambda: double.posted, "the first try")
    double.mode = "ok"
    wait(lambda: runs(works, job), "the second one")


def test_outdated_eggs_of_a_node_that_hangs_keep_no_crawl_from_a_healthy_one(
    works: Platform, double: NodeDouble, worker_url: str, tmp_path: Path
) -> None:
    eggs = [Egg("shop", f"{number}.0") for number in range(12)]
    store, copies = EggStore(works.database, works.clock), EggCopies(works.database, works.clock)
    (tmp_path / "egg").write_bytes(b"content")
    with node_double() as hung, create_producer(worker_url, QUEUE) as producer:
        hung.silent = {"/addversion.json"}
        node(works, "hung", hung.url, slots=9, eggs=tuple(eggs))
        for egg in eggs:
            assert store.put(egg, store.write(tmp_path / "egg"), None)
            copies.mark_outdated("hung", egg, "former")
            # a beat of 0.2.0 sends such a task
            producer.send_task("bring_egg", ("hung", *egg))
        wait(lambda: hung.requests, "the first delivery")
        hung.silent |= {"/schedule.json"}
        node(works, "well", double.url, slots=3)
        (job,) = submitted(works, user_id="bob", avoid=["hung"])
        producer.send_task(ENQUEUE_CRAWL, (job.id,))
        wait(lambda: runs(works, job), "the crawl of another user")
        assert [path for path, _ in hung.requests] == ["/addversion.json"]


@pytest.mark.parametrize(
    "mode", ["vanish", "broken", "garbage", "shut", "hang", "drip", "endless", "packed", "long", "moved"]
)
def test_a_node_that_does_not_work_loses_its_first_crawl_to_another_one(
    works: Platform, double: NodeDouble, mode: str
) -> None:
    with node_double() as sick:
        sick.mode = mode
        node(works, "sick", sick.url, slots=9)
        node(works, "well", double.url, slots=3)
        jobs = submitted(works, 3)
        assert wait(lambda: runs(works, *jobs), "all of them") < ELSEWHERE_WITHIN
        # the sick node got no post: a job that it may have must not run elsewhere
        assert sick.posted == []
        assert len(double.posted) == 3


def test_what_waits_behind_a_post_that_hangs_goes_elsewhere_and_the_post_itself_nowhere(
    works: Platform, double: NodeDouble
) -> None:
    with node_double() as sick:
        sick.silent = {"/schedule.json"}
        node(works, "sick", sick.url, slots=9)
        jobs = submitted(works, 3)
        wait(lambda: sick.posted, "the post that hangs")
        node(works, "well", double.url, slots=9)
        stuck, *others = sorted(jobs, key=lambda job: f"{job.id}-1" not in sick.posted)
        assert wait(lambda: runs(works, *others), "the others") < ELSEWHERE_WITHIN
        assert works.jobs.get(stuck.id).attempt == 1
        assert f"{stuck.id}-1" not in double.posted
        assert len(set(sick.posted)) == 1


@pytest.mark.parametrize("has_taken", [False, True])
def test_a_post_that_hangs_goes_elsewhere_once_its_node_says_that_it_never_takes_it(
    works: Platform, double: NodeDouble, *, has_taken: bool
) -> None:
    with node_double() as sick:
        (job,) = submitted(works)
        sick.taken, sick.silent = {f"{job.id}-1"} if has_taken else set(), {"/schedule.json"}
        node(works, "sick", sick.url, slots=9)
        wait(lambda: sick.posted, "the post that hangs")
        node(works, "well", double.url, slots=9)
        wait(lambda: runs(works, job), "its start")
        assert works.jobs.get(job.id).node == ("sick" if has_taken else "well")
        assert double.posted == ([] if has_taken else [f"{job.id}-2"])
        assert sick.barred == (set() if has_taken else {f"{job.id}-1"})


def test_many_silent_nodes_take_no_place_from_one_that_answers(works: Platform, double: NodeDouble) -> None:
    with ExitStack() as ends:
        for number in range(40):
            door = ends.enter_context(socket.create_server(("127.0.0.1", 0)))
            node(works, f"silent-{number}", f"http://127.0.0.1:{door.getsockname()[1]}", slots=1)
        waiting = submitted(works, 40)
        wait(lambda: all(works.jobs.get(job.id).attempt for job in waiting), "an attempt of each")
        node(works, "well", double.url, slots=50)
        (job,) = submitted(works, user_id="bob", priority=9)
        wait(lambda: runs(works, job), "the crawl of another user")


def test_many_nodes_that_answer_and_hang_in_their_posts_keep_none_from_being_called(works: Platform) -> None:
    with node_double() as sick:
        sick.silent = {"/schedule.json"}
        for number in range(100):
            node(works, f"hangs-{number}", sick.url, slots=1)
        submitted(works, 100)
        # each post takes five seconds, and comes after a probe of its node
        wait_until(lambda: len(sick.probes) >= 100, timeout=9, what="a question to each")


@pytest.mark.parametrize("url", ["http://127.0.0.1:99999", "http://xn--/"])
def test_a_node_whose_address_nobody_can_call_loses_its_crawls_to_another_one(
    works: Platform, double: NodeDouble, url: str
) -> None:
    node(works, "sick", url, slots=9)
    node(works, "well", double.url, slots=3)
    jobs = submitted(works, 3)
    wait(lambda: runs(works, *jobs), "all of them")


def test_hundreds_of_projects_that_no_node_has_cost_few_queries(mongo_uri: str) -> None:
    spec = CrawlSpec(project="z", version="1", spider="offers", start_urls=("http://shop.example/",))
    many = [make_job(spec=spec.model_copy(update={"project": f"p{number}"})) for number in range(600)]
    last, first = make_job(spec=spec), make_job()
    with MongoRelay.before(mongo_uri).running() as relay:
        database = connect(relay.url(mongo_uri)).client[uuid.uuid4().hex]
        for job in (first, *many, last):
            JobStore(database).insert(job)
        database["jobs"].update_one({"_id": many[300].id}, {"$set": {"lane": "no partition"}})
        relay.asked.clear()
        fronts = JobQueue(database).fronts(Capacity(frozenset({Egg("z", "1")})).fits)
        assert [front.candidates[0].job_id for front in fronts] == [first.id, last.id]
        assert relay.asked["find"] < 30
        database.client.close()


def test_a_node_that_hangs_in_an_egg_keeps_no_other_egg_from_the_next_node(
    works: Platform, double: NodeDouble, tmp_path: Path
) -> None:
    store = EggStore(works.database, works.clock)
    (tmp_path / "egg").write_bytes(b"content")
    with node_double() as hung:
        hung.silent = {"/addversion.json"}
        node(works, "hung", hung.url, slots=9)
        for project, user in (("shop", "ada"), ("news", "bob")):
            assert store.put(Egg(project, "1.0"), store.write(tmp_path / "egg"), None)
            addresses = ("http://shop.example/",)
            spec = CrawlSpec(project=project, version="1.0", spider="offers", start_urls=addresses)
            submitted(works, spec=spec, user_id=user)
            wait(lambda: hung.requests, "the delivery that hangs")
            node(works, "well", double.url, slots=3)
        wait(lambda: double.requests, "the delivery of the other user's egg")


def test_eggs_of_one_user_that_hang_leave_places_for_those_of_others(
    works: Platform, double: NodeDouble, tmp_path: Path
) -> None:
    store = EggStore(works.database, works.clock)
    (tmp_path / "egg").write_bytes(b"content")
    with node_double() as hung:
        hung.silent = {"/addversion.json"}
        for number in range(9):
            node(works, f"hung-{number}", hung.url, slots=9)
        for project in [*(f"a{number}" for number in range(9)), "shop"]:
            assert store.put(Egg(project, "1.0"), store.write(tmp_path / "egg"), None)
            spec = CrawlSpec(project=project, version="1.0", spider="offers", start_urls=("http://shop.example/",))
            submitted(works, spec=spec, user_id="bob" if project == "shop" else "ada")
        # "shop" is the last name, so all eggs of the first user were looked at before
        wait(lambda: any("shop" in str(form) for _, form in hung.requests), "the delivery of the other user's egg")
        wait(lambda: len(hung.requests) == 1 + OF_ONE, "and of as many as one user may have")


def test_eggs_to_replace_that_hang_leave_places_for_those_that_crawls_wait_for(
    works: Platform, double: NodeDouble, tmp_path: Path
) -> None:
    store, copies = EggStore(works.database, works.clock), EggCopies(works.database, works.clock)
    (tmp_path / "egg").write_bytes(b"content")
    with node_double() as hung:
        hung.silent = {"/addversion.json"}
        for number in range(9):
            node(works, f"hung-{number}", hung.url, slots=0)
            egg = Egg(f"a{number}", "1.0")
            assert store.put(egg, store.write(tmp_path / "egg"), None)
            copies.mark_outdated(f"hung-{number}", egg, "former")
        wait(lambda: len(hung.requests) == OF_ONE, "as many replacements as there may be")
        node(works, "well", double.url, slots=9)
        assert store.put(Egg("shop", "1.0"), store.write(tmp_path / "egg"), None)
        spec = CrawlSpec(project="shop", version="1.0", spider="offers", start_urls=("http://shop.example/",))
        submitted(works, spec=spec, user_id="bob")
        wait(lambda: double.requests, "the delivery that a crawl waits for")
        assert len(hung.requests) == OF_ONE
