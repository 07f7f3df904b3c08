"""`/webhooks/secret`: with what the calls of a user's webhooks are signed."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

from gateway.access.keys import Scope
from gateway.signals.signatures import KEPT_HOURS, MOST_KEPT_HOURS, WebhookSecret, WebhookSecrets
from gateway.web.authorisation import Called, needs
from gateway.web.dependencies import Parts, Router
from gateway.web.errors import problems
from gateway.web.schemas.types import QueryModel, Timestamp, UserId

_SECRET: JsonDict = {
    "user_id": "abc123",
    "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo=",
    "made_at": "2027-06-01T09:00:00.000Z",
    "previous_until": "2027-06-02T09:00:00.000Z",
}

router = Router(prefix="/webhooks", tags=["webhooks"])


class SecretQuery(QueryModel):
    user_id: UserId | None = Field(default=None, description="Whose webhooks; by default the caller's.")


class SecretRequest(BaseModel):
    """How long the secret before stays valid."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"keep_hours": 24}]})

    keep_hours: Annotated[int, Field(ge=0, le=MOST_KEPT_HOURS)] = Field(
        default=KEPT_HOURS,
        description="For so long calls are signed with the secret before, too, so that receivers can take the new "
        "one over in their own time; 0 if others know it.",
    )


class WebhookSecretView(BaseModel):
    """The secret that webhooks are signed with."""

    model_config = ConfigDict(json_schema_extra={"examples": [_SECRET]})

    user_id: str
    secret: str = Field(description="As Standard Webhooks writes it: `whsec_` and base64.")
    made_at: Timestamp
    previous_until: Timestamp | None = Field(
        description="Until when calls are signed with the secret before it, too."
    )

    @classmethod
    def of(cls, known: WebhookSecret) -> WebhookSecretView:
        return cls(**known.model_dump())


@router.get("/secret", summary="With what calls of webhooks are signed", responses=problems(404, 503))
@needs(Scope.CRAWL)
def get_webhook_secret(query: Annotated[SecretQuery, Query()], parts: Parts, caller: Called) -> WebhookSecretView:
    """A user's calls are signed once it has a secret: without one this is a 404."""
    return WebhookSecretView.of(parts[WebhookSecrets].get(caller.asking(query.user_id)))


@router.post("/secret", status_code=201, summary="Make a new secret for webhooks", responses=problems(409, 503))
@needs(Scope.CRAWL)
def renew_webhook_secret(
    query: Annotated[SecretQuery, Query()], parts: Parts, caller: Called, body: SecretRequest | None = None
) -> WebhookSecretView:
    """From now on calls are signed with it, as [Standard Webhooks](https://www.standardwebhooks.com) has it."""
    keep = timedelta(hours=(body or SecretRequest()).keep_hours)
    return WebhookSecretView.of(parts[WebhookSecrets].renew(caller.asking(query.user_id), keep))
