"""A gateway is killed wherever it writes sites and targets. Whoever repeats the request gets what it asks for."""

from __future__ import annotations

from pathlib import Path

from killed import killed_everywhere
from stores import embedded_mongo

from gateway.stores.indexes import ensure_indexes
from gateway.stores.mongo import connect

POINTS = (
    *("counters.next", "sites.insert", "sites.replace", "sites.delete"),
    *("targets.insert", "targets.replace", "targets.scheduled", "targets.delete"),
)


def test_whoever_is_killed_in_between_what_was_asked_for_is_there_and_goes_again(tmp_path: Path) -> None:
    with embedded_mongo(tmp_path / "mongo") as uri:
        database = connect(uri)
        ensure_indexes(database)
        killed_everywhere(tmp_path, POINTS, "from boards import tell", uri, beside=__file__)
        for collection in ("sites", "targets", "schedules"):
            assert database[collection].count_documents({}) == 0, collection
        database.client.close()
