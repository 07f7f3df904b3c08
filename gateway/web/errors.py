"""The one place where errors become HTTP answers, all in one format; and how routes declare theirs."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from difflib import get_close_matches
from http import HTTPStatus
from typing import Any

import orjson
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, Field
from pymongo.errors import PyMongoError
from starlette.exceptions import HTTPException
from starlette.routing import compile_path
from starlette.types import Scope

from gateway.errors import (
    ConflictError,
    CursorExpiredError,
    DiscoveryBotError,
    ForbiddenAddressError,
    ForbiddenError,
    InvalidRequestError,
    NodeError,
    NotFoundError,
    RunGoesOnError,
    TooManyError,
    UnauthenticatedError,
    UnavailableError,
    WrongKeyError,
)
from gateway.stores.mongo import mongo_errors
from gateway.web import http_protocol
from gateway.web.schemas.types import open_schema

#: Problems that an answer lists. There may be fifteen thousand, and the event loop would describe each of them.
_MOST_PROBLEMS = 20


class WrongField(BaseModel):
    """A field that is wrong, and why."""

    field: str = Field(description="Its name, with those around it: `start_urls.0`.")
    message: str = Field(description="What is wrong with it, for people.")


class ProblemDetail(BaseModel, extra="allow"):
    """Further facts, which differ from code to code."""

    field: str | None = Field(
        default=None, description="The field or parameter that is wrong.", examples=["start_urls.0"]
    )
    problems: list[WrongField] | None = Field(
        default=None, description=f"Of `invalid_request`: the first {_MOST_PROBLEMS} fields that are wrong."
    )


class ErrorBody(BaseModel):
    """What is wrong, for programs (`code`, `detail`) and for people (`message`)."""

    code: str = Field(description="Stable, for programs. Later releases may have more.", examples=["job_not_found"])
    message: str = Field(description="For people.", examples=["there is no job '5f0c…'"])
    detail: ProblemDetail | None = Field(description="`null` if there is no more to say.")


class Problem(BaseModel):
    """Any answer that is not a success."""

    error: ErrorBody
    request_id: str = Field(description="Also in the `X-Request-ID` header, and in the gateway's log.")


_MEANINGS = {
    401: "The gateway needs a key, and the request has no valid one",
    403: "Not allowed: the key lacks the right, an address may not be fetched, or the request has another origin",
    404: "There is no such thing",
    408: "It has not ended in time; it goes on",
    424: "The page could not be fetched; `details.reason` says why, as a code",
    410: "What the cursor names is no longer kept; `detail` says where to go on",
    409: "The current state does not allow this",
    413: "The body is larger than this call takes: 256 KiB, or 64 MiB for an egg",
    416: "The file ends before the part that `Range` asks for; `Content-Range` has its size",
    422: "Invalid; `detail.field` names the field",
    429: "Too many requests, open streams or waiting crawls: nothing was done, ask again after `Retry-After` seconds",
    500: "An internal error; the gateway's log has more under the request id",
    502: "A crawl node refused or failed; `detail` has the answer of each",
    503: "The database is away, or no crawl node has published its spiders; ask again after `Retry-After` seconds",
    504: "The run has not ended in time; it goes on, and `detail.run_id` names it",
}
Responses = dict[int | str, dict[str, Any]]


_REFERENCE = "#/components/schemas/{model}"


def schemas() -> dict[str, Any]:
    """The schemas that the responses of `problems` refer to, for the components of the OpenAPI document."""
    described = Problem.model_json_schema(mode="serialization", ref_template=_REFERENCE)
    parts = described.pop("$defs")
    body = parts["ErrorBody"]["properties"]
    code = body["code"]
    known = open_schema({"$ref": _REFERENCE.format(model="ErrorCode")})
    body["code"] = {**known, "description": code["description"]}
    codes = {"type": "string", "title": "ErrorCode", "enum": sorted(all_codes()), "examples": code["examples"]}
    codes["description"] = "What is wrong, for programs."
    return {**parts, "ErrorCode": codes, "Problem": described}


def all_codes() -> set[str]:
    """The codes that an answer may have: those of the error tree, and those of HTTP itself."""
    known, codes = [DiscoveryBotError], {*_CODES.values(), *http_protocol.CODES.values(), _OTHER}
    for kind in known:
        codes.add(kind.code)
        known.extend(kind.__subclasses__())
    return codes


def problems(*statuses: int) -> Responses:
    """The value for `responses=` of a route that can answer with these statuses, in our error format."""
    return {status: _response(status) for status in statuses}


def _response(status: int) -> dict[str, Any]:
    error: dict[str, Any] = {"code": _EXAMPLE_CODES[status], "message": _MEANINGS[status], "detail": None}
    example = {"error": error, "request_id": "0b9f6f1c2f0e4c3d9a4f5e6d7c8b9a01"}
    # a `model` would be compiled again for each status of each route, which took most of a gateway's start
    response: dict[str, Any] = {
        "description": _MEANINGS[status],
        "content": {"application/json": {"example": example, "schema": {"$ref": _REFERENCE.format(model="Problem")}}},
    }
    if status in {429, 503}:
        response["headers"] = {"Retry-After": {"schema": {"type": "integer"}, "description": "Seconds"}}
    if status == 401:  # noqa: PLR2004 - the one status of ours that asks for a key
        response["headers"] = {"WWW-Authenticate": {"schema": {"type": "string"}, "description": "`Bearer …`"}}
    return response


# --- from errors to answers

#: Seconds after which a client may ask again.
RETRY_AFTER = 2
#: The status of each class of errors. If a class is not listed, its nearest ancestor decides.
_STATUSES: dict[type[DiscoveryBotError], int] = {
    InvalidRequestError: 422,
    UnauthenticatedError: 401,
    ForbiddenAddressError: 403,
    ForbiddenError: 403,
    NotFoundError: 404,
    ConflictError: 409,
    TooManyError: 429,
    CursorExpiredError: 410,
    UnavailableError: 503,
    NodeError: 502,
    RunGoesOnError: 504,
    DiscoveryBotError: 500,
}
_CODES = {
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    413: "body_too_large",
    416: "range_not_satisfiable",
}
#: The code of all other refusals of the framework.
_OTHER = "http_error"
_EXAMPLE_CODES = {
    **_CODES,
    **{status: kind.code for kind, status in _STATUSES.items()},
    404: "job_not_found",
    408: "SCRAPE_TIMEOUT",
    424: "SCRAPE_FAILED",
}
#: Messages about text, whose characters pydantic calls items. No text of ours has a minimum beyond one character.
_LENGTHS = {"too_short": "must not be empty", "too_long": "must have at most {max_length} characters"}
#: Parts of a request that pydantic puts before a field's name; we leave them out.
_PLACES = frozenset({"body", "query", "path", "header", "cookie"})


class BodyTooLargeError(HTTPException):
    """The body is larger than the gateway takes. FastAPI passes on only `HTTPException`s while it reads a body."""

    def __init__(self, limit: int) -> None:
        super().__init__(413, f"the body is larger than {limit} bytes")


def problem(
    scope: Scope, status: int, code: str, message: str, *, detail: Any = None, headers: dict[str, str] | None = None
) -> Response:
    """The error answer; the request's id is known by the time anything can go wrong."""
    request_id = scope.get("state", {}).get("request_id", "")
    if scope["path"].startswith(FIRECRAWL):
        return _firecrawls(status, code, message, detail, headers)
    content = {"error": {"code": code, "message": message, "detail": detail}, "request_id": request_id}
    return Response(_to_json(content), status, headers, media_type="application/json")


#: Addresses of another API, whose clients know no errors but its own.
FIRECRAWL = ("/v1/", "/v2/")


def _firecrawls(status: int, code: str, message: str, detail: Any, headers: dict[str, str] | None) -> Response:
    is_bad = status == HTTPStatus.UNPROCESSABLE_ENTITY
    content = {"success": False, "error": message, "code": code, **({} if detail is None else {"details": detail})}
    status = HTTPStatus.BAD_REQUEST.value if is_bad else status
    return Response(_to_json(content), status, headers, media_type="application/json")


def install(app: FastAPI) -> None:
    """Map the errors of the application to answers. `AnswerMiddleware` answers all other exceptions."""
    app.add_exception_handler(DiscoveryBotError, _ours)
    app.add_exception_handler(PyMongoError, _database)
    app.add_exception_handler(RequestValidationError, _validation)
    app.add_exception_handler(HTTPException, _http)


async def _ours(request: Request, error: Exception) -> Response:
    assert isinstance(error, DiscoveryBotError)  # noqa: S101 - registered for nothing else
    return answer_to(error, request.scope)


def answer_to(error: DiscoveryBotError, scope: Scope) -> Response:
    return problem(scope, status_of(error), error.code, error.message, detail=error.detail, headers=_headers(error))


def status_of(error: DiscoveryBotError) -> int:
    return next(_STATUSES[kind] for kind in type(error).__mro__ if kind in _STATUSES)


def _headers(error: DiscoveryBotError) -> dict[str, str] | None:
    if isinstance(error, UnauthenticatedError):
        problem_of_key = ', error="invalid_token"' if isinstance(error, WrongKeyError) else ""
        return {"WWW-Authenticate": f'Bearer realm="discoverybot"{problem_of_key}'}
    if isinstance(error, TooManyError):
        return {"Retry-After": str(error.retry_after)}
    return {"Retry-After": str(RETRY_AFTER)} if isinstance(error, UnavailableError) else None


async def _database(request: Request, error: Exception) -> Response:
    try:
        with mongo_errors():
            raise error
    except UnavailableError as unavailable:
        return await _ours(request, unavailable)


async def _validation(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for nothing else
    faults = error.errors()
    known = _body_fields(request)
    found = [_describe(fault, known) for fault in faults[:_MOST_PROBLEMS]]
    first, more = found[0], len(faults) - 1
    detail = {"field": first["field"], "problems": found}
    message = f"{first['field']}: {first['message']}" + (f" (and {more} more)" if more else "")
    return problem(request.scope, 422, InvalidRequestError.code, message, detail=detail)


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for nothing else
    headers = dict(error.headers) if error.headers else None
    if error.status_code == HTTPStatus.BAD_REQUEST:
        # FastAPI uses 400 only for a body that is not text, or is nested too deeply
        detail = {"field": "body", "problems": [{"field": "body", "message": "cannot be read as JSON"}]}
        return problem(request.scope, 422, InvalidRequestError.code, "body: cannot be read as JSON", detail=detail)
    code = _CODES.get(error.status_code, _OTHER)
    message = str(error.detail)
    if error.status_code == HTTPStatus.NOT_FOUND:
        message = f"there is nothing at {request.url.path}"
    elif error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        message = f"{request.method} is not possible here"
        headers = {"Allow": _allowed(request, (headers or {}).get("Allow", ""))}
    return problem(request.scope, error.status_code, code, message, headers=headers)


def _allowed(request: Request, named: str) -> str:
    """The methods that are possible at this address. The framework names those of one route only."""
    found = re.sub(r":\w+}", "}", getattr(request.scope.get("route"), "path", ""))
    routes = [route for route in request.app.routes if isinstance(route, APIRoute) and route.include_in_schema]
    # a path with fewer parameters may have other methods; one with more parameters is meant for other addresses
    exact = (path for route in routes if (path := route.path_format).count("{") < found.count("{"))
    there = {found, *(path for path in exact if compile_path(path)[0].match(request.scope["path"]))}
    described = (method for route in routes if route.path_format in there for method in route.methods or ())
    return ", ".join(sorted({*described, *(method.strip() for method in named.split(",") if method)}))


#: Names of other tools for fields of ours.
_ELSEWHERE = {
    **dict.fromkeys(("cron", "every", "schedule"), "interval"),
    **dict.fromkeys(("url", "urls"), "start_urls"),
}


def _body_fields(request: Request) -> Collection[str]:
    """The names of the fields that the body may have."""
    body = getattr(request.scope.get("route"), "body_field", None)
    return getattr(body and body.field_info.annotation, "model_fields", ())


def _near(name: object, known: Collection[str]) -> str | None:
    """The field that is meant by a name that is none."""
    meant = _ELSEWHERE.get(str(name))
    return meant if meant in known else next(iter(get_close_matches(str(name)[:100], known, n=1, cutoff=0.8)), None)


def _describe(fault: dict[str, Any], known: Collection[str] = ()) -> dict[str, str]:
    location: Sequence[str | int] = fault["loc"]
    if fault["type"] == "json_invalid":
        return {"field": "body", "message": f"is not JSON: {fault['ctx']['error']} at position {location[-1]}"}
    if tuple(location) == ("body",):
        return {"field": "body", "message": "must be a JSON object, sent with Content-Type: application/json"}
    names = location[1:] if location and location[0] in _PLACES else location
    message = str(fault["msg"])
    if fault["type"] == "extra_forbidden":
        message = f"there is no such {'parameter' if location[0] == 'query' else 'field'}"
        if tuple(location[:-1]) == ("body",) and (meant := _near(location[-1], known)):
            message += f"; did you mean {meant}?"
    elif isinstance(fault["input"], str) and fault["type"] in _LENGTHS:
        message = _LENGTHS[fault["type"]].format_map(fault["ctx"])
    # pydantic puts this before the messages of our own validators
    return {"field": ".".join(str(name) for name in names), "message": message.removeprefix("Value error, ")}


def _to_json(content: Any) -> bytes:
    try:
        return orjson.dumps(content)
    except TypeError:
        return orjson.dumps(_clean(content))


def _clean(value: Any) -> Any:
    """`value` with everything that JSON cannot hold replaced: a field's name can contain half a surrogate pair."""
    if isinstance(value, dict):
        return {_clean(str(key)): _clean(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(inner) for inner in value]
    if value is None or isinstance(value, bool | float):
        return value
    return str(value).encode("utf-8", "replace").decode()
