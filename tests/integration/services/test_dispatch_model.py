"""The dispatcher's loop and its tasks of nodes, in situations that hypothesis finds: nodes that hang, refuse, lose
answers and die, stores that raise before or after they have written, and messages that never come.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, ClassVar, NamedTuple

import pytest
from conftest import DEAD_AFTER, Platform
from dispatch_story import PlatformAtHand
from forms import full_or_short
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from jobs import make_job
from node_double import NodeDouble, node_double
from pymongo.errors import AutoReconnect

from gateway.contract.outbox import AttemptId
from gateway.contract.records import ExitReport, Progress, SpiderReport
from gateway.dispatch.dispatcher import CLOCK_MARGIN
from gateway.dispatch.sweeping import TAKEN_FOR
from gateway.jobs.job import JobStatus

SLOTS = 2
NODES = ("n1", "n2", "n3")
#: `swallow`: the node does not answer a post, and has not taken the attempt; `mute`: it does not answer, but has
#: taken the attempt.
MODES = ("ok", "refuse", "full", "lost", "vanish", "hang", "broken", "swallow", "mute")
#: Calls of stores, one of which fails once.
CALLS = (
    *(
        "jobs.mark_running",
        "jobs.attend_later",
        "queue.assign",
        "queue.release",
        "queue.take_over",
        "queue.ask_later",
    ),
    *("queue.overdue", "queue.running", "queue.without", "holds.take", "holds.free", "nodes.lately", "nodes.failed"),
)


class Post(NamedTuple):
    node: str
    at: datetime
    not_after: datetime
    arrived: bool


class Worker(RuleBasedStateMachine):
    """One worker, which finishes all jobs in the end, when all stores and nodes are well again."""

    platform: Platform
    redis_url: ClassVar[str]
    doubles: ClassVar[dict[str, NodeDouble]]

    def __init__(self) -> None:
        super().__init__()
        for name in ("jobs", "holds", "nodes"):
            self.platform.database[name].delete_many({})
        self.platform = PlatformAtHand(self.redis_url, self.doubles["n1"], self.platform.database)
        self.made: list[str] = []
        #: The posts of each attempt, by its name.
        self.posts: defaultdict[str, list[Post]] = defaultdict(list)
        self.ended: dict[str, datetime] = {}
        self.seen = dict.fromkeys(NODES, 0)
        self.dead: set[str] = set()
        for name in NODES:
            double = self.doubles[name]
            well(double)
            double.requests.clear()
            double.taken, double.barred = set(), set()
        self.beat()

    # --- rules: what happens around the worker

    @rule(count=st.integers(1, 3))
    def crawls_are_asked_for(self, count: int) -> None:
        for job in [make_job(max_retries=9) for _ in range(count)]:
            self.platform.jobs.insert(job)
            self.made.append(job.id)

    @rule(name=st.sampled_from(NODES), mode=st.sampled_from(MODES))
    def a_node_changes(self, name: str, mode: str) -> None:
        double = self.doubles[name]
        double.silent = {"/schedule.json"} if mode in {"swallow", "mute"} else set()
        double.mode = mode if mode not in {"swallow", "mute"} else "ok"
        double.takes = mode != "swallow"

    @rule(name=st.sampled_from(NODES))
    def a_node_dies(self, name: str) -> None:
        self.dead.add(name)
        self.doubles[name].mode = "vanish"

    @rule(seconds=st.sampled_from([1, 3, 20, 70]))
    def time_passes(self, seconds: int) -> None:
        self.platform.ahead += timedelta(seconds=seconds)
        self.beat()

    @rule(call=st.sampled_from(CALLS), has_written=st.booleans())
    def a_store_raises_once(self, call: str, has_written: bool) -> None:  # noqa: FBT001 - as hypothesis calls it
        part, name = call.split(".")
        fail_once(getattr(self.platform, part), name, has_written=has_written)

    @precondition(lambda self: self.made)
    @rule(data=st.data())
    def a_crawl_is_to_stop(self, data: st.DataObject) -> None:
        self.platform.jobs.request_cancel(data.draw(st.sampled_from(self.made)))

    @rule()
    def crawls_end(self) -> None:
        for found in self.platform.database["jobs"].find({"status": JobStatus.RUNNING}):
            attempt = AttemptId(found["_id"], found["attempt"])
            now = self.ended[str(attempt)] = self.platform.clock()
            report = SpiderReport(finish_reason="finished", progress=Progress(completed_pages=1), ended_at=now)
            facts = ExitReport(attempt=attempt.attempt, exit_code=0, ended_at=now, report=report)
            self.platform.completion.record_exit(attempt, facts, 0)
            # the sweep does what a store's failure leaves undone here
            with suppress(AutoReconnect):
                self.platform.completion.conclude(attempt.job_id)

    # --- rules: what the worker does

    @rule(is_told=st.booleans())
    def it_looks(self, is_told: bool) -> None:  # noqa: FBT001 - as hypothesis calls it
        names = [
            str(found["_id"]) for found in self.platform.database["jobs"].find({"status": "pending"}, {"_id": 1})
        ]
        is_well = not FAILING
        self.look(*(names if is_told else ()))
        self.note_posts()
        if is_well:
            self.check_nobody_waits_in_vain()

    def look(self, *names: str) -> None:
        # after an error, the real loop looks again
        with suppress(AutoReconnect):
            self.platform.dispatch.fill(*names)
        self.platform.dispatch.wait()

    # --- what must hold

    @invariant()
    def no_task_leaks(self) -> None:
        assert self.platform.dispatch.tasks.busy() == set()

    @invariant()
    def no_attempt_is_posted_to_two_nodes(self) -> None:
        for posts in self.posts.values():
            assert len({post.node for post in posts}) == 1

    @invariant()
    def nothing_runs_twice(self) -> None:
        for name, posts in self.posts.items():
            attempt = AttemptId.parse(name)
            assert attempt is not None
            before = self.posts.get(str(AttemptId(attempt.job_id, attempt.attempt - 1)), [])
            first, over = posts[0].at, self.ended.get(str(AttemptId(attempt.job_id, attempt.attempt - 1)))
            for post in before:
                is_over = (over is not None and over <= first) or first > post.not_after + CLOCK_MARGIN
                assert is_over or not post.arrived, (name, posts, before)

    def check_nobody_waits_in_vain(self) -> None:
        # without the jobs whose holds a failed look has left: the sweep frees these holds
        taken = {attempt for attempts in self.platform.held().values() for attempt in attempts}
        found = self.platform.database["jobs"].find({"status": "pending", "lane": {"$exists": True}})
        waiting = [job["_id"] for job in found if str(AttemptId(job["_id"], job["attempt"] + 1)) not in taken]
        now, nodes = self.platform.clock(), self.platform.nodes.all()
        free = [
            node.id
            for node in nodes
            if node.free_slots and not (node.failures or node.is_resting) and node.is_alive(now, DEAD_AFTER)
            and self.doubles[node.id].mode == "ok" and not self.doubles[node.id].silent
        ]  # fmt: skip
        assert not (waiting and free), (waiting, free)

    def teardown(self) -> None:
        """When all is well again, all crawls end, nothing is held, and no task is left."""
        FAILING.clear()
        self.dead.clear()
        for double in self.doubles.values():
            well(double)
        for _ in range(12):
            self.time_passes(20)
            self.platform.sweeper.sweep()
            self.look()
            self.note_posts()
            self.nothing_runs_twice()
            self.crawls_end()
            self.platform.ahead += TAKEN_FOR
            self.beat()
            self.platform.reconcile()
            left = list(self.platform.database["jobs"].find({"settled": {"$ne": True}}))
            if not left and not self.platform.held():
                break
        assert (left, self.platform.held(), self.platform.dispatch.tasks.busy()) == ([], {}, set())

    # --- the nodes

    def beat(self) -> None:
        """All nodes that live report their attempts."""
        self.note_posts()
        for name in set(NODES) - self.dead:
            present = [
                attempt for attempt, posts in self.posts.items()
                if attempt not in self.ended and any(post.arrived and post.node == name for post in posts)
            ]  # fmt: skip
            since = self.platform.clock() - timedelta(hours=1)
            self.platform.nodes.heartbeat(
                name, url=self.doubles[name].url, max_slots=SLOTS, alive=present, present=present, beating_since=since
            )

    def note_posts(self) -> None:
        for name, double in self.doubles.items():
            posts = [form for path, form in double.requests if path == "/schedule.json"]
            for form in posts[self.seen[name] :]:
                not_after = datetime.fromisoformat(json.loads(form["spec"])["not_after"])
                arrived = form["jobid"] in (double.taken or ())
                post = Post(name, self.platform.clock(), not_after, arrived)
                self.posts[form["jobid"]].append(post)
            self.seen[name] = len(posts)


def well(double: NodeDouble) -> None:
    double.mode, double.silent, double.takes = "ok", set(), True


#: Calls that are to fail once.
FAILING: set[tuple[int, str]] = set()


def fail_once(part: Any, name: str, *, has_written: bool) -> None:
    whole: Callable[..., Any] = getattr(type(part), name).__get__(part)
    key = (id(part), name)
    FAILING.add(key)

    def failing(*given: Any, **named: Any) -> Any:
        if key not in FAILING:
            return whole(*given, **named)
        FAILING.discard(key)
        if has_written:
            whole(*given, **named)
        raise AutoReconnect("connection closed")

    setattr(part, name, failing)


@pytest.fixture
def doubles(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, NodeDouble]]:
    for name in ("CALL_SECONDS", "VERDICT_SECONDS"):
        monkeypatch.setattr(f"gateway.nodes.scrapyd.{name}", 0.3)
    with node_double() as first, node_double() as second, node_double() as third:
        yield dict(zip(NODES, (first, second, third), strict=True))


def test_whatever_fails_each_crawl_starts_where_it_can_and_none_twice(
    platform: Platform, redis_url: str, doubles: dict[str, NodeDouble]
) -> None:
    Worker.platform, Worker.redis_url, Worker.doubles = platform, redis_url, doubles
    run_state_machine_as_test(
        Worker,
        settings=settings(
            max_examples=full_or_short(200, 10), stateful_step_count=15, deadline=None, database=None,
            suppress_health_check=list(HealthCheck), phases=(Phase.generate, Phase.shrink),
        ),
    )  # fmt: skip
