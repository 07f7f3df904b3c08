"""How the console writes intervals, and what authors of spiders wrote."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from gateway.clock import utc_now
from gateway.console.formats import clock, cron_words, every_words, prose

WORDS = {
    "0 9 * * *": "every day at 09:00",
    "30 6 * * MON-FRI": "Monday to Friday at 06:30",
    "@hourly": "every hour",
    "*/5 9 * * *": "",
    "every 15m": "",
}


@pytest.mark.parametrize(("interval", "words"), WORDS.items())
def test_simple_cron_is_said_in_words(interval: str, words: str) -> None:
    assert cron_words(interval) == words


@pytest.mark.parametrize(
    ("interval", "words"),
    {
        "every 720m": "every 12 h",
        "EVERY 15 m": "every 15 min",
        "every 2w": "every 14 d",
        "every 5s": "every 5 s",
        "every 90m": "every 1 h 30 min",
        # with two units it would be another time
        "every 90061s": "",
        "0 9 * * *": "",
    }.items(),
)
def test_an_interval_is_said_in_the_units_of_all_times(interval: str, words: str) -> None:
    assert every_words(interval) == words


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("Only `a<b>`, or `c`.", "Only <code>a&lt;b&gt;</code>, or <code>c</code>."),
        ("a lone ` & none", "a lone ` &amp; none"),
        ("<i>\u202e</i>", "&lt;i&gt;\\u202e&lt;/i&gt;"),
    ],
)
def test_what_is_between_backticks_is_code(text: str, html: str) -> None:
    assert prose(text) == f"<bdi>{html}</bdi>"


def test_a_time_in_a_zone_names_it_and_stays_there() -> None:
    soon = utc_now() + timedelta(days=1)
    assert "data-clock" in clock(soon)
    far = clock(datetime(2040, 1, 9, 8, tzinfo=UTC), "Europe/Paris")
    assert ">2040-01-09 09:00 CET<" in far
    assert "data-clock" not in far
