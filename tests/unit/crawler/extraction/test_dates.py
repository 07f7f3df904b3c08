"""Dates in local spellings."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.extraction.values import date_in

ZONES = st.integers(-12, 14).map(lambda hours: timezone(timedelta(hours=hours)))


@given(st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1), timezones=ZONES))  # noqa: DTZ001 - hypothesis wants them so
def test_an_iso_date_stays_what_it_is(moment: datetime) -> None:
    assert date_in(moment.isoformat()) == moment.isoformat()
    assert date_in(moment.date().isoformat()) == moment.date().isoformat()


@pytest.mark.parametrize(
    ("text", "language", "date"),
    [
        ("12 March 2026", "en", "2026-03-12"),
        ("12. März 2026", "de", "2026-03-12"),
        ("12 mai 2024 à 14h30", None, "2024-05-12T14:30:00"),
        ("3/4/2026", "en", "2026-03-04"),
        ("3/4/2026", "en-GB", "2026-03-04"),
        ("3.4.2026", "de-AT", "2026-04-03"),
        ("March 2026", "en", "2026-03"),
        ("2026", "en", "2026"),
        ("  1 \n Jan 2026 ", "tlh", "2026-01-01"),
        ("2026-03-01T12:30:00Z", None, "2026-03-01T12:30:00+00:00"),
    ],
)
def test_a_date_is_read_in_the_language_of_its_page(text: str, language: str | None, date: str) -> None:
    assert date_in(text, language=language) == date


def test_the_order_of_day_and_month_can_be_told() -> None:
    assert date_in("03/04/2026", order="DMY") == "2026-04-03"
    assert date_in("03/04/2026", order="MDY") == "2026-03-04"


@pytest.mark.parametrize("text", ["", "sold out", "2026-13-45", "x" * 10_000])
def test_what_is_no_date_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no date"):
        date_in(text, language="en")
