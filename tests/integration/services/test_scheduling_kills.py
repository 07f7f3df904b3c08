"""Beats and gateways are killed at each write of schedules and occurrences. The next process finishes their work."""

from __future__ import annotations

from pathlib import Path

from killed import killed_everywhere
from stores import embedded_mongo

from gateway.stores.indexes import ensure_indexes
from gateway.stores.mongo import connect

POINTS = (
    *("schedules.insert", "schedules.overtake", "schedules.change", "schedules.touch", "schedules.delete"),
    *(
        "schedules.insert_occurrences",
        "schedules.advance",
        "schedules.promote",
        "schedules.refresh",
        "schedules.void",
    ),
    *("schedules.uncount", "schedules.remove_occurrence", "schedules.clear", "schedules.release", "schedules.note"),
    "schedules.note_run",
    *("schedules.promote_scheduled", "schedule_ledger.record", "schedule_ledger.delete", "static_entries.claim"),
)


def test_whoever_is_killed_in_between_each_occurrence_runs_once_and_the_books_are_right(tmp_path: Path) -> None:
    with embedded_mongo(tmp_path / "mongo") as uri:
        database = connect(uri)
        ensure_indexes(database)
        database.client.close()
        killed_everywhere(tmp_path, POINTS, "from scheduling_story import tell", uri, beside=__file__)
