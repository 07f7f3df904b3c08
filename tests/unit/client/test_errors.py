"""What an error says, and what it is."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from discoverybot_client import ApiError, GatewayUnreachableError, NotFoundError, Retries, UnavailableError
from discoverybot_client.rules import Patience, retry_after


def test_a_gateway_that_is_away_for_days_is_asked_now_and_then() -> None:
    assert 15 <= Retries().pause(10_000) <= 30


def test_the_pause_that_a_gateway_asks_for_is_not_cut() -> None:
    assert Retries().pause(1, 500) == 500
    assert retry_after({"Retry-After": "1.5"}) == 1.5
    ahead = retry_after({"Retry-After": format_datetime(datetime.now(UTC) + timedelta(days=1), usegmt=True)})
    assert ahead is not None
    assert 86_000 < ahead <= 86_400
    assert retry_after({"Retry-After": "Fri, 31 Dec 1999 23:59:59 GMT"}) == 0
    assert (retry_after({}), retry_after({"Retry-After": "soon"})) == (None, None)


def test_patience_that_does_not_cover_a_pause_ends_at_once() -> None:
    error = UnavailableError(503, {}, retry_after=500)
    assert Patience(Retries(), None, was_there=True).pause(error) == 500
    with pytest.raises(UnavailableError):
        Patience(Retries(), 60, was_there=True).pause(error)


def test_a_refusal_says_which_request_it_was() -> None:
    error = NotFoundError(404, {"code": "job_not_found", "message": "no such job"}, "0b9f")
    assert str(error) == "no such job (job_not_found, request 0b9f)"
    assert (
        str(NotFoundError(404, {"code": "job_not_found", "message": "no such job"})) == "no such job (job_not_found)"
    )


@pytest.mark.parametrize(
    "error",
    [
        ApiError(500, {"code": "internal", "message": "no", "detail": {"field": "depth"}}, "0b9f", 2.0),
        UnavailableError(503, {}),
        GatewayUnreachableError("no gateway", was_sent=False),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_gets_to_another_process_whole(error: ApiError | GatewayUnreachableError) -> None:
    other = pickle.loads(pickle.dumps(error))
    assert (type(other), str(other), vars(other)) == (type(error), str(error), vars(error))
