"""Decides from facts how an attempt ended. Scrapyd's "finished" is not enough: it only says that the
process ended.
"""

from __future__ import annotations

import re
import signal as signals
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import NamedTuple

from gateway.contract.crawl import Expect
from gateway.contract.expectations import Tally, breaches
from gateway.contract.outbox import BROKE_DOWN, BUDGET_BYTES, EXPECTATION_BROKEN, ITEMS_LOST, UNLICENSED, ErrorKind
from gateway.contract.reasons import LIMITS, MISFITS, Reason, reason_of
from gateway.contract.records import ExitReport, SpiderReport
from gateway.jobs.job import GOOD_STATUSES, JobStatus

#: A crawl is `partial` up to this share of given-up requests and exceptions among everything it tried.
PARTIAL_ERROR_RATE = 0.30
#: Scrapy finish reasons that mean the crawl has reached a limit it was given.
OWN_LIMITS = frozenset({"closespider_pagecount", "closespider_itemcount", "results_wanted"})
#: Exceptions at the end of the log of a process that ended without a report, each with its reason, and whether the
#: next attempt would raise it again. The first match counts.
_RAISED = tuple(
    (re.compile(words), code, is_permanent)
    for words, code, is_permanent in (
        (r"(ModuleNotFound|Syntax|Indentation|Tab)Error\b", Reason.NOT_IMPORTABLE, True),
        (r"ImportError: cannot import name", Reason.NOT_IMPORTABLE, True),
        # the library may be missing on one node only
        (r"ImportError\b", Reason.NOT_IMPORTABLE, False),
        (r"KeyError: .Spider not found", Reason.SPIDER_MISSING, True),
        (r"(\w+\.)*EgressBlockedError\b", Reason.ADDRESS_FORBIDDEN, True),
        (r"(\w+\.)*HandlerRefusedError\b", Reason.HANDLER_REFUSED, True),
        (rf"TypeError: .*({MISFITS})", Reason.ARGUMENTS_WRONG, True),
    )
)
#: Lines at the end of a log: a frame of a traceback, the frame in which `os.environ` looks up a name, a line that
#: the logger wrote, and the link that pydantic adds to its errors.
_FRAME = re.compile(r'\s+File ".+", line \d+')
_OS_ENVIRON = re.compile(r'\s+File ".*\bos(\.py)?>?", line \d+, in __getitem__')
_LOG_LINE = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d")
_LINK = re.compile(r"\s+For further information visit https://")
_NO_VARIABLE = re.compile(r"KeyError: '(\w+)'")
#: How many characters of an exception a job's message quotes.
_MAX_WORDS = 500


class Outcome(NamedTuple):
    """How an attempt ended, and whether a retry makes sense."""

    status: JobStatus
    reason: Reason
    message: str
    #: Whether another attempt could end better.
    retryable: bool = False


CANCELLED = Outcome(JobStatus.CANCELLED, Reason.CANCELLED, "cancelled on request")


class LastWords(NamedTuple):
    """The end of the log of a process that left no report."""

    words: str
    #: `None` if the words do not name the cause.
    reason: Reason | None = None
    is_permanent: bool = False


def decide(
    exit_report: ExitReport,
    *,
    expect: Expect | None = None,
    cancel_requested_at: datetime | None = None,
    timeout: int | None = None,
) -> Outcome:
    """The attempt's outcome, by the first rule that applies to the facts. Expectations (`expect`) can only make a
    good outcome worse. `timeout`: the seconds that the attempt had, for the message.
    """
    if cancel_requested_at is not None and (
        # the node says that it stopped the attempt for the cancellation; its clock may be wrong
        exit_report.stopped_by == "cancel" or cancel_requested_at <= exit_report.ended_at
    ):
        return CANCELLED
    outcome = _judge(exit_report, timeout)
    if exit_report.report is None or outcome.status not in GOOD_STATUSES:
        return outcome
    return _compare(outcome, exit_report.report, expect)


def _judge(exit_report: ExitReport, timeout: int | None) -> Outcome:
    was_stopped = partial(_was_stopped, timeout=timeout)
    for rule in (_never_ran, _was_to_pause, was_stopped, _broke_down, _crashed, _could_not_be_kept):
        if outcome := rule(exit_report):
            return outcome
    report = exit_report.report
    if report is None:
        return _failed(Reason.PROCESS_CRASHED, "the spider ended without a report", exit_report)
    return _measured(report)


def _failed(reason: Reason, message: str, exit_report: ExitReport) -> Outcome:
    """The outcome of an attempt that failed for `reason`, unless the end of its log names a more exact reason."""
    last = _last_words((exit_report.log_tail or "").rstrip())
    message = f"{message}: {last.words}" if last.words else message
    return Outcome(JobStatus.ERROR, last.reason or reason, message, retryable=not last.is_permanent)


def _last_words(log_tail: str) -> LastWords:
    """The exception of the traceback at the end of the log, which may have several lines; without a traceback, the
    last line.
    """
    lines = log_tail.splitlines()
    after_frames = max((number for number, line in enumerate(lines, 1) if _FRAME.match(line)), default=len(lines))
    # between the last frame and the exception there is the frame's source, indented
    exception = next((number for number in range(after_frames, len(lines)) if not lines[number][:1].isspace()), None)
    if exception is None or any(map(_LOG_LINE.match, lines[exception:])):
        return _read(lines[-1].strip() if lines else "")
    words = _on_one_line(lines[exception:])
    name = _NO_VARIABLE.fullmatch(words)
    if name and _OS_ENVIRON.match(lines[after_frames - 1]):
        return LastWords(words + _no_variable(name[1]), Reason.VARIABLE_MISSING, is_permanent=True)
    return _read(words)


def _read(words: str) -> LastWords:
    found = ((code, is_permanent) for pattern, code, is_permanent in _RAISED if pattern.match(words))
    return LastWords(words, *next(found, (None, False)))


def _on_one_line(lines: Iterable[str]) -> str:
    said = " ".join(" ".join(line for line in lines if not _LINK.match(line)).split())
    return said if len(said) <= _MAX_WORDS else f"{said[:_MAX_WORDS]}…"


def _no_variable(name: str) -> str:
    """What to do if `os.environ["NAME"]` raised a `KeyError`, for a message."""
    return f" (the variable is not set: `discoverybot env set {name} --project …`)"


def _never_ran(exit_report: ExitReport) -> Outcome | None:
    if exit_report.refused is None:
        return None
    # retryable: if the attempt came too late, the platform is at fault; if its process did not start, perhaps the
    # node
    reason = reason_of(exit_report.reason) or Reason.NOT_STARTED
    return _failed(reason, f"the node did not start it ({exit_report.refused})", exit_report)


def _was_to_pause(exit_report: ExitReport) -> Outcome | None:
    report = exit_report.report
    # without a report the process was killed; with another finish reason it ended by itself just before the stop
    if exit_report.stopped_by == "pause" and (report is None or report.finish_reason == "shutdown"):
        return Outcome(JobStatus.ERROR, Reason.PAUSED, "stopped to be paused", retryable=True)
    return None


#: If an attempt reaches one of these limits, it counts as failed. At other `LIMITS` it keeps its results.
_FATAL_LIMITS = frozenset({"memory", "processes"})
#: The finish reasons of Scrapy's own limits, and our limits of the same kind.
_SCRAPYS_LIMITS = {"closespider_timeout": "timeout", "memusage_exceeded": "memory"}


def _was_stopped(exit_report: ExitReport, *, timeout: int | None) -> Outcome | None:
    report = exit_report.report
    reason = report.finish_reason if report else ""
    limit = _SCRAPYS_LIMITS.get(reason, exit_report.stopped_by or "")
    if limit in LIMITS:
        code, name, setting = LIMITS[limit]
        if reason == "closespider_timeout":
            setting = "CLOSESPIDER_TIMEOUT"
        elif limit == "timeout" and timeout:
            setting = f"{setting}, {timeout} s"
        status = JobStatus.ERROR if limit in _FATAL_LIMITS else JobStatus.PARTIAL
        return Outcome(status, code, f"stopped at its {name} ({setting})")
    if reason == BUDGET_BYTES:
        message = "stopped after the last bytes of its API key's budget"
        return Outcome(JobStatus.PARTIAL, Reason.BUDGET_SPENT, message)
    if exit_report.stopped_by == "stall":
        return Outcome(JobStatus.ERROR, Reason.STALLED, _stalled(exit_report.stall_seconds), retryable=True)
    if exit_report.stopped_by == "shutdown" or reason == "shutdown":
        message = "the node was shut down while it ran"
        return Outcome(JobStatus.ERROR, Reason.NODE_SHUT_DOWN, message, retryable=True)
    return None


def _stalled(seconds: float | None) -> str:
    silence = "no log line, request or item"
    if not seconds:
        return f"{silence} for too long"
    amount, unit = (seconds / 60, "minute") if seconds % 60 == 0 else (seconds, "second")
    return f"{silence} for {amount:g} {unit}{'' if amount == 1 else 's'}"


def _broke_down(exit_report: ExitReport) -> Outcome | None:
    """The outcome of a crawl that broke down, by its first exception, as its exit code says nothing about it."""
    report = exit_report.report
    error = _error_of(report, "breakdown") if report else None
    if report is None or error is None or report.finish_reason != BROKE_DOWN:
        return None
    what = "the crawl broke down" if report.progress.requested_pages > 0 else "the crawl could not begin"
    return Outcome(JobStatus.ERROR, _code(error, Reason.BROKE_DOWN), f"{what}: {_words(error)}", _passes(error))


def _crashed(exit_report: ExitReport) -> Outcome | None:
    if exit_report.lost and exit_report.report is None:
        what = "was killed because its node had no memory left" if exit_report.signal else "disappeared"
        return _failed(Reason.PROCESS_KILLED, f"the spider process {what}", exit_report)
    if exit_report.signal:
        # a process that crashes does not send itself SIGKILL: the system or a person has killed it
        reason = Reason.PROCESS_KILLED if exit_report.signal == signals.SIGKILL else Reason.PROCESS_CRASHED
        return _failed(reason, f"the spider process was ended by {_signal_name(exit_report.signal)}", exit_report)
    if exit_report.exit_code:
        message = f"the spider process ended with exit code {exit_report.exit_code}"
        return _failed(Reason.PROCESS_CRASHED, message, exit_report)
    return None


def _could_not_be_kept(exit_report: ExitReport) -> Outcome | None:
    if exit_report.items_lost:
        message = f"its items could not be read on the node: {exit_report.items_lost}"
        return Outcome(JobStatus.ERROR, Reason.ITEMS_UNREADABLE, message)
    report = exit_report.report
    if report is None or report.finish_reason != ITEMS_LOST:
        return None
    # the crawl is not at fault: on a node with free disk space it finds the items again
    message = f"the node could not store the items{_example(report)}"
    return Outcome(JobStatus.ERROR, Reason.DISK_FULL, message, retryable=True)


def _signal_name(number: int) -> str:
    try:
        return signals.Signals(number).name
    except ValueError:
        # most real-time signals have no name
        return f"signal {number}"


#: Finish reasons that do not mean that the spider closed itself early.
_ENDS_WELL = frozenset({"finished", EXPECTATION_BROKEN, *OWN_LIMITS})


def _closed(report: SpiderReport) -> str:
    return "" if report.finish_reason in _ENDS_WELL else f": it ended early ({report.finish_reason})"


def _measured(report: SpiderReport) -> Outcome:
    tally = _tally(report)
    if outcome := _start_failed(report, tally) or _forbidden(report, tally):
        return outcome
    if tally.pages == 0:
        if tally.errors == 0 or report.progress.requested_pages <= 0:
            may_pass = tally.errors > 0 and _may_pass(report)
            reason = _first_code(report, Reason.NOTHING_FETCHED)
            return Outcome(
                JobStatus.ERROR, reason, f"nothing was fetched{_closed(report)}{_example(report)}", may_pass
            )
    elif report.finish_reason not in _ENDS_WELL:
        return Outcome(JobStatus.PARTIAL, Reason.CLOSED_EARLY, f"ended early ({report.finish_reason})")
    if tally.error_rate > PARTIAL_ERROR_RATE:
        reason = _first_code(report, Reason.REQUESTS_FAILED)
        return Outcome(JobStatus.ERROR, reason, _failures(report), _may_pass(report))
    if report.finish_reason == EXPECTATION_BROKEN:
        message = "stopped early, because it broke an expectation"
        return Outcome(JobStatus.PARTIAL, Reason.EXPECTATION_BROKEN, message)
    return _good(report)


def _start_failed(report: SpiderReport, tally: Tally) -> Outcome | None:
    error = _error_of(report, "start")
    if error is None:
        return None
    what, reason = f"start() raised {_words(error)}", _code(error, Reason.SPIDER_FAILED)
    if tally.pages:
        return Outcome(JobStatus.PARTIAL, reason, f"ended early: {what}")
    return Outcome(JobStatus.ERROR, reason, what, _may_pass(report))


def _good(report: SpiderReport) -> Outcome:
    pages, errors = _tally(report)[:2]
    if report.finish_reason in OWN_LIMITS:
        # the crawl has everything that was asked for
        return Outcome(JobStatus.FINISHED, Reason.OWN_LIMIT, f"reached its own limit ({report.finish_reason})")
    if errors:
        return Outcome(JobStatus.PARTIAL, _first_code(report, Reason.REQUESTS_FAILED), _failures(report))
    return Outcome(JobStatus.FINISHED, Reason.COMPLETED, _pages(pages))


def _pages(pages: int) -> str:
    return "1 page" if pages == 1 else f"{pages} pages"


def _failures(report: SpiderReport) -> str:
    pages, errors = _tally(report)[:2]
    if _error_of(report, "item"):
        # the page of a failed item may or may not be counted as an error, too
        return f"{errors} requests or items failed, beside {_pages(pages)} fetched{_example(report)}"
    if errors and sum(_code(one, Reason.REQUESTS_FAILED) is Reason.SPIDER_FAILED for one in report.errors) == errors:
        # these pages were fetched, so nothing is wrong with the site or the network
        first = _example(report).replace(": in the spider: ", ": ", 1)
        if pages + errors == 1:
            return f"the page was fetched, but the spider failed on it{first}"
        return f"the spider failed on {errors} of {pages + errors} pages{first}"
    return f"{errors} of {pages + errors} requests failed{_example(report)}"


def _tally(report: SpiderReport) -> Tally:
    progress = report.progress
    # a hostile spider may have written the report, with any numbers
    counts = (progress.completed_pages, progress.errors_count, progress.items_count)
    pages, errors, items = (max(0, count) for count in counts)
    return Tally(pages, errors, items, report.filled)


def _compare(outcome: Outcome, report: SpiderReport, expect: Expect | None) -> Outcome:
    """Add to a good outcome that no items were found, and make it partial if an expectation is not met."""
    tally = _tally(report)
    if not tally.items:
        found_nothing = outcome.reason in {Reason.COMPLETED, Reason.OWN_LIMIT}
        reason = Reason.NO_ITEMS if found_nothing else outcome.reason
        outcome = outcome._replace(reason=reason, message=f"{outcome.message}, no items{_dropped(report)}")
    broken = breaches(expect, tally) if expect else []
    if not broken:
        return outcome
    return Outcome(JobStatus.PARTIAL, Reason.EXPECTATION_BROKEN, "; ".join([outcome.message, *broken]))


def _dropped(report: SpiderReport) -> str:
    dropped = report.stats.get("item_dropped_count")
    return f" ({dropped} dropped by its pipelines)" if isinstance(dropped, int) and dropped > 0 else ""


def _may_pass(report: SpiderReport) -> bool:
    """Whether at least one of the reported errors may be gone in another attempt. Reports list only the
    first errors.
    """
    return not report.errors or any(map(_passes, report.errors))


def _passes(error: Mapping[str, str]) -> bool:
    return "permanent" not in error


def _first_code(report: SpiderReport, otherwise: Reason) -> Reason:
    return _code(report.errors[0], otherwise) if report.errors else otherwise


def _code(error: Mapping[str, str], otherwise: Reason) -> Reason:
    """The error's code; `otherwise` if it has no code, because its node is older, or an unknown one."""
    return reason_of(error.get("code")) or otherwise


def _error_of(report: SpiderReport, kind: ErrorKind) -> Mapping[str, str] | None:
    return next((error for error in report.errors if error.get("kind") == kind), None)


def _words(error: Mapping[str, str]) -> str:
    said = _on_one_line(error.get("reason", "").splitlines())
    return said + (_no_variable(error["variable"]) if "variable" in error else "")


def _example(report: SpiderReport) -> str:
    if not report.errors:
        return ""
    first = report.errors[0]
    example = ": ".join(text for text in (first.get("url"), first.get("reason")) if text)
    return f" (the first: {example})" if example else ""


#: Stats that count pages which a crawl was not allowed to fetch, each with the reason and message of the outcome.
_FORBIDDEN = {
    "robotstxt/forbidden": (
        Reason.ROBOTS_FORBIDDEN,
        "robots.txt forbids the start page; the spider's parameter obey_robots turns that off",
    ),
    UNLICENSED: (
        Reason.LICENSE_REQUIRED,
        "robots.txt names a license, and the crawl was asked to respect that (fetch.respect)",
    ),
}


def _forbidden(report: SpiderReport, tally: Tally) -> Outcome | None:
    for stat, (reason, message) in () if tally.pages else _FORBIDDEN.items():
        pages = report.stats.get(stat)
        if isinstance(pages, int) and pages > 0:
            # forbidden pages are not counted as errors: if there are errors, other requests failed, and may succeed
            # in the next attempt
            return Outcome(JobStatus.ERROR, reason, message + _example(report), tally.errors > 0)
    return None
