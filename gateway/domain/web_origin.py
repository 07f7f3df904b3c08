"""Origins of web pages as browsers write them: `https://app.example`, `http://localhost:3000`."""

from __future__ import annotations

import re

_ORIGIN = re.compile(r"(https?)://([a-z0-9.-]+|\[[0-9a-f:.]+\])(?::(\d{1,5}))?")
_DEFAULT_PORTS = {"http": "80", "https": "443"}
_LAST_PORT = 65_535


def read_origin(text: str) -> str:
    """The origin as a browser sends it. Raises `ValueError` that quotes what is none."""
    found = _ORIGIN.fullmatch(text.strip().lower().removesuffix("/"))
    if not found or (found[3] and not 0 < int(found[3]) <= _LAST_PORT):
        why = "every page there is would be let in" if "*" in text else "it looks like https://app.example"
        raise ValueError(f"{text!r} is not an origin: {why}")
    scheme, host, port = found.groups()
    return f"{scheme}://{host}" if port in {None, _DEFAULT_PORTS[scheme]} else f"{scheme}://{host}:{port}"
