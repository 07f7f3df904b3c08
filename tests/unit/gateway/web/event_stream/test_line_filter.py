from __future__ import annotations

import pytest

from gateway.contract.log_line import split_entries
from gateway.errors import InvalidRequestError
from gateway.web.event_stream.log_lines import LineFilter
from gateway.web.routes.logs import preferred_media_type

LOG = (
    b"2027-06-01T09:00:00.000Z [scrapy.core] INFO: Crawled /a\n"
    b"2027-06-01T09:00:00.000Z [seo] ERROR: Stra\xc3\x9fe\n"
    b"Traceback: STRASSE\n"
)


@pytest.mark.parametrize(
    ("level", "text", "shown"),
    [
        (None, None, [0, 1, 2]),
        ("info", None, [0, 1, 2]),
        ("WARNING", None, [1, 2]),
        ("critical", None, []),
        (None, "strasse", [1, 2]),
        (None, "SCRAPY", [0]),
        ("ERROR", "crawled", []),
    ],
)
def test_lines_are_shown_by_level_and_text(level: str | None, text: str | None, shown: list[int]) -> None:
    wanted = LineFilter.of(level, text)
    entries, _ = split_entries(LOG, 0)
    assert [index for index, entry in enumerate(entries) if wanted.accepts(entry.to_json())] == shown
    assert wanted.is_active == bool(level or text)


@pytest.mark.parametrize(("level", "text", "field"), [("loud", None, "level"), (None, "x" * 201, "q")])
def test_a_filter_that_makes_no_sense_is_refused(level: str | None, text: str | None, field: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        LineFilter.of(level, text)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("accept", "given"),
    [
        ("", "text/event-stream"),
        ("*/*", "text/event-stream"),
        ("text/html,application/xhtml+xml,*/*;q=0.8", "text/event-stream"),
        ("text/plain", "text/plain"),
        ("Text/Plain; charset=utf-8", "text/plain"),
        ("text/plain;q=0.5, application/x-ndjson", "application/x-ndjson"),
        ("text/plain;q=0, application/json", "text/event-stream"),
        ("text/plain;q=many", "text/event-stream"),
    ],
)
def test_the_client_gets_what_it_likes_best_of_what_there_is(accept: str, given: str) -> None:
    assert preferred_media_type(accept) == given
