"""What we sign is what the official library of Standard Webhooks verifies, also while a secret is exchanged."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import mongomock
import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from gateway.errors import SecretsKeyError, WebhookSecretNotFoundError
from gateway.projects.environment import SecretBox
from gateway.signals.signatures import MOST_SECRETS, SECRET_BYTES, WebhookSecrets, new_secret, signed_headers

HOUR = timedelta(hours=1)
BODY = '{"event": "job.ended", "message": "größer"}'.encode()


class Users:
    """A store of secrets, and its clock."""

    def __init__(self) -> None:
        self.now = datetime(2026, 6, 1, tzinfo=UTC)
        self.keys = ["k" * 32]
        self.database: Any = mongomock.MongoClient(tz_aware=True)["test"]
        self.secrets = WebhookSecrets(self.database, SecretBox(lambda: self.keys), lambda: self.now)


@pytest.fixture
def users() -> Users:
    return Users()


def test_the_vector_of_the_standard() -> None:
    """The example in the documentation of the standard's libraries."""
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    sent = datetime.fromtimestamp(1614265330, UTC)
    headers = dict(signed_headers("msg_p5jXN8AQM9LWM0D4loKWxJek", sent, b'{"test": 2432232314}', [secret]))
    assert headers == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def test_what_is_signed_is_verified_with_each_secret_and_with_no_other() -> None:
    secrets = [new_secret() for _ in range(3)]
    headers = dict(signed_headers("msg_1", datetime.now(UTC), BODY, secrets[:2]))
    for secret in secrets[:2]:
        assert Webhook(secret).verify(BODY, headers)["event"] == "job.ended"
    with pytest.raises(WebhookVerificationError):
        Webhook(secrets[2]).verify(BODY, headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(secrets[0]).verify(BODY + b" ", headers)


def test_without_a_secret_there_is_no_signature() -> None:
    assert [name for name, _ in signed_headers("msg_1", datetime.now(UTC), BODY, [])] == [
        "webhook-id",
        "webhook-timestamp",
    ]


def test_a_secret_has_as_many_bytes_as_the_standard_asks_for() -> None:
    assert 24 <= SECRET_BYTES <= 64
    assert new_secret().startswith("whsec_")


def test_calls_are_signed_with_the_one_before_until_its_time_is_over(users: Users) -> None:
    assert users.secrets.valid("anne") == []
    first = users.secrets.renew("anne", HOUR)
    assert (first.previous_until, users.secrets.valid("anne")) == (None, [first.secret])
    second = users.secrets.renew("anne", HOUR)
    assert users.secrets.valid("anne") == [second.secret, first.secret]
    assert users.secrets.get("anne") == second
    assert second.previous_until == users.now + HOUR
    assert users.secrets.valid("bert") == []
    users.now += HOUR
    assert users.secrets.valid("anne") == [second.secret]
    assert users.secrets.get("anne").previous_until is None


def test_one_that_others_know_ends_at_once_and_the_ones_before_it_too(users: Users) -> None:
    for _ in range(2):
        users.secrets.renew("anne", HOUR)
    newest = users.secrets.renew("anne", timedelta()).secret
    assert users.secrets.valid("anne") == [newest]


def test_only_the_newest_are_kept(users: Users) -> None:
    made = [users.secrets.renew("anne", HOUR).secret for _ in range(MOST_SECRETS + 2)]
    assert users.secrets.valid("anne") == made[::-1][:MOST_SECRETS]


def test_no_secret(users: Users) -> None:
    with pytest.raises(WebhookSecretNotFoundError):
        users.secrets.get("anne")


def test_secrets_are_sealed_and_can_be_sealed_anew(users: Users) -> None:
    made = [users.secrets.renew("anne", HOUR).secret for _ in range(2)][::-1]
    assert made[0] not in repr(list(users.database["webhook_secrets"].find()))
    users.keys = ["n" * 32, *users.keys]
    assert users.secrets.seal_anew() == 2
    assert users.secrets.seal_anew() == 0
    users.keys = users.keys[:1]
    assert users.secrets.valid("anne") == made
    users.keys = ["another" * 6]
    with pytest.raises(SecretsKeyError, match="the webhook secret of 'anne'"):
        users.secrets.valid("anne")
