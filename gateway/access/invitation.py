"""How another machine becomes a crawl node: it shows an invitation, once, and is told all that nodes have in common.

An invitation is a key with the scope `join`. So it expires, is revoked, counted and written down as keys are.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
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
    #: Settings of stores that a node has to bring, because it has users of its own there, which can be removed alone.
    needed: frozenset[str]
    files_url: str

    @property
    def warnings(self) -> list[str]:
        if not self.files_url.startswith("file:"):
            return []
        return ["FILES_URL is a folder here: files that crawls write on other machines cannot be fetched. Use S3"]


def is_for_nodes(url: str) -> bool:
    """Whether nodes may get this URL of a store, and can use it: it has no password, which would be the platform's
    own, and no host name that is valid on this machine only.
    """
    parts = urlsplit(url)
    return not (parts.password or _is_of_this_machine(parts.hostname or ""))


def _is_of_this_machine(host: str) -> bool:
    """Loopback, or a name without a domain, such as that of a container."""
    return is_loopback(host) or (bool(host) and not set(".:") & set(host))


@define(eq=False, repr=False, slots=False)
class Invitations:
    """Makes and accepts invitations. Methods raise PyMongo's errors."""

    _keys: KeyStore
    _issue: KeyIssue
    _nodes: NodeStore
    _variables: NodeVariables
    _clock: Clock

    def invite(self, expires_at: datetime, note: str | None) -> Issued:
        return self._issue.issue(OPERATOR, [Scope.JOIN], expires_at=expires_at, note=note)

    def accept(self, key: ApiKey, name: str, has: Collection[str]) -> NodeVariables:
        """Use the invitation up, and return the settings for the new node, which gets this `name`. `has` are the
        names of the settings that it has already.

        Raises `ConflictError` if another node has the name, or the new one lacks a setting, and `WrongKeyError` if
        the invitation was used meanwhile.
        """
        if missing := sorted(self._variables.needed.difference(has)):
            raise ConflictError(
                f"{', '.join(missing)}: must be set where `discoverybot join` runs. A node has users of its own at "
                "the stores (docs/how-to/several-machines.md makes them)"
            )
        if self._nodes.get(name) is not None:
            raise ConflictError(f"name: a node is called {name!r} already: choose another name")
        if not self._keys.use_up(key.id):
            raise WrongKeyError("this invitation was used already: `discoverybot nodes invite` makes another")
        return self._variables
