"""Days that are told from today."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from crawler.job_posting.fields import day_in

NOW = datetime(2026, 11, 21, 2, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "language", "day"),
    [
        ("3 days ago", "en", "2026-11-18"),
        ("Posted 30+ days ago", "en", "2026-10-22"),
        ("2d", "en", "2026-11-19"),
        ("1w ago", "en", "2026-11-14"),
        ("5 hours ago", "en", "2026-11-20"),
        ("an hour ago", "en", "2026-11-21"),
        ("Active 2 months ago", "en", "2026-09-22"),
        ("Just posted", "en", "2026-11-21"),
        ("Today", "en", "2026-11-21"),
        ("Posted yesterday", "en", "2026-11-20"),
        ("gestern", "de", "2026-11-20"),
        ("Posted on 1 March 2026", "en", "2026-03-01"),
        ("Veröffentlicht: 12.03.2026", "de", "2026-03-12"),
        ("2026-03-01T12:00:00Z", None, "2026-03-01"),
        ("March 2026", "en", None),
        ("Hiring ongoing", "en", None),
        ("New", "en", "2026-11-21"),
        ("New York, 1 March 2026", "en", None),
        ("hier", "fr", "2026-11-20"),
        ("9999 years ago", "en", None),
        ("", None, None),
    ],
)
def test_a_day_is_read_as_it_is_written(text: str, language: str | None, day: str | None) -> None:
    assert day_in(text, language=language, now=NOW) == day


def test_other_languages_say_how_long_ago_too() -> None:
    read = day_in("vor 3 Tagen", language="de")
    assert read is not None
    assert (datetime.now(UTC).date() - datetime.fromisoformat(read).date()).days in {2, 3, 4}
