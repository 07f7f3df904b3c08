"""The API reference for people, from files of our own: a browser without internet shows it as well."""

from __future__ import annotations

from importlib.resources import files

from fastapi import APIRouter, FastAPI, Request
from fastapi.openapi.docs import get_redoc_html, get_swagger_ui_html
from fastapi.responses import HTMLResponse, RedirectResponse
from starlette.staticfiles import StaticFiles

router = APIRouter(include_in_schema=False)

_ASSETS = "/docs/assets"


def mount_assets(app: FastAPI) -> None:
    """Swagger UI and ReDoc as the package `fastapi-offline` brings them."""
    app.mount(_ASSETS, StaticFiles(directory=str(files("fastapi_offline") / "static")))


@router.get("/")
async def root() -> RedirectResponse:
    return RedirectResponse("/docs")


@router.get("/docs")
async def swagger_ui(request: Request) -> HTMLResponse:
    prefix = request.scope.get("root_path", "").rstrip("/")
    return get_swagger_ui_html(
        openapi_url=f"{prefix}/openapi.json",
        title="DiscoveryBot",
        swagger_js_url=f"{prefix}{_ASSETS}/swagger-ui-bundle.js",
        swagger_css_url=f"{prefix}{_ASSETS}/swagger-ui.css",
        swagger_favicon_url=f"{prefix}{_ASSETS}/favicon.png",
        # would be asked, on the internet, whether our description is sound
        swagger_ui_parameters={"validatorUrl": None},
    )


@router.get("/redoc")
async def redoc(request: Request) -> HTMLResponse:
    prefix = request.scope.get("root_path", "").rstrip("/")
    return get_redoc_html(
        openapi_url=f"{prefix}/openapi.json",
        title="DiscoveryBot",
        redoc_js_url=f"{prefix}{_ASSETS}/redoc.standalone.js",
        redoc_favicon_url=f"{prefix}{_ASSETS}/favicon.png",
        with_google_fonts=False,
    )
