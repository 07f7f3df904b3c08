"""Fills free slots with waiting jobs, in the order of the fair queue. A message only wakes a worker: the worker reads
the waiting jobs from MongoDB.
"""

from __future__ import annotations

import random
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from typing import NamedTuple

import structlog
from attrs import define, field

from gateway.clock import VERDICT_SECONDS, Clock, remaining, utc_now
from gateway.contract.crawl import DEFAULT_PROJECT, SETTINGS_PROTOCOL
from gateway.contract.outbox import AttemptId, StopReason
from gateway.contract.reasons import Reason
from gateway.contract.records import NodeSpec
from gateway.dispatch.fair_queue import FairQueue, NodeChoice, Selection, configured_projects, without_outdated
from gateway.dispatch.why_jobs_wait import why_blocked, why_waits
from gateway.errors import (
    BudgetSpentError,
    DiscoveryBotError,
    NeverTakenError,
    NodeError,
    NodeRefusedError,
    NodeUnreachableError,
)
from gateway.jobs.backoff import backoff
from gateway.jobs.completion import Completion
from gateway.jobs.job import Amounts, Assignment, Job, JobStatus, Partition, WaitingReason
from gateway.jobs.messages import EventPublisher, about, correlation_of, status_data
from gateway.jobs.outcome import Outcome
from gateway.jobs.queries import JobSweeps
from gateway.jobs.queue import Candidate, JobQueue
from gateway.jobs.store import CANCEL_SECONDS, JobStore
from gateway.nodes.health import NodeHealth
from gateway.nodes.holds import HoldStore, Wish
from gateway.nodes.node import (
    MAX_REST_SECONDS,
    MAX_SILENT_REST_SECONDS,
    browser_resource,
    node_resource,
    user_resource,
)
from gateway.nodes.scrapyd import CALL_SECONDS, ScrapydClient
from gateway.nodes.store import Failure, Node, NodeStore
from gateway.nodes.tasks import NodeStep, NodeTasks
from gateway.projects.eggs import EggCopies
from gateway.projects.environment import HandedOver, ProjectEnvironment, ProjectStore
from gateway.repeated_work import BATCH, Isolation, Loop, Patience, Step, Steps
from gateway.traced import traced


def node_spec(job: Job, assignment: Assignment, given: HandedOver, allowed: Amounts | None = None) -> NodeSpec:
    """The spec that the node stores. It leaves out environment variables, because they must never be written to a
    file. `allowed`: how much the attempt may use of its API key's budget.
    """
    seconds = (allowed or {}).get("seconds", job.spec.timeout)
    allowance = None if allowed is None else {name: most for name, most in allowed.items() if name != "seconds"}
    return NodeSpec(
        **{**dict(job.spec), "env": {}, "settings": given.settings, "timeout": min(job.spec.timeout, seconds)},
        allowance=allowance,
        has_env=bool(given.env),
        left_on=job.prefer,
        frontier_since=job.frontier_since,
        job_id=job.id,
        attempt=assignment.attempt,
        not_after=assignment.until,
        user_id=job.user_id,
        correlation_id=correlation_of(job),
        instance=assignment.instance,
    )


log = structlog.get_logger()
#: How many jobs are assigned at once.
ASSIGNED = 64
#: How many jobs one query reads: jobs whose node has not answered; running jobs whose nodes are to be asked
#: something; and waiting jobs that get a new waiting reason.
OVERDUE, ASKED, NOTED = 100, 1000, 500
#: For how many partitions one step checks why their jobs wait.
EXPLAINED = 500
#: Seconds between two looks for waiting jobs; for overdue jobs, on a node or not; at why jobs wait; and at all nodes.
LOOK_SECONDS, OVERDUE_SECONDS, EXPLAIN_SECONDS, RECONCILE_SECONDS = 0.5, 1.0, 1.5, 2.5
#: How many nodes are called at once. This should be enough for all nodes, because each of them can hang in a post.
PLACES = 1024
#: Seconds for which a step waits behind another call to its node. After that the step is given up without being sent.
PATIENCE = 2.0
#: Seconds within which a node must start an attempt. It must not start the attempt later.
START_SECONDS = 120
#: A node's estimate of MongoDB's time may be wrong by this much.
CLOCK_MARGIN = timedelta(seconds=30)
#: A job is given up after this many refusals in a row.
MAX_DISPATCH_FAILURES = 8
#: Seconds between two looks at a job whose node cannot be asked.
LATER_SECONDS = 2
#: The longest backoff of a job that certainly no node has, and of a job that a node may have.
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


@define(eq=False, repr=False, slots=False, kw_only=True)
class Dispatch:
    """The dispatcher of a worker: assigns waiting jobs to nodes, posts their attempts, and asks nodes that have not
    answered.
    """

    _jobs: JobStore
    _queue: JobQueue
    _holds: HoldStore
    _nodes: NodeStore
    _sweeps: JobSweeps
    _copies: EggCopies
    _scrapyd: ScrapydClient
    _environment: ProjectEnvironment
    _projects: ProjectStore
    _completion: Completion
    _fair: FairQueue
    _publisher: EventPublisher
    _dead_after: timedelta
    _clock: Clock = utc_now
    _monotonic: Callable[[], float] = time.monotonic
    #: Runs the steps; by default, threads of its own.
    _threads: Executor | None = None
    _health: NodeHealth = field(init=False)
    #: Looks when a message wakes it, and regularly by itself, because messages can get lost.
    loop: Loop = field(init=False)
    tasks: NodeTasks = field(init=False)
    _steps: Steps = field(init=False)
    _patience: Patience = field(init=False, factory=Patience)
    #: The partition after which the next look at why jobs wait continues.
    _explained_to: str = field(init=False, default="")

    def __attrs_post_init__(self) -> None:
        self._health = NodeHealth(self._nodes, self._clock)
        self.loop = Loop(self.look, LOOK_SECONDS)
        self.tasks = NodeTasks(self._scrapyd, PLACES, self._clock, self._node_failed, self.loop.wake)
        self._steps = Steps(
            (
                Step("backoffs", lambda _: self._queue.end_backoffs(), OVERDUE_SECONDS),
                Step("overdue_jobs", self.see_to_overdue, OVERDUE_SECONDS),
                Step("running_jobs", self.see_to_running, OVERDUE_SECONDS),
                Step("rested_nodes", self.see_to_nodes, RECONCILE_SECONDS),
                Step("superseded_attempts", self.end_superseded, RECONCILE_SECONDS),
                Step("waiting_jobs", self.explain_waiting, EXPLAIN_SECONDS),
            ),
            self._threads,
            self._monotonic,
        )

    def close(self) -> None:
        """Stop looking for work, and wait until the posts that are under way are recorded."""
        self.loop.close()
        self._steps.close()
        self.tasks.wait(CALL_SECONDS)

    # --- the look

    def look(self, named: Sequence[str] = ()) -> bool:
        """Assign waiting jobs to free slots, and begin the steps that are due, without waiting for any node. Returns
        whether another look may find more at once. `named` are the jobs that messages asked for. Only the loop calls
        this.
        """
        self.tasks.take_back(PATIENCE)
        self._steps.begin()
        with self._patience.round():
            return self._assign(named)

    def _assign(self, named: Sequence[str]) -> bool:
        """Give the next jobs their holds, and a node to each. Returns whether there may be more."""
        look = self._fair.look()
        if not named and self._fair.is_empty():
            return False
        self._fair.named(named)
        planned = self._plan(self._choice(self.tasks.busy()), look)
        taken, tried = self._take(planned)
        jobs = {job.id: job for job in self._queue.assign([(one.candidate, one.assignment) for one in tried])}
        for one in tried:
            if job := jobs.get(one.candidate.job_id):
                self.tasks.add(one.node, self._posting(job, one.node, is_first=True))
        # if some of the planned jobs no longer wait, others may take their place
        is_blocked = self._give_back(planned, tried, taken, jobs)
        return is_blocked or len(planned) == ASSIGNED or len(jobs) < len(tried)

    def _choice(self, busy: Collection[str] = ()) -> NodeChoice:
        """The choice among the recently read nodes, without eggs that a later deployment has replaced."""
        nodes, now = self._nodes.lately(), self._clock()
        having = [node.id for node in nodes if node.eggs and node.is_alive(now, self._dead_after)]
        nodes = without_outdated(nodes, self._copies.outdated(having)) if having else nodes
        return NodeChoice(nodes, now, self._dead_after, configured_projects(self._projects, nodes), busy)

    def _plan(self, choice: NodeChoice, look: Selection) -> list[_Planned]:
        """Choose jobs and their nodes from what is known now, without writing anything."""
        planned: list[_Planned] = []
        token, until = uuid.uuid4().hex, self._clock() + timedelta(seconds=START_SECONDS)
        while len(planned) < ASSIGNED and (capacity := choice.capacity()) is not None:
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
        """Take the holds before anything is assigned, so that an assigned attempt always has its holds. Returns the
        holds that were taken, each as its resource and attempt, and the planned jobs that may be assigned.
        """
        if not planned:
            return set(), []
        wishes = {one.attempt: one.wishes(self._fair.most) for one in planned}
        taken = self._holds.take([wish for group in wishes.values() for wish in group], planned[0].assignment.token)
        lacking = {wish.attempt for group in wishes.values() for wish in group if wish[:2] not in taken}
        may_go = [one for one in planned if one.attempt not in lacking]
        # a node on probation gets one attempt at a time, until one succeeds
        return taken, [
            one for one in may_go if not one.node.failures or self._nodes.begin_trial(one.node, one.attempt)
        ]

    def _give_back(
        self,
        planned: Sequence[_Planned],
        tried: Sequence[_Planned],
        taken: set[tuple[str, str]],
        assigned: Collection[str],
    ) -> bool:
        """Give back the holds of the attempts that are not assigned. Returns whether a job was blocked, so that
        others may take its place.
        """
        missing = [one for one in tried if one.candidate.job_id not in assigned]
        # another worker may have taken over an assignment of this one: then the attempt needs its holds
        without = self._queue.without([(one.candidate, one.assignment) for one in missing])
        kept = {one.attempt for one in tried if one.candidate.job_id not in without}
        if taken:
            self._holds.give_back([pair for pair in taken if pair[1] not in kept], planned[0].assignment.token)
        hindered = [self._hindered(one, taken) for one in planned if one.candidate.job_id not in assigned]
        return any(hindered)

    def _hindered(self, one: _Planned, taken: set[tuple[str, str]]) -> bool:
        """Block the job if its attempt did not get its `exclusive` resource. Returns whether it did not."""
        exclusive, job_id = one.candidate.exclusive, one.candidate.job_id
        if exclusive is None:
            return False
        if (exclusive, one.attempt) in taken:
            # the hold is given back now: unblock a job that it has blocked meanwhile
            self._completion.admit(exclusive)
            return False
        if blocked := self._queue.block(job_id, why_blocked(exclusive)):
            self._publisher.status(blocked)
            # if the resource became free before this write, the process that freed it saw no blocked job
            self._completion.admit(exclusive)
        return True

    # --- why jobs wait

    def explain_waiting(self, apart: Isolation) -> None:
        """Write into each waiting job why it waits now, if it has another reason or none yet.

        All jobs of a partition wait for the same reason. So it can be found without reading the jobs, and however
        many jobs wait, only those are read whose reason changes.
        """
        partitions = list(islice(self._queue.partitions(self._explained_to), EXPLAINED))
        self._explained_to = str(partitions[-1]) if len(partitions) == EXPLAINED else ""
        if not partitions:
            return
        full, choice = self._fair.full(), self._choice()
        of_nodes = {one.requirements: choice.reason(one.requirements) for one in partitions}
        by_reason: defaultdict[WaitingReason, list[Partition]] = defaultdict(list)
        for one in partitions:
            if reason := why_waits(one.user_id, of_nodes[one.requirements], full):
                by_reason[reason].append(one)
        apart.each(((str(reason), (reason, alike)) for reason, alike in by_reason.items()), self._explain)

    def _explain(self, waiting: tuple[WaitingReason, Sequence[Partition]]) -> None:
        while changed := self._queue.note_waiting(*waiting, NOTED):
            for job in changed:
                self._publisher.status(job)
            if len(changed) < NOTED or remaining(VERDICT_SECONDS) <= 0:
                return

    # --- posting

    def _posting(self, job: Job, node: Node, *, is_first: bool) -> NodeStep:
        def post() -> None:
            with about(job):
                self._post(job, node)

        def failed(error: NodeError) -> None:
            with about(job):
                self._not_accepted(job, error, is_first=is_first)

        return NodeStep(f"post {_attempt(job)}", post, failed)

    @traced("post_to_node")
    def _post(self, job: Job, node: Node) -> None:
        """Post the attempt, and record that the node has accepted it.

        Raises `NodeUnreachableError`, `NodeRefusedError`. If the node's answer was lost, or the node refuses the
        attempt after its deadline, the node is asked whether it has taken it: if not, raises `NeverTakenError`.
        """
        if (assignment := job.assignment) is None:
            return
        try:
            self._hand_over(job, assignment, node)
        except NodeUnreachableError as error:
            taken = self._was_taken(job, node) if error.may_have_arrived else None
            if taken is False:
                raise NeverTakenError(error.message) from error
            if taken is None:
                raise
        except NodeRefusedError as error:
            # a node that was killed while it took the attempt has only an empty folder of it. It refuses the attempt,
            # and would be asked again for ever
            is_late = self._clock() > assignment.until + CLOCK_MARGIN
            if is_late and self._was_taken(job, node) is False:
                raise NeverTakenError(error.message) from error
            raise
        running = self._jobs.mark_running(job.id, assignment)
        log.info("dispatched", job_id=job.id, attempt=assignment.attempt, node=node.id, status="running")
        # None: the tailer saw the attempt run before this worker recorded it
        if running is not None:
            self._publisher.status(running)
            if running.stop_reason:
                # a stop was asked for in the meantime: the look after this task finds it
                self._jobs.attend_later(running.id, CANCEL_SECONDS)

    def _was_taken(self, job: Job, node: Node) -> bool | None:
        """Whether the node says that it took the attempt. If it says no, it never will. `None` if it does
        not answer.
        """
        try:
            return self._scrapyd.was_taken(node.url, job.spec.project, _attempt(job))
        except NodeError:
            return None

    def _hand_over(self, job: Job, assignment: Assignment, node: Node) -> None:
        """Post the attempt to its node. Raises `NodeUnreachableError`, `NodeRefusedError`.

        Also raises `NodeRefusedError` without asking the node, so that the job waits with a message, in these cases:
        a secret of the project cannot be decrypted here; the project was given variables or settings after the choice
        of a node that does not support them; the budget of its API key is spent.
        """
        try:
            given = self._environment.handed_over(job.spec)
            allowed = self._allowance(job, assignment.attempt)
        except BudgetSpentError as error:
            raise NodeRefusedError(error.reason, reason=Reason.BUDGET_SPENT) from error
        except DiscoveryBotError as error:
            raise NodeRefusedError(error.message) from error
        protocol = max(job.protocol, SETTINGS_PROTOCOL if given.env or given.settings else 1)
        if not node.speaks(protocol):
            raise NodeRefusedError(f"node {node.id} does not speak protocol {protocol}, which the crawl needs")
        self._scrapyd.schedule(node.url, node_spec(job, assignment, given, allowed), given.env)

    def _allowance(self, job: Job, attempt: int) -> Amounts | None:
        """How much the attempt may use of the budget of the job's key. First notes the reservation in the job."""
        if (found := self._jobs.budgets.allowance(job, attempt)) is None:
            return None
        use, allowed = found
        if use != job.budget:
            self._jobs.note_budget(job.id, use)
        return allowed

    def _not_accepted(self, job: Job, error: NodeError, *, is_first: bool) -> None:
        failures = job.dispatch_failures + 1
        log.warning("dispatch_failed", job_id=job.id, error=error.message, failures=failures)
        may_have_arrived = isinstance(error, NodeUnreachableError) and error.may_have_arrived
        # the node certainly does not have the attempt if it says so, or if the first post was refused or did not
        # arrive
        if not isinstance(error, NeverTakenError) and (may_have_arrived or not is_first):
            again = self._clock() + min(backoff(failures), MAX_UNSURE_DELAY)
            self._tell(job, self._queue.ask_later(job, error.message, again))
            return
        # if the node is at fault, it rests now, and another node may get the job at once
        pause = timedelta() if error.is_nodes_fault else min(backoff(failures), MAX_DELAY)
        failed = self._release(job, pause, error.message, avoid=error.is_nodes_fault)
        if failed is not None and isinstance(error, NodeRefusedError) and error.reason == Reason.BUDGET_SPENT:
            self._completion.end_waiting(failed, Outcome(JobStatus.ERROR, Reason.BUDGET_SPENT, error.message))
            return
        if failed is not None and not error.is_nodes_fault and failures >= MAX_DISPATCH_FAILURES:
            message = f"no node accepted it after {failures} tries: {error.message}"
            self._completion.end_waiting(failed, Outcome(JobStatus.ERROR, Reason.NO_NODE_TOOK_IT, message))
            return
        self._tell(job, failed)

    def _tell(self, before: Job, now: Job | None) -> None:
        """Publish the job's status if the part that users see has changed."""
        if now is not None and status_data(now) != status_data(before):
            self._publisher.status(now)

    def _release(
        self, job: Job, pause: timedelta = timedelta(), message: str | None = None, *, avoid: bool = False
    ) -> Job | None:
        """Free the holds of an attempt that can never start, and let its job wait for the next attempt. Returns
        `None` if the assignment is no longer this worker's, or if the job was to be stopped, and is stopped now.
        """
        released = self._queue.release(job, not_before=self._clock() + pause, message=message, avoid=avoid)
        if released is None or job.assignment is None:
            return None
        self._completion.free(job, job.assignment.attempt, job.assignment.node)
        if self._completion.stop_waiting(released) is not None:
            return None
        if not pause:
            self._queue.requeue([released])
            self.loop.wake()
        return released

    # --- overdue jobs

    def see_to_overdue(self, apart: Isolation) -> None:
        """Attend to pending jobs whose nodes have not answered, or that are to be stopped."""
        overdue = self._queue.overdue(OVERDUE, self.tasks.busy(), apart.late)
        apart.each(((job.id, job) for job in overdue), self._see_to)

    def _see_to(self, job: Job) -> None:
        with about(job):
            if job.assignment is None:
                self._completion.stop_waiting(job)
            else:
                self._settle(job)

    def _settle(self, found: Job) -> None:
        """Ask the node again for its answer, even if it has no free slot."""
        job = self._queue.take_over(found, uuid.uuid4().hex)
        if job is None or (given := job.assignment) is None:
            return
        now, deadline, node = self._clock(), given.until + CLOCK_MARGIN, self._nodes.find(given.node)
        if node is not None and not node.is_alive(now, self._dead_after):
            node = None
        is_there = node is not None and str(_attempt(job)) in node.present
        if node and not node.is_resting and _is_meant(given, node) and (is_there or now <= deadline):
            if node.failures:
                self._nodes.begin_trial(node, str(_attempt(job)))
                given.is_trial = True
            self.tasks.add(node, self._posting(job, node, is_first=False))
        elif now > deadline and not (node and (is_there or node.heartbeat_at <= deadline)):
            # the node can no longer start the attempt. It has either reported after the deadline that it does not
            # have it, or is not alive. The next attempt may go anywhere
            self._tell(found, self._release(job))
        else:
            message = f"node {given.node} cannot be asked now; it may have taken the attempt"
            later = now + timedelta(seconds=LATER_SECONDS)
            self._tell(found, self._queue.ask_later(job, message, later))

    # --- running attempts whose nodes are to be asked something

    def see_to_running(self, apart: Isolation) -> None:
        """Ask the nodes of running jobs that are to be stopped, or that show no sign of life. Only one worker asks
        about a job at a time; it is repeated until the node has reacted.
        """
        due = self._queue.running(ASKED, timedelta(seconds=CANCEL_SECONDS))
        apart.each(((job.id, job) for job in due if job.needs_its_node), self._ask)

    def _ask(self, job: Job) -> None:
        # twice the time, because workers look CANCEL_SECONDS ahead: so a worker attends to the job before a beat does
        if self._jobs.attended(job, 2 * CANCEL_SECONDS):
            with about(job):
                (self.cancel if job.stop_reason else self.post_again)(job)

    def end_superseded(self, _apart: Isolation) -> None:
        """Stop attempts that are still alive although their job has a newer attempt, or no longer exists."""
        nodes = [node for node in self._nodes.all(held=()) if node.is_alive(self._clock(), self._dead_after)]
        if not any(node.alive for node in nodes):
            return
        wanted = {str(one.id) for one in self._sweeps.live_attempts()}
        alive = ((node, AttemptId.parse(name)) for node in nodes for name in node.alive if name not in wanted)
        unwanted = [(node, attempt) for node, attempt in alive if attempt]
        # choose at random, so that attempts that cannot be stopped do not hold up the others
        found = random.sample(unwanted, min(BATCH, len(unwanted)))
        jobs = self._sweeps.jobs(attempt.job_id for _, attempt in found)
        for node, attempt in found:
            for project in _in_vain(node, attempt, jobs):
                log.warning("superseded_attempt", job_id=attempt.job_id, attempt=attempt.attempt, node=node.id)
                self._stop(node, project, attempt)

    # --- nodes that have failed

    def see_to_nodes(self, _apart: Isolation) -> None:
        """Ask nodes that have rested whether they work again."""
        now, nodes = self._clock(), self._nodes.lately() if self._nodes.is_any_failing() else []
        for node in nodes:
            if node.is_alive(now, self._dead_after) and self._health.may_be_probed(node, nodes):
                self.tasks.add(node, NodeStep("probe", partial(self._health.returned, node)))

    def _node_failed(self, node: Node, error: NodeError, began_at: datetime) -> None:
        is_silent = node.is_resting and isinstance(error, NodeUnreachableError)
        longest = MAX_SILENT_REST_SECONDS if is_silent else MAX_REST_SECONDS
        self._health.note(node.id, Failure(error.message, began_at, longest_rest=longest), node.url)

    # --- calls that are repeated if they have no effect

    def cancel(self, job: Job) -> None:
        """Ask the node to stop the running attempt, because the job is to be cancelled or paused. The exit report
        says how the attempt really ended.
        """
        attempt = job.current
        if attempt is not None and attempt.exit is None and (node := self._nodes.find(attempt.node)) is not None:
            why = job.stop_reason or "cancel"
            self._stop(node, job.spec.project, AttemptId(job.id, attempt.attempt), why)

    def _stop(self, node: Node, project: str, attempt: AttemptId, why: StopReason = "cancel") -> None:
        call = partial(self._scrapyd.cancel, node.url, project, attempt, why)
        self.tasks.add(node, NodeStep(f"{why} {project} {attempt}", call))

    def post_again(self, job: Job) -> None:
        """Post an attempt that shows no sign of life to its node again. This changes nothing if the node has it."""
        attempt = job.current
        node = self._nodes.find(attempt.node) if attempt else None
        if attempt is None or node is None or node.is_resting:
            return
        # keep the first deadline, because after it the attempt is given up as lost
        until = attempt.dispatched_at + timedelta(seconds=START_SECONDS)
        same = Assignment(attempt=attempt.attempt, node=node.id, token="", until=until, instance=attempt.instance)
        if _is_meant(same, node):
            self.tasks.add(node, NodeStep(f"post {_attempt(job)}", partial(self._hand_over, job, same, node)))


def _is_meant(assignment: Assignment, node: Node) -> bool:
    """Whether the node is the machine that the attempt was assigned to. Another machine may have taken over the
    node's name, and does not have the attempt.
    """
    return assignment.instance in {None, node.instance}


def _attempt(job: Job) -> AttemptId:
    return AttemptId(job.id, job.attempt)


def _in_vain(node: Node, attempt: AttemptId, jobs: Mapping[str, Job | None]) -> Sequence[str]:
    """The projects in which the node may run this attempt, if the attempt is not needed any more. Empty if it is
    needed, or if its job cannot be read.
    """
    if attempt.job_id not in jobs:
        # only ended jobs are deleted, so the job ended on another node while this node could not be reached for long.
        # Its project is not known, so all are tried
        return sorted({DEFAULT_PROJECT, *(egg.project for egg in node.eggs)})
    if (job := jobs[attempt.job_id]) is None:
        return ()
    record = job.attempts.get(str(attempt.attempt))
    was_lost = record is not None and record.exit is not None and record.exit.lost
    return [job.spec.project] if attempt.attempt < job.attempt or was_lost else ()
