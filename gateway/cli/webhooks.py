"""`discoverybot webhook-secret`: the secret with which calls of webhooks are signed."""

from __future__ import annotations

from gateway.cli.api import Api
from gateway.cli.options import JSON, URL, flag, option, taking
from gateway.cli.terminal import gateway_url, given, out, print_json
from gateway.sites.site import OPERATOR

_SECRET = "/webhooks/secret"  # noqa: S105 - an address


@taking(
    flag("new", "Make a new one."),
    option(
        "keep_hours", "With --new: hours in which calls are also signed with the previous one. Default: 24.", kind=int
    ),
    option("user_id", "Whose webhooks. Default: yours.", "--user", metavar="USER"),
    JSON,
    URL,
)
def webhook_secret(*, new: bool, keep_hours: int | None, user_id: str | None, as_json: bool, url: str | None) -> None:
    """The secret that webhooks are signed with, as Standard Webhooks has it. Without --new it is only shown."""
    api = Api(gateway_url(url))
    whose = given(user_id=user_id or (None if api.key else OPERATOR))
    body = {"json": given(keep_hours=keep_hours)} if new else {}
    found = api.call("POST" if new else "GET", _SECRET, params=whose, **body)
    if as_json:
        print_json(found)
        return
    out.print(found["secret"], soft_wrap=True)
