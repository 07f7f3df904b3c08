"""What an error says, and what it is."""

from __future__ import annotations

import pickle

import pytest

from discoverybot_client import ApiError, GatewayUnreachableError, NotFoundError, Retries, UnavailableError


def test_a_gateway_that_is_away_for_days_is_asked_now_and_then() -> None:
    assert 15 <= Retries().pause(10_000) <= 30


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
