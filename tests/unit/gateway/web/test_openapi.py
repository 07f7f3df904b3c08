"""What the API says of itself is what programs are written against: it has to be complete."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from inspect import isclass
from typing import Any

from described import APP, document
from fastapi.routing import APIRoute, iter_route_contexts

import gateway.errors
from gateway.contract.variable_names import VARIABLE_PATTERN
from gateway.errors import DiscoveryBotError
from gateway.web.schemas.stream import EVENT_STREAM, ITEM_SCHEMA


def test_each_operation_says_what_it_does_and_how_it_refuses() -> None:
    for path, operation in _operations():
        place = operation["operationId"]
        assert operation["summary"], place
        assert len(operation["tags"]) == 1, place
        responses = operation["responses"]
        is_firecrawls = path.startswith("/v2/")
        assert {"403", "400" if is_firecrawls else "422", "500"} <= set(responses), place
        if "{job_id}" in path or "{schedule_id}" in path:
            assert {"404", "503"} <= set(responses), place
        # whatever takes a body may find it too large
        assert "requestBody" not in operation or "413" in responses, place
        problem = {"$ref": f"#/components/schemas/{'FirecrawlProblem' if is_firecrawls else 'Problem'}"}
        for status, response in responses.items():
            schema = response.get("content", {}).get("application/json", {}).get("schema", {})
            if int(status) >= 400 and not (path == "/health" and status == "503"):
                assert schema == problem, (place, status)


def test_every_operation_and_every_schema_is_described() -> None:
    assert [name for name, operation in _every_operation().items() if not operation.get("description")] == []
    assert [name for name, schema in _schemas().items() if not schema.get("description")] == []


def test_every_field_is_described() -> None:
    """But for those of Firecrawl's API, which its own documentation describes."""
    silent = [
        f"{name}.{field}"
        for name, schema in _schemas().items()
        if not name.startswith("Firecrawl")
        for field, described in schema.get("properties", {}).items()
        if not described.get("description")
    ]
    assert silent == []


def test_the_description_says_where_it_holds_and_whose_it_is() -> None:
    assert [server["url"] for server in document()["servers"]] == ["/"]
    assert document()["info"]["license"]["identifier"] == "Apache-2.0"
    assert document()["info"]["contact"]["url"].endswith("/issues")
    assert document()["externalDocs"]["url"].endswith("/docs")


def _operations() -> Iterator[tuple[str, dict[str, Any]]]:
    """Each with its path."""
    for path, methods in document()["paths"].items():
        for operation in methods.values():
            yield path, operation


def test_no_parameter_may_be_null() -> None:
    for path, operation in _operations():
        for parameter in operation.get("parameters", []):
            assert "null" not in str(parameter["schema"]), (path, parameter["name"])


def test_every_parameter_is_described() -> None:
    for path, operation in _operations():
        for parameter in operation.get("parameters", []):
            assert parameter.get("description"), (path, parameter["name"])


def test_every_tag_is_described_and_used() -> None:
    tags = document()["tags"]
    assert {tag["name"] for tag in tags} == {name for _, operation in _operations() for name in operation["tags"]}
    assert all(tag["description"] for tag in tags)


def test_no_parameter_is_sent_empty_by_default() -> None:
    for path, operation in _operations():
        for parameter in operation.get("parameters", []):
            assert parameter["schema"].get("default") != "", (path, parameter["name"])


def test_what_each_answer_has_is_required() -> None:
    for name, fields in {
        "CrawlReceipt": {"job_id", "scheduled", "cached"},
        "ErrorBody": {"code", "message", "detail"},
        "LogLineView": {"id", "level", "logger", "msg"},
    }.items():
        assert fields <= set(_schemas()[name]["required"]), name


def test_a_key_is_optional_as_it_is_where_there_are_none_and_each_operation_says_its_scope() -> None:
    """A requirement of an operation itself makes generated calls demand a key, also where there are none."""
    assert document()["security"] == [{"key": []}, {"session": []}, {}]
    for methods in document()["paths"].values():
        for operation in methods.values():
            assert ("x-scope" in operation) == ("security" not in operation)
            assert operation.get("security", []) == []
    crawl, health = document()["paths"]["/crawl"]["post"], document()["paths"]["/health"]["get"]
    assert (crawl["x-scope"], health["security"]) == ("agent", [])


#: One on each line, so that two changes seldom meet.
PATHS = {
    "/audit",
    *("/views", "/views/{view_id}"),
    "/keys",
    "/keys/{key_id}",
    "/crawl",
    "/crawl/preview",
    *("/alerts", "/alerts/rules", "/alerts/rules/preview", "/alerts/rules/{rule_id}"),
    *("/errors", "/errors/{error_id}", "/jobs/{job_id}/errors"),
    *("/alerts/{alert_id}", "/alerts/{alert_id}/silence"),
    "/datasets",
    "/datasets/{name}",
    *("/datasets/{name}/changes", "/datasets/{name}/changes/download"),
    "/datasets/{name}/health",
    *("/datasets/{name}/items", "/datasets/{name}/items/download"),
    "/datasets/{name}/runs",
    "/datasets/{name}/runs/{run}",
    "/datasets/{name}/runs/{run}/accept",
    "/datasets/{name}/runs/{run}/export",
    "/datasets/{name}/runs/{run}/reject",
    "/datasets/{name}/schema",
    "/dead-letters",
    "/dead-letters/{letter_id}",
    "/dead-letters/{letter_id}/requeue",
    "/endpoints",
    "/endpoints/{endpoint_id}",
    "/endpoints/{endpoint_id}/deliveries",
    "/endpoints/{endpoint_id}/deliveries/resend",
    "/endpoints/{endpoint_id}/deliveries/{delivery_id}",
    "/endpoints/{endpoint_id}/secret",
    "/endpoints/{endpoint_id}/test",
    "/events",
    "/health",
    "/health/live",
    "/jobs",
    *("/jobs/bulk", "/jobs/count", "/jobs/points"),
    "/jobs/health",
    "/jobs/queue/status",
    "/jobs/scrape",
    "/jobs/scrape/{run_id}",
    "/jobs/sites",
    "/jobs/{job_id}",
    "/jobs/{job_id}/cancel",
    "/jobs/{job_id}/deliveries",
    "/jobs/{job_id}/deliveries/resend",
    "/jobs/{job_id}/deliveries/{delivery_id}",
    "/jobs/{job_id}/differences",
    "/jobs/{job_id}/fields",
    "/jobs/{job_id}/repair",
    "/jobs/{job_id}/files",
    "/jobs/{job_id}/files/{name}",
    *("/jobs/{job_id}/items", "/jobs/{job_id}/items/download"),
    *("/jobs/{job_id}/logs", "/jobs/{job_id}/logs/download"),
    "/jobs/{job_id}/logs/index",
    "/jobs/{job_id}/logs/lines",
    "/jobs/{job_id}/logs/search",
    "/jobs/{job_id}/pause",
    "/jobs/{job_id}/progress",
    *("/jobs/{job_id}/requests", "/jobs/{job_id}/requests/download"),
    "/jobs/{job_id}/resume",
    "/jobs/{job_id}/retry",
    "/jobs/{job_id}/runs",
    "/jobs/{job_id}/status",
    "/jobs/{job_id}/stream-token",
    "/jobs/{job_id}/timeline",
    "/metrics",
    "/nodes",
    "/nodes/invitations",
    "/nodes/join",
    "/nodes/{node}",
    "/nodes/{node}/drain",
    "/nodes/{node}/resume",
    "/nodes/{node}/scrapyd/cancel.json",
    "/nodes/{node}/scrapyd/{path}",
    "/projects",
    "/projects/{project}/days",
    "/projects/{project}/env",
    "/projects/{project}/env/{variable}",
    "/projects/{project}/rollback",
    "/projects/{project}/settings",
    "/projects/{project}/versions",
    "/projects/{project}/versions/{version}",
    "/projects/{project}/versions/{version}/activate",
    "/projects/{project}/versions/{version}/dependencies",
    "/scheduler/run",
    "/scheduler/status",
    "/schedules",
    "/schedules/calendar",
    "/schedules/{schedule_id}",
    "/schedules/{schedule_id}/days",
    "/schedules/{schedule_id}/history",
    *("/schedules/{schedule_id}/items", "/schedules/{schedule_id}/items/download"),
    "/schedules/{schedule_id}/next",
    "/schedules/{schedule_id}/pause",
    "/schedules/{schedule_id}/resume",
    "/schedules/{schedule_id}/run",
    "/session",
    "/sites",
    "/sites/{name}",
    "/sites/{name}/days",
    "/spiders",
    "/spiders/{project}/{spider}/days",
    "/spiders/{project}/{spider}/fields",
    "/targets",
    "/targets/{target_id}",
    *("/v2/batch/scrape", "/v2/batch/scrape/{job_id}", "/v2/batch/scrape/{job_id}/errors"),
    *("/v2/concurrency-check", "/v2/team/credit-usage", "/v2/team/queue-status", "/v2/team/token-usage"),
    *("/v2/crawl", "/v2/crawl/active", "/v2/crawl/{job_id}", "/v2/crawl/{job_id}/errors"),
    *("/v2/map", "/v2/scrape"),
    "/webhooks/secret",
}


def test_what_is_not_there_yet_is_not_promised() -> None:
    assert set(document()["paths"]) == PATHS


def test_every_reference_leads_to_a_schema() -> None:
    referred = set(re.findall(r"'#/components/schemas/(\w+)'", str(document())))
    assert {"Problem", "ErrorBody"} <= referred <= _schemas().keys()


def test_the_request_and_its_answer_have_examples() -> None:
    schemas = _schemas()
    assert schemas["CrawlRequest"]["examples"]
    assert schemas["CrawlReceipt"]["examples"]
    assert schemas["CrawlRequest"]["additionalProperties"] is False
    assert schemas["CrawlRequest"]["required"] == ["spider"]


# --- what generated clients are made of

#: What an operation's name may begin with.
VERBS = {
    *("accept", "act", "activate", "cancel", "count", "create", "delete", "deploy", "dismiss", "download", "drain"),
    *("export", "follow", "forget", "get", "invite", "join", "list", "map", "on", "pause", "preview", "put"),
    *("reject", "renew", "replace", "requeue", "resend", "resume", "retry", "revoke", "roll", "run", "scrape"),
    *("search", "set", "sign", "silence", "start", "test", "unset", "update"),
}


@cache
def _every_operation() -> dict[str, dict[str, Any]]:
    """By its name."""
    every = (*document()["paths"].values(), *document()["webhooks"].values())
    return {operation["operationId"]: operation for methods in every for operation in methods.values()}


def _schemas() -> dict[str, dict[str, Any]]:
    schemas: dict[str, dict[str, Any]] = document()["components"]["schemas"]
    return schemas


def test_operations_are_called_as_their_functions_in_plain_verbs() -> None:
    named = {
        route.operation_id or route.unique_id: route.original_route.endpoint.__name__
        for route in iter_route_contexts(APP.routes)
        if isinstance(route.original_route, APIRoute) and route.original_route.include_in_schema
    }
    assert all(name == function for name, function in named.items()), named
    for name, operation in _every_operation().items():
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", name)
        # whoever has a crawl of ours must not find these as the calls for it
        is_firecrawls = operation["tags"] == ["firecrawl"]
        assert name.startswith("firecrawl_") == is_firecrawls, name
        assert name.removeprefix("firecrawl_").partition("_")[0] in VERBS, name
        assert len(name) <= 40
    operations = sum(len(methods) for methods in (*document()["paths"].values(), *document()["webhooks"].values()))
    assert len(_every_operation()) == operations


def _plain(name: str) -> str:
    """What two names have in common of which a generator makes the same class, module or file."""
    return re.sub(r"[\W_]", "", name).lower()


def test_no_two_schemas_get_the_same_name_in_a_generated_client() -> None:
    names = Counter(map(_plain, _schemas()))
    # what has no name of its own gets that of the schema and the field, or of the operation and its part
    names.update(
        _plain(f"{schema}{field}")
        for schema, described in _schemas().items()
        for field, of_field in described.get("properties", {}).items()
        if "$ref" not in of_field
    )
    names.update(
        _plain(f"{operation}{part}")
        for operation in _every_operation()
        for part in ("", "body", "data", "error", "errors", "query", "path", "response", "responses")
    )
    assert [name for name, number in names.items() if number > 1] == []


def _unions(schema: Any) -> Iterator[dict[str, Any]]:
    """Those of which at least two kinds are objects."""
    if isinstance(schema, dict):
        choices = [*schema.get("oneOf", ()), *schema.get("anyOf", ())]
        objects = [_schemas()[one["$ref"].rpartition("/")[2]] for one in choices if "$ref" in one]
        if sum(one.get("type") == "object" for one in objects) > 1:
            yield schema
        for name, inner in schema.items():
            # what there are of events is told by their names; see `ITEM_SCHEMA`
            if name not in {EVENT_STREAM, "contentSchema"}:
                yield from _unions(inner)
            else:
                yield from _unions(inner.get(ITEM_SCHEMA))
    elif isinstance(schema, list):
        for inner in schema:
            yield from _unions(inner)


def test_a_field_tells_the_kinds_of_a_union() -> None:
    found = list(_unions(document()))
    assert len(found) > 5
    for union in found:
        discriminator = union["discriminator"]
        for value, reference in discriminator["mapping"].items():
            kind = _schemas()[reference.rpartition("/")[2]]
            assert discriminator["propertyName"] in kind["required"]
            assert kind["properties"][discriminator["propertyName"]]["const"] == value


def test_what_streams_says_its_events() -> None:
    streams = {
        operation["operationId"]: {one["$ref"].rpartition("/")[2] for one in content[ITEM_SCHEMA]["oneOf"]}
        for methods in document()["paths"].values()
        for operation in methods.values()
        for name, content in operation["responses"].get("200", {}).get("content", {}).items()
        if name == EVENT_STREAM
    }
    assert streams.keys() == {"create_crawl", "follow_job_log", "follow_jobs", "list_dataset_changes"}
    assert all(events <= _schemas().keys() for events in streams.values())


def test_what_a_stream_sends_is_of_no_type_for_generated_clients() -> None:
    """Some take the schema of a content for that of the whole body, and some for that of each event's data."""
    contents = [
        answer["content"][EVENT_STREAM]
        for operation in _every_operation().values()
        for answer in operation["responses"].values()
        if EVENT_STREAM in answer.get("content", {})
    ]
    assert len(contents) == 4
    assert all(content["schema"] == {} for content in contents)


#: What OpenAPI 3.1 has of a kind of content.
OF_CONTENT = {"schema", "example", "examples", "encoding"}


def test_contents_have_what_this_version_of_openapi_knows() -> None:
    assert document()["openapi"].startswith("3.1.")
    for name, operation in _every_operation().items():
        for answer in (operation.get("requestBody", {}), *operation["responses"].values()):
            for kind, content in answer.get("content", {}).items():
                assert {one for one in content if not one.startswith("x-")} <= OF_CONTENT, (name, kind)


def test_a_log_is_followed_by_one_operation_and_downloaded_by_another() -> None:
    kinds = {
        name: [*_every_operation()[name]["responses"]["200"]["content"]]
        for name in ("follow_job_log", "download_job_log")
    }
    assert kinds == {"follow_job_log": [EVENT_STREAM], "download_job_log": ["text/plain", "application/x-ndjson"]}


def test_files_have_operations_of_their_own() -> None:
    """A generated client takes one schema for all kinds of content: of these bytes, of what has pages JSON."""
    paths = document()["paths"]
    downloads = [
        path for path in paths if path.endswith(("/items/download", "/changes/download", "/requests/download"))
    ]
    assert len(downloads) == 5
    for path in downloads:
        contents = paths[path]["get"]["responses"]["200"]["content"]
        assert {"application/octet-stream", "application/x-ndjson", "text/csv"} < contents.keys()
        assert {content["schema"]["format"] for content in contents.values()} == {"binary"}
        pages = paths[path.removesuffix("/download")]["get"]
        assert set(pages["responses"]["200"]["content"]) <= {"application/json", EVENT_STREAM}
        named = {one["name"] for one in pages["parameters"]}
        assert not named & {"format", "escape_formulas", "bom"}
        assert {"format", "bom"} < {one["name"] for one in paths[path]["get"]["parameters"]}


#: Of the errors that the API itself answers with.
OF_PROBLEMS = {"ErrorBody", "ErrorCode"}


def test_schemas_say_whose_errors_and_views_they_are() -> None:
    named = {name for name in _schemas() if re.match(r"(Error|View)(?!Group)", name)}
    assert named == OF_PROBLEMS


def test_the_detail_of_an_error_names_the_field() -> None:
    detail = _schemas()["ErrorBody"]["properties"]["detail"]["anyOf"]
    assert detail == [{"$ref": "#/components/schemas/ProblemDetail"}, {"type": "null"}]
    assert {"field", "problems"} <= _schemas()["ProblemDetail"]["properties"].keys()


def test_errors_have_codes_of_an_enumeration() -> None:
    known = {"$ref": "#/components/schemas/ErrorCode"}
    assert _schemas()["ErrorBody"]["properties"]["code"]["anyOf"] == [known, {"type": "string"}]
    codes = {DiscoveryBotError.code, "body_too_large", "forbidden", "http_error", "method_not_allowed"}
    errors = [one for one in vars(gateway.errors).values() if isclass(one) and issubclass(one, DiscoveryBotError)]
    assert codes | {one.code for one in errors} <= set(_schemas()["ErrorCode"]["enum"])


#: Enumerations of which later releases have more values. Those of states are closed: programs decide by them.
GROWING = {
    f"#/components/schemas/{name}"
    for name in (
        *("AuditKind", "EndpointFormat", "ErrorCode", "EventType", "Grouping", "Incomplete", "Measure"),
        *("MomentKind", "NodeState", "Reason", "Scope", "WaitingReason"),
    )
}
#: What is sent to us alone, and has to be one of the values that this release knows.
REQUESTS = {"EndpointUpdate", "EndpointCreate", "JobsFilter", "KeyCreate"}


def _alone(schema: Any) -> Iterator[dict[str, Any]]:
    """References to such an enumeration beside which no other text is allowed."""
    if isinstance(schema, dict):
        choices = schema.get("anyOf", [])
        if schema.get("$ref") in GROWING:
            yield schema
        elif {"type": "string"} not in choices or not any(one.get("$ref") in GROWING for one in choices):
            yield from _alone([*schema.values()])
    elif isinstance(schema, list):
        for inner in schema:
            yield from _alone(inner)


def test_answers_may_have_codes_and_reasons_of_later_releases() -> None:
    assert {name for name, schema in _schemas().items() if [*_alone(schema)]} == REQUESTS
    answers = [operation["responses"] for operation in _every_operation().values()]
    assert list(_alone(answers)) == []
    assert list(_alone([operation.get("parameters", []) for operation in _every_operation().values()]))


#: Keywords that say nothing of a value of another type.
KEYWORDS = {
    **dict.fromkeys(("maxLength", "minLength", "pattern", "contentSchema"), ("string",)),
    **dict.fromkeys(("maxItems", "minItems", "uniqueItems"), ("array",)),
    **dict.fromkeys(("maxProperties", "minProperties", "propertyNames", "additionalProperties"), ("object",)),
    **dict.fromkeys(("maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum"), ("integer", "number")),
}


def _referred(schema: dict[str, Any]) -> dict[str, Any]:
    return _schemas()[schema["$ref"].rpartition("/")[2]]


def _misplaced(schema: Any, place: str = "") -> Iterator[str]:
    if isinstance(schema, dict):
        for keyword, types in KEYWORDS.items():
            # a property may be called so
            if keyword in schema and not place.endswith("/properties") and schema.get("type") not in types:
                yield f"{place}/{keyword}"
        for name, inner in schema.items():
            if name not in {"example", "examples", "default"}:
                yield from _misplaced(inner, f"{place}/{name}")
    elif isinstance(schema, list):
        for number, inner in enumerate(schema):
            yield from _misplaced(inner, f"{place}/{number}")


def test_limits_are_of_the_type_that_they_limit() -> None:
    assert list(_misplaced(document())) == []
    options = _schemas()["FetchOptions"]["properties"]
    assert _referred(options["headers"])["maxProperties"] == _referred(options["cookies"])["maxProperties"] == 50
    assert options["retry_codes"]["anyOf"][0]["maxItems"] == 20


def test_objects_with_names_of_a_pattern_say_what_their_values_are() -> None:
    assert "'patternProperties'" not in str(document())
    env = _referred(_schemas()["CrawlRequest"]["properties"]["env"])
    assert env["additionalProperties"]["type"] == "string"
    assert env["propertyNames"] == {"type": "string", "pattern": VARIABLE_PATTERN}
    assert _schemas()["Expect"]["properties"]["fields"]["propertyNames"]["maxLength"] == 100


def test_objects_of_any_fields_have_names() -> None:
    """A generated client has one type for all of a kind."""
    nameless = {
        f"{name}.{field}"
        for name, schema in _schemas().items()
        for field, of_field in schema.get("properties", {}).items()
        for one in (of_field, of_field.get("items", {}), *of_field.get("anyOf", ()))
        if one.get("additionalProperties") is True
    }
    # of one schema each
    assert nameless == {"AttemptView.stats", "WholeDelivery.body"}
    used = set(re.findall(r"'#/components/schemas/(\w+)'", str(document())))
    assert {"ItemKey", "JsonSchema", "ScrapedItem", "ScrapySettings", "SpiderParams"} <= used


def test_objects_with_values_of_a_type_have_names_where_they_are_of_several_schemas() -> None:
    """A generated client has one type for all of them, and none that is called by its place in a union."""
    places: dict[str, list[str]] = {}
    for name, schema in _schemas().items():
        for field, described in schema.get("properties", {}).items():
            inner = [described.get("items", {}), *described.get("anyOf", ())]
            assert not [one for one in inner if "additionalProperties" in one], f"{name}.{field}"
            if described.get("additionalProperties"):
                places.setdefault(f"{field} {described['additionalProperties']}", []).append(name)
    assert {field: names for field, names in places.items() if len(names) > 1} == {}
    variables = {
        name: {field: one["$ref"] for field, one in _schemas()[name]["properties"].items() if field == "env"}
        for name in ("CrawlRequest", "ScheduleCreate", "ScheduleUpdate", "CrawlSpec", "CrawlView")
    }
    assert {*map(str, variables.values())} == {"{'env': '#/components/schemas/CrawlVariables'}"}


def _defaults(schema: Any, place: str, seen: frozenset[str] = frozenset()) -> Iterator[str]:
    """Where there is one, in the schemas that it refers to as well."""
    if isinstance(schema, dict):
        name = schema["$ref"].rpartition("/")[2] if "$ref" in schema else None
        if name is not None and name not in seen:
            yield from _defaults(_schemas()[name], f"{place}:{name}", seen | {name})
        for keyword, inner in schema.items():
            # a property may be called so
            if keyword == "default" and not place.endswith("/properties"):
                yield place
            elif keyword not in {"example", "examples"}:
                yield from _defaults(inner, f"{place}/{keyword}", seen)
    elif isinstance(schema, list):
        for number, inner in enumerate(schema):
            yield from _defaults(inner, f"{place}/{number}", seen)


def test_fields_that_an_update_does_not_name_have_no_default() -> None:
    """A generated client sends the default of each field that its caller has not named: it would be changed."""
    bodies = {
        path: methods["patch"]["requestBody"]
        for path, methods in document()["paths"].items()
        if "requestBody" in methods.get("patch", {})
    }
    assert "/schedules/{schedule_id}" in bodies
    assert [place for path, body in bodies.items() for place in _defaults(body, path)] == []
    # those of the objects in them do apply
    assert _schemas()["AlertCondition"]["properties"]["runs"]["description"].endswith(" By default `1`.")
    # where one is made, the fields that nobody names have their defaults
    assert _schemas()["CrawlRequest"]["properties"]["priority"]["default"] == 0


def _at(schema: dict[str, Any], pointer: str) -> bool:
    name, _, rest = pointer.partition("/")
    if "$ref" in schema:
        return _at(_schemas()[schema["$ref"].rpartition("/")[2]], pointer)
    if "oneOf" in schema:
        return any(_at(one, pointer) for one in schema["oneOf"])
    return not name or (name in schema.get("properties", {}) and _at(schema["properties"][name], rest))


def test_links_lead_to_operations_with_what_these_need() -> None:
    number = 0
    for operation in _every_operation().values():
        for answer in operation["responses"].values():
            for link in answer.get("links", {}).values():
                number += 1
                target = _every_operation()[link["operationId"]]
                known = {one["name"]: one["required"] for one in target["parameters"]}
                given = link["parameters"]
                assert {name for name, is_required in known.items() if is_required} <= given.keys() <= known.keys()
                for value in given.values():
                    place, _, pointer = value.partition("#/")
                    schema = answer["content"]["application/json"]["schema"]
                    assert place.startswith("$request.path.") or _at(schema, pointer), value
    assert number > 50


#: What the name of a body ends with, by the verb of its operation. Others end with `Request`.
ENDINGS = {"create": "Create", "update": "Update", "put": "Replace", "replace": "Replace", "set": "Replace"}


def test_bodies_are_named_by_what_their_operation_does() -> None:
    for path, operation in _operations():
        name = operation["operationId"]
        body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
        # a preview has the body of what it previews, and `POST /crawl` asks for what is done once
        if path.startswith("/v2/") or path.endswith("/preview") or name == "create_crawl":
            continue
        ending = ENDINGS.get(name.partition("_")[0], "Request")
        assert body.get("$ref", ending).endswith(ending), (name, body["$ref"])


def _enumerations(schema: Any) -> Iterator[tuple[str, ...]]:
    if isinstance(schema, dict):
        if isinstance(schema.get("enum"), list):
            yield tuple(schema["enum"])
        for inner in schema.values():
            yield from _enumerations(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from _enumerations(inner)


def test_an_enumeration_that_is_used_twice_has_a_name() -> None:
    """Without a name, a generated client has as many classes of it as there are uses."""
    assert [values for values, uses in Counter(_enumerations(document())).items() if uses > 1] == []
