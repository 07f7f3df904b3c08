"""How the console writes intervals."""

from __future__ import annotations

import pytest

from gateway.web.console.formats import cron_words

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
