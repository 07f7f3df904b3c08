"""Fills free slots with the best waiting jobs. The message that wakes a worker is only a reason to look."""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import NamedTuple, TypeVar

import structlog
from attrs import define, field
from pymongo.errors import PyMongoError

from gateway.clock import VERDICT_SECONDS, Clock, utc_now
from gateway.contract.crawl import SETTINGS_PROTOCOL, protocol_of
from gateway.contract.outbox import AttemptId, StopReason
from gateway.contract.records import NodeSpec
from gateway.dispatch.fair_queue import FairQueue, NodeChoice, Selection, configured_projects, without_outdated
from gateway.dispatch.why_jobs_wait import why_blocked, why_waits
from gateway.errors import DiscoveryBotError, NodeError, NodeRefusedError, NodeUnreachableError
from gateway.jobs.backoff import backoff
from gateway.jobs.completion import Completion
from gateway.jobs.job import Assignment, Job, JobStatus, WaitingReason
from gateway.jobs.messages import EventPublisher, about, correlation_of
from gateway.jobs.outcome import Outcome
from gateway.jobs.queue import Candidate, JobQueue
from gateway.jobs.store import CANCEL_SECONDS, JobStore
from gateway.nodes.health import NodeHealth, NodeProbe
from gateway.nodes.holds import HoldStore, Wish
from gateway.nodes.node import browser_resource, node_resource, user_resource
from gateway.nodes.scrapyd import ScrapydClient
from gateway.nodes.store import Node, NodeStore
from gateway.projects.eggs import EggCopies
from gateway.projects.environment import HandedOver, ProjectEnvironment, ProjectStore
from gateway.stores.mongo import within


def node_spec(job: Job, assignment: Assignment, given: HandedOver) -> NodeSpec:
    """Without the variables, which never become a file."""
    return NodeSpec(
        **{**dict(job.spec), "env": {}, "settings": given.settings},
        has_env=bool(given.env),
        left_on=job.prefer,
        job_id=job.id,
        attempt=assignment.attempt,
        not_after=assignment.until,
        user_id=job.user_id,
        correlation_id=correlation_of(job),
        instance=assignment.instance,
    )


log = structlog.get_logger()
#: A node, or its name.
NodeT = TypeVar("NodeT", Node, str)

#: How many jobs are assigned at once.
BATCH = 64
#: How many jobs are read at once because their node's answer is missing or their backoff is over.
OVERDUE = 200
#: Seconds after which a look ends even if more jobs wait: messages of other kinds need their turn.
LOOK_SECONDS = 2.0
#: How many nodes are called at once.
POSTING = 16
#: How many other calls to one node may be under way at once.
CALLS = 4
#: Seconds within which a node must start an attempt; after that it must not start it any more.
START_SECONDS = 120
#: A node's idea of MongoDB's time may be wrong by this much.
CLOCK_MARGIN = timedelta(seconds=30)
#: A job is given up after this many refusals in a row.
MAX_DISPATCH_FAILURES = 8
#: Seconds between two looks at a job whose node cannot be asked.
LATER_SECONDS = 2
#: The longest backoff of a job that no node has, and of a job that a node may have.
MAX_DELAY = timedelta(seconds=60)
MAX_UNSURE_DELAY = timedelta(seconds=8)


class _Planned(NamedTuple):
    """A job and the node that is to run it."""

    candidate: Candidate
    node: Node
    assignment: Assignment

    @property
    def attempt(self) -> str:
        return str(AttemptId(self.candidate.job_id, self.assignment.attempt))

    def wishes(self, most_of_user: int) -> list[Wish]:
        """The holds that the attempt needs."""
        partition, node = self.candidate.partition, self.node
        wishes = [
            Wish(node_resource(node.id), self.attempt, node.max_slots),
            Wish(user_resource(partition.user_id), self.attempt, most_of_user or None),
        ]
        if partition.requirements.render:
            wishes.append(Wish(browser_resource(node.id), self.attempt, node.max_render_slots))
        if self.candidate.exclusive:
            wishes.append(Wish(self.candidate.exclusive, self.attempt, 1))
        return wishes


@define(eq=False, repr=False, slots=False)
class NodeCalls:
    """Calls to nodes that run in the background. The caller asks again if a call has no effect. `CALLS` limits how
    many threads a node that does not answer can keep busy.
    """

    _nodes: NodeStore
    _health: NodeHealth
    _clock: Clock
    _threads: Executor
    #: How many calls to each node are under way.
    _under_way: Counter[str] = field(init=False, factory=Counter)
    _counting: threading.Lock = field(init=False, factory=threading.Lock)

    def make(self, node_id: str, step: Callable[[Node], object]) -> None:
        """Carry out the step soon; skip it if `CALLS` calls to the node are under way."""
        with self._counting:
            if self._under_way[node_id] >= CALLS:
                return
            self._under_way[node_id] += 1
        self._threads.submit(self._carry_out, node_id, step)

    def _carry_out(self, node_id: str, step: Callable[[Node], object]) -> None:
        began_at = self._clock()
        try:
            if (node := self._nodes.get(node_id)) is not None:
                step(node)
        except NodeError as error:
            log.warning("node_call_failed", node=node_id, error=error.message)
            if error.is_nodes_fault:
                self._health.failed(node_id, error.message, began_at)
        except (DiscoveryBotError, PyMongoError) as error:
            log.warning("node_call_failed", node=node_id, error=str(error))
        finally:
            with self._counting:
                self._under_way[node_id] -= 1


@define(eq=False, repr=False, slots=False, kw_only=True)
class Dispatch:
    _jobs: JobStore
    _queue: JobQueue
    _holds: HoldStore
    _nodes: NodeStore
    _copies: EggCopies
    _scrapyd: ScrapydClient
    _environment: ProjectEnvironment
    _projects: ProjectStore
    _completion: Completion
    _fair: FairQueue
    _publisher: EventPublisher
    _probe: NodeProbe
    _dead_after: timedelta
    _clock: Clock = utc_now
    _monotonic: Callable[[], float] = time.monotonic
    #: Carries out the calls in the background. Default: threads of its own.
    _threads: Executor | None = field(default=None, alias="calls")
    _health: NodeHealth = field(init=False)
    _calls: NodeCalls = field(init=False)
    _posting: Executor = field(init=False)
    _looking: threading.Lock = field(init=False, factory=threading.Lock)
    #: Nodes that are being posted to. So a node that does not answer costs one time-out, and not one for each job.
    _busy: set[str] = field(init=False, factory=set)
    #: Since the last look: jobs that messages named; whether a look was asked for; whether it includes overdue jobs.
    _named: list[str] = field(init=False, factory=list)
    _is_asked: bool = field(init=False, default=False)
    _is_overdue: bool = field(init=False, default=False)
    #: Whether the last look left out nodes because they were busy.
    _passed_over: bool = field(init=False, default=False)

    def __attrs_post_init__(self) -> None:
        self._health = NodeHealth(self._nodes, self._clock)
        threads = self._threads or ThreadPoolExecutor(POSTING, thread_name_prefix="node-calls")
        self._calls = NodeCalls(self._nodes, self._health, self._clock, threads)
        self._posting = ThreadPoolExecutor(POSTING, thread_name_prefix="dispatch")

    # --- the look

    def fill(self, *hints: str | None, overdue: bool = True) -> int:
        """Start jobs until no slot or no job is left, or `LOOK_SECONDS` are over. Returns how many this call started.
        `hints` name the jobs that the message was about. With `overdue` the look includes jobs whose node has not
        answered or whose backoff is over.

        One thread looks at a time. Another thread leaves its request to that thread, which looks once more, and
        returns at once.
        """
        self._named += filter(None, hints)
        self._is_asked, self._is_overdue = True, self._is_overdue or overdue
        try:
            return self._fill()
        except PyMongoError as error:
            # the connection may have died; try again, because other threads rely on this look
            log.warning("look_failed", error=str(error), kind=type(error).__name__)
            self._is_asked = self._is_overdue = True
            return self._fill()

    def _fill(self) -> int:
        started, end = 0, self._monotonic() + LOOK_SECONDS
        while self._is_asked and self._monotonic() < end and self._looking.acquire(blocking=False):
            try:
                with within(VERDICT_SECONDS):
                    assigned, overdue = self._look()
            finally:
                self._looking.release()
            started += self._by_node(assigned, self._post_to_node)
            started += self._by_node(overdue, self._settle_all)
            # another thread has left out the nodes that were busy with this one
            self._is_asked |= self._passed_over
        return started

    def _look(self) -> tuple[list[tuple[Job, Node]], list[tuple[Job, str]]]:
        """Newly assigned jobs with their nodes, and jobs whose nodes are to be asked again. These nodes are busy
        until they have answered.
        """
        is_overdue, self._is_asked, self._is_overdue, self._passed_over = self._is_overdue, False, False, False
        overdue = self._overdue() if is_overdue else []
        busy = self._busy | {node for _, node in overdue}
        named, self._named = self._named, []
        try:
            assigned = self._assign_batch(named, busy)
        except PyMongoError:
            self._named += named
            raise
        # not earlier: if an error is raised before this line, the look is repeated with all nodes
        self._busy |= {node.id for _, node in assigned} | {node for _, node in overdue}
        return assigned, overdue

    def _assign_batch(self, named: Sequence[str], busy: set[str]) -> list[tuple[Job, Node]]:
        """The next jobs, each assigned to a node and with all its holds."""
        look = self._fair.look()
        if not named and self._fair.is_empty():
            return []
        self._fair.named(named)
        nodes = self._up_to_date(self._nodes.lately())
        configured = configured_projects(self._projects, nodes)
        choice = NodeChoice(nodes, self._clock(), self._dead_after, configured, busy)
        planned = self._plan(choice, look)
        taken, tried = self._take(planned)
        jobs = {job.id: job for job in self._queue.assign([(one.candidate, one.assignment) for one in tried])}
        # there may be more; and if some jobs no longer wait, others may go in their place
        self._is_asked |= len(planned) == BATCH or len(jobs) < len(tried)
        self._passed_over = bool(busy)
        refused = {one.candidate.job_id for one in planned} - jobs.keys()
        left = refused.union(named) - jobs.keys()
        try:
            self._give_back(planned, tried, taken, jobs)
            if refused:
                # a node gave no hold, so it is not any more as it was read: full, or drained
                nodes = self._up_to_date(self._nodes.lately(anew=True))
            if left:
                self._explain(left, NodeChoice(nodes, self._clock(), self._dead_after, configured))
        except PyMongoError as error:
            if not jobs:
                raise
            # what is assigned goes to its node all the same, and another look does the rest after that
            log.warning("rest_of_look_failed", error=str(error), kind=type(error).__name__)
            self._named += left
            self._is_asked = True
        return [(jobs[one.candidate.job_id], one.node) for one in planned if one.candidate.job_id in jobs]

    def _up_to_date(self, nodes: list[Node]) -> list[Node]:
        """The same nodes, without eggs that another deployment has replaced."""
        return without_outdated(nodes, self._copies.outdated()) if any(node.eggs for node in nodes) else nodes

    def _plan(self, choice: NodeChoice, look: Selection) -> list[_Planned]:
        """Choose jobs and their nodes from what is known now; nothing is written."""
        planned: list[_Planned] = []
        token, until = uuid.uuid4().hex, self._clock() + timedelta(seconds=START_SECONDS)
        while len(planned) < BATCH and (capacity := choice.capacity()) is not None:
            candidate = look.next(capacity)
            if candidate is None:
                break
            node = choice.place(candidate.partition.requirements, candidate.avoid, candidate.prefer)
            if node is None:
                look.pass_over(candidate)
                continue
            look.started(candidate)
            assignment = Assignment(
                attempt=candidate.attempt + 1,
                node=node.id,
                token=token,
                until=until,
                instance=node.instance,
                is_trial=bool(node.failures) or None,
            )
            planned.append(_Planned(candidate, node, assignment))
        return planned

    def _take(self, planned: Sequence[_Planned]) -> tuple[set[tuple[str, str]], list[_Planned]]:
        """Take the holds, before anything is assigned: so an assigned attempt never lacks one. Returns which were
        taken, as resource and attempt, and what may be assigned.
        """
        if not planned:
            return set(), []
        wishes = {one.attempt: one.wishes(self._fair.most) for one in planned}
        taken = self._holds.take([wish for group in wishes.values() for wish in group], planned[0].assignment.token)
        lacking = {wish.attempt for group in wishes.values() for wish in group if wish[:2] not in taken}
        return taken, [one for one in planned if one.attempt not in lacking and self._may_try(one)]

    def _give_back(
        self,
        planned: Sequence[_Planned],
        tried: Sequence[_Planned],
        taken: set[tuple[str, str]],
        assigned: Collection[str],
    ) -> None:
        """Give back the holds of the attempts that are not assigned."""
        missing = [one for one in tried if one.candidate.job_id not in assigned]
        # another worker may have taken over what this one has assigned: then that attempt needs its holds
        without = self._queue.without([(one.candidate, one.assignment) for one in missing])
        kept = {one.attempt for one in tried if one.candidate.job_id not in without}
        if taken:
            self._holds.give_back([pair for pair in taken if pair[1] not in kept], planned[0].assignment.token)
        for one in planned:
            if one.candidate.job_id not in assigned:
                self._hindered(one, taken)

    def _may_try(self, one: _Planned) -> bool:
        """A node on probation gets one attempt at a time, until one succeeds."""
        return not one.node.failures or self._nodes.begin_trial(one.node, one.attempt)

    def _hindered(self, one: _Planned, taken: set[tuple[str, str]]) -> None:
        """The attempt did not get all its holds. If its `exclusive` resource is taken, block the job."""
        exclusive, job_id = one.candidate.exclusive, one.candidate.job_id
        if exclusive is None:
            return
        if (exclusive, one.attempt) in taken:
            # a job that this hold has blocked meanwhile may go now
            self._completion.admit(exclusive)
            return
        self._is_asked = True
        if blocked := self._queue.block(job_id, why_blocked(exclusive)):
            self._publisher.status(blocked)
            # if the resource became free before this write, the process that freed it saw no blocked job
            self._completion.admit(exclusive)

    def _explain(self, job_ids: Collection[str], choice: NodeChoice) -> None:
        """Record and publish why these jobs wait."""
        full = self._fair.full()
        reasons: dict[str, WaitingReason] = {}
        for job in self._queue.in_partitions(list(job_ids)):
            if reason := why_waits(job.user_id, choice.reason(job.partition.requirements), full):
                reasons[job.id] = reason
        for waiting in self._queue.note_waiting(reasons) if reasons else ():
            self._publisher.status(waiting)

    # --- posting

    def _by_node(self, jobs: Sequence[tuple[Job, NodeT]], step: Callable[[Sequence[tuple[Job, NodeT]]], int]) -> int:
        """Several nodes at once, the jobs of one node one after the other. Returns the sum of the steps' results."""
        groups: defaultdict[str, list[tuple[Job, NodeT]]] = defaultdict(list)
        for job, node in jobs:
            groups[node if isinstance(node, str) else node.id].append((job, node))
        if len(groups) == 1:
            return step(*groups.values())
        return sum(self._posting.map(step, groups.values()))

    def _post_to_node(self, group: Sequence[tuple[Job, Node]]) -> int:
        node, started = group[0][1], 0
        try:
            for number, (job, _) in enumerate(group):
                with about(job):
                    is_well, accepted = self._post(job, node, is_first=True)
                started += accepted
                if not is_well:
                    # the jobs that are assigned to this node and not posted yet may go to other nodes at once
                    for left, _ in group[number + 1 :]:
                        self._release(left)
                    break
        finally:
            self._busy.discard(node.id)
        return started

    def _post(self, job: Job, node: Node, *, is_first: bool) -> tuple[bool, bool]:
        """Whether the node works, and whether it has accepted the attempt."""
        assignment = job.assignment
        if assignment is None:
            return True, False
        began_at = self._clock()
        try:
            self._hand_over(job, assignment, node)
        except (NodeUnreachableError, NodeRefusedError) as error:
            if error.is_nodes_fault:
                self._health.failed(node.id, error.message, began_at)
            # only after a first post that was refused, or surely did not arrive, does the node surely have nothing
            may_have_arrived = isinstance(error, NodeUnreachableError) and error.may_have_arrived
            self._not_accepted(job, error, certain=is_first and not may_have_arrived)
            return not error.is_nodes_fault, False
        running = self._jobs.mark_running(job.id, assignment)
        log.info("dispatched", job_id=job.id, attempt=assignment.attempt, node=node.id, status="running")
        # None: the tailer saw the attempt run before this worker recorded it
        if running is not None:
            self._publisher.status(running)
            if running.stop_reason:
                # asked for in the meantime; if the call has no effect, the sweeper asks again
                self._jobs.attend_later(running.id, CANCEL_SECONDS)
                self.cancel(running)
        return True, True

    def _hand_over(self, job: Job, assignment: Assignment, node: Node) -> None:
        """Raises `NodeUnreachableError`, `NodeRefusedError`; the latter also if a secret of its project cannot be
        opened here, or if its project got variables or settings after the choice of a node that knows none: the job
        waits, and says so.
        """
        try:
            given = self._environment.handed_over(job.spec)
        except DiscoveryBotError as error:
            raise NodeRefusedError(error.message) from error
        protocol = SETTINGS_PROTOCOL if given.env or given.settings else protocol_of(job.spec)
        if not node.speaks(protocol):
            raise NodeRefusedError(f"node {node.id} does not speak protocol {protocol}, which the crawl needs")
        self._scrapyd.schedule(node.url, node_spec(job, assignment, given), given.env)

    def _not_accepted(self, job: Job, error: NodeError, *, certain: bool) -> None:
        failures = job.dispatch_failures + 1
        again = self._clock() + min(backoff(failures), MAX_DELAY if certain else MAX_UNSURE_DELAY)
        if not certain:
            self._tell(self._queue.ask_later(job, error.message, again))
            return
        failed = self._release(job, not_before=again, message=error.message, avoid=error.is_nodes_fault)
        if failed is not None and not error.is_nodes_fault and failures >= MAX_DISPATCH_FAILURES:
            message = f"no node took it after {failures} tries: {error.message}"
            self._completion.end_waiting(failed, Outcome(JobStatus.ERROR, message))
            return
        self._tell(failed)

    def _tell(self, failed: Job | None) -> None:
        if failed is not None:
            log.warning("dispatch_failed", job_id=failed.id, error=failed.message, failures=failed.dispatch_failures)
            self._publisher.status(failed)

    def _release(
        self, job: Job, *, not_before: datetime | None = None, message: str | None = None, avoid: bool = False
    ) -> Job | None:
        """The attempt can never start: free its holds, and let the job wait for its next attempt."""
        released = self._queue.release(job, not_before=not_before or self._clock(), message=message, avoid=avoid)
        # None: the worker was too slow, and the assignment is no longer its own
        if released is not None and job.assignment is not None:
            if not_before is None:
                # another node may get the job at once
                self._is_asked = self._is_overdue = True
            self._completion.free(job, job.assignment.attempt, job.assignment.node)
        return released

    # --- missing answers

    def _overdue(self) -> list[tuple[Job, str]]:
        """Jobs whose nodes have not answered and are asked again now."""
        found = self._queue.overdue(OVERDUE)
        overdue = [(job, job.assignment.node) for job in found if job.assignment]
        return [(job, node) for job, node in overdue if node not in self._busy]

    def _settle_all(self, group: Sequence[tuple[Job, str]]) -> int:
        """Ask a node again for its answers, even if it has no free slot. Returns how many attempts it accepted."""
        try:
            return sum(self._settle(job) for job, _ in group)
        finally:
            self._busy.discard(group[0][1])

    def _settle(self, found: Job) -> bool:
        job = self._queue.take_over(found, uuid.uuid4().hex)
        if job is None or job.assignment is None:
            return False
        with about(job):
            node = self._nodes.get(job.assignment.node)
            if node is not None and self._may_be_asked(job.assignment, str(_attempt(job)), node):
                if node.failures:
                    self._nodes.begin_trial(node, str(_attempt(job)))
                    job.assignment.is_trial = True
                return self._post(job, node, is_first=False)[1]
            if self._is_late(job.assignment) and not self._may_have(job, node):
                # the node can no longer start it: the next attempt may go anywhere
                self._tell_if_new(found, self._release(job))
            else:
                message = f"node {job.assignment.node} cannot be asked now; it may have taken the attempt"
                later = self._clock() + timedelta(seconds=LATER_SECONDS)
                self._tell_if_new(found, self._queue.ask_later(job, message, later))
        return False

    def _may_be_asked(self, assignment: Assignment, attempt: str, node: Node) -> bool:
        if not node.is_alive(self._clock(), self._dead_after) or node.is_resting or not _is_meant(assignment, node):
            return False
        return attempt in node.present or not self._is_late(assignment)

    def _is_late(self, assignment: Assignment) -> bool:
        return self._clock() > assignment.until + CLOCK_MARGIN

    def _may_have(self, job: Job, node: Node | None) -> bool:
        """Whether the node is live and may have the attempt; a heartbeat after the deadline can rule that out."""
        if node is None or job.assignment is None or not node.is_alive(self._clock(), self._dead_after):
            return False
        has_reported = node.heartbeat_at > job.assignment.until + CLOCK_MARGIN
        return not has_reported or str(_attempt(job)) in node.present

    def _tell_if_new(self, before: Job, now: Job | None) -> None:
        if now is not None and (now.message, now.assignment is None) != (before.message, before.assignment is None):
            self._publisher.status(now)

    # --- calls in the background; the caller asks again if a call has no effect

    def cancel(self, job: Job) -> None:
        """Ask the node to stop the running attempt, to end the job or to pause it. The exit report says how the
        attempt really ended.
        """
        attempt = job.current
        if attempt is not None and attempt.exit is None:
            why = job.stop_reason or "cancel"
            self.stop(attempt.node, job.spec.project, AttemptId(job.id, attempt.attempt), why)

    def stop(self, node_id: str, project: str, attempt: AttemptId, why: StopReason = "cancel") -> None:
        """Ask the node to stop the attempt."""
        self._calls.make(node_id, lambda node: self._scrapyd.cancel(node.url, project, attempt, why))

    def post_again(self, job: Job) -> None:
        """The attempt shows no sign of life: post it to its node again. That changes nothing if the node has it."""
        attempt = job.current
        if attempt is None or attempt.exit is not None or attempt.started_at is not None:
            return
        # keep the first deadline, because the attempt is given up for lost after it
        until = attempt.dispatched_at + timedelta(seconds=START_SECONDS)
        number, name, instance = attempt.attempt, attempt.node, attempt.instance
        same = Assignment(attempt=number, node=name, token="", until=until, instance=instance)

        def post(node: Node) -> None:
            if _is_meant(same, node):
                self._hand_over(job, same, node)

        self._calls.make(name, post)

    def probe(self, node_id: str, then: Callable[[], object] | None = None) -> None:
        """Ask a node that has rested whether it works, and carry out `then` if it does."""

        def look(node: Node) -> None:
            if self._probe.may_be_asked(node) and node.is_resting and then is not None:
                then()

        self._calls.make(node_id, look)


def _is_meant(assignment: Assignment, node: Node) -> bool:
    """False if another machine has the node's name by now: that one does not have the attempt."""
    return assignment.instance in {None, node.instance}


def _attempt(job: Job) -> AttemptId:
    return AttemptId(job.id, job.attempt)
