"""Scrapyd's web services that deploy and remove eggs."""

# mypy: allow-untyped-calls
# Twisted is typed in parts only.
from __future__ import annotations

import zipfile
from io import BytesIO
from typing import Any

from scrapyd import webservice
from scrapyd.exceptions import DirectoryTraversalError, RunnerError
from scrapyd.webservice import param
from twisted.web.server import Request

from crawler.node.eggs import stored_version
from crawler.node.project_names import OWN_PROJECT, is_project_name
from crawler.node.spider_lists import spider_lists
from crawler.node.webservice import AsyncService, refuse


class AddVersion(AsyncService):
    """`addversion.json`: an egg is looked at before it counts, and refused if it could not be run."""

    @param("project")
    @param("version")
    @param("egg", type=bytes)
    async def answer(self, _request: Request, project: str, version: str, egg: bytes) -> dict[str, Any]:
        _require_names(project, version)
        if not zipfile.is_zipfile(BytesIO(egg)):
            refuse("egg is not a ZIP file (if using curl, use egg=@path not egg=path)")
        storage, lists = self.root.eggstorage, spider_lists(self.root.app)
        staged = storage.stage(BytesIO(egg))
        try:
            listing = await lists.examine(staged, project, version)
            if listing.problem:
                refuse(f"the egg of '{project}' is refused: {listing.problem}")
            storage.put_staged(staged, project, version)
        except RunnerError as error:
            refuse(f"the egg of '{project}' is refused: {_last_line(str(error))}")
        finally:
            storage.discard(staged)
        self.root.update_projects()
        lists.deployed(project, version, listing.spiders)
        self.root.launcher.renew()
        return {"project": project, "version": version, "spiders": len(listing.spiders)}


class DeleteProject(webservice.DeleteProject):
    """`delproject.json`: as Scrapyd's, and told to the world."""

    @param("project")
    def render_POST(self, _request: Request, project: str) -> dict[str, Any]:  # noqa: N802 - Twisted's name
        self._delete_version(project)
        spider_lists(self.root.app).write_catalog()
        return {}


class DeleteVersion(webservice.DeleteVersion):
    """`delversion.json`: as Scrapyd's, and told to the world. Attempts that run it have an egg of their own."""

    @param("project")
    @param("version")
    def render_POST(self, _request: Request, project: str, version: str) -> dict[str, Any]:  # noqa: N802 - as above
        self._delete_version(project, version)
        spider_lists(self.root.app).write_catalog()
        return {}


def _require_names(project: str, version: str) -> None:
    if project == OWN_PROJECT:
        refuse(f"project '{project}' is the node's own and has no egg: deploy under another name")
    if not is_project_name(project):
        refuse(f"project '{project}' cannot be the name of a folder: use letters, digits, space, '_', '-' and '.'")
    try:
        stored_version(version)
    except DirectoryTraversalError:
        refuse(f"version '{version}' cannot be the name of a file: up to 100 letters, digits, '_', '-' and '.'")


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1][:500] if lines else "its spiders could not be listed"
