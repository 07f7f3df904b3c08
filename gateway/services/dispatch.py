"""Fills free slots with the best waiting jobs. The message that woke us is only a reason to look."""

from __future__ import annotations

import uuid
from contextlib import suppress
from datetime import timedelta

import structlog

from gateway.correlation import about
from gateway.domain.clock import VERDICT_SECONDS, Clock, utc_now
from gateway.domain.errors import JobNotFoundError, NodeError, NodeRefusedError, NodeShutError, NodeUnreachableError
from gateway.domain.job import Claim, Job, JobStatus, Placement, WaitingReason
from gateway.domain.node_files import AttemptId
from gateway.domain.outcome import Outcome, backoff
from gateway.services.announcer import Announcer
from gateway.services.completion import Completion
from gateway.services.exclusion import Exclusion
from gateway.services.node_choice import NodeChoice
from gateway.services.node_health import NodeHealth
from gateway.services.node_order import node_spec
from gateway.services.scrapyd import ScrapydClient
from gateway.services.turns import Look, Turns
from gateway.services.user_limit import UserLimit
from gateway.storage.client import within
from gateway.storage.job_queue import JobQueue
from gateway.storage.job_sweeps import JobSweeps
from gateway.storage.jobs import JobStore
from gateway.storage.nodes import Node, NodeStore

log = structlog.get_logger()

#: A worker that has not come back by then is taken for dead; longer than a claim, its placement and the node's answer
#: may take together.
CLAIM_SECONDS = 15
#: Jobs whose node's answer is missing that are looked at in one go.
BATCH = 200
#: A node must have started an attempt by then, or never.
START_SECONDS = 120
#: Clocks of nodes may be off by this much.
CLOCK_MARGIN = timedelta(seconds=30)
#: Refusals in a row after which a job is given up.
MAX_DISPATCH_FAILURES = 8
#: Seconds between two looks at a job whose node cannot be asked.
LATER_SECONDS = 2
#: Longest waits between two tries: of a job that holds no slot, and of one that does because an answer is missing.
MAX_DELAY = timedelta(seconds=60)
MAX_UNSURE_DELAY = timedelta(seconds=8)


class Dispatch:
    def __init__(
        self,
        *,
        jobs: JobStore,
        queue: JobQueue,
        sweeps: JobSweeps,
        nodes: NodeStore,
        scrapyd: ScrapydClient,
        completion: Completion,
        exclusion: Exclusion,
        turns: Turns,
        limit: UserLimit,
        announcer: Announcer,
        dead_after: timedelta,
        clock: Clock = utc_now,
    ) -> None:
        self._jobs = jobs
        self._queue = queue
        self._sweeps = sweeps
        self._nodes = nodes
        self._health = NodeHealth(nodes, clock)
        self._scrapyd = scrapyd
        self._completion = completion
        self._exclusion = exclusion
        self._turns = turns
        self._limit = limit
        self._announcer = announcer
        self._dead_after = dead_after
        self._clock = clock

    def fill(self, hint: str | None = None) -> int:
        """Start jobs until room or jobs run out; how many were started. `hint` names the job somebody waits for.

        A job whose node's answer is missing has its slot: it is looked at however full the nodes are. Were it not,
        such jobs could hold every slot and wait for ever.
        """
        started: set[str] = set()
        if hint is not None:
            self._turns.told(hint)
        choice, look = self._choice(), self._turns.look()
        for job_id in self._sweeps.placed(self._clock(), BATCH):
            with within(VERDICT_SECONDS):
                job = self._queue.claim_placed(job_id, claim := self._new_claim())
            if job is not None:
                started |= self._dispatch_told(job, claim, choice, look)
        while (room := choice.room()) is not None:
            with within(VERDICT_SECONDS):
                job = look.claim(claim := self._new_claim(), room)
            if job is None:
                break
            started |= self._dispatch_told(job, claim, choice, look)
            choice = self._choice()
        if hint is not None and hint not in started:
            self._explain(hint, choice)
        return len(started)

    def _choice(self) -> NodeChoice:
        return NodeChoice(self._nodes.all(), self._clock(), self._dead_after)

    def _new_claim(self) -> Claim:
        return Claim(token=uuid.uuid4().hex, until=self._clock() + timedelta(seconds=CLAIM_SECONDS))

    def _explain(self, job_id: str, choice: NodeChoice) -> None:
        """Tell whoever waits for the job why it does."""
        with suppress(JobNotFoundError):
            job = self._jobs.get(job_id)
            reason = self._limit.reason(job.user_id, choice.reason(job.in_lane.need), self._limit.full())
            if reason is not None and (waiting := self._queue.note_waiting(job_id, reason)):
                self._announcer.status(waiting)

    def _dispatch_told(self, job: Job, claim: Claim, choice: NodeChoice, look: Look) -> set[str]:
        """The job's id, if it was started."""
        with about(job):
            with within(VERDICT_SECONDS):
                ready = self._place(job, claim, choice, look)
            known = job.placement is not None
            return {job.id} if ready and self._post(ready[0], claim, *ready[1:], known=known) else set()

    def _place(self, job: Job, claim: Claim, choice: NodeChoice, look: Look) -> tuple[Job, Placement, Node] | None:
        """The job with its place, to be posted there."""
        if job.cancel_requested_at is not None and job.placement is None:
            self._completion.end_waiting(job, Outcome(JobStatus.CANCELLED, "cancelled on request"))
            return None
        # one with a placement has never left
        if job.placement is None and not self._enters(job, claim, look):
            return None
        node = self._node_for(job, choice)
        if node is None:
            self._place_elsewhere_later(job, claim, look)
            return None
        placement = self._placement(job, node)
        placed = self._queue.place(job.id, claim, placement)
        if placed is not None and job.placement is None:
            look.placed(job.user_id)
        return (placed, placement, node) if placed is not None else None

    def _enters(self, job: Job, claim: Claim, look: Look) -> bool:
        """Whether the job may be started as far as other jobs are concerned."""
        if not self._exclusion.enter(job, claim):
            return False
        if self._limit.take(job, str(_next_attempt(job))):
            return True
        look.pass_over_user(job.user_id)
        self._wait(job, claim, WaitingReason.USER_QUOTA)
        return False

    def _wait(self, job: Job, claim: Claim, reason: WaitingReason) -> None:
        """The job goes back to where it was; told only if it waits for something else than before."""
        waiting = self._queue.wait(job.id, claim, reason)
        if waiting is None:
            return
        self._exclusion.step_back(waiting, claim)
        self._limit.give_back(job, str(_next_attempt(job)))
        if job.waiting_reason is not reason:
            self._announcer.status(waiting)

    def _node_for(self, job: Job, choice: NodeChoice) -> Node | None:
        """A node on which the job now holds a slot: the one whose answer is missing, else the emptiest."""
        attempt = str(_next_attempt(job))
        if job.placement is not None:
            self._limit.hold(job, attempt)
            node = self._nodes.get(job.placement.node)
            is_there = node is not None and node.is_alive(self._clock(), self._dead_after) and not node.is_resting
            if node and is_there and (attempt in node.present or not self._is_late(job.placement)):
                # over its maximum by one at worst: what may run there already needs no free slot
                self._nodes.take_slot(node, attempt, render=bool(job.render))
                return node
            return None
        offered = choice.nodes_for(job)
        return next((node for node in offered if self._nodes.take_slot(node, attempt, render=bool(job.render))), None)

    def _placement(self, job: Job, node: Node) -> Placement:
        """Posted again it must not be started later than was said at first, or where it is refused it had no end."""
        if job.placement is not None and not self._is_late(job.placement):
            return job.placement
        not_after = self._clock() + timedelta(seconds=START_SECONDS)
        return Placement(attempt=_next_attempt(job).attempt, node=node.id, not_after=not_after)

    def _is_late(self, placement: Placement) -> bool:
        return self._clock() > placement.not_after + CLOCK_MARGIN

    def _place_elsewhere_later(self, job: Job, claim: Claim, look: Look) -> None:
        placement = job.placement
        if placement is None:
            look.pass_over(job.in_lane)
            self._wait(job, claim, WaitingReason.CAPACITY)
            return
        if self._is_late(placement) and not self._may_have(job, placement):
            # the node can no longer start it: the next attempt may go anywhere
            if waiting := self._queue.abandon_placement(job.id, claim, placement):
                self._give_up(placement.node, job, placement.attempt)
        else:
            message = f"node {placement.node} cannot be asked now; it may have taken the attempt"
            later = self._clock() + timedelta(seconds=LATER_SECONDS)
            waiting = self._queue.dispatch_failed(job.id, claim, message, later, keep=True)
        if waiting is not None and (waiting.message, waiting.placement) != (job.message, placement):
            self._announcer.status(waiting)

    def _may_have(self, job: Job, placement: Placement) -> bool:
        """Whether the node has files of the attempt, as far as it could tell since it was too late to start it."""
        node = self._nodes.get(placement.node)
        if node is None or not node.is_alive(self._clock(), self._dead_after):
            return False
        told = node.heartbeat_at > placement.not_after + CLOCK_MARGIN
        return not told or str(AttemptId(job.id, placement.attempt)) in node.present

    def _give_up(self, node: str, job: Job, number: int) -> None:
        """What was held for an attempt that nobody can start any more."""
        attempt = str(AttemptId(job.id, number))
        self._nodes.free_slot(node, attempt)
        self._limit.free(job, attempt)

    def _post(self, job: Job, claim: Claim, placement: Placement, node: Node, *, known: bool) -> bool:
        began_at = self._clock()
        try:
            self._scrapyd.schedule(node.url, node_spec(job, placement))
        except (NodeUnreachableError, NodeRefusedError) as error:
            # a first posting that certainly did not arrive, or was refused, left nothing behind; any other may have
            certain = not known and not (isinstance(error, NodeUnreachableError) and error.may_have_arrived)
            if _is_nodes_fault(error):
                self._health.failed(node.id, error.message, began_at)
            self._not_taken(job, claim, node, error, certain=certain)
            return False
        running = self._jobs.mark_running(job.id, placement)
        if running is None:
            # the tailer was quicker to see it run
            return True
        self._announcer.status(running)
        log.info("dispatched", job_id=job.id, attempt=placement.attempt, node=node.id, status="running")
        if running.cancel_requested_at is not None:
            self.cancel(running)
        return True

    def cancel(self, job: Job) -> None:
        """Ask the node to stop the running attempt. What ends it, and how, is the exit report's to say."""
        attempt = job.current
        node = self._nodes.get(attempt.node) if attempt else None
        if attempt is None or node is None or attempt.exit is not None:
            return
        try:
            self.cancel_attempt(node, job.spec.project, AttemptId(job.id, attempt.attempt))
        except NodeUnreachableError as error:
            # reconciliation asks again
            log.warning("cancel_failed", job_id=job.id, node=node.id, error=error.message)

    def cancel_attempt(self, node: Node, project: str, attempt: AttemptId) -> None:
        """Raises `NodeUnreachableError`; a refusal is logged, for there is nothing else to do about it."""
        try:
            self._scrapyd.cancel(node.url, project, attempt)
        except NodeRefusedError as error:
            log.warning("cancel_refused", attempt=str(attempt), node=node.id, error=error.message)

    def post_again(self, job: Job) -> None:
        """The attempt shows no sign of life: hand it to its node once more, which changes nothing if it has it.

        Raises `NodeUnreachableError`.
        """
        attempt = job.current
        node = self._nodes.get(attempt.node) if attempt else None
        if attempt is None or node is None:
            return
        # it is given up for lost by the time that was said at first
        not_after = attempt.dispatched_at + timedelta(seconds=START_SECONDS)
        placement = Placement(attempt=attempt.attempt, node=node.id, not_after=not_after)
        try:
            self._scrapyd.schedule(node.url, node_spec(job, placement))
        except NodeRefusedError as error:
            log.warning("post_again_refused", job_id=job.id, node=node.id, error=error.message)

    def _not_taken(
        self, job: Job, claim: Claim, node: Node, error: NodeUnreachableError | NodeRefusedError, *, certain: bool
    ) -> None:
        delay = min(backoff(job.dispatch_failures + 1), MAX_UNSURE_DELAY if not certain else MAX_DELAY)
        again = self._clock() + delay
        failed = self._queue.dispatch_failed(job.id, claim, error.message, again, keep=not certain)
        # without its claim a worker that was slow has nothing to say: another one may have posted the attempt since
        if failed is None:
            return
        if certain:
            self._give_up(node.id, job, job.attempt)
            if not _is_nodes_fault(error) and failed.dispatch_failures >= MAX_DISPATCH_FAILURES:
                message = f"no node took it after {failed.dispatch_failures} tries: {error.message}"
                self._completion.end_waiting(failed, Outcome(JobStatus.ERROR, message))
                return
        log.warning("dispatch_failed", job_id=job.id, error=failed.message, failures=failed.dispatch_failures)
        self._announcer.status(failed)


def _is_nodes_fault(error: NodeError) -> bool:
    """What the node refuses for a reason of its own any other job would meet with as well."""
    return isinstance(error, NodeUnreachableError | NodeShutError)


def _next_attempt(job: Job) -> AttemptId:
    """The one that is on its way to a node already, else a new one."""
    return AttemptId(job.id, job.placement.attempt if job.placement else job.attempt + 1)
