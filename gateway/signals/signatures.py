"""Signs calls of webhooks by Standard Webhooks 1.0.0 (https://www.standardwebhooks.com). With the user's secret, a
receiver can verify who calls, when the call was sent, and that nothing was changed.

A user's calls are signed as soon as the user has a secret. After a secret is renewed, calls are signed with both
secrets for a while.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Self

from attrs import define
from pydantic import BaseModel, ConfigDict, Field
from pymongo.database import Database
from pymongo.errors import DuplicateKeyError

from gateway.clock import Clock, utc_now
from gateway.crash_points import state_change
from gateway.errors import ConflictError, WebhookSecretNotFoundError
from gateway.projects.environment import NO_PROJECT, SecretBox
from gateway.stores.documents import Documents, reader
from gateway.stores.mongo import Document, Repeating, mongo_errors

PREFIX = "whsec_"
#: The standard requires 24 to 64 bytes.
SECRET_BYTES = 32
#: Hours for which calls are also signed with the previous secret: the default, and the maximum.
KEPT_HOURS, MOST_KEPT_HOURS = 24, 7 * 24
#: At most this many secrets of one user are valid at a time.
MOST_SECRETS = 5


def new_secret() -> str:
    return PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def signed_headers(message_id: str, sent: datetime, body: bytes, by: Iterable[str]) -> list[tuple[str, str]]:
    """The headers of one call. Without a secret in `by` there is no signature."""
    timestamp = str(int(sent.timestamp()))
    content = f"{message_id}.{timestamp}.".encode() + body
    signatures = " ".join(f"v1,{_signature(secret, content)}" for secret in by)
    headers = [("webhook-id", message_id), ("webhook-timestamp", timestamp)]
    return [*headers, ("webhook-signature", signatures)] if signatures else headers


def _signature(secret: str, content: bytes) -> str:
    key = base64.b64decode(secret.removeprefix(PREFIX))
    return base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()


# --- the `webhook_secrets` collection: one document for each user with a secret, and for each endpoint. Below, an
# endpoint counts as a user with the name `endpoints.secret_name`


class SealedSecret(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    sealed: str = Field(repr=False)
    made_at: datetime
    #: Calls are signed with it until then; `None` for the newest.
    until: datetime | None = None


class UserSecrets(BaseModel):
    """The newest first."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    id: str = Field(alias="_id")
    rev: int = 1
    secrets: tuple[SealedSecret, ...] = Field(min_length=1)


class WebhookSecret(BaseModel):
    """A user's secret."""

    model_config = ConfigDict(frozen=True)

    user_id: str
    secret: str = Field(repr=False)
    made_at: datetime
    #: Until when calls are also signed with the previous secret.
    previous_until: datetime | None

    @classmethod
    def of(cls, known: UserSecrets, secret: str, now: datetime) -> Self:
        newest, *others = known.secrets
        ends = [one.until for one in others if one.until is not None and one.until > now]
        return cls(user_id=known.id, secret=secret, made_at=newest.made_at, previous_until=max(ends, default=None))


@define(eq=False, repr=False, slots=False)
class WebhookSecrets:
    _database: Database[Document]
    _box: SecretBox
    _clock: Clock = utc_now

    def __attrs_post_init__(self) -> None:
        self._secrets = self._database["webhook_secrets"]
        self._documents = Documents(self._secrets, reader(UserSecrets))

    def get(self, user_id: str) -> WebhookSecret:
        """Raises `WebhookSecretNotFoundError`, `SecretsKeyError`."""
        with mongo_errors():
            known = self._documents.find_one({"_id": user_id})
        if known is None:
            raise WebhookSecretNotFoundError(user_id)
        return WebhookSecret.of(known, self._open(user_id, known.secrets[0]), self._clock())

    def valid(self, user_id: str) -> list[str]:
        """The secrets with which the user's calls are signed now, the newest first; may be empty. Raises
        `SecretsKeyError`, PyMongo's errors.
        """
        known, now = self._documents.find_one({"_id": user_id}), self._clock()
        valid = [one for one in known.secrets if one.until is None or one.until > now] if known else []
        return [self._open(user_id, one) for one in valid]

    def renew(self, user_id: str, keep: timedelta) -> WebhookSecret:
        """Make a new secret. For the time `keep`, calls are also signed with the previous secrets. Raises
        `ConflictError`, `SecretsKeyError`.
        """
        secret, now = new_secret(), self._clock()
        newest = SealedSecret(sealed=self._box.seal(NO_PROJECT, user_id, secret), made_at=now)
        with mongo_errors():
            known = self._documents.find_one({"_id": user_id})
            rev, kept = (known.rev + 1, _kept(known.secrets, now, now + keep)) if known else (1, [])
            made = UserSecrets(_id=user_id, rev=rev, secrets=(newest, *kept))
            if not self._put(known, made):
                raise ConflictError("the secret has changed meanwhile: read it again")
        return WebhookSecret.of(made, secret, now)

    def keep(self, name: str, secret: str) -> None:
        """Encrypt and store this secret as the only secret of this name. Raises `ConflictError`,
        `SecretsKeyError`.
        """
        newest = SealedSecret(sealed=self._box.seal(NO_PROJECT, name, secret), made_at=self._clock())
        with mongo_errors():
            known = self._documents.find_one({"_id": name})
            made = UserSecrets(_id=name, rev=known.rev + 1 if known else 1, secrets=(newest,))
            if not self._put(known, made):
                raise ConflictError("the secret has changed meanwhile: try again")

    @state_change("webhook_secrets.forget")
    def forget(self, user_id: str) -> None:
        """Raises PyMongo's errors."""
        Repeating(self._secrets).delete_many({"_id": user_id})

    def seal_anew(self) -> int:
        """Encrypt each secret again that was encrypted with an older key, with the first key. Afterwards the older
        keys can be removed. Returns how many secrets were encrypted again.
        """
        count = 0
        with mongo_errors():
            for known in self._documents.many(self._secrets.find()):
                old = sum(not self._box.is_current(one.sealed) for one in known.secrets)
                again = tuple(self._sealed_again(known.id, one) for one in known.secrets) if old else ()
                if old and self._put(known, known.model_copy(update={"rev": known.rev + 1, "secrets": again})):
                    count += old
        return count

    def _sealed_again(self, user_id: str, one: SealedSecret) -> SealedSecret:
        return one.model_copy(update={"sealed": self._box.seal(NO_PROJECT, user_id, self._open(user_id, one))})

    @state_change("webhook_secrets.put")
    def _put(self, known: UserSecrets | None, made: UserSecrets) -> bool:
        """Store the secrets. False if another process has changed them since they were read."""
        document, collection = made.model_dump(by_alias=True, exclude_none=True), Repeating(self._secrets)
        if known is not None:
            as_read, done = {"_id": known.id, "rev": known.rev}, {"secrets.0.sealed": made.secrets[0].sealed}
            return collection.change_one(as_read, {"$set": document}, done={"_id": known.id, **done})
        try:
            collection.insert_one(document, ours=["secrets"])
        except DuplicateKeyError:
            return False
        return True

    def _open(self, user_id: str, one: SealedSecret) -> str:
        return self._box.open(NO_PROJECT, user_id, one.sealed)


def _kept(known: Iterable[SealedSecret], now: datetime, until: datetime) -> list[SealedSecret]:
    """The older secrets that stay valid beside a new one, none of them longer than `until`."""
    ending = [one.model_copy(update={"until": min(one.until or until, until)}) for one in known]
    return [one for one in ending if one.until is not None and one.until > now][: MOST_SECRETS - 1]
