from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from gateway.contract.crawl import Expect
from gateway.contract.outbox import UNLICENSED
from gateway.contract.reasons import Reason
from gateway.contract.records import ExitReport, Progress, SpiderReport
from gateway.jobs.backoff import backoff
from gateway.jobs.job import JobStatus
from gateway.jobs.outcome import decide

ENDED = datetime(2027, 6, 1, 9, tzinfo=UTC)


def report(*, pages: int = 10, errors: int = 0, reason: str = "finished", items: int = 1) -> SpiderReport:
    first = [{"url": "http://site/x", "reason": "503 Service Unavailable"}] if errors else []
    progress = Progress(completed_pages=pages, errors_count=errors, items_count=items)
    return SpiderReport(finish_reason=reason, progress=progress, errors=first, ended_at=ENDED)


def ended(spider: SpiderReport | None = None, **facts: object) -> ExitReport:
    return ExitReport.model_validate({"attempt": 1, "ended_at": ENDED, "exit_code": 0, "report": spider, **facts})


@pytest.mark.parametrize(
    ("facts", "status", "reason", "retryable"),
    [
        (ended(report()), JobStatus.FINISHED, Reason.COMPLETED, False),
        (ended(report(pages=7, errors=3)), JobStatus.PARTIAL, Reason.REQUESTS_FAILED, False),
        (ended(report(pages=69, errors=31)), JobStatus.ERROR, Reason.REQUESTS_FAILED, True),
        (ended(report(pages=0, errors=1)), JobStatus.ERROR, Reason.NOTHING_FETCHED, True),
        (ended(report(pages=0)), JobStatus.ERROR, Reason.NOTHING_FETCHED, False),
        (ended(report(reason="closespider_pagecount", errors=4)), JobStatus.FINISHED, Reason.OWN_LIMIT, False),
        (ended(report(reason="closespider_itemcount")), JobStatus.FINISHED, Reason.OWN_LIMIT, False),
        (
            ended(report(reason="closespider_pagecount", pages=5, errors=5)),
            JobStatus.ERROR,
            Reason.REQUESTS_FAILED,
            True,
        ),
        (
            ended(report(reason="closespider_pagecount", pages=0, errors=5)),
            JobStatus.ERROR,
            Reason.NOTHING_FETCHED,
            True,
        ),
        (ended(report(reason="closespider_pagecount"), exit_code=1), JobStatus.ERROR, Reason.PROCESS_CRASHED, True),
        (ended(report(reason="closespider_timeout")), JobStatus.PARTIAL, Reason.TIME_LIMIT, False),
        (ended(None, exit_code=None, signal=9, stopped_by="timeout"), JobStatus.PARTIAL, Reason.TIME_LIMIT, False),
        (ended(report(reason="shutdown")), JobStatus.ERROR, Reason.NODE_SHUT_DOWN, True),
        (ended(report(reason="shutdown"), stopped_by="shutdown"), JobStatus.ERROR, Reason.NODE_SHUT_DOWN, True),
        (ended(None, exit_code=None, signal=9, stopped_by="records"), JobStatus.PARTIAL, Reason.RECORD_LIMIT, False),
        (ended(None, exit_code=None, signal=9, stopped_by="disk"), JobStatus.PARTIAL, Reason.DISK_FULL, False),
        (ended(None, exit_code=None, signal=9, stopped_by="memory"), JobStatus.ERROR, Reason.MEMORY_LIMIT, False),
        (ended(None, exit_code=None, signal=9, stopped_by="processes"), JobStatus.ERROR, Reason.PROCESS_LIMIT, False),
        (ended(report(reason="items_not_writable", errors=1)), JobStatus.ERROR, Reason.DISK_FULL, True),
        (
            ended(report(reason="shutdown"), stopped_by="stall", stall_seconds=900),
            JobStatus.ERROR,
            Reason.STALLED,
            True,
        ),
        (ended(None, exit_code=None, signal=9, stopped_by="stall"), JobStatus.ERROR, Reason.STALLED, True),
        (ended(None, exit_code=None, signal=11), JobStatus.ERROR, Reason.PROCESS_CRASHED, True),
        (
            ended(None, exit_code=1, log_tail="Traceback…\nOSError: busy\n"),
            JobStatus.ERROR,
            Reason.PROCESS_CRASHED,
            True,
        ),
        (ended(report(), exit_code=1), JobStatus.ERROR, Reason.PROCESS_CRASHED, True),
        (ended(None, exit_code=None, lost=True), JobStatus.ERROR, Reason.PROCESS_KILLED, True),
        (ended(report(), exit_code=None, lost=True), JobStatus.FINISHED, Reason.COMPLETED, False),
        (ended(None, exit_code=None, refused="stale"), JobStatus.ERROR, Reason.NOT_STARTED, True),
        (
            ended(None, exit_code=None, refused="spawn_failed: …", reason="build_failed"),
            JobStatus.ERROR,
            Reason.BUILD_FAILED,
            True,
        ),
        # of a node that is newer than this process
        (ended(None, exit_code=None, refused="…", reason="of_later"), JobStatus.ERROR, Reason.NOT_STARTED, True),
        (ended(None), JobStatus.ERROR, Reason.PROCESS_CRASHED, True),
    ],
)
def test_the_facts_decide_how_an_attempt_ended(
    facts: ExitReport, status: JobStatus, reason: Reason, *, retryable: bool
) -> None:
    outcome = decide(facts)
    assert (outcome.status, outcome.reason, outcome.retryable) == (status, reason, retryable)
    assert outcome.message


@pytest.mark.parametrize(
    ("said", "reason", "retryable"),
    [
        ("ModuleNotFoundError: No module named 'shop.prices'", Reason.NOT_IMPORTABLE, False),
        ("ImportError: cannot import name 'Price' from 'shop'", Reason.NOT_IMPORTABLE, False),
        ("ImportError: libpq.so.5: cannot open shared object file", Reason.NOT_IMPORTABLE, True),
        ("SyntaxError: invalid syntax", Reason.NOT_IMPORTABLE, False),
        ("TypeError: Offers.__init__() got an unexpected keyword argument 'colour'", Reason.ARGUMENTS_WRONG, False),
        (
            "TypeError: Offers.__init__() missing 1 required positional argument: 'shop'",
            Reason.ARGUMENTS_WRONG,
            False,
        ),
        ("TypeError: Offers.__init__() takes 1 positional argument but 2 were given", Reason.ARGUMENTS_WRONG, False),
        ("KeyError: 'Spider not found: offers'", Reason.SPIDER_MISSING, False),
        ("crawler.net.egress.EgressBlockedError: 10.0.0.1 is not a public address", Reason.ADDRESS_FORBIDDEN, False),
        ("OSError: busy", Reason.PROCESS_CRASHED, True),
    ],
)
def test_what_python_says_at_the_end_of_a_log_is_the_reason(said: str, reason: Reason, *, retryable: bool) -> None:
    crashed = decide(ended(None, exit_code=1, log_tail=f"Traceback (most recent call last):\n{said}\n\n"))
    assert (crashed.status, crashed.reason, crashed.retryable) == (JobStatus.ERROR, reason, retryable)
    assert crashed.message.endswith(said)


@pytest.mark.parametrize(
    ("errors", "reason", "retryable"),
    [
        ([{"code": "url_unsupported", "permanent": "yes"}], Reason.URL_UNSUPPORTED, False),
        (
            [{"code": "page_missing", "permanent": "yes"}, {"code": "site_refuses", "permanent": "yes"}],
            Reason.PAGE_MISSING,
            False,
        ),
        ([{"code": "page_missing", "permanent": "yes"}, {"code": "site_failed"}], Reason.PAGE_MISSING, True),
        ([{"code": "rate_limited"}], Reason.RATE_LIMITED, True),
        ([{"code": "spider_failed"}], Reason.SPIDER_FAILED, True),
        # of a newer node, and of an older one
        ([{"code": "of_tomorrow"}], Reason.REQUESTS_FAILED, True),
        ([{"reason": "HTTP 404 Not Found"}], Reason.REQUESTS_FAILED, True),
    ],
)
def test_the_first_error_is_the_reason_and_only_errors_that_may_pass_are_tried_again(
    errors: list[dict[str, str]], reason: Reason, *, retryable: bool
) -> None:
    spider = report(pages=1, errors=len(errors))
    spider.errors = errors
    assert decide(ended(spider))[:2] == (JobStatus.ERROR, reason)
    assert decide(ended(spider)).retryable is retryable


def test_exactly_thirty_percent_of_errors_is_partial_and_more_is_an_error() -> None:
    assert decide(ended(report(pages=70, errors=30))).status is JobStatus.PARTIAL
    assert decide(ended(report(pages=70, errors=31))).status is JobStatus.ERROR


def test_a_cancellation_counts_if_it_was_asked_before_the_end() -> None:
    facts = ended(report())
    assert decide(facts, cancel_requested_at=ENDED - timedelta(seconds=1)).status is JobStatus.CANCELLED
    assert decide(facts, cancel_requested_at=ENDED + timedelta(seconds=1)).status is JobStatus.FINISHED


def test_a_crawl_that_was_stopped_for_a_cancellation_is_cancelled_whatever_the_clocks_say() -> None:
    facts = ended(None, exit_code=None, signal=9, stopped_by="cancel")
    assert decide(facts, cancel_requested_at=ENDED + timedelta(minutes=5)).status is JobStatus.CANCELLED


def test_a_signal_without_a_name_is_told_by_its_number() -> None:
    assert decide(ended(None, exit_code=None, signal=40)).message == "the spider process was ended by signal 40"


@pytest.mark.parametrize("odd", [{"a": "b"}, {}, {"url": "http://site/x"}, {"reason": "odd"}])
def test_an_error_that_is_told_in_other_words_is_no_obstacle(odd: dict[str, str]) -> None:
    spider = report(pages=1, errors=1).model_copy(update={"errors": [odd]})
    assert decide(ended(spider)).message.startswith("1 of 2 requests failed")


def test_counts_that_cannot_be_are_no_obstacle() -> None:
    assert decide(ended(report(pages=-1, errors=1))).status is JobStatus.ERROR


def test_a_start_page_that_robots_txt_forbids_is_told_with_the_way_out() -> None:
    spider = report(pages=0).model_copy(update={"stats": {"robotstxt/forbidden": 1}})
    outcome = decide(ended(spider))
    told = "robots.txt forbids the start page; the spider's parameter obey_robots turns that off"
    assert outcome == (JobStatus.ERROR, Reason.ROBOTS_FORBIDDEN, told, False)


def test_a_start_page_that_needs_a_license_is_told_with_the_option_that_asks_for_one() -> None:
    stats = {"robotstxt/forbidden": 0, UNLICENSED: 2}
    outcome = decide(ended(report(pages=0).model_copy(update={"stats": stats})))
    assert (outcome.status, outcome.reason, outcome.retryable) == (JobStatus.ERROR, Reason.LICENSE_REQUIRED, False)
    assert "fetch.respect" in outcome.message
    some = decide(ended(report(pages=1, items=1).model_copy(update={"stats": stats})))
    assert some.reason is Reason.COMPLETED, "pages of other hosts"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (900, "for 15 minutes"),
        (60, "for 1 minute"),
        (90, "for 90 seconds"),
        (1, "for 1 second"),
        (0.5, "for 0.5 seconds"),
        (None, "for too long"),
    ],
)
def test_how_long_one_stood_still_is_told_in_words(seconds: float | None, words: str) -> None:
    facts = ended(None, exit_code=None, signal=9, stopped_by="stall", stall_seconds=seconds)
    assert decide(facts).message == f"no log line, request or item {words}"


@pytest.mark.parametrize(
    ("facts", "named"),
    [
        (ended(None, signal=9, stopped_by="timeout"), "time limit (timeout, 3600 s)"),
        (ended(report(reason="closespider_timeout")), "time limit (CLOSESPIDER_TIMEOUT)"),
        (ended(None, signal=9, stopped_by="memory"), "memory limit (CRAWL_MEMORY_LIMIT)"),
        (ended(None, signal=9, stopped_by="log"), "log limit (CRAWL_MAX_LOG_BYTES)"),
        (ended(None, signal=9, stopped_by="files"), "limit of files (twice FILES_MAX_BYTES)"),
    ],
)
def test_a_limit_is_named_with_the_setting_that_makes_it(facts: ExitReport, named: str) -> None:
    assert decide(facts, timeout=3600).message == f"stopped at its {named}"


def test_one_page_is_not_many() -> None:
    assert decide(ended(report(pages=1))).message == "1 page"


def test_the_message_of_a_crash_ends_with_the_last_line_of_its_traceback() -> None:
    facts = ended(None, exit_code=1, log_tail="Traceback (most recent call last):\nImportError: no module 'x'\n\n")
    assert decide(facts).message == "the spider process ended with exit code 1: ImportError: no module 'x'"


def test_a_crawl_without_memory_on_its_node_says_so() -> None:
    facts = ended(None, exit_code=None, signal=9, lost=True)
    assert decide(facts).message == "the spider process was killed because its node had no memory left"


FRAME = '  File "/eggs/shop/settings.py", line 3, in <module>\n    KEY = make(environ)\n          ^^^^^^^^^^^^^\n'


@pytest.mark.parametrize(
    ("log_tail", "words"),
    [
        (
            f"{FRAME}ValidationError: 1 error for Params\n  No URL.\n    For further information visit https://x.example\n",
            "ValidationError: 1 error for Params No URL.",
        ),
        (f"{FRAME}ValueError: no price\n\nnor a name\n", "ValueError: no price nor a name"),
        (f"{FRAME}ValueError: {'x' * 900}\n", f"ValueError: {'x' * 488}…"),
        (f"{FRAME}ValueError: no price\n2026-11-22T16:12:27.222Z [scrapy] INFO: Bye\nKilled\n", "Killed"),
        (f"{FRAME}KeyError: 'colour'\n", "KeyError: 'colour'"),
        ("  one indented line", "one indented line"),
    ],
)
def test_the_message_of_a_crash_has_all_of_its_exception(log_tail: str, words: str) -> None:
    message = decide(ended(None, exit_code=1, log_tail=log_tail)).message
    assert message == f"the spider process ended with exit code 1: {words}"


@pytest.mark.parametrize("file", ["<frozen os>", "/usr/lib/python3.11/os.py"])
def test_a_variable_that_is_not_set_is_named_with_the_command_that_sets_it_and_not_waited_for(file: str) -> None:
    frame = f'  File "{file}", line 679, in __getitem__\n    raise KeyError(key) from None\n'
    crashed = decide(ended(None, exit_code=1, log_tail=f"{FRAME}{frame}KeyError: 'API_KEY'\n"))
    assert "KeyError: 'API_KEY' (the variable is not set: `discoverybot env set API_KEY" in crashed.message
    assert (crashed.reason, crashed.retryable) == (Reason.VARIABLE_MISSING, False)


def test_of_a_crawl_that_an_exception_ended_the_report_says_more_than_its_process() -> None:
    spider = report(pages=0, reason="broke_down")
    spider.errors = [{"reason": "StoreError: refused\n  twice", "kind": "breakdown"}]
    facts = ended(spider, exit_code=1, log_tail="RuntimeError: Engine slot not assigned")
    told = "the crawl could not begin: StoreError: refused twice"
    assert decide(facts) == (JobStatus.ERROR, Reason.BROKE_DOWN, told, True)
    spider.errors[0]["permanent"] = "yes"
    assert not decide(facts).retryable
    # a tailer of before hands on nothing but the text
    spider.errors = [{"reason": "StoreError: refused"}]
    assert (
        decide(facts).message == "the spider process ended with exit code 1: RuntimeError: Engine slot not assigned"
    )


def test_backoff_doubles_up_to_five_minutes_and_is_spread_over_its_upper_half() -> None:
    whole = [backoff(failures, jitter=lambda: 1.0).total_seconds() for failures in range(1, 12)]
    assert whole == [2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]
    assert backoff(3, jitter=lambda: 0.0).total_seconds() == 4


def test_where_every_page_failed_the_message_counts_them_and_where_none_was_asked_for_it_says_so() -> None:
    failed = report(pages=0, errors=1)
    asked = failed.model_copy(update={"progress": Progress(requested_pages=1, errors_count=1)})
    first = "(the first: http://site/x: 503 Service Unavailable)"
    assert decide(ended(asked)).message == f"1 of 1 requests failed {first}"
    assert decide(ended(failed)).message == f"nothing was fetched {first}"


# --- what is missing, and what was expected


@pytest.mark.parametrize(
    ("spider", "message"),
    [
        (report(pages=1, items=0), "1 page, no items"),
        (report(pages=12, items=0), "12 pages, no items"),
        (report(reason="closespider_pagecount", items=0), "reached its own limit (closespider_pagecount), no items"),
        (report(reason="blocked", items=0), "ended early (blocked), no items"),
        (report(pages=0, items=0), "nothing was fetched"),
        (
            report(pages=0, reason="no cookie is set", items=0),
            "nothing was fetched: it ended early (no cookie is set)",
        ),
    ],
)
def test_the_message_says_that_nothing_was_found(spider: SpiderReport, message: str) -> None:
    assert decide(ended(spider)).message == message


@pytest.mark.parametrize(("dropped", "told"), [(3, " (3 dropped by its pipelines)"), (0, ""), ("odd", "")])
def test_the_message_says_that_all_items_were_dropped(dropped: object, told: str) -> None:
    spider = report(items=0).model_copy(update={"stats": {"item_dropped_count": dropped}})
    assert decide(ended(spider)).message == f"10 pages, no items{told}"


def test_a_crawl_that_finds_less_than_expected_is_partial_and_says_why() -> None:
    expect = Expect(min_items=5, max_error_rate=0.05, fields={"title": 0.9})
    spider = report(errors=1, reason="closespider_pagecount", items=4).model_copy(update={"filled": {"title": 3}})
    found = (
        "reached its own limit (closespider_pagecount)",
        "4 items, expected at least 5",
        "1 of 11 requests failed, expected at most 5 %",
        "3 of 4 items have 'title', expected at least 90 %",
    )
    assert decide(ended(spider)).status is JobStatus.FINISHED
    told = "; ".join(found)
    assert decide(ended(spider), expect=expect) == (JobStatus.PARTIAL, Reason.EXPECTATION_BROKEN, told, False)


def test_a_crawl_that_finds_what_is_expected_ends_as_it_would_have_ended() -> None:
    expect = Expect(min_items=1, max_error_rate=0.5, fields={"title": 1})
    full = report().model_copy(update={"filled": {"title": 1}})
    assert decide(ended(full), expect=expect) == (JobStatus.FINISHED, Reason.COMPLETED, "10 pages", False)
    # what is expected excuses nothing
    some, most = report(errors=1), report(pages=6, errors=4)
    assert decide(ended(some), expect=expect) == decide(ended(some))
    assert decide(ended(most), expect=expect) == decide(ended(most))


@pytest.mark.parametrize(
    ("facts", "status", "message"),
    [
        (
            ended(None, exit_code=None, signal=9, stopped_by="timeout"),
            JobStatus.PARTIAL,
            "stopped at its time limit (timeout)",
        ),
        (
            ended(report(reason="shutdown"), stopped_by="timeout"),
            JobStatus.PARTIAL,
            "stopped at its time limit (timeout); 1 item, expected at least 5",
        ),
        (ended(report(reason="shutdown")), JobStatus.ERROR, "the node was shut down while it ran"),
        (
            ended(report(pages=6, errors=4)),
            JobStatus.ERROR,
            "4 of 10 requests failed (the first: http://site/x: 503 Service Unavailable)",
        ),
    ],
)
def test_what_is_expected_makes_no_bad_outcome_better(facts: ExitReport, status: JobStatus, message: str) -> None:
    outcome = decide(facts, expect=Expect(min_items=5))
    assert (outcome.status, outcome.message) == (status, message)


def test_a_crawl_that_was_stopped_early_is_partial_whatever_came_after_that() -> None:
    stopped, expect = report(reason="expectation_broken", errors=1), Expect(max_error_rate=0.1, stop_early_after=5)
    early = "stopped early, because it broke an expectation"
    assert decide(ended(stopped), expect=expect) == (JobStatus.PARTIAL, Reason.EXPECTATION_BROKEN, early, False)
    worse = report(reason="expectation_broken", errors=2)
    told = f"{early}; 2 of 12 requests failed, expected at most 10 %"
    assert decide(ended(worse), expect=expect) == (JobStatus.PARTIAL, Reason.EXPECTATION_BROKEN, told, False)
    worst = report(reason="expectation_broken", pages=6, errors=4)
    outcome = decide(ended(worst), expect=expect)
    assert (outcome.status, outcome.retryable) == (JobStatus.ERROR, True)


def test_counts_of_fields_that_cannot_be_are_no_obstacle() -> None:
    odd = report().model_copy(update={"filled": {"title": -1, "other": 2**63 - 1}})
    assert decide(ended(odd), expect=Expect(fields={"title": 1})).status is JobStatus.PARTIAL


@pytest.mark.parametrize(
    ("pages", "message"),
    [
        (0, "the page was fetched, but the spider failed on it (the first: http://a.example/: KeyError)"),
        (9, "the spider failed on 1 of 10 pages (the first: http://a.example/: KeyError)"),
    ],
)
def test_a_page_on_which_the_spider_failed_is_said_to_have_been_fetched(pages: int, message: str) -> None:
    error = {"url": "http://a.example/", "reason": "in the spider: KeyError", "code": "spider_failed"}
    progress = Progress(requested_pages=pages + 1, completed_pages=pages, errors_count=1, items_count=1)
    told = decide(ended(report().model_copy(update={"errors": [error], "progress": progress})))
    assert told.message == message


def test_items_that_failed_are_not_called_requests() -> None:
    errors = [{"url": "http://a.example/", "reason": "KeyError: 'price'", "kind": "item"}]
    told = decide(ended(report(pages=1, errors=5).model_copy(update={"errors": errors})))
    assert told.message is not None
    assert told.message.startswith("5 requests or items failed, beside 1 page fetched (the first: ")
