"""Sends one message through Apprise, or says whether it knows an address: a program of its own, because hundreds of
services are called by as many modules of others.

It may be killed at any time, has nothing of the environment, and opens connections only to addresses that webhooks
may call: whatever a module does, it does it through the sockets of this process. Reads and writes one JSON object
(`AppriseAsked`, `AppriseSaid`).
"""

from __future__ import annotations

import ipaddress
import json
import socket
import sys
from collections.abc import Sequence
from typing import Any, TypedDict

from gateway.contract.public_address import Network, is_allowed, parse_networks

#: Schemes of Apprise that reach no service but this machine: its desktop, its log, or its files.
LOCAL = frozenset(
    {
        *("syslog", "rsyslog", "windows", "macosx", "dbus", "qt", "kde", "glib", "gio", "gnome", "blink1"),
        *("vapid", "fcm", "deltachat"),
    }
)
EXAMPLE = "mailtos://user:password@example.com"
#: Most characters of what its log says, for who looks for a fault.
_MOST_SAID = 500


class AppriseAsked(TypedDict):
    url: str
    #: `None`: nothing is sent, the address is only looked at.
    title: str | None
    text: str
    #: Of Apprise: `failure`, `success`, `info`.
    kind: str
    #: Networks that are allowed beside public addresses.
    networks: list[str]


class AppriseSaid(TypedDict):
    #: Why it failed, or why there is no such service; `None` if all is well.
    problem: str | None
    #: Whether Apprise is not installed here.
    missing: bool


class ForbiddenConnectionError(OSError):
    """The address is none that may be called."""


#: What the guard has refused: Apprise says of it only that there was no connection.
_refusals: list[str] = []


def guard(networks: Sequence[Network]) -> None:
    """From now on this process opens connections to allowed addresses alone."""
    connect, connect_ex = socket.socket.connect, socket.socket.connect_ex

    def checked(self: socket.socket, address: Any) -> Any:
        if self.family not in {socket.AF_INET, socket.AF_INET6} or self.type != socket.SOCK_STREAM:
            raise ForbiddenConnectionError("only connections to other machines are allowed")
        host = str(address[0])
        try:
            ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            # a name: its address is looked up once, and it is the one that is called
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
