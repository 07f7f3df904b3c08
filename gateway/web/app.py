"""The address under which servers know the gateway: `uvicorn gateway.web.app:create_app --factory`."""

from gateway.application import create_app

__all__ = ["create_app"]
