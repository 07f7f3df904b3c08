from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from jobs import assigned, make_job
from pymongo import MongoClient
from pymongo.database import Database
from pymongo.monitoring import CommandFailedEvent, CommandListener, CommandStartedEvent, CommandSucceededEvent
from stores import REAL_BACKENDS

from gateway.clock import Clock, utc_now
from gateway.contract.crawl import Egg
from gateway.contract.log_line import Position
from gateway.contract.reasons import Reason
from gateway.contract.records import ExitReport, SpiderInfo
from gateway.items.items import Item, ItemStore
from gateway.jobs.job import JobStatus
from gateway.jobs.outcome import Outcome
from gateway.jobs.queries import JobSweeps
from gateway.jobs.queue import JobQueue
from gateway.jobs.store import CANCEL_SECONDS, JobStore
from gateway.logs.store import LineCounts, LogChunk, LogStore
from gateway.nodes.health import BEAT, HeartbeatStore
from gateway.nodes.holds import HoldStore, Wish
from gateway.nodes.store import Node, NodeStore
from gateway.projects.eggs import SpiderStore

#: mongomock does not follow the bulk writes of PyMongo.
on_servers = pytest.mark.parametrize("database", REAL_BACKENDS, indirect=True)

Documents = Database[dict[str, Any]]
JOB, OTHER = "a" * 32, "b" * 32


def item(end: int, *, job: str = JOB, attempt: int = 1, **data: Any) -> Item:
    return Item(job, attempt, end, {"end": end, **data})


def test_items_shipped_twice_are_there_once_and_in_their_order(served: Documents) -> None:
    items = ItemStore(served)
    items.insert([item(20), item(9), item(100)])
    items.insert([item(100), item(1000), Item(JOB, 1, 3000, None, '{"big": 1e999}')])
    items.insert([])
    assert [found.end for found in items.page(JOB, 1, None, 10)] == [9, 20, 100, 1000, 3000]
    assert items.page(JOB, 1, None, 10)[-1].raw == '{"big": 1e999}'
    assert items.count(JOB) == 5


def test_items_are_paged_by_attempt_and_job(served: Documents) -> None:
    items = ItemStore(served)
    items.insert([item(end) for end in range(1, 8)] + [item(3, attempt=2), item(4, job=OTHER)])
    page = items.page(JOB, 1, None, 5)
    assert [found.end for found in page] == [1, 2, 3, 4, 5]
    assert [found.end for found in items.page(JOB, 1, page[-1].id, 5)] == [6, 7]
    assert [found.attempt for found in items.page(JOB, None, None, 100)] == [1] * 7 + [2]
    assert (items.count(JOB, 2), items.count(OTHER), items.count("c" * 32)) == (1, 1, 0)
    items.delete(JOB)
    assert (items.count(JOB), items.count(OTHER)) == (0, 1)


def chunk(start: int, data: bytes, *, job: str = JOB, attempt: int = 1, lines: LineCounts | None = None) -> LogChunk:
    return LogChunk(job, attempt, start, start + len(data), "INFO", data, "seo", lines or {})


def test_a_log_is_read_from_any_byte_on(database: Documents) -> None:
    logs = LogStore(database)
    for start, data in ((0, b"a" * 10), (10, b"b" * 10), (20, b"c" * 10)):
        logs.append(chunk(start, data))
    logs.append(chunk(0, b"other", attempt=2))
    logs.append(chunk(0, b"other", job=OTHER))
    assert [found.start for found in logs.read(JOB, 1, 0)] == [0, 10, 20]
    assert [found.start for found in logs.read(JOB, 1, 15)] == [10, 20]
    assert [found.start for found in logs.read(JOB, 1, 0, limit=1)] == [0]
    assert logs.read(JOB, 1, 30) == []
    assert (logs.end(JOB, 1), logs.end(JOB, 2), logs.end(JOB, 3)) == (30, 5, 0)


def test_a_chunk_that_is_shipped_again_may_have_grown(database: Documents) -> None:
    logs = LogStore(database)
    logs.append(chunk(0, b"one\n"))
    logs.append(chunk(0, b"one\ntwo\n"))
    assert [found.data for found in logs.read(JOB, 1, 0)] == [b"one\ntwo\n"]
    logs.delete(JOB)
    assert logs.end(JOB, 1) == 0


def test_a_write_that_was_delayed_makes_no_chunk_shorter(database: Documents) -> None:
    logs = LogStore(database)
    late, acknowledged = chunk(0, b"one\n"), chunk(0, b"one\ntwo\n")
    for write in (acknowledged, late, acknowledged):
        logs.append(write)
        assert (logs.end(JOB, 1), logs.read(JOB, 1, 0)[0].data) == (8, b"one\ntwo\n")


def test_a_chunk_says_how_many_lines_of_each_logger_and_level_it_holds(database: Documents) -> None:
    logs = LogStore(database)
    logs.append(chunk(0, b"one\n", lines={("seo", "INFO"): 1}))
    counts = {("seo", "INFO"): 1, ("", "ERROR"): 1}
    logs.append(chunk(0, b"one\ntwo\n", lines=counts))
    assert [(found.head_logger, found.lines) for found in logs.read(JOB, 1, 0)] == [("seo", counts)]
    assert [(outline.end, outline.lines) for outline in logs.outline(JOB)] == [(8, counts)]


def test_a_spider_that_makes_up_loggers_makes_no_chunk_larger(database: Documents) -> None:
    logs = LogStore(database)
    logs.append(chunk(0, b"one\n", lines={(f"logger {number}", "INFO"): 1 for number in range(1000)}))
    assert logs.outline(JOB)[0].lines == {}


class Meanwhile(CommandListener):
    """Does something once: when the first find has been answered."""

    def __init__(self, act: Callable[[], None]) -> None:
        self._act: Callable[[], None] | None = act

    def started(self, event: CommandStartedEvent) -> None:
        """Nothing yet."""

    def succeeded(self, event: CommandSucceededEvent) -> None:
        if event.command_name == "find" and (act := self._act):
            self._act = None
            act()

    def failed(self, event: CommandFailedEvent) -> None:
        """Never."""


def test_a_log_that_grows_while_it_is_read_has_no_hole(embedded_uri: str) -> None:
    name = f"test_{uuid.uuid4().hex[:12]}"

    def grow() -> None:
        logs.append(chunk(0, b"one\ntwo\n"))
        logs.append(chunk(8, b"three\n"))

    with MongoClient[Any](embedded_uri) as writer:
        logs = LogStore(writer[name])
        with MongoClient[Any](embedded_uri, event_listeners=[Meanwhile(grow)]) as reader:
            logs.append(chunk(0, b"one\n"))
            assert [found.data for found in LogStore(reader[name]).read(JOB, 1, 4)] == [b"one\ntwo\n", b"three\n"]
        writer.drop_database(name)


def test_the_chunks_of_all_attempts_are_read_in_order(database: Documents) -> None:
    logs = LogStore(database)
    for attempt, start in ((1, 0), (1, 10), (2, 0), (2, 10), (11, 0)):
        logs.append(chunk(start, b"a" * 10, attempt=attempt))
    logs.append(chunk(0, b"other", job=OTHER))

    def found(since: Position, until: Position) -> list[tuple[int, int]]:
        return [(read.attempt, read.start) for read in logs.chunks(JOB, since, until)]

    assert found(Position(0, 0), Position(99, 0)) == [(1, 0), (1, 10), (2, 0), (2, 10), (11, 0)]
    assert found(Position(1, 10), Position(2, 10)) == [(1, 10), (2, 0)]


def test_what_is_not_stored_ends_an_answer_and_is_passed_over_by_the_next(database: Documents) -> None:
    logs = LogStore(database)
    for start in (0, 4, 12):
        logs.append(chunk(start, b"line"))
    assert [found.start for found in logs.read(JOB, 1, 0)] == [0, 4]
    assert [found.start for found in logs.read(JOB, 1, 8)] == [12]


def heartbeat(nodes: NodeStore, name: str = "n1", *, slots: int = 2, alive: tuple[str, ...] = ()) -> Node:
    nodes.heartbeat(
        name, url="http://n:6800", max_slots=slots, alive=alive, present=alive, beating_since=utc_now(), version="1"
    )
    node = nodes.get(name)
    assert node is not None
    return node


def take(database: Documents, resource: str, attempt: str, most: int = 9) -> bool:
    return bool(HoldStore(database).take([Wish(resource, attempt, most)], "t"))


@on_servers
def test_a_node_registers_itself_and_keeps_its_slots(database: Documents) -> None:
    nodes = NodeStore(database)
    heartbeat(nodes)
    assert take(database, "node:n1", f"{JOB}-1")
    assert heartbeat(nodes, alive=(f"{JOB}-1",)).used_slots == 1
    assert [found.id for found in nodes.all()] == ["n1"]
    assert nodes.all(attempts=False)[0].alive == []
    assert nodes.get("n2") is None


@on_servers
def test_a_node_shows_what_is_free(database: Documents) -> None:
    nodes = NodeStore(database)
    facts = {"url": "http://n:6800", "max_slots": 3, "alive": (), "present": (), "beating_since": utc_now()}
    assert nodes.heartbeat("n1", max_render_slots=1, eggs=[Egg("a.b$", "1.0")], **facts)
    assert not nodes.heartbeat("n1", max_render_slots=1, eggs=[Egg("a.b$", "1.0")], **facts)
    (node,) = nodes.all()
    assert (node.eggs, node.free_slots, node.free_render_slots) == ([Egg("a.b$", "1.0")], 3, 1)
    for resource in ("node:n1", "browser:n1"):
        assert take(database, resource, f"{JOB}-1")
    (node,) = nodes.all()
    assert (node.free_slots, node.free_render_slots, node.taken_slots) == (2, 0, 1)


def test_a_node_that_lives_is_not_forgotten(database: Documents) -> None:
    nodes = NodeStore(database)
    old, alive = heartbeat(nodes, "old"), heartbeat(nodes, "alive")
    assert not nodes.forget(alive.model_copy(update={"heartbeat_at": utc_now() - timedelta(days=9)}))
    assert nodes.forget(old)
    assert nodes.forget(old), "whoever did it"
    assert [node.id for node in nodes.all()] == ["alive"]


@pytest.fixture
def clock() -> Clock:
    """A second passes between two looks at it."""
    began, seconds = utc_now(), itertools.count()
    return lambda: began + timedelta(seconds=next(seconds))


@on_servers
def test_a_drained_node_that_lives_when_it_is_forgotten_stays_drained(database: Documents, clock: Clock) -> None:
    nodes = NodeStore(database, clock)
    heartbeat(nodes)
    dead = nodes.drain("n1")
    assert dead is not None
    heartbeat(nodes)
    assert not nodes.forget(dead)
    assert not take(database, "node:n1", f"{JOB}-1")
    nodes.resume("n1")
    assert not nodes.forget(dead)
    assert take(database, "node:n1", f"{JOB}-1"), "it was resumed meanwhile"


@on_servers
def test_a_drained_node_may_go_once_it_was_heard_of_after_the_end_of_its_last_crawl(
    database: Documents, clock: Clock
) -> None:
    nodes = NodeStore(database, clock)
    heartbeat(nodes)
    assert take(database, "node:n1", f"{JOB}-1")
    nodes.drain("n1")
    assert heartbeat(nodes).waits_for == ["running crawls: 1"]
    HoldStore(database, clock).free(f"{JOB}-1", ["node:n1", "browser:n1"])
    (left,) = nodes.all()
    assert [waits.partition(" (")[0] for waits in left.waits_for] == ["a sign of life"]
    assert heartbeat(nodes).waits_for == []


@on_servers
def test_a_node_that_has_failed_is_tried_with_one_attempt_at_a_time(database: Documents) -> None:
    nodes = NodeStore(database)
    node = heartbeat(nodes)
    assert nodes.begin_trial(node, f"{JOB}-1")
    assert not nodes.begin_trial(node, f"{OTHER}-1")
    assert take(database, "node:n1", f"{JOB}-1")
    assert nodes.all()[0].is_tried
    HoldStore(database).free(f"{JOB}-1", ["node:n1"])
    assert not nodes.all()[0].is_tried


def test_a_node_dies_by_the_clock(database: Documents) -> None:
    node = heartbeat(NodeStore(database))
    assert node.is_alive(utc_now(), timedelta(seconds=10))
    assert not node.is_alive(utc_now() + timedelta(seconds=11), timedelta(seconds=10))


def test_a_node_publishes_what_it_can_run_now(database: Documents) -> None:
    spiders = SpiderStore(database)
    seo = SpiderInfo(project="default", name="seo", params_schema={"$defs": {"a.b": {}}, "$ref": "#/$defs/a.b"})
    old = SpiderInfo(project="default", name="old")
    spiders.publish("n1", [seo, old])
    spiders.publish("n2", [seo])
    spiders.publish("n1", [seo])
    assert spiders.all() == [seo]


def test_a_node_that_publishes_again_changes_what_has_changed(database: Documents) -> None:
    begin = utc_now()
    same, before, after = (
        SpiderInfo(project="default", name=name, description=text)
        for name, text in (("same", "it"), ("other", "before"), ("other", "after"))
    )
    SpiderStore(database, lambda: begin).publish("n1", [same, before])
    SpiderStore(database, lambda: begin + timedelta(hours=1)).publish("n1", [same, after])
    assert SpiderStore(database).all() == [after, same]


def test_a_spider_is_what_the_node_says_that_published_last(database: Documents) -> None:
    now = utc_now()
    before, after = (SpiderInfo(project="default", name="seo", description=text) for text in ("before", "after"))
    SpiderStore(database, lambda: now).publish("a", [after])
    SpiderStore(database, lambda: now - timedelta(days=1)).publish("b", [before])
    assert SpiderStore(database).all() == [after]


def test_a_node_that_publishes_the_same_again_is_the_one_that_counts(database: Documents) -> None:
    now = utc_now()
    before, after = (SpiderInfo(project="default", name="seo", description=text) for text in ("before", "after"))
    for hours, node, info in ((0, "a", after), (1, "b", before), (2, "a", after)):
        SpiderStore(database, lambda hours=hours: now + timedelta(hours=hours)).publish(node, [info])
    assert SpiderStore(database).all() == [after]


def test_everyone_of_a_kind_is_known_by_the_latest_sign_of_life(database: Documents) -> None:
    begin = utc_now().replace(microsecond=0)
    moments = iter([begin + timedelta(seconds=number) for number in range(4)])
    heartbeats = HeartbeatStore(database, lambda: next(moments))
    assert heartbeats.all(BEAT) == []
    for name in ("beat:b", "worker:a", "beat:a", "beat:b"):
        heartbeats.beat(name)
    later = [begin + timedelta(seconds=number) for number in (2, 3)]
    assert [(one.name, one.at) for one in heartbeats.all(BEAT)] == [("beat:a", later[0]), ("beat:b", later[1])]


@pytest.fixture
def jobs(database: Documents) -> JobStore:
    return JobStore(database)


@on_servers
def test_what_was_left_undone_is_found(database: Documents, jobs: JobStore) -> None:
    sweeps, queue = JobSweeps(database), JobQueue(database)
    waiting, ending, cancelled = make_job(), make_job(priority=5), make_job()
    for job in (waiting, ending, cancelled):
        jobs.insert(job)
    jobs.mark_running(ending.id, assigned(queue, ending))
    assert sweeps.running_on("n1") == [ending.id]
    assert sweeps.running_on("n2") == []
    assert list(jobs.to_attend(utc_now(), 9)) == []
    jobs.record_exit(ending.id, 1, ExitReport(attempt=1, ended_at=utc_now(), exit_code=0), 0)
    assert [job.id for job in jobs.to_attend(utc_now(), 9)] == [ending.id]
    jobs.request_cancel(cancelled.id)
    # one that waits is a worker's
    later = utc_now() + timedelta(seconds=CANCEL_SECONDS)
    assert [job.id for job in jobs.to_attend(later, 9)] == [ending.id]
    assert [job.id for job in JobQueue(database, lambda: later).overdue(9)] == [cancelled.id]
    jobs.finish(jobs.get(ending.id), Outcome(JobStatus.FINISHED, Reason.COMPLETED, "done"))
    assert [job.id for job in jobs.to_attend(utc_now(), 9)] == [ending.id]
    jobs.settle(ending.id)
    jobs.attend_later(ending.id, -1)
    assert list(jobs.to_attend(utc_now(), 9)) == []
