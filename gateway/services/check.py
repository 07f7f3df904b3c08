"""One answer to "is it well?"."""

from __future__ import annotations

from typing import NamedTuple

#: Not well yet, and nobody's fault: a node is on its way.
STARTING = "starting"


class Check(NamedTuple):
    #: `ok`, `down` or `starting`.
    status: str
    message: str
    #: How to mend it.
    todo: str | None = None

    @property
    def ok(self) -> bool:
        return self.status == "ok"


UNKNOWN = Check("down", "not known while MongoDB is away", "see `mongo`")
