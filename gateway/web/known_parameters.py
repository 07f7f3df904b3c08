"""A query parameter nobody knows is refused: a misspelt one would be left out of account without a word."""

from __future__ import annotations

from fastapi import Request
from fastapi.exceptions import RequestValidationError

from gateway.web.openapi import DescribedAPI


async def refuse_unknown_parameters(request: Request) -> None:
    """Dependency of every route. The API's own description says which parameters there are."""
    if not request.query_params:
        return
    app: DescribedAPI = request.app
    known = app.query_parameters(request.scope["route"].path_format, request.method)
    if known is None:
        # a method that the path does not take: the route says so
        return
    unknown = dict.fromkeys(name for name in request.query_params if name not in known)
    if unknown:
        raise RequestValidationError(
            [{"type": "extra_forbidden", "loc": ("query", name), "msg": "unknown"} for name in unknown]
        )
