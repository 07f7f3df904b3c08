"""The code that all pages of the console share. Each subject has a module of its own beside this one.

To add a page:
1. `router = Pages()` in the module of its subject, and the module's router in `gateway/application.py`.
2. `@router.page("/console/things")`, and below it `@needs(Scope.READ)`, which says who may see the page.
3. The function takes what the route takes (`parts: Parts`, `caller: Called`, a query model), calls the route's own
   function, and ends with `return page(request, "things.html", things=found)`. A plain `def` runs in a thread.
4. The template extends `base.html`, fills the blocks `title` and `main` (also `actions`, `scripts`), and takes what
   it needs from `macros.html`. Text that somebody may have written goes through `|shown`, in attributes through
   `|plain`. A link is `{{ link("/console/things", status="running") }}`, a file `{{ static("js/things.js") }}`.
5. Every change is a `<form data-api="POST /things/{id}">`, which `static/js/act.js` sends.
6. A browser test in `tests/browser/console/`.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple
from urllib.parse import quote, urlencode

from fastapi import Query, Request, Response
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.datastructures import URL

from gateway.access.keys import Caller, Scope
from gateway.console import formats
from gateway.console.static_files import POLICY, STATIC
from gateway.items.table_files import is_installed
from gateway.jobs.advice import WAITS_FOR
from gateway.jobs.job import SUCCESS_RULE
from gateway.web.authentication import SIGN_IN_PAGE, KeyRing, is_page
from gateway.web.authorisation import Endpoint, caller_of, for_everybody
from gateway.web.dependencies import Router

_HEADERS = {"Content-Security-Policy": POLICY, "Vary": "Accept-Encoding, Sec-Fetch-Site"}
#: A page with at least this many bytes is compressed, with a fast level, because pages are made for each request.
_WORTH_IT, _LEVEL = 1000, 4


class Pages(Router):
    """A router for pages, which are read with GET only: all changes are calls of the API."""

    def __init__(self) -> None:
        super().__init__(include_in_schema=False, default_response_class=HTMLResponse)

    def page(self, path: str) -> Callable[[Endpoint], Endpoint]:
        return self.get(path, response_model=None)


# --- what every template can use, besides the values of its page


class Section(NamedTuple):
    """An entry of the navigation."""

    path: str
    name: str
    icon: str
    #: The keyboard shortcut (`static/js/shortcuts.js`).
    key: str
    scope: Scope = Scope.READ
    #: Whether it is shown to who may see some projects alone.
    by_project: bool = True


SECTIONS = (
    Section("/", "Overview", "overview", "g o"),
    Section("/console/jobs", "Jobs", "jobs", "g j"),
    Section("/console/crawl", "New crawl", "plus", "n", Scope.CRAWL),
    Section("/console/schedules", "Schedules", "calendar", "g s"),
    Section("/console/datasets", "Datasets", "datasets", "g t"),
    Section("/console/sites", "Sites", "sites", "g i", Scope.CRAWL),
    Section("/console/projects", "Projects", "box", "g p"),
    Section("/console/nodes", "Nodes", "node", "g n", Scope.ADMIN),
    Section("/console/dead-letters", "Dead letters", "dead-letters", "g d"),
    Section("/console/errors", "Errors", "warn", "g r"),
    Section("/console/alerts", "Alerts", "bell", "g l", by_project=False),
    Section("/console/endpoints", "Endpoints", "link", "g e", Scope.CRAWL),
    Section("/console/keys", "Keys", "key", "g k", Scope.ADMIN),
    Section("/console/audit", "Audit", "audit", "g a", Scope.ADMIN),
)


class Viewer(NamedTuple):
    """The person who views a page."""

    caller: Caller
    #: The user whose view an admin has chosen.
    looks_as: str | None
    csrf_token: str | None
    #: The id of the session for which the page is made.
    session_id: str | None

    @classmethod
    def of(cls, request: Request) -> Viewer:
        caller, session = caller_of(request), getattr(request.state, "session", None)
        looks_as = request.query_params.get("user_id")
        token = session_id = None
        if session is not None and caller.key is not None:
            token = session.csrf_token(caller.key, request.app.state.parts[KeyRing].seal)
            session_id = session.id
        is_other = caller.user_id == looks_as and (caller.key is None or caller.key.user_id != looks_as)
        return cls(caller, looks_as if is_other else None, token, session_id)

    def may(self, scope: str) -> bool:
        return scope in self.caller.scopes

    @property
    def sections(self) -> list[Section]:
        there = [section for section in SECTIONS if section.scope in self.caller.scopes]
        return [section for section in there if section.by_project or not self.caller.projects]

    def link(self, path: str, /, **query: Any) -> str:
        """The address of a page. If an admin views pages as a user, the address keeps this user."""
        pairs = [(name, value) for name, given in query.items() for value in _each(given)]
        if self.looks_as is not None and "user_id" not in query:
            pairs.append(("user_id", self.looks_as))
        return quote(path, safe="/%") + (f"?{urlencode(pairs)}" if pairs else "")


def _each(given: Any) -> list[Any]:
    values = given if isinstance(given, list | tuple) else [given]
    return [value for value in values if value is not None]


def _icon(name: str) -> Markup:
    tag = Markup('<svg class="icon" aria-hidden="true"><use href="{}#{}"/></svg>')
    return tag.format(STATIC.address("icons.svg"), name)


def _file_formats() -> str:
    """The formats of a table's downloads: without those that this gateway cannot write, whose error the browser would
    save as the file.
    """
    return " ".join(form for form in ("jsonl", "json", "csv", "xlsx", "parquet") if is_installed(form))


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader(__package__ or ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(formats.FILTERS)
    environment.globals.update(waits_for=WAITS_FOR, file_formats=_file_formats, success_rule=SUCCESS_RULE)
    environment.globals.update(
        static=STATIC.address, icon=_icon, when=formats.when, moment=formats.moment, clock=formats.clock
    )
    return environment


ENVIRONMENT = _environment()


def page(request: Request, name: str, /, *, status_code: int = 200, **context: Any) -> HTMLResponse:
    """The template `name` as an answer. Besides `context` it gets `viewer`, `link`, `path` and `query`."""
    viewer = Viewer.of(request)
    shared = {"viewer": viewer, "link": viewer.link, "path": request.url.path, "query": request.query_params}
    html = ENVIRONMENT.get_template(name).render(**shared, **context)
    data = html.encode()
    if len(data) < _WORTH_IT or not _may_compress(request):
        return HTMLResponse(data, status_code, headers=_HEADERS)
    packed = gzip.compress(data, _LEVEL, mtime=0)
    return HTMLResponse(packed, status_code, headers={**_HEADERS, "Content-Encoding": "gzip"})


def _may_compress(request: Request) -> bool:
    """Whether the browser accepts gzip, and the request does not come from a page of another origin. Such a page
    could choose text in the address that our page repeats, and find the page's secrets by its compressed size
    (BREACH).
    """
    headers = request.headers
    is_ours = headers.get("sec-fetch-site", "none") in {"none", "same-origin"}
    return is_ours and "gzip" in headers.get("accept-encoding", "")


# --- sign-in

router = Router(include_in_schema=False)


@router.get(SIGN_IN_PAGE)
@for_everybody
async def sign_in(request: Request, target: Annotated[str, Query(alias="next")] = "/") -> Response:
    """The form of `POST /session`. After the sign-in it leads to `next`, which must be a page of the console."""
    local = target if is_page(target.partition("?")[0]) and "\\" not in target else "/"
    return page(request, "sign_in.html", target=local)


def sign_in_address(page: URL) -> str:
    """The address of the sign-in for a browser without a session; the sign-in leads back to `page`."""
    here = page.path + (f"?{page.query}" if page.query else "")
    return f"{SIGN_IN_PAGE}?{urlencode({'next': here})}" if here != "/" else SIGN_IN_PAGE
