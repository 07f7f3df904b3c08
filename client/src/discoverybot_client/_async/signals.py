"""Endpoints (receivers of events), alerts, and errors across runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any, Self, Unpack

from discoverybot_client.answers import (
    AlertRecord,
    AlertRulePreview,
    AlertRuleRecord,
    DeliveryRecord,
    EndpointRecord,
    ErrorGroupRecord,
)
from discoverybot_client.params import (
    AlertCondition,
    AlertFilters,
    AlertRuleChanges,
    AlertRuleFields,
    DeliveryState,
    EndpointChanges,
    EndpointFields,
    ErrorFilters,
    ErrorGroupState,
    ResendFields,
)
from discoverybot_client.rules import given, segment, sent

from .bound import Bound, Resource


class Endpoint(Bound, EndpointRecord):
    """A receiver of events."""

    @property
    def id(self) -> str:
        """The id that `get` and other calls take."""
        return str(self._data["endpoint_id"])

    async def refresh(self) -> Self:
        """Ask for it again."""
        return await self._renew("GET", self._path())

    async def update(self, **fields: Unpack[EndpointChanges]) -> Self:
        """Replace these fields."""
        return await self._renew("PATCH", self._path(), json=sent(fields))

    async def test(self) -> DeliveryRecord:
        """Call it now, with an event `endpoint.test`."""
        return DeliveryRecord(await self._transport.call("POST", self._path("/test")))

    async def read_secret(self) -> str:
        """The secret for `verify`."""
        return str((await self._transport.call("GET", self._path("/secret")))["secret"])

    async def renew_secret(self, *, keep_hours: int | None = None) -> str:
        """A new secret. For `keep_hours` hours, calls are signed with the old secret, too."""
        body = given(keep_hours=keep_hours)
        return str((await self._transport.call("POST", self._path("/secret"), json=body))["secret"])

    async def deliveries(
        self,
        *,
        state: DeliveryState | None = None,
        type: str | None = None,  # noqa: A002 - as the API has it
        limit: int | None = None,
    ) -> AsyncIterator[DeliveryRecord]:
        """The calls of this endpoint, the newest first. `type`: only events of this type."""
        query = {"state": state, "type": type, "limit": limit}
        async for delivery in self._transport.entries(self._path("/deliveries"), "deliveries", query):
            yield DeliveryRecord(delivery)

    async def delivery(self, delivery_id: str) -> DeliveryRecord:
        """One call of this endpoint, with its `body`."""
        return DeliveryRecord(await self._transport.call("GET", self._path(f"/deliveries/{segment(delivery_id)}")))

    async def resend(self, **wanted: Unpack[ResendFields]) -> int:
        """Make calls again: `deliveries=[…]` by their ids, or `missing=True`, or all `since` a time. Returns their
        number.
        """
        told = await self._transport.call("POST", self._path("/deliveries/resend"), json=sent(wanted))
        return int(told["resent"])

    async def delete(self) -> None:
        """Delete the endpoint: it is not called any more."""
        await self._transport.call("DELETE", self._path())

    def _path(self, what: str = "") -> str:
        return f"/endpoints/{segment(self.id)}{what}"


class Endpoints(Resource):
    """Receivers of events: `client.endpoints`."""

    async def create(self, url: str, **fields: Unpack[EndpointFields]) -> Endpoint:
        """Add a receiver of `events=[…]`, by default of all. Pass the answer's `secret` to `verify`."""
        body = {**given(user_id=self._user_id), "url": url, **sent(fields)}
        return Endpoint(await self._transport.call("POST", "/endpoints", json=body), self._transport)

    async def get(self, endpoint_id: str) -> Endpoint:
        """Raises `NotFoundError`."""
        return Endpoint(await self._transport.call("GET", f"/endpoints/{segment(endpoint_id)}"), self._transport)

    async def list(self, *, limit: int | None = None) -> AsyncIterator[Endpoint]:
        """The newest first."""
        query = {"user_id": self._user_id, "limit": limit}
        async for endpoint in self._transport.entries("/endpoints", "endpoints", query):
            yield Endpoint(endpoint, self._transport)


class Alert(Bound, AlertRecord):
    """An alert of a rule, firing or over."""

    @property
    def id(self) -> str:
        """The id that `get` and other calls take."""
        return str(self._data["alert_id"])

    async def refresh(self) -> Self:
        """Ask for it again."""
        return await self._renew("GET", f"/alerts/{segment(self.id)}")

    async def silence(self, until: datetime | str | None) -> Self:
        """Notify nobody of this alert before this time; `None` ends the silence."""
        return await self._renew("POST", f"/alerts/{segment(self.id)}/silence", json=sent({"until": until}))

    async def delete(self) -> None:
        """Forget it, and what is known of earlier runs: what is unusual now may be usual from now on."""
        await self._transport.call("DELETE", f"/alerts/{segment(self.id)}")


class Alerts(Resource):
    """The alerts of all rules: `client.alerts`."""

    async def list(self, **filters: Unpack[AlertFilters]) -> AsyncIterator[Alert]:
        """The alerts, the latest first; with `firing=True` without those that are over."""
        query = {"user_id": self._user_id, **filters}
        async for alert in self._transport.entries("/alerts", "alerts", query):
            yield Alert(alert, self._transport)

    async def get(self, alert_id: str) -> Alert:
        """Raises `NotFoundError`."""
        return await Alert({"alert_id": alert_id}, self._transport).refresh()


class AlertRule(Bound, AlertRuleRecord):
    """A rule: when an alert begins, and which endpoints are notified."""

    @property
    def id(self) -> str:
        """The id that `get` and other calls take."""
        return str(self._data["rule_id"])

    async def refresh(self) -> Self:
        """Ask for it again."""
        return await self._renew("GET", self._path(), params=self._as())

    async def update(self, **fields: Unpack[AlertRuleChanges]) -> Self:
        """Replace these fields. Changing a built-in rule stores a version of it for this user; other users keep
        theirs.
        """
        return await self._renew("PATCH", self._path(), params=self._as(), json=sent(fields))

    async def delete(self) -> None:
        """Delete the rule, and end its alerts. Of a built-in rule, only this user's changes are deleted."""
        await self._transport.call("DELETE", self._path(), params=self._as())

    def _as(self) -> dict[str, Any]:
        return given(user_id=self._data.get("user_id") or None)

    def _path(self) -> str:
        return f"/alerts/rules/{segment(self.id)}"


class AlertRules(Resource):
    """The rules for alerts: `client.alert_rules`."""

    async def create(self, name: str, when: AlertCondition, **fields: Unpack[AlertRuleFields]) -> AlertRule:
        """Add a rule, which applies from the next run on: `create("failed", {"measure": "failed", "runs": 3})`."""
        body = self._body(name, when, fields)
        return AlertRule(await self._transport.call("POST", "/alerts/rules", json=body), self._transport)

    async def preview(
        self, name: str, when: AlertCondition, *, days: int | None = None, **fields: Unpack[AlertRuleFields]
    ) -> AlertRulePreview:
        """What the rule would have found in the last `days`."""
        body, query = self._body(name, when, fields), given(days=days)
        told = await self._transport.call("POST", "/alerts/rules/preview", params=query, json=body)
        return AlertRulePreview(told)

    async def list(self) -> AsyncIterator[AlertRule]:
        """The rules of the user, and the built-in rules."""
        told = await self._transport.call("GET", "/alerts/rules", params=given(user_id=self._user_id))
        for rule in told.objects("rules"):
            yield AlertRule(rule, self._transport)

    async def get(self, rule_id: str) -> AlertRule:
        """Raises `NotFoundError`."""
        query = given(user_id=self._user_id)
        told = await self._transport.call("GET", f"/alerts/rules/{segment(rule_id)}", params=query)
        return AlertRule(told, self._transport)

    def _body(self, name: str, when: AlertCondition, fields: AlertRuleFields) -> dict[str, Any]:
        return {**given(user_id=self._user_id), "name": name, "when": when, **sent(fields)}


class ErrorGroup(Bound, ErrorGroupRecord):
    """Equal errors of many runs: since when they occur, how often, and whether a user has resolved them."""

    @property
    def id(self) -> str:
        """The id that `get` and other calls take."""
        return str(self._data["error_id"])

    async def refresh(self) -> Self:
        """Ask for the group as it is now."""
        return await self._renew("GET", f"/errors/{segment(self.id)}")

    async def resolve(self, *, version: str | None = None) -> Self:
        """Mark the error as resolved, until it occurs in a run that begins later, or, with `version`, in a run of
        this version or a later one.
        """
        return await self._set("resolved", version)

    async def ignore(self) -> Self:
        """Mark the error as ignored. It does not become open by itself."""
        return await self._set("ignored")

    async def reopen(self) -> Self:
        """Mark the error as open."""
        return await self._set("open")

    async def _set(self, state: ErrorGroupState, version: str | None = None) -> Self:
        return await self._renew(
            "PATCH", f"/errors/{segment(self.id)}", json={"state": state, **given(version=version)}
        )


class ErrorGroups(Resource):
    """Errors across runs: `client.errors`."""

    async def list(self, **filters: Unpack[ErrorFilters]) -> AsyncIterator[ErrorGroup]:
        """The groups; those that occurred last come first."""
        query = {"user_id": self._user_id, **filters}
        async for group in self._transport.entries("/errors", "errors", query):
            yield ErrorGroup(group, self._transport)

    async def get(self, error_id: str) -> ErrorGroup:
        """The group, with its last runs. Raises `NotFoundError`."""
        return await ErrorGroup({"error_id": error_id}, self._transport).refresh()
