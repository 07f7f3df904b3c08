"""What crawls run on, and who may do what: projects, nodes, keys, saved views, sites and their targets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Self, Unpack

from discoverybot_client.answers import (
    Dependencies,
    Invitation,
    KeyRecord,
    NodeRecord,
    ProjectRecord,
    ProjectSettings,
    RunDays,
    SavedViewRecord,
    Scope,
    SiteRecord,
    TargetRecord,
    Variable,
    VersionRecord,
)
from discoverybot_client.params import (
    KeyFields,
    ListName,
    SavedViewChanges,
    ScrapeFields,
    SiteChanges,
    SiteFields,
    TargetChanges,
    TargetFields,
    VariableWish,
)
from discoverybot_client.records import NEW_JOB
from discoverybot_client.rules import Deadline, Told, given, idempotent, segment, sent

from .bound import Bound, Resource
from .jobs import Job

#: Characters of a job's id, which a run's id ends with.
_JOB_ID = 32


class Project(Bound, ProjectRecord):
    """A project of spiders. `list_versions`, `variables` and `settings` ask for its parts."""

    async def refresh(self) -> Self:
        """Ask for the project's versions again."""
        self._learn(_project(await self._transport.call("GET", self._path("/versions"))))
        return self

    async def list_versions(self) -> list[VersionRecord]:
        """The project's versions, the newest first."""
        told = await self._transport.call("GET", self._path("/versions"))
        return [VersionRecord(version) for version in told.objects("versions")]

    async def activate(self, version: str) -> Self:
        """Make this version the latest: crawls that name no version run it from now on."""
        return await self._renew("POST", self._path(f"/versions/{segment(version)}/activate"))

    async def roll_back(self) -> Self:
        """Make the version before the latest one the latest again."""
        return await self._renew("POST", self._path("/rollback"))

    async def delete_version(self, version: str) -> None:
        """Remove this version, also from every node."""
        await self._transport.call("DELETE", self._path(f"/versions/{segment(version)}"))

    async def dependencies(self, version: str) -> Dependencies:
        """What each node has installed for it."""
        path = self._path(f"/versions/{segment(version)}/dependencies")
        return Dependencies(await self._transport.call("GET", path))

    async def variables(self) -> list[Variable]:
        """The project's environment variables; secrets have no values."""
        return _variables(await self._transport.call("GET", self._path("/env")))

    async def set_variable(self, name: str, value: str, *, secret: bool = False) -> list[Variable]:
        """Set a variable for attempts that begin later. Returns all variables."""
        body = {"value": value, "secret": secret}
        return _variables(await self._transport.call("PUT", self._path(f"/env/{segment(name)}"), json=body))

    async def replace_variables(self, variables: Mapping[str, VariableWish]) -> list[Variable]:
        """Set these variables, and remove all others: `{"REGION": {"value": "eu"}, "TOKEN": {"secret": True}}`. A
        secret without a value stays as it is. Returns all variables.
        """
        body = {"variables": dict(variables)}
        return _variables(await self._transport.call("PUT", self._path("/env"), json=body))

    async def unset_variable(self, name: str) -> list[Variable]:
        """Remove a variable. Returns all variables that are left."""
        return _variables(await self._transport.call("DELETE", self._path(f"/env/{segment(name)}")))

    async def settings(self) -> ProjectSettings:
        """The settings that were set through the gateway; those in the project's code are not known."""
        return ProjectSettings(await self._transport.call("GET", self._path("/settings")))

    async def replace_settings(
        self,
        settings: Mapping[str, Any],
        *,
        open: Sequence[str] | None = None,  # noqa: A002 - as the API has it
        open_env: Sequence[str] | None = None,
    ) -> ProjectSettings:
        """Replace all settings, from the next attempts on. Crawls may set the settings in `open` and the variables
        in `open_env`.
        """
        body = {"settings": dict(settings), **given(open=open, open_env=open_env)}
        return ProjectSettings(await self._transport.call("PUT", self._path("/settings"), json=body))

    async def days(self, days: int = 30) -> RunDays:
        """How its runs went, day by day."""
        return RunDays(await self._transport.call("GET", self._path("/days"), params={"days": days}))

    def _path(self, what: str) -> str:
        return f"/projects/{segment(self._data['name'])}{what}"


class Projects(Resource):
    """Projects of spiders: `client.projects`. `client.deploy` makes one."""

    async def list(self) -> AsyncIterator[Project]:
        """All of them, one by one."""
        for project in (await self._transport.call("GET", "/projects")).objects("projects"):
            yield Project(project, self._transport)

    async def get(self, name: str) -> Project:
        """Raises `NotFoundError`."""
        return await Project({"name": name}, self._transport).refresh()


def _project(told: Told) -> dict[str, Any]:
    """A project as lists have it."""
    versions = [version["version"] for version in told.objects("versions")]
    return {"name": told["project"], "latest": told["latest"], "previous": told["previous"], "versions": versions}


def _variables(told: Told) -> list[Variable]:
    return [Variable(variable) for variable in told.objects("variables")]


class Node(Bound, NodeRecord):
    """A machine that crawls."""

    async def refresh(self) -> Self:
        """Ask for it again."""
        return await self._renew("GET", self._path())

    async def drain(self, *, wait: int | None = None) -> Self:
        """Give the node no more jobs; running jobs go on. With `wait`, return once its machine may be removed
        (`removable`), or after so many seconds.
        """
        limit = None if wait is None else Deadline(self._transport.timeout + wait, wait + self._transport.timeout)
        return await self._renew("POST", self._path("/drain"), params=given(wait=wait), deadline=limit)

    async def resume(self) -> Self:
        """Give the node jobs again."""
        return await self._renew("POST", self._path("/resume"))

    async def forget(self) -> None:
        """Take the node off the list, if its machine no longer exists."""
        await self._transport.call("DELETE", self._path())

    def _path(self, what: str = "") -> str:
        return f"/nodes/{segment(self._data['name'])}{what}"


class Nodes(Resource):
    """The machines that crawl: `client.nodes`."""

    async def list(self) -> AsyncIterator[Node]:
        """All of them, one by one."""
        for node in (await self._transport.call("GET", "/nodes")).objects("nodes"):
            yield Node(node, self._transport)

    async def get(self, name: str) -> Node:
        """Raises `NotFoundError`."""
        return await Node({"name": name}, self._transport).refresh()

    async def invite(self, *, minutes: int | None = None, note: str | None = None) -> Invitation:
        """An invitation, with which one machine can become a node within so many minutes."""
        body = given(minutes=minutes, note=note)
        return Invitation(await self._transport.call("POST", "/nodes/invitations", json=body))


class Key(Bound, KeyRecord):
    """A key of the gateway. `key`, its text, is present only in the answer of `create`."""

    @property
    def id(self) -> str:
        """The id that names the key in lists and in the audit trail; it is no secret."""
        return str(self._data["key_id"])

    async def revoke(self) -> Self:
        """Make the key invalid, which takes seconds. It stays in the list."""
        return await self._renew("DELETE", f"/keys/{segment(self.id)}")


class Keys(Resource):
    """Keys of the gateway: `client.keys`."""

    async def create(self, user_id: str, scopes: Sequence[Scope], **fields: Unpack[KeyFields]) -> Key:
        """Make a key. Only this answer has its text, `key`."""
        body = {"user_id": user_id, "scopes": [*scopes], **sent(fields)}
        return Key(await self._transport.call("POST", "/keys", json=body), self._transport)

    async def list(self) -> AsyncIterator[Key]:
        """All of them, the oldest first; expired and revoked ones, too."""
        for key in (await self._transport.call("GET", "/keys")).objects("keys"):
            yield Key(key, self._transport)


class SavedView(Bound, SavedViewRecord):
    """A list of the console that somebody has saved."""

    @property
    def id(self) -> str:
        """The id that `get` and other calls take."""
        return str(self._data["view_id"])

    async def update(self, **fields: Unpack[SavedViewChanges]) -> Self:
        """Replace these fields."""
        return await self._renew("PATCH", f"/views/{segment(self.id)}", json=sent(fields))

    async def delete(self) -> None:
        """Delete the view, also for the users whom it is shared with."""
        await self._transport.call("DELETE", f"/views/{segment(self.id)}")


class SavedViews(Resource):
    """Lists of the console that the caller has saved: `client.views`."""

    async def create(
        self, of: ListName, name: str, query: str, *, shared: bool = False, default: bool = False
    ) -> SavedView:
        """Save a view. `query` is the query string of the page's address: `status=error&project=shop`."""
        body = {"list": of, "name": name, "query": query, "shared": shared, "default": default}
        return SavedView(await self._transport.call("POST", "/views", json=body), self._transport)

    async def get(self, view_id: str) -> SavedView:
        """A view of the caller, or a view that another user shares. Raises `NotFoundError`."""
        return SavedView(await self._transport.call("GET", f"/views/{segment(view_id)}"), self._transport)

    async def list(self, of: ListName | None = None) -> AsyncIterator[SavedView]:
        """The caller's views, in the order in which they were made."""
        for view in (await self._transport.call("GET", "/views", params=given(list=of))).objects("views"):
            yield SavedView(view, self._transport)


class Site(Bound, SiteRecord):
    """A site that is searched again and again."""

    async def refresh(self) -> Self:
        """Ask for it again."""
        return await self._renew("GET", self._path())

    async def update(self, **fields: Unpack[SiteChanges]) -> Self:
        """Replace these fields."""
        return await self._renew("PATCH", self._path(), json=sent(fields))

    async def scrape(self, *, idempotency_key: str | None = None, **fields: Unpack[ScrapeFields]) -> Job:
        """Search the site now: `scrape(search_term="bees")`. The job has the `items`."""
        body = {"site_name": self._data["name"], **sent(fields)}
        told = await self._transport.call("POST", "/jobs/scrape", json=body, headers=idempotent(idempotency_key))
        job = {**NEW_JOB, "job_id": told["data"]["run_id"][-_JOB_ID:], "site": self._data["name"]}
        return Job(job, self._transport)

    async def days(self, days: int = 30) -> RunDays:
        """How its runs went, day by day."""
        return RunDays(await self._transport.call("GET", self._path("/days"), params={"days": days}))

    async def delete(self, *, force: bool = False) -> None:
        """Delete the site; with `force` also its targets."""
        await self._transport.call("DELETE", self._path(), params={"force": "true"} if force else {})

    def _path(self, what: str = "") -> str:
        return f"/sites/{segment(self._data['name'])}{what}"


class Sites(Resource):
    """The sites that are searched: `client.sites`."""

    async def create(self, name: str, search_url: str, **fields: Unpack[SiteFields]) -> Site:
        """Add a site. `search_url` has places for what is searched: `https://example.com/?q={keywords}`."""
        body = {"name": name, "search_url": search_url, **sent(fields)}
        return Site(await self._transport.call("POST", "/sites", json=body), self._transport)

    async def get(self, name: str) -> Site:
        """Raises `NotFoundError`."""
        return await Site({"name": name}, self._transport).refresh()

    async def list(self, *, enabled: bool | None = None, limit: int | None = None) -> AsyncIterator[Site]:
        """The sites, sorted by name."""
        async for site in self._transport.entries("/sites", "sites", {"enabled": enabled, "limit": limit}):
            yield Site(site, self._transport)


class Target(Bound, TargetRecord):
    """A search on a site, which is repeated."""

    async def refresh(self) -> Self:
        """Ask for it again."""
        return await self._renew("GET", self._path())

    async def update(self, **fields: Unpack[TargetChanges]) -> Self:
        """Replace these fields."""
        return await self._renew("PATCH", self._path(), json=sent(fields))

    async def delete(self) -> None:
        """Delete the target. Jobs that it has started go on."""
        await self._transport.call("DELETE", self._path())

    def _path(self) -> str:
        return f"/targets/{segment(self._data['id'])}"


class Targets(Resource):
    """The searches on sites: `client.targets`."""

    async def create(self, site: str, **fields: Unpack[TargetFields]) -> Target:
        """Add a target: `create("board", keywords="bees", frequency=60)`."""
        told = await self._transport.call("POST", "/targets", json={"site": site, **sent(fields)})
        return Target(told, self._transport)

    async def get(self, target_id: str) -> Target:
        """Raises `NotFoundError`."""
        return await Target({"id": target_id}, self._transport).refresh()

    async def list(
        self, *, site: str | None = None, enabled: bool | None = None, limit: int | None = None
    ) -> AsyncIterator[Target]:
        """The targets, sorted by number."""
        query = {"site": site, "enabled": enabled, "limit": limit}
        async for target in self._transport.entries("/targets", "targets", query):
            yield Target(target, self._transport)
