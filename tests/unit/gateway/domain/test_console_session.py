from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from gateway.domain.api_key import ApiKey, Scope
from gateway.domain.console_session import ConsoleSession, open_session, read_session

NOW = datetime(2027, 6, 1, 9, tzinfo=UTC)
KEY = ApiKey("4f1d", "anne", frozenset({Scope.READ}), "a" * 64, NOW)
DAY = timedelta(days=1)


def test_a_session_is_what_was_given_out() -> None:
    session = open_session(KEY, NOW, DAY)
    assert read_session(str(session)) == session
    assert session.opens(KEY, NOW)
    assert session.expires_at == NOW + DAY


def test_it_ends_by_itself_with_its_key_and_when_it_is_ended() -> None:
    session = open_session(KEY, NOW, DAY)
    assert not session.opens(KEY, NOW + DAY)
    assert not session.opens(KEY._replace(ended_sessions=frozenset({session.id})), NOW)
    assert open_session(KEY._replace(expires_at=NOW + DAY / 2), NOW, DAY).expires_at == NOW + DAY / 2


def test_nothing_about_it_can_be_changed() -> None:
    session = open_session(KEY, NOW, DAY)
    forged = (
        session._replace(expires=session.expires + 60),
        session._replace(id="0" * 24),
        session._replace(signature="0" * 64),
        session._replace(signature=session.csrf_token(KEY)),
    )
    assert not any(one.opens(KEY, NOW) for one in forged)
    assert not session.opens(KEY._replace(sha256="b" * 64), NOW)


def test_each_session_has_a_csrf_token_of_its_own() -> None:
    first, second = (open_session(KEY, NOW, DAY) for _ in range(2))
    assert first.csrf_token(KEY) == first.csrf_token(KEY) != second.csrf_token(KEY)
    assert first.csrf_token(KEY) not in str(first)


@pytest.mark.parametrize("text", ["", "cs", "cs_a_b_1", "cs_a_b_x_c", "st_a_b_1_c", "cs_a_b_1_c_d", "cs_ä_b_1_c"])
def test_what_is_no_session_by_its_shape_is_none(text: str) -> None:
    assert read_session(text) is None


def test_a_time_of_a_million_digits_is_cut() -> None:
    session = read_session("cs_a_b_" + "9" * 1_000_000 + "_c")
    assert isinstance(session, ConsoleSession)
    assert session.expires == int("9" * 15)
