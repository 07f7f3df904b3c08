from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from gateway.access.keys import (
    LIFETIME,
    LONGEST,
    ApiKey,
    ConsoleSession,
    Scope,
    Seal,
    open_session,
    read_session,
    read_stream_token,
    sign,
)

NOW = datetime(2027, 6, 1, 9, tzinfo=UTC)
KEY = ApiKey("4f1d", "anne", frozenset({Scope.READ}), "a" * 64, NOW)
DAY = timedelta(days=1)
SEAL = Seal("of all gateways")


def test_a_session_is_what_was_given_out() -> None:
    session = open_session(KEY, NOW, DAY, SEAL)
    assert read_session(str(session)) == session
    assert session.opens(KEY, NOW, SEAL)
    assert session.expires_at == NOW + DAY


def test_it_ends_by_itself_with_its_key_and_when_it_is_ended() -> None:
    session = open_session(KEY, NOW, DAY, SEAL)
    assert not session.opens(KEY, NOW + DAY, SEAL)
    assert not session.opens(KEY._replace(ended_sessions=frozenset({session.id})), NOW, SEAL)
    assert open_session(KEY._replace(expires_at=NOW + DAY / 2), NOW, DAY, SEAL).expires_at == NOW + DAY / 2


def test_nothing_about_it_can_be_changed() -> None:
    session = open_session(KEY, NOW, DAY, SEAL)
    forged = (
        session._replace(expires=session.expires + 60),
        session._replace(id="0" * 24),
        session._replace(signature="0" * 64),
        session._replace(signature=session.csrf_token(KEY, SEAL)),
    )
    assert not any(one.opens(KEY, NOW, SEAL) for one in forged)
    assert not session.opens(KEY._replace(sha256="b" * 64), NOW, SEAL)
    assert not session.opens(KEY, NOW, Seal(KEY.sha256))


def test_none_lasts_longer_than_a_month_though_it_is_signed() -> None:
    session = open_session(KEY, NOW, LONGEST + DAY, SEAL)
    assert not session.opens(KEY, NOW, SEAL)
    assert session.opens(KEY, NOW + DAY, SEAL)


def test_a_stream_token_opens_one_log_for_a_minute() -> None:
    token = sign(KEY, "one", NOW, SEAL)
    assert read_stream_token(str(token)) == token
    assert token.opens("one", KEY, NOW, SEAL)
    assert not token.opens("other", KEY, NOW, SEAL)
    assert not token.opens("one", KEY, NOW + LIFETIME, SEAL)
    assert not token.opens("one", KEY, NOW, Seal(KEY.sha256))
    # of a gateway whose clock is far off
    assert not sign(KEY, "one", NOW + DAY, SEAL).opens("one", KEY, NOW, SEAL)


def test_each_session_has_a_csrf_token_of_its_own() -> None:
    first, second = (open_session(KEY, NOW, DAY, SEAL) for _ in range(2))
    assert first.csrf_token(KEY, SEAL) == first.csrf_token(KEY, SEAL) != second.csrf_token(KEY, SEAL)
    assert first.csrf_token(KEY, SEAL) not in str(first)


@pytest.mark.parametrize("text", ["", "cs", "cs_a_b_1", "cs_a_b_x_c", "st_a_b_1_c", "cs_a_b_1_c_d", "cs_ä_b_1_c"])
def test_what_is_no_session_by_its_shape_is_none(text: str) -> None:
    assert read_session(text) is None


def test_a_time_of_a_million_digits_is_cut() -> None:
    session = read_session("cs_a_b_" + "9" * 1_000_000 + "_c")
    assert isinstance(session, ConsoleSession)
    assert session.expires == int("9" * 15)
