"""Sends one message through Apprise, or checks whether Apprise knows an address. It is a program of its own, because
Apprise runs hundreds of modules by other authors.

The process may be killed at any time, gets no environment variables, and opens connections only to addresses that
webhooks may call. Apprise's modules cannot avoid this, because they use the sockets of this process. It reads one
JSON object (`AppriseAsked`) and writes one (`AppriseSaid`).
"""

from __future__ import annotations

import ipaddress
import json
import socket
import sys
from collections.abc import Sequence
from typing import Any, TypedDict

from gateway.contract.public_address import Network, is_allowed, parse_networks

#: Schemes of Apprise that are not allowed, because they reach only this machine: its desktop, its log, or its files.
LOCAL = frozenset(
    {
        *("syslog", "rsyslog", "windows", "macosx", "dbus", "qt", "kde", "glib", "gio", "gnome", "blink1"),
        *("vapid", "fcm", "deltachat"),
    }
)
EXAMPLE = "mailtos://user:password@example.com"
#: At most this many characters of Apprise's log are returned, as a hint at the cause of a failure.
_MOST_SAID = 500


class AppriseAsked(TypedDict):
    url: str
    #: `None`: nothing is sent, the address is only checked.
    title: str | None
    text: str
    #: One of Apprise's types of messages: `failure`, `success` or `info`.
    kind: str
    #: Networks that may be called in addition to public addresses.
    networks: list[str]


class AppriseSaid(TypedDict):
    #: Why the message was not sent, or why the address is not valid; `None` on success.
    problem: str | None
    #: Whether Apprise is not installed here.
    missing: bool


class ForbiddenConnectionError(OSError):
    """This address must not be called."""


#: The connections that the guard has refused. Apprise itself only reports that it could not connect.
_refusals: list[str] = []


def guard(networks: Sequence[Network]) -> None:
    """From now on, this process can open connections only to allowed addresses."""
    connect, connect_ex = socket.socket.connect, socket.socket.connect_ex

    def checked(self: socket.socket, address: Any) -> Any:
        if self.family not in {socket.AF_INET, socket.AF_INET6} or self.type != socket.SOCK_STREAM:
            raise ForbiddenConnectionError("only connections to other machines are allowed")
        host = str(address[0])
        try:
            ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            # a name: it is resolved once, and the checked address is the one that is called
            host = str(socket.getaddrinfo(host, address[1], self.family, socket.SOCK_STREAM)[0][4][0])
        if not is_allowed(host, networks):
            _refusals.append(f"{host} is not a public address; allow it with WEBHOOK_ALLOW_NETWORKS")
            raise ForbiddenConnectionError(_refusals[-1])
        return (host, *address[1:])

    def refused(*_: Any) -> int:
        raise ForbiddenConnectionError("only connections are allowed")

    replaced: dict[str, Any] = {
        "connect": lambda self, address: connect(self, checked(self, address)),
        "connect_ex": lambda self, address: connect_ex(self, checked(self, address)),
        "sendto": refused,
        "sendmsg": refused,
        "bind": refused,
    }
    for name, method in replaced.items():
        setattr(socket.socket, name, method)


def carry_out(asked: AppriseAsked) -> AppriseSaid:
    guard(parse_networks(asked["networks"]))
    try:
        import apprise  # noqa: PLC0415 - behind the guard, and only here
    except ImportError:
        return {"problem": "Apprise is not installed here: pip install 'discoverybot[apprise]'", "missing": True}
    url = asked["url"]
    service = apprise.Apprise.instantiate(url, suppress_exceptions=True) if _is_remote(url) else None
    if service is None:
        return {"problem": f"is no address that Apprise knows, such as {EXAMPLE}", "missing": False}
    if asked["title"] is None:
        return {"problem": None, "missing": False}
    sender = apprise.Apprise(service)
    with apprise.LogCapture(  # type: ignore[no-untyped-call] # Apprise's business
        level=apprise.logging.WARNING, fmt="%(message)s"
    ) as said:
        sent = sender.notify(body=asked["text"], title=asked["title"], notify_type=apprise.NotifyType(asked["kind"]))
        lines = said.getvalue().strip().splitlines()
    return {"problem": None if sent else _short([*_refusals[:1], *lines]), "missing": False}


def _is_remote(url: str) -> bool:
    scheme, found, _ = url.partition("://")
    return bool(found) and scheme.lower() not in LOCAL


def _short(lines: Sequence[str]) -> str:
    return " ".join(" ".join(lines).split())[:_MOST_SAID] or "the service has not taken it"


if __name__ == "__main__":
    json.dump(carry_out(json.load(sys.stdin)), sys.stdout)
