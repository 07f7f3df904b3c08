"""The audit trail's writes, for whoever is killed on the way and does them again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from killed import killed_everywhere
from pymongo.database import Database
from stores import embedded_mongo

from gateway.access.audit import AuditEntry, AuditFilter, AuditKind, AuditStore
from gateway.errors import InvalidRequestError

NOW = datetime(2027, 6, 1, 9, 30, tzinfo=UTC)
STORY = """
from datetime import UTC, datetime, timedelta
from gateway.access.audit import AuditEntry
from gateway.access.audit import AuditFilter, AuditStore
from gateway.stores.mongo import connect

def tell(uri):
    store, now = AuditStore(connect(uri)), datetime(2027, 6, 1, 9, 30, tzinfo=UTC)
    store.insert([AuditEntry(id=f"{number:032x}", at=now, route="/crawl") for number in range(3)])
    store.note_failures(now, {"192.0.2.7": 1})
    entries, _ = store.page(AuditFilter(), 10)
    assert [entry.route for entry in entries].count("/crawl") == 3
    assert 1 <= sum(entry.count or 0 for entry in entries) <= 7
    store.forget(now + timedelta(days=1), 10)
    assert store.page(AuditFilter(), 10) == ([], None)
"""


@pytest.fixture
def store(served: Database[dict[str, Any]]) -> AuditStore:
    return AuditStore(served)


def test_an_entry_that_is_written_twice_is_one(store: AuditStore) -> None:
    one, two = AuditEntry(at=NOW, route="/crawl"), AuditEntry(at=NOW + timedelta(seconds=1))
    store.insert([one])
    store.insert([one, two])
    assert store.page(AuditFilter(), 10) == ([two, one], None)


def test_failed_logins_of_an_address_are_one_entry_an_hour(store: AuditStore) -> None:
    store.note_failures(NOW, {"192.0.2.7": 2, "192.0.2.8": 1})
    store.note_failures(NOW + timedelta(minutes=5), {"192.0.2.7": 3})
    store.note_failures(NOW + timedelta(hours=1), {"192.0.2.7": 1})
    entries, _ = store.page(AuditFilter(kind=AuditKind.LOGIN_FAILED), 10)
    told = sorted((entry.at, entry.address, entry.count, entry.last_at) for entry in entries)
    assert told == [
        (NOW, "192.0.2.7", 5, NOW + timedelta(minutes=5)),
        (NOW, "192.0.2.8", 1, NOW),
        (NOW + timedelta(hours=1), "192.0.2.7", 1, NOW + timedelta(hours=1)),
    ]


def test_what_is_old_goes_a_little_at_a_time(store: AuditStore) -> None:
    store.insert([AuditEntry(at=NOW - timedelta(days=days)) for days in range(5)])
    assert [store.forget(NOW - timedelta(days=1), 2) for _ in range(3)] == [2, 1, 0]
    assert len(store.page(AuditFilter(), 10)[0]) == 2


def test_a_cursor_that_is_none_is_refused(store: AuditStore) -> None:
    with pytest.raises(InvalidRequestError):
        store.page(AuditFilter(), 10, "yesterday")


def test_whoever_is_killed_at_any_of_its_writes_may_do_it_again(tmp_path: Path) -> None:
    with embedded_mongo(tmp_path / "mongo") as uri:
        points = ("audit.insert", "audit.note_failures", "audit.forget")
        killed_everywhere(tmp_path, points, STORY, uri, beside=__file__)
