"""What every answer tells a browser about itself: guess nothing, run nothing, show it in no frame, keep no copy."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

#: Files of the API reference, the same for everybody: a browser may keep those.
ASSETS = "/docs/assets/"
#: Data, which is to run nothing, wherever somebody manages to show it. Pages bring a policy of their own.
DATA_POLICY = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_UNUSED = ("accelerometer", "camera", "geolocation", "gyroscope", "magnetometer", "microphone", "payment", "usb")
_ALWAYS = (
    (b"x-content-type-options", b"nosniff"),
    # not `no-referrer`: a form's `Origin` would then be "null", and nobody could tell ours from others'
    (b"referrer-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
    (b"permissions-policy", ", ".join(f"{name}=()" for name in _UNUSED).encode()),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
#: Where the route has not said otherwise.
_UNLESS_SAID = (
    (b"content-security-policy", DATA_POLICY.encode()),
    (b"cache-control", b"no-store"),
)


class SecurityHeaders:
    """ASGI middleware. It touches the beginning of an answer alone, so streams pass as they are."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        is_asset = scope["path"].startswith(ASSETS)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = [(name.lower(), value) for name, value in message.get("headers", ())]
                said = {name for name, _ in given} | ({b"cache-control"} if is_asset else set())
                message["headers"] = [*given, *_ALWAYS, *(pair for pair in _UNLESS_SAID if pair[0] not in said)]
            await send(message)

        await self.app(scope, receive, send_with_headers)
