"""Programs are written against the codes of errors: a class that is renamed keeps its code."""

from __future__ import annotations

import pytest

from gateway import errors


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.DiscoveryBotError, "internal_error"),
        (errors.InvalidRequestError, "invalid_request"),
        (errors.ForbiddenAddressError, "forbidden_address"),
        (errors.UnauthenticatedError, "key_required"),
        (errors.WrongKeyError, "key_invalid"),
        (errors.ForbiddenError, "forbidden"),
        (errors.ForgedRequestError, "csrf_token_wrong"),
        (errors.ScopeMissingError, "scope_missing"),
        (errors.NotYourUserError, "not_your_user"),
        (errors.UnreadableError, "unreadable"),
        (errors.NotFoundError, "not_found"),
        (errors.JobNotFoundError, "job_not_found"),
        (errors.RunNotFoundError, "run_not_found"),
        (errors.DeadLetterNotFoundError, "dead_letter_not_found"),
        (errors.NodeNotFoundError, "node_not_found"),
        (errors.SiteNotFoundError, "site_not_found"),
        (errors.TargetNotFoundError, "target_not_found"),
        (errors.KeyNotFoundError, "key_not_found"),
        (errors.VersionNotFoundError, "version_not_found"),
        (errors.ScheduleNotFoundError, "schedule_not_found"),
        (errors.ConflictError, "conflict"),
        (errors.JobExistsError, "job_exists"),
        (errors.ScheduleExistsError, "schedule_exists"),
        (errors.ScheduleChangedError, "schedule_changed"),
        (errors.ScheduleEndedError, "schedule_ended"),
        (errors.LiveTwinError, "live_twin"),
        (errors.IdempotencyConflictError, "idempotency_key_reused"),
        (errors.RunGoesOnError, "run_goes_on"),
        (errors.SiteExistsError, "site_exists"),
        (errors.SiteInUseError, "site_in_use"),
        (errors.SiteDisabledError, "site_disabled"),
        (errors.UnavailableError, "unavailable"),
        (errors.StartingError, "starting"),
        (errors.TooManyError, "too_many_requests"),
        (errors.QueueFullError, "queue_full"),
        (errors.UserQuotaError, "user_quota"),
        (errors.NodeError, "node_error"),
        (errors.NodeRefusedError, "node_refused"),
        (errors.NodeShutError, "node_shut"),
        (errors.NameTakenError, "node_name_taken"),
        (errors.NodeUnreachableError, "node_unreachable"),
    ],
)
def test_a_code_is_stable(kind: type[errors.DiscoveryBotError], code: str) -> None:
    assert kind.code == code


def test_an_error_says_what_is_not_there() -> None:
    assert str(errors.DeadLetterNotFoundError("7")) == "there is no dead letter '7'"
