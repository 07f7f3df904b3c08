"""Salaries as pages write them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.job_posting.salary import salary_of_text

TEXTS: list[tuple[str, Any, Any, str | None, str | None]] = [
    ("€45,000 – €60,000 a year", 45_000, 60_000, "EUR", "year"),
    ("$30/hr", 30, 30, "USD", "hour"),
    ("60k", 60_000, 60_000, None, None),
    ("$50-60K", 50_000, 60_000, "USD", None),
    ("45.000 - 60.000 € brutto/Jahr", 45_000, 60_000, "EUR", "year"),
    ("45 000 € – 60 000 € par an", 45_000, 60_000, "EUR", "year"),
    ("From $20 an hour", 20, None, "USD", "hour"),
    ("Up to £60,000 per annum", None, 60_000, "GBP", "year"),
    ("bis zu 60k €", None, 60_000, "EUR", None),
    ("ab 3.000 € monatlich", 3_000, None, "EUR", "month"),
    ("$100K+ DOE, 401(k)", 100_000, None, "USD", None),
    ("£45,000 per annum - £50,000 per annum", 45_000, 50_000, "GBP", "year"),
    ("$20.50 - $25.75 an hour", 20.5, 25.75, "USD", "hour"),
    ("Pay range: $85,000.00/yr - $110,000.00/yr", 85_000, 110_000, "USD", "year"),
    ("Between £25k and £30k pa", 25_000, 30_000, "GBP", "year"),
    ("5-7 LPA", 500_000, 700_000, "INR", "year"),
    ("₹5,00,000 - ₹8,00,000 a year", 500_000, 800_000, "INR", "year"),
    ("CHF 90'000 – 110'000", 90_000, 110_000, "CHF", None),
    ("45.000,- € im Jahr", 45_000, 45_000, "EUR", "year"),
    ("15 000 - 20 000 zł / mies.", 15_000, 20_000, "PLN", "month"),
    ("月給25万円", 250_000, 250_000, "JPY", "month"),
    ("R$ 5.000,00 por mês", 5_000, 5_000, "BRL", "month"),
    ("R25 000 - R30 000 per month", 25_000, 30_000, "ZAR", "month"),
    ("12,50 EUR / Stunde", 12.5, 12.5, "EUR", "hour"),
    ("€20/hr, 40h/week", 20, 20, "EUR", "hour"),
    ("€45,000 plus €5,000 bonus", 45_000, 45_000, "EUR", None),
    ("$17.00 to $19.00 per hour, plus 10% bonus", 17, 19, "USD", "hour"),
    ("£300 per day", 300, 300, "GBP", "day"),
    ("$1,500 weekly", 1_500, 1_500, "USD", "week"),
    ("75,000", 75_000, 75_000, None, None),
    ("$60,000 - $50,000", 50_000, 60_000, "USD", None),
    ("Competitive", None, None, None, None),
    ("40 hours a week", None, None, None, None),
    ("30-35 days holiday, 24/7", None, None, None, None),
    ("3 vacancies", None, None, None, None),
]


@pytest.mark.parametrize(("text", "low", "high", "currency", "period"), TEXTS)
def test_a_salary_is_read_as_it_was_meant(
    text: str, low: float | None, high: float | None, currency: str | None, period: str | None
) -> None:
    read = salary_of_text(text)
    assert read == {"min": low, "max": high, "currency": currency, "period": period, "text": text}


@pytest.mark.parametrize(
    ("text", "country", "currency"),
    [
        ("$30/hr", "CA", "CAD"),
        ("$30/hr", "Australia", "AUD"),
        ("$30/hr", "US", "USD"),
        ("US$30/hr", "CA", "USD"),
        ("35 000 kr per månad", "SE", "SEK"),
        ("35 000 kr", None, None),
        ("¥8000/月", "CN", "CNY"),
    ],
)
def test_the_country_tells_dollars_and_crowns_apart(text: str, country: str | None, currency: str | None) -> None:
    read = salary_of_text(text, country)
    assert read is not None
    assert read["currency"] == currency


def test_nothing_at_all_is_no_salary() -> None:
    assert salary_of_text(" \n ") is None


@given(st.text("0123456789.,-–k€$ /hrayeupto%+'()", max_size=60))
def test_whatever_is_written_is_no_reason_to_fail(text: str) -> None:
    read = salary_of_text(text)
    if read and read["min"] is not None and read["max"] is not None:
        assert read["min"] <= read["max"]
