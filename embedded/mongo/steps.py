"""How a command is carried out: in steps, so that a long one cannot keep the others waiting."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeAlias

from embedded.mongo.paths import Document

#: Yields where other commands may run in between, and returns the reply.
Answer: TypeAlias = Generator[None, None, Document]
#: The same for a part of a command, which returns anything.
Steps: TypeAlias = Generator[None, None, Any]
