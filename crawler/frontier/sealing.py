"""Encrypts the frontier file of a crawl that has variables: a request may have one of these secrets in its headers,
plain or encoded, and the file stays on the node's disk while the crawl is paused.

The key is derived from all the variables. These are handed to each attempt through a pipe and are on no disk of the
node. So only an attempt with the same variables can read the file. If one of them has changed, nobody can, and the
crawl begins anew.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from hashlib import scrypt

#: The first byte of a sealed frame; any other begins with its JSON object.
_SEALED = b"\x01"
#: Lengths in bytes.
_NONCE, _KEY = 12, 32
#: Takes 16 MiB and some hundredths of a second, once in a crawl, so that brute force cannot find a short secret
#: (RFC 7914, 2 and 5, for n, r and p).
_COST = {"n": 1 << 14, "r": 8, "p": 1}

_variables: dict[str, str] = {}


def seal_with(variables: Mapping[str, str]) -> None:
    """Set the variables of the crawl that this process runs."""
    _variables.update(variables)


class FrontierSeal:
    """Seals and opens frames of one job's attempts. Without variables it leaves them as they are."""

    def __init__(self, job: str, variables: Mapping[str, str] = _variables) -> None:
        self._cipher = None
        if variables:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - few crawls need it

            text = json.dumps(dict(variables), sort_keys=True).encode()
            self._cipher = AESGCM(scrypt(text, salt=job.encode(), dklen=_KEY, **_COST))

    def close(self, content: bytes) -> bytes:
        if self._cipher is None:
            return content
        nonce = os.urandom(_NONCE)
        return _SEALED + nonce + self._cipher.encrypt(nonce, content, None)

    def open(self, content: bytes) -> bytes:
        """The frame's content. Raises `ValueError` if it was sealed with other variables."""
        if not content.startswith(_SEALED):
            return content
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - as above

        nonce, sealed = content[1 : 1 + _NONCE], content[1 + _NONCE :]
        try:
            if self._cipher is not None:
                return self._cipher.decrypt(nonce, sealed, None)
        except InvalidTag:
            pass
        raise ValueError("the variables of the crawl have changed since, and it is sealed with them")


#: For a crawl without variables.
OPEN = FrontierSeal("", {})
