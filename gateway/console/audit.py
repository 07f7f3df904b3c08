"""`/console/audit`: who did what, newest first."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from fastapi import Query, Request, Response
from pydantic import Field

from gateway.access.audit import AuditKind
from gateway.access.keys import Scope
from gateway.console.pages import Pages, page
from gateway.web.authorisation import needs
from gateway.web.dependencies import Parts
from gateway.web.routes.access import AuditQuery, list_audit_entries
from gateway.web.schemas.types import Cursor, QueryModel

router = Pages()

_WITHIN = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(weeks=1)}


class Filters(QueryModel):
    """The filters as a form sends them: an empty field is no condition."""

    #: The user of the calls. It is not named `user_id`, because that parameter lets an admin view a page as a user.
    by: str = Field(default="", max_length=200)
    key_id: str = Field(default="", max_length=200)
    route: str = Field(default="", max_length=200)
    kind: AuditKind | Literal[""] = ""
    within: Literal["", "hour", "day", "week"] = ""
    after: Cursor | None = None


@router.page("/console/audit")
@needs(Scope.ADMIN)
async def audit_page(request: Request, filters: Annotated[Filters, Query()], parts: Parts) -> Response:
    wanted = {
        "user_id": filters.by.strip(),
        "key_id": filters.key_id.strip(),
        "route": filters.route.strip(),
        "kind": filters.kind,
        "since": parts.clock() - _WITHIN[filters.within] if filters.within else "",
    }
    query = AuditQuery.model_validate(
        {"after": filters.after, **{name: value for name, value in wanted.items() if value != ""}}
    )
    found = await list_audit_entries(query, parts)
    chosen = filters.model_dump(exclude={"after"})
    given = {name: value for name, value in chosen.items() if value}
    return page(request, "audit.html", entries=found.entries, following=found.next, filters=chosen, given=given)
