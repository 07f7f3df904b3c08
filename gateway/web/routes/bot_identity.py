"""`/.well-known/http-message-signatures-directory`: where sites find the key by which our crawls sign requests."""

from __future__ import annotations

from fastapi import Response

from gateway.contract.bot_identity import DIRECTORY_PATH, DIRECTORY_TYPE
from gateway.errors import NotFoundError
from gateway.web.authorisation import for_everybody
from gateway.web.dependencies import Parts, Router

router = Router(include_in_schema=False)
#: Seconds; its signature is valid for a day.
_CACHED = 3600


@router.get(DIRECTORY_PATH)
@for_everybody
def get_bot_directory(parts: Parts) -> Response:
    identity = parts.settings.bot_identity
    if identity is None:
        raise NotFoundError("crawls sign no requests here: WEB_BOT_AUTH_KEY")
    content, headers = identity.directory(parts.clock())
    kept = {**headers, "Cache-Control": f"public, max-age={_CACHED}"}
    return Response(content, media_type=DIRECTORY_TYPE, headers=kept)
