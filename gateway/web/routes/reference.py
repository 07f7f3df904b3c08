"""The API reference for people, from files of our own: a browser without internet shows it as well."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import lru_cache
from importlib.resources import files

from fastapi import FastAPI, Request, Response
from fastapi.openapi.docs import get_redoc_html, get_swagger_ui_html
from fastapi.responses import HTMLResponse
from starlette.staticfiles import StaticFiles

from gateway.web.authorisation import for_everybody
from gateway.web.dependencies import Router
from gateway.web.middleware import ASSETS

router = Router(include_in_schema=False)

_ASSETS = ASSETS.rstrip("/")
_INLINE_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)
#: ReDoc's makers' logo at the foot of the page, the one thing that it would fetch from the internet.
_LOGO = b"https://cdn.redoc.ly/redoc/logo-mini.svg"
_NO_PICTURE = b"data:image/gif;base64,R0lGODlhAQABAAAAACH5BAEKAAEALAAAAAABAAEAAAICTAEAOw=="
_KEPT = {"Cache-Control": "public, max-age=3600"}
#: Inline styles are allowed because Swagger UI and ReDoc add some to the page, and a worker because ReDoc searches in
#: one that it makes from its own script.
_POLICY = (
    "default-src 'none'; script-src 'self'{scripts}; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "font-src 'self' data:; connect-src 'self'; worker-src blob:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)


def mount_assets(app: FastAPI) -> None:
    """Swagger UI and ReDoc from the package `fastapi-offline`."""
    app.mount(_ASSETS, StaticFiles(directory=str(files("fastapi_offline") / "static")))


@router.get(f"{_ASSETS}/redoc.standalone.js")
@for_everybody
async def redoc_script() -> Response:
    return Response(_redoc_script(), media_type="text/javascript", headers=_KEPT)


@lru_cache
def _redoc_script() -> bytes:
    return (files("fastapi_offline") / "static" / "redoc.standalone.js").read_bytes().replace(_LOGO, _NO_PICTURE)


@router.get("/docs")
@for_everybody
async def swagger_ui(request: Request) -> HTMLResponse:
    prefix = request.scope.get("root_path", "").rstrip("/")
    page = get_swagger_ui_html(
        openapi_url=f"{prefix}/openapi.json",
        title="DiscoveryBot",
        swagger_js_url=f"{prefix}{_ASSETS}/swagger-ui-bundle.js",
        swagger_css_url=f"{prefix}{_ASSETS}/swagger-ui.css",
        swagger_favicon_url=f"{prefix}{_ASSETS}/favicon.png",
        # otherwise a service on the internet is asked whether our description is sound
        swagger_ui_parameters={"validatorUrl": None},
    )
    return _guarded(page)


@router.get("/redoc")
@for_everybody
async def redoc(request: Request) -> HTMLResponse:
    prefix = request.scope.get("root_path", "").rstrip("/")
    page = get_redoc_html(
        openapi_url=f"{prefix}/openapi.json",
        title="DiscoveryBot",
        redoc_js_url=f"{prefix}{_ASSETS}/redoc.standalone.js",
        redoc_favicon_url=f"{prefix}{_ASSETS}/favicon.png",
        with_google_fonts=False,
    )
    return _guarded(page)


def _guarded(page: HTMLResponse) -> HTMLResponse:
    """Add a policy that allows only our script files, and the page's own scripts by their hashes."""
    inline = _INLINE_SCRIPT.findall(bytes(page.body).decode())
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in inline]
    page.headers["Content-Security-Policy"] = _POLICY.format(scripts="".join(f" 'sha256-{one}'" for one in hashes))
    return page
