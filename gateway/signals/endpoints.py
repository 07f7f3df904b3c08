"""Endpoints: receivers that a user registers once, for events of all or some of the user's crawls."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from attrs import define
from pydantic import BaseModel, Field
from pymongo import DESCENDING
from pymongo.database import Database

from gateway.clock import Clock, to_iso, utc_now
from gateway.contract.public_address import Network, check_url
from gateway.crash_points import state_change
from gateway.errors import ConflictError, EndpointNotFoundError, InvalidRequestError
from gateway.signals.apprise_caller import AppriseCaller
from gateway.signals.delivery_store import MISSING, Delivery, DeliveryState, DeliveryStore
from gateway.signals.events import ON_REQUEST, EventType, SignalEvent, Subject, event_id
from gateway.signals.sentences import message_body, slack_body
from gateway.signals.signatures import WebhookSecret, WebhookSecrets
from gateway.stores.documents import Documents, page, reader
from gateway.stores.mongo import Document, Repeating, mongo_errors

#: A user has at most this many endpoints: each event may cause a call to each of them.
MOST_ENDPOINTS = 50
#: An endpoint is disabled if every call has failed for this long, as Standard Webhooks recommends.
DISABLED_AFTER = timedelta(days=5)
#: One request sends at most this many deliveries again.
MOST_AGAIN = 10_000
_REMOVED = 1000


class EndpointFilter(BaseModel, extra="ignore", frozen=True):
    """Which crawls an endpoint receives events of. A crawl must have one of the values of each field that is not
    empty.
    """

    projects: tuple[str, ...] = ()
    spiders: tuple[str, ...] = ()
    sites: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()
    schedules: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    users: tuple[str, ...] = ()

    def admits(self, subject: Subject) -> bool:
        facts: dict[str, set[str | None]] = {
            "projects": {subject.project},
            "spiders": {subject.spider},
            "sites": {subject.site},
            "datasets": {subject.dataset},
            "schedules": {subject.schedule_id},
            "tags": set(subject.tags),
            "users": {subject.user_id},
        }
        return all(not (wanted := getattr(self, name)) or found & set(wanted) for name, found in facts.items())

    def query(self) -> Document:
        """The filter as a MongoDB query for jobs."""
        paths = {
            "projects": "spec.project",
            "spiders": "spec.spider",
            "sites": "spec.site",
            "datasets": "spec.dataset.name",
            "schedules": "schedule_id",
            "tags": "tags",
            "users": "user_id",
        }
        return {path: {"$in": list(wanted)} for name, path in paths.items() if (wanted := getattr(self, name))}


#: Addresses of Slack's incoming webhooks, also behind a proxy, and addresses of Mattermost, Rocket.Chat and Discord
#: that accept the same body.
_SLACK = re.compile(
    r"https?://(hooks\.slack(-gov)?\.com/"
    r"|[^/?#]+/services/T\w+/B\w+/\w+$"
    r"|[^?#]+/hooks/[a-z0-9]{26}$"
    r"|[^?#]+/hooks/\w{17,24}/\w{32,}$"
    r"|(\w+\.)?discord(app)?\.com/api/webhooks/[^?#]*/slack$)",
    re.ASCII | re.IGNORECASE,
)
#: Addresses of chats that accept neither of our bodies: creating such an endpoint fails, with a hint.
_DISCORD = re.compile(r"https?://(\w+\.)?discord(app)?\.com/api/webhooks/", re.ASCII | re.IGNORECASE)
_TEAMS = re.compile(
    r"https?://[\w.-]+\.(webhook\.office\.com|logic\.azure\.com|powerplatform\.com)(:\d+)?/", re.ASCII | re.IGNORECASE
)


class EndpointFormat(StrEnum):
    """The format of the body that the endpoint gets."""

    #: The event, as `/openapi.json` describes it.
    STANDARD = "standard"
    #: A sentence with a link, for a channel of Slack or of a service that accepts the same body.
    SLACK = "slack"
    #: A title and a text, for one of the services that Apprise knows: mail, Telegram, PagerDuty and others. The
    #: address contains passwords, so it is stored encrypted as the endpoint's secret, and `url` has only its scheme.
    APPRISE = "apprise"

    @classmethod
    def of_address(cls, url: str) -> EndpointFormat:
        """The format for this address, as far as the address shows it. Raises `InvalidRequestError` for a chat that
        accepts neither format.
        """
        if _SLACK.match(url):
            return cls.SLACK
        if _DISCORD.match(url):
            raise InvalidRequestError("url", "Discord takes our messages at this address with /slack at its end")
        if _TEAMS.match(url):
            raise InvalidRequestError("url", "Teams takes cards: give format apprise, and workflows://… as the URL")
        return cls.STANDARD


class Endpoint(BaseModel, extra="forbid", populate_by_name=True):
    id: str = Field(alias="_id")
    user_id: str
    url: str
    description: str | None = None
    #: The types of events that it receives; all if empty. A later version may add types.
    events: tuple[str, ...] = ()
    filter: EndpointFilter = EndpointFilter()
    format: EndpointFormat = EndpointFormat.STANDARD
    #: Whether it receives events of all users' crawls; true or absent.
    of_all_users: bool | None = None
    paused: bool = False
    #: When the platform disabled it, and why; absent for an endpoint that is not disabled.
    disabled_at: datetime | None = None
    disabled_reason: str | None = None
    #: Since when every call has failed; absent if the last call was successful.
    failing_since: datetime | None = None
    created_at: datetime

    @property
    def is_active(self) -> bool:
        return not self.paused and self.disabled_at is None

    def wants(self, event: SignalEvent) -> bool:
        if event.type.value not in self.events and (self.events or event.type in ON_REQUEST):
            return False
        return event.subject is None or self.filter.admits(event.subject)

    def delivery_of(self, event: SignalEvent, now: datetime) -> Delivery:
        subject = event.subject
        about = {"job_id": subject.job_id, "traceparent": subject.traceparent} if subject else {}
        return Delivery.new(
            event.message_id,
            self.id,
            now,
            user_id=self.user_id,
            type=event.type.value,
            body=_BODIES[self.format](event),
            url=self.url,
            endpoint_id=self.id,
            **about,
        )


_BODIES: dict[EndpointFormat, Callable[[SignalEvent], str]] = {
    EndpointFormat.STANDARD: lambda event: event.body,
    EndpointFormat.SLACK: slack_body,
    EndpointFormat.APPRISE: message_body,
}


def secret_name(endpoint_id: str) -> str:
    """The name under which its secret is stored, in the same collection as users' secrets. User
    names have no slash.
    """
    return f"endpoint/{endpoint_id}"


class EndpointStore:
    """The `endpoints` collection."""

    def __init__(self, database: Database[Document]) -> None:
        self._endpoints = database["endpoints"]
        self._documents = Documents(self._endpoints, reader(Endpoint))

    def get(self, endpoint_id: str) -> Endpoint | None:
        return self._documents.find_one({"_id": endpoint_id})

    def told_of(self, user_id: str) -> list[Endpoint]:
        """The endpoints that receive events of this user, including paused and disabled ones."""
        found = self._endpoints.find({"$or": [{"user_id": user_id}, {"of_all_users": True}]})
        return self._documents.many(found)

    def naming(self, kind: EventType) -> list[Endpoint]:
        """The endpoints, of all users, that name this event."""
        return self._documents.many(self._endpoints.find({"events": kind.value}))

    def page(self, user_id: str | None, limit: int, after: str | None = None) -> tuple[list[Endpoint], str | None]:
        """A page, as `documents.page` returns it, the newest first. Without `user_id`, of all users."""
        return page(self._documents, [{"user_id": user_id}] if user_id is not None else [], limit, after)

    def many(self, endpoint_ids: Sequence[str]) -> list[Endpoint]:
        return self._documents.many(self._endpoints.find({"_id": {"$in": list(endpoint_ids)}}))

    def of_user(self, user_id: str) -> list[Endpoint]:
        return self._documents.find({"user_id": user_id}, MOST_ENDPOINTS, [("created_at", DESCENDING)])

    def count(self, user_id: str) -> int:
        return self._endpoints.count_documents({"user_id": user_id})

    @state_change("endpoints.insert")
    def insert(self, made: Endpoint) -> None:
        Repeating(self._endpoints).insert_one(made.model_dump(by_alias=True, exclude_none=True), ours=["created_at"])

    @state_change("endpoints.change")
    def change(self, endpoint_id: str, fields: Document, gone: Sequence[str] = ()) -> Endpoint | None:
        update: Document = {"$set": fields} if fields else {}
        if gone:
            update["$unset"] = dict.fromkeys(gone, "")
        changed = Repeating(self._endpoints).find_one_and_update({"_id": endpoint_id}, update, return_document=True)
        return None if changed is None else self._documents.one(changed)

    @state_change("endpoints.note_call")
    def note_call(self, endpoint_id: str, now: datetime, *, failed: bool) -> None:
        """Store the outcome of a call in `failing_since`: the first failure sets it, and a success removes it."""
        first = {"_id": endpoint_id, "failing_since": {"$exists": not failed}}
        noted = {"$set": {"failing_since": now}} if failed else {"$unset": {"failing_since": ""}}
        self._endpoints.update_one(first, noted)

    @state_change("endpoints.disable")
    def disable(self, endpoint: Endpoint, now: datetime, reason: str) -> None:
        """Disable the endpoint, unless it was changed, or a call was successful, since it was read."""
        as_read = {"url": endpoint.url, "failing_since": endpoint.failing_since, "disabled_at": None}
        disabled = {"$set": {"disabled_at": now, "disabled_reason": reason}}
        self._endpoints.update_one({"_id": endpoint.id, **as_read}, disabled)

    @state_change("endpoints.delete")
    def delete(self, endpoint_id: str) -> None:
        Repeating(self._endpoints).delete_many({"_id": endpoint_id})


@define(eq=False, repr=False, slots=False, kw_only=True)
class Endpoints:
    """The actions of users on their endpoints, and the outcome of calls."""

    _store: EndpointStore
    _deliveries: DeliveryStore
    _secrets: WebhookSecrets
    _apprise: AppriseCaller
    _webhook_networks: Sequence[Network] = ()
    _clock: Clock = utc_now

    def make(self, user_id: str, url: str, **fields: Any) -> tuple[Endpoint, WebhookSecret | None]:
        """Make an endpoint. Returns it with its signing secret; an endpoint of Apprise has none. Raises
        `ForbiddenAddressError`, `InvalidRequestError`, `ConflictError` if the user has too many, `SecretsKeyError`.
        """
        is_sealed = fields.get("format") is EndpointFormat.APPRISE
        self._check(url, sealed=is_sealed)
        now, shown = self._clock(), masked(url) if is_sealed else url
        made = Endpoint(id=secrets.token_hex(16), user_id=user_id, url=shown, created_at=now, **fields)
        with mongo_errors():
            if self._store.count(user_id) >= MOST_ENDPOINTS:
                raise ConflictError(f"a user has at most {MOST_ENDPOINTS} endpoints: delete one that is not needed")
            # the secret is stored before the endpoint, so that no call is ever unsigned
            secret = None if is_sealed else self._secrets.renew(secret_name(made.id), timedelta())
            if is_sealed:
                self._secrets.keep(secret_name(made.id), url)
            self._store.insert(made)
        return made, secret

    def get(self, endpoint_id: str) -> Endpoint:
        """Raises `EndpointNotFoundError`, `UnreadableError`."""
        with mongo_errors():
            found = self._store.get(endpoint_id)
        if found is None:
            raise EndpointNotFoundError(endpoint_id)
        return found

    def ids_of(self, user_id: str) -> list[str]:
        """Raises PyMongo's errors."""
        return [one.id for one in self._store.of_user(user_id)]

    def change(self, endpoint: Endpoint, fields: dict[str, Any], gone: Sequence[str] = ()) -> Endpoint:
        """Change fields. A disabled endpoint becomes active again when it is unpaused, or gets another URL. Raises
        `ForbiddenAddressError`, `InvalidRequestError`, `EndpointNotFoundError`.
        """
        is_sealed = endpoint.format is EndpointFormat.APPRISE
        if (fields.get("format", endpoint.format) == EndpointFormat.APPRISE) != is_sealed:
            raise InvalidRequestError("format", "of this endpoint stays: make another one")
        moved = fields.get("url", endpoint.url) != endpoint.url
        if moved:
            self._check(fields["url"], sealed=is_sealed)
        if moved and is_sealed:
            self._secrets.keep(secret_name(endpoint.id), fields["url"])
            fields = {**fields, "url": masked(fields["url"])}
        if moved or fields.get("paused") is False:
            gone = [*gone, "disabled_at", "disabled_reason", "failing_since"]
        with mongo_errors():
            changed = self._store.change(endpoint.id, fields, gone) if fields or gone else endpoint
        if changed is None:
            raise EndpointNotFoundError(endpoint.id)
        return changed

    def delete(self, endpoint: Endpoint) -> None:
        """Delete the endpoint with its secret and its deliveries."""
        with mongo_errors():
            self._store.delete(endpoint.id)
            self._secrets.forget(secret_name(endpoint.id))
            while self._deliveries.delete_of(endpoint_ids=[endpoint.id], limit=_REMOVED):
                pass

    def test(self, endpoint: Endpoint) -> Delivery:
        """Send a test event to it, even if it does not ask for such events. Raises `ConflictError` if it is not
        active.
        """
        self._check_active(endpoint)
        now = self._clock()
        data = {"endpoint_id": endpoint.id, "user_id": endpoint.user_id, "message": "A test of this endpoint."}
        made = endpoint.delivery_of(
            SignalEvent(event_id(secrets.token_hex(16)), EventType.TEST, now, endpoint.user_id, data), now
        )
        with mongo_errors():
            self._deliveries.add([made])
        return made

    def send_again(self, endpoint: Endpoint, **which: Any) -> int:
        """Like `again`, for the deliveries of an endpoint. Raises `ConflictError` if it is not active."""
        self._check_active(endpoint)
        return self.again({"endpoint_id": endpoint.id}, **which)

    def again(
        self,
        conditions: Document,
        *,
        deliveries: Sequence[str] = (),
        since: datetime | None = None,
        missing: bool = False,
    ) -> int:
        """Send deliveries once more. `deliveries`: only these ids; `since`: only those made at this time or later;
        `missing`: only those that the receiver did not get. Returns how many.
        """
        query = dict(conditions)
        if deliveries:
            query["_id"] = {"$in": list(deliveries)}
        if since is not None:
            query["created_at"] = {"$gte": since}
        if missing:
            query["state"] = {"$in": [state.value for state in MISSING]}
        with mongo_errors():
            return self._deliveries.call_again(query, MOST_AGAIN)

    def _check_active(self, endpoint: Endpoint) -> None:
        if not endpoint.is_active:
            raise ConflictError("it is paused or disabled, so it is not called: set paused to false first")

    def _check(self, url: str, *, sealed: bool) -> None:
        if sealed:
            self._apprise.check(url)
            return
        check_url("url", url, self._webhook_networks, "WEBHOOK_ALLOW_NETWORKS")

    # --- the outcomes of calls

    def called(self, endpoint: Endpoint, problem: str | None, *, is_last: bool) -> None:
        """Store the outcome of a call. The endpoint is disabled if it asked for no further calls, or if all of its
        calls have failed for `DISABLED_AFTER`. Raises PyMongo's errors.
        """
        now = self._clock()
        self._store.note_call(endpoint.id, now, failed=problem is not None)
        if problem is None:
            return
        # read again: another call may have succeeded, or its user may have changed it
        known = self._store.get(endpoint.id)
        if known is None or known.disabled_at or known.url != endpoint.url or known.failing_since is None:
            return
        if is_last:
            self._disable(known, known.failing_since, now, "it answered 410: it wants no further call")
        elif now - known.failing_since >= DISABLED_AFTER:
            why = f"every call has failed for {DISABLED_AFTER.days} days, the last: {problem}"
            self._disable(known, known.failing_since, now, why)

    def _disable(self, endpoint: Endpoint, failing_since: datetime, now: datetime, reason: str) -> None:
        data = {"endpoint_id": endpoint.id, "user_id": endpoint.user_id, "message": reason}
        # `failing_since` is a part of the id: if the endpoint is resumed and disabled again, that is another event
        event = SignalEvent(
            event_id(endpoint.id, to_iso(failing_since), "disabled"),
            EventType.ENDPOINT_DISABLED,
            now,
            endpoint.user_id,
            data,
        )
        # the event is stored first: if the worker died in between, a disabled endpoint would never be announced
        self._deliveries.add(list(self._to(event, endpoint.id)))
        self._store.disable(endpoint, now, reason)

    def _to(self, event: SignalEvent, but: str) -> Iterator[Delivery]:
        for endpoint in self._store.of_user(event.user_id):
            if endpoint.id != but and endpoint.is_active and endpoint.wants(event):
                yield endpoint.delivery_of(event, event.at)


#: The host of every address with passwords, as it is shown: such a call is made by a process of its own.
SEALED_HOST = "…"


def masked(url: str) -> str:
    """The part of an address with passwords that is shown, such as `mailtos://…`."""
    return f"{url.partition('://')[0].lower()}://{SEALED_HOST}"


def deliveries_of(event: SignalEvent, endpoints: Sequence[Endpoint], now: datetime) -> Iterator[Delivery]:
    """One for each endpoint that wants the event."""
    told = [one for one in endpoints if one.of_all_users or one.user_id == event.user_id]
    return deliveries_to([one for one in told if one.wants(event)], event, now)


def tell(event: SignalEvent, endpoints: EndpointStore, deliveries: DeliveryStore) -> None:
    """Make the deliveries of the event for all endpoints that want it. Raises PyMongo's errors."""
    deliveries.add(list(deliveries_of(event, endpoints.told_of(event.user_id), event.at)))


def deliveries_to(endpoints: Sequence[Endpoint], event: SignalEvent, now: datetime) -> Iterator[Delivery]:
    """One delivery for each of these endpoints. For an endpoint that is not active it is skipped, and can be sent
    later.
    """
    for endpoint in endpoints:
        made = endpoint.delivery_of(event, now)
        skipped = {"state": DeliveryState.SKIPPED, "due_at": None}
        yield made if endpoint.is_active else made.model_copy(update=skipped)
