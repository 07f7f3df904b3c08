"""What of all that MongoDB may answer is its own fault, and how we are connected whatever the URI says."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pymongo import ReadPreference
from pymongo.errors import (
    AutoReconnect,
    BulkWriteError,
    CursorNotFound,
    DuplicateKeyError,
    ExecutionTimeout,
    NetworkTimeout,
    OperationFailure,
    WriteConcernError,
    WTimeoutError,
)

from gateway.errors import UnavailableError
from gateway.stores.mongo import Repeating, connect, mongo_errors, refusals


def bulk(*codes: int, unconfirmed: bool = False) -> BulkWriteError:
    concerns = [{"code": 64, "errmsg": "waiting for replication timed out"}] if unconfirmed else []
    problems: list[dict[str, Any]] = [{"index": n, "code": code, "errmsg": ""} for n, code in enumerate(codes)]
    return BulkWriteError({"writeErrors": problems, "writeConcernErrors": concerns})


class Unsure:
    """A collection whose first writes fail with `errors`, whether they were carried out or not."""

    def __init__(self, *errors: Exception, found: object = None) -> None:
        self.errors, self.found, self.asked = list(errors), found, 0
        self.database = SimpleNamespace(client=SimpleNamespace(options=SimpleNamespace(timeout=3.0)))

    def insert_one(self, document: object) -> None:
        self.asked += 1
        if self.errors:
            raise self.errors.pop(0)

    def find_one(self, query: dict[str, Any], _fields: object) -> object:
        assert query == {"_id": 1, "mark": "ours"}
        return self.found


def insert(collection: Any) -> None:
    Repeating(collection).insert_one({"_id": 1, "mark": "ours", "other": 2}, ours=["mark"])


@pytest.mark.parametrize(
    "error", [AutoReconnect(""), WriteConcernError("", 189), OperationFailure("", 10107)], ids=repr
)
def test_a_write_of_which_nobody_is_sure_is_asked_for_once_more(error: Exception) -> None:
    insert(collection := Unsure(error))
    assert collection.asked == 2
    insert(Unsure(error, DuplicateKeyError("", 11000), found={"_id": 1}))
    with pytest.raises(DuplicateKeyError):
        insert(Unsure(error, DuplicateKeyError("", 11000)))
    with pytest.raises(type(error)):
        insert(Unsure(error, error))


@pytest.mark.parametrize(
    "error", [NetworkTimeout(""), OperationFailure("", 2), DuplicateKeyError("", 11000)], ids=repr
)
def test_a_write_that_was_refused_or_has_no_time_left_is_not_repeated(error: Exception) -> None:
    collection = Unsure(error, found={"_id": 1})
    with pytest.raises(type(error)):
        insert(collection)
    assert collection.asked == 1


PASSING = [
    *(OperationFailure("", code) for code in (91, 262, 11600, 11601, 112, 189, 175, 237, 14031)),
    OperationFailure("", 8, {"errorLabels": ["RetryableWriteError"]}),
    CursorNotFound("", 43),
    ExecutionTimeout("", 50),
    AutoReconnect(""),
    NetworkTimeout(""),
    WriteConcernError("", 100),
    WTimeoutError("", 64),
    bulk(262),
    bulk(11000, 91),
    bulk(unconfirmed=True),
    bulk(11000, unconfirmed=True),
]
LASTING = [
    OperationFailure("", 2),
    OperationFailure("", 13),
    DuplicateKeyError("", 11000),
    bulk(11000),
    bulk(2, 11000),
]


@pytest.mark.parametrize("error", PASSING, ids=repr)
def test_what_passes_is_told_as_a_database_that_is_not_available(error: Exception) -> None:
    with pytest.raises(UnavailableError), mongo_errors():
        raise error


@pytest.mark.parametrize("error", LASTING, ids=repr)
def test_what_would_happen_again_is_no_outage(error: Exception) -> None:
    with pytest.raises(type(error)), mongo_errors():
        raise error


def test_refusals_that_are_expected_are_told_by_their_position() -> None:
    assert refusals(bulk(11000, 11000), {11000}) == {0: 11000, 1: 11000}


@pytest.mark.parametrize("error", [bulk(11000, 2), bulk(11000, unconfirmed=True), bulk(unconfirmed=True)], ids=repr)
def test_refusals_for_another_reason_and_unconfirmed_writes_are_never_swallowed(error: BulkWriteError) -> None:
    with pytest.raises(BulkWriteError):
        refusals(error, {11000})


def test_reads_and_writes_are_the_majoritys_whatever_the_uri_says_but_it_may_forbid_repeating() -> None:
    options = "readPreference=secondaryPreferred&readPreferenceTags=dc:east&retryWrites=false&retryReads=false"
    database = connect(f"mongodb://127.0.0.1:1/ours?{options}&w=1&journal=false&readConcernLevel=local")
    jobs, told = database["jobs"], database.client.options
    database.client.close()
    assert (database.name, jobs.read_preference) == ("ours", ReadPreference.PRIMARY)
    assert jobs.write_concern.document == {"w": "majority", "j": True}
    assert jobs.read_concern.document == {"level": "majority"}
    assert (told.retry_writes, told.retry_reads) == (False, True)
    database = connect("mongodb://127.0.0.1:1/ours")
    assert database.client.options.retry_writes
    database.client.close()
