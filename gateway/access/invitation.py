"""How another machine becomes a crawl node: it shows an invitation, once, and is told all that a node has to know.

An invitation is a key with the scope `join`. So it expires, is revoked, counted and written down as keys are.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple
from urllib.parse import urlsplit

from attrs import define

from gateway.access.key_store import Issued, KeyIssue, KeyStore
from gateway.access.keys import ApiKey, Scope
from gateway.clock import Clock
from gateway.contract.public_address import is_loopback
from gateway.errors import ConflictError, WrongKeyError
from gateway.nodes.store import NodeStore
from gateway.sites.site import OPERATOR


class NodeVariables(NamedTuple):
    """The settings that all nodes share, by their names."""

    shared: Mapping[str, str]
    #: Addresses of stores as the gateway has them, by the setting that would say how other machines reach them.
    own_addresses: Mapping[str, str]
    files_url: str

    def require_reachable(self) -> None:
        """Raises `ConflictError` if a store is named by an address that means another machine elsewhere."""
        for setting, url in self.own_addresses.items():
            if _is_of_this_machine(host := urlsplit(url).hostname or ""):
                raise ConflictError(
                    f"{setting}: nodes elsewhere cannot reach {host}, where this gateway has it; set {setting} to "
                    "the address at which they can"
                )

    @property
    def warnings(self) -> list[str]:
        if not self.files_url.startswith("file:"):
            return []
        return ["FILES_URL is a folder here: files that crawls write on other machines cannot be fetched. Use S3"]


def _is_of_this_machine(host: str) -> bool:
    """Loopback, or a name without a domain, such as that of a container."""
    return is_loopback(host) or (bool(host) and not set(".:") & set(host))


@define(eq=False, repr=False, slots=False)
class Invitations:
    """Raises PyMongo's errors."""

    _keys: KeyStore
    _issue: KeyIssue
    _nodes: NodeStore
    _variables: NodeVariables
    _clock: Clock

    def invite(self, expires_at: datetime, note: str | None) -> Issued:
        """Raises `ConflictError` where nodes on other machines cannot reach the stores."""
        self._variables.require_reachable()
        return self._issue.issue(OPERATOR, [Scope.JOIN], expires_at=expires_at, note=note)

    def accept(self, key: ApiKey, name: str) -> NodeVariables:
        """What the node is told, which shall have this `name`. The invitation is used up then.

        Raises `ConflictError` if a node has the name, and `WrongKeyError` if the invitation was used meanwhile.
        """
        if self._nodes.get(name) is not None:
            raise ConflictError(f"name: a node is called {name!r} already: choose another name")
        if not self._keys.use_up(key.id):
            raise WrongKeyError("this invitation was used already: `discoverybot nodes invite` makes another")
        return self._variables
