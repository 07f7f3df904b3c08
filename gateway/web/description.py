"""`/openapi.json`: what programs are written against, and what FastAPI does not say in it by itself."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute

from gateway.access.keys import Scope
from gateway.web import errors
from gateway.web.authentication import COOKIE, CSRF_HEADER, SECURE_COOKIE
from gateway.web.authorisation import scope_of
from gateway.web.field_descriptions import describe_fields
from gateway.web.schemas.firecrawl import FirecrawlProblem
from gateway.web.schemas.stream import stream_schemas

#: A reference to a schema, in the text of what refers to it.
_REFERENCE = re.compile(r"'#/components/schemas/(\w+)'")
_SCHEME = "key"
_KEY = {"type": "http", "scheme": "bearer", "description": "`db_<id>_<secret>`, from `discoverybot keys create`."}
_SESSION = "session"
_COOKIE = {
    "type": "apiKey",
    "in": "cookie",
    "name": COOKIE,
    "description": f"Of `POST /session` (over https `{SECURE_COOKIE}`); to change things also send `{CSRF_HEADER}`.",
}


class DescribedAPI(FastAPI):
    """The app, with a completed OpenAPI description. Optional query and header parameters are not nullable there,
    as FastAPI would have it, because "null" would be a text.
    """

    def openapi(self) -> dict[str, Any]:
        is_new = self.openapi_schema is None
        document = super().openapi()
        components = document["components"]
        if is_new:
            _name_properties(components["schemas"])
            _name_free_objects(components["schemas"])
            _name_maps(components["schemas"])
        components["schemas"] = dict(
            sorted({**stream_schemas(), **_REFUSAL, **components["schemas"], **errors.schemas()}.items())
        )
        # pydantic's own, which says nothing of itself
        components["schemas"]["JsonValue"]["description"] = "Any JSON."
        describe_fields(components["schemas"])
        _drop_titles(components["schemas"])
        _drop_defaults_of_updates(document)
        components["securitySchemes"] = {_SCHEME: _KEY, _SESSION: _COOKIE}
        # declared once for all operations: for an operation with a declaration of its own, generators require a key
        document["security"] = [{_SCHEME: []}, {_SESSION: []}, {}]
        for event in document["webhooks"].values():
            # what FastAPI says of a body that is not as described: it is the receiver's business
            event["post"]["responses"].pop("422", None)
        for unused in ("HTTPValidationError", "ValidationError"):
            components["schemas"].pop(unused, None)
        _hide_formats(document["paths"])
        scopes = scopes_of(self.routes)
        for path, methods in document["paths"].items():
            for method, operation in methods.items():
                operation.update(_access(scopes[f"{method.upper()} {path}"]))
                for parameter in operation.get("parameters", ()):
                    _complete_parameter(parameter["schema"])
                if "requestBody" in operation:
                    # the guard refuses too large a body before the route is called
                    too_large = {str(status): answer for status, answer in errors.problems(413).items()}
                    operation["responses"] = dict(sorted({**too_large, **operation["responses"]}.items()))
                # the document is made once, and completed each time that somebody asks for it
                if path.startswith(errors.FIRECRAWL) and "422" in operation["responses"]:
                    operation["responses"] = dict(_firecrawls(operation["responses"]))
        _link(document)
        return document


#: Query parameters that concern files.
_OF_FILES = frozenset({"format", "escape_formulas", "bom"})


def _hide_formats(paths: dict[str, Any]) -> None:
    """Describe only the pages of operations that have a download of their own: a generated client reads one kind of
    content of each operation, and fails at any other. `format` works there as before.
    """
    for path, methods in paths.items():
        if f"{path}/download" in paths and "parameters" in methods["get"]:
            # of a dataset's items, `fields` is for files alone
            hidden = _OF_FILES | {"fields"} if path.startswith("/datasets/") else _OF_FILES
            methods["get"]["parameters"] = [one for one in methods["get"]["parameters"] if one["name"] not in hidden]


#: The schema of Firecrawl's errors: its clients know no others.
_REFUSAL = {FirecrawlProblem.__name__: FirecrawlProblem.model_json_schema(mode="serialization")}


def _firecrawls(responses: dict[str, dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The responses of a route of that API."""
    for status, answer in responses.items():
        if status < "4":
            yield status, answer
            continue
        (content,) = answer["content"].values()
        code, message = (content["example"]["error"][name] for name in ("code", "message"))
        example = {"success": False, "error": message, "code": code}
        schema = {"$ref": f"#/components/schemas/{FirecrawlProblem.__name__}"}
        told = {**answer, "content": {"application/json": {"example": example, "schema": schema}}}
        yield "400" if status == "422" else status, told


def scopes_of(routes: Sequence[BaseRoute]) -> dict[str, Scope | None]:
    """The scope of each route by method and path, such as `GET /jobs/{job_id}`. `None`: it is for everybody."""
    found = (
        (f"{method} {route.path_format}", scope_of(route.endpoint))
        for route in routes
        if isinstance(route, APIRoute)
        for method in route.methods or ()
    )
    # of several routes that fit, the first one answers
    return dict(reversed([*found]))


def _access(scope: Scope | None) -> dict[str, Any]:
    """What a request needs: the route's scope, of its key or its session, where there are keys; or nothing."""
    return {"security": []} if scope is None else {"x-scope": scope}


def _name_properties(schema: Any) -> None:
    """Replace `patternProperties`, which no generator reads, by `additionalProperties` and `propertyNames`."""
    if isinstance(schema, dict):
        if schema.get("type") == "object" and "patternProperties" in schema:
            ((pattern, values),) = schema.pop("patternProperties").items()
            names = {"type": "string", **schema.get("propertyNames", {}), "pattern": pattern}
            schema |= {"additionalProperties": values, "propertyNames": names}
        for inner in schema.values():
            _name_properties(inner)
    elif isinstance(schema, list):
        for inner in schema:
            _name_properties(inner)


class _Free(NamedTuple):
    """A kind of objects that have any fields."""

    description: str
    #: What the fields with such an object, or with several, are called.
    fields: frozenset[str]


#: By the schema's name. Without these, generators make a type for each field of each schema.
_FREE = {
    "ItemKey": _Free("The fields of an item that tell it from others.", frozenset({"key"})),
    "JsonSchema": _Free("A JSON Schema.", frozenset({"item_schema", "params_schema"})),
    "ScrapedItem": _Free("An item, as its spider has made it.", frozenset({"item", "items", "results"})),
    "ScrapySettings": _Free("Settings of Scrapy or of a project, by name.", frozenset({"settings"})),
    "SpiderParams": _Free("Parameters of a spider, by name.", frozenset({"params", "payload"})),
}


def _name_free_objects(schemas: dict[str, Any]) -> None:
    named = {field: f"#/components/schemas/{name}" for name, free in _FREE.items() for field in free.fields}
    properties = [(name, one) for of in schemas.values() for name, one in of.get("properties", {}).items()]
    for name, schema in properties:
        for one in (schema, schema.get("items", {}), *schema.get("anyOf", ())):
            if one.get("additionalProperties") is True and name in named:
                del one["type"], one["additionalProperties"]
                one["$ref"] = named[name]
    for name, free in _FREE.items():
        schemas[name] = {"type": "object", "additionalProperties": True, "description": free.description}


class _Map(NamedTuple):
    """A kind of objects with values of one type, which several schemas have, or of which there are lists."""

    description: str
    #: The schemas and fields with such an object, or with several. What the first one says of it counts for all.
    fields: tuple[str, ...]


#: By the schema's name. Without these, generators make a class for each field of each schema.
_MAPS = {
    "ChangedFields": _Map("What has changed, by field.", ("ChangeView.changes", "ItemDifferenceView.changes")),
    "CrawlVariables": _Map(
        "Environment variables of a crawl, by name.",
        ("CrawlRequest.env", "ScheduleCreate.env", "ScheduleUpdate.env", "CrawlSpec.env", "CrawlView.env"),
    ),
    "FilledFields": _Map("How many items have each field.", ("AttemptView.filled",)),
    "FirecrawlHeaders": _Map(
        "Headers of requests, by name.",
        ("FirecrawlBatch.headers", "FirecrawlOptions.headers", "FirecrawlScrape.headers"),
    ),
    "JobCounts": _Map("How many jobs are in each status.", ("JobsHealth.jobs", "QueueStatusView.depth")),
    "LoadError": _Map("An error: the URL and the reason.", ("ExitView.errors",)),
    "RefusedFile": _Map("A file that was refused: its name and the reason.", ("FilesView.refused",)),
    "RequestCookies": _Map("Cookies of requests, by name.", ("FetchOptions.cookies",)),
    "RequestHeaders": _Map("Headers of requests, by name.", ("FetchOptions.headers",)),
    "SiteSelectors": _Map(
        "CSS selectors, by name.", ("SiteCreate.selectors", "SiteUpdate.selectors", "SiteView.selectors")
    ),
    "TypeCounts": _Map("How many values are of each type.", ("FieldView.types", "FieldOverRunsView.types")),
}


def _name_maps(schemas: dict[str, Any]) -> None:
    for name, kind in _MAPS.items():
        for place in kind.fields:
            schema, _, field = place.partition(".")
            described = schemas[schema]["properties"][field]
            choices = (described, described.get("items", {}), *described.get("anyOf", ()))
            (one,) = (one for one in choices if one.get("type") == "object")
            about = {key: one.pop(key) for key in [*one] if key not in {"description", "examples", "title"}}
            one["$ref"] = f"#/components/schemas/{name}"
            schemas.setdefault(name, {**about, "description": kind.description})


def _drop_titles(schemas: dict[str, Any]) -> None:
    """Leave out pydantic's titles of fields, which say their names again."""
    for schema in schemas.values():
        for field in schema.get("properties", {}).values():
            field.pop("title", None)


def _drop_defaults_of_updates(document: dict[str, Any]) -> None:
    """Leave out the defaults of all that a `PATCH` takes: generated clients send the defaults of fields that their
    callers have not named, and such fields must stay as they are. An object inside of such a body replaces the old
    one as a whole, so its defaults do apply: its descriptions say them.
    """
    schemas = document["components"]["schemas"]
    bodies = [str(one["patch"].get("requestBody")) for one in document["paths"].values() if "patch" in one]
    updates = {name for body in bodies for name in _REFERENCE.findall(body)}
    waiting, seen = {*updates}, set[str]()
    while waiting:
        name = waiting.pop()
        seen.add(name)
        for field in schemas[name].get("properties", {}).values():
            default = field.pop("default", None)
            if default is not None and name not in updates:
                field["description"] += f" By default `{default}`."
        waiting |= {*_REFERENCE.findall(str(schemas[name]))} - seen


def _complete_parameter(schema: dict[str, Any]) -> None:
    _forbid_null(schema)
    schema.pop("title", None)
    # generated clients would send it, and empty is what is not given
    if schema.get("default") == "":
        del schema["default"]


def _forbid_null(schema: dict[str, Any]) -> None:
    choices = [choice for choice in schema.pop("anyOf", ()) if choice != {"type": "null"}]
    if len(choices) == 1:
        schema.update(choices[0])
    elif choices:
        schema["anyOf"] = choices


# --- links: what can be asked next with what an answer says


class _Lead(NamedTuple):
    #: Where in the answer it is named.
    pointer: str
    #: The parameter that takes the name.
    parameter: str
    operations: tuple[str, ...]


_JOB_NEXT = ("get_job", "get_job_status", "follow_job_log", "list_job_items", "pause_job", "cancel_job")
#: By the schema of the answer to a POST.
_LEADS = {
    "CrawlReceipt": _Lead("job_id", "job_id", _JOB_NEXT),
    "ScheduleView": _Lead(
        "schedule_id",
        "schedule_id",
        ("get_schedule", "list_schedule_items", "list_schedule_history", "run_schedule", "pause_schedule"),
    ),
    "ScrapeAnswer": _Lead("data/run_id", "run_id", ("get_site_run",)),
    "SiteView": _Lead("name", "name", ("get_site", "update_site", "delete_site")),
    "TargetView": _Lead("id", "target_id", ("get_target", "update_target", "delete_target")),
    "MadeEndpoint": _Lead(
        "endpoint_id", "endpoint_id", ("get_endpoint", "test_endpoint", "list_endpoint_deliveries", "delete_endpoint")
    ),
    "SavedViewOfList": _Lead("view_id", "view_id", ("get_saved_view", "update_saved_view", "delete_saved_view")),
    "AlertRuleView": _Lead("rule_id", "rule_id", ("get_alert_rule", "update_alert_rule", "delete_alert_rule")),
}


def _link(document: dict[str, Any]) -> None:
    for methods in document["paths"].values():
        for method, operation in methods.items():
            for status, answer in operation["responses"].items():
                if status < "3":
                    links = dict(_links(document, method, operation, _schema_of(answer)))
                    if links:
                        answer["links"] = links


def _links(
    document: dict[str, Any], method: str, operation: dict[str, Any], schema: str | None
) -> Iterator[tuple[str, dict[str, Any]]]:
    in_path = {
        one["name"]: f"$request.path.{one['name']}" for one in operation.get("parameters", ()) if one["in"] == "path"
    }
    if lead := _LEADS.get(schema or "") if method == "post" else None:
        for name in lead.operations:
            yield name, {"operationId": name, "parameters": {lead.parameter: f"$response.body#/{lead.pointer}"}}
    fields = document["components"]["schemas"].get(schema, {}).get("properties", {})
    for cursor in ("after", "since"):
        if "next" in fields and any(one["name"] == cursor for one in operation.get("parameters", ())):
            following = {**in_path, cursor: "$response.body#/next"}
            yield "next_page", {"operationId": operation["operationId"], "parameters": following}
            return


def _schema_of(answer: dict[str, Any]) -> str | None:
    """The name of the schema of the answer as JSON."""
    schema = answer.get("content", {}).get("application/json", {}).get("schema", {})
    return schema["$ref"].rpartition("/")[2] if "$ref" in schema else None
