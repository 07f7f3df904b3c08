"""How another machine becomes a crawl node: it sends an invitation, which is valid once, and gets the settings that
all nodes share.

An invitation is an API key with the scope `join`. So it expires, and can be listed, revoked and audited as keys can.
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
    """The settings that all nodes share, by name."""

    shared: Mapping[str, str]
    #: Settings that a node must already have. They are URLs of stores, where each node has a user of its own, so that
    #: it can be removed without changing the others.
    needed: frozenset[str]
    files_url: str

    @property
    def warnings(self) -> list[str]:
        if not self.files_url.startswith("file:"):
            return []
        return ["FILES_URL is a folder here, so files of crawls on other machines cannot be fetched. Use S3"]


def is_for_nodes(url: str) -> bool:
    """Whether this URL of a store may be given to nodes: it contains no password, which would be the platform's own,
    and its host name is valid on other machines.
    """
    parts = urlsplit(url)
    return not (parts.password or _is_of_this_machine(parts.hostname or ""))


def _is_of_this_machine(host: str) -> bool:
    """Whether the host is a loopback address, or a name without a domain, such as a container's."""
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
        """Use up the invitation, and return the settings for the new node, which is to have this `name`. `has` are
        the names of the settings that it already has.

        Raises `ConflictError` if another node has the name, or if the new node lacks a setting, and `WrongKeyError`
        if the invitation was used meanwhile.
        """
        if missing := sorted(self._variables.needed.difference(has)):
            raise ConflictError(
                f"{', '.join(missing)}: must be set where `discoverybot join` runs. Each node has users of its own "
                "in the stores: docs/how-to/several-machines.md says how to create them"
            )
        if self._nodes.get(name) is not None:
            raise ConflictError(f"name: there is already a node {name!r}: choose another name")
        if not self._keys.use_up(key.id):
            raise WrongKeyError("this invitation was used already: `discoverybot nodes invite` makes another")
        return self._variables
