"""`docs/troubleshooting.md` quotes messages that the source still has, and names every check and reason."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest
from unit.house.sources import PACKAGES, ROOT, python_files

from gateway.jobs.job import WaitingReason
from gateway.nodes.node import NodeState

PAGE = (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8")
#: Outside of code, what stands in double quotes is a message; `…` stands for what differs from time to time.
MESSAGES = re.findall(r'"([^"]+)"', re.sub(r"```.*?```|`[^`]*`", "", PAGE, flags=re.DOTALL))


def _texts() -> Iterator[str]:
    for path in python_files(*PACKAGES):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


@pytest.fixture(scope="module")
def source() -> str:
    return "\n".join(_texts())


@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_that_is_quoted_is_one_of_ours(message: str, source: str) -> None:
    parts = [part.strip(" '():") for part in message.split("…")]
    assert not [part for part in parts if part not in source]


@pytest.mark.parametrize("name", [*WaitingReason, *(state for state in NodeState if state is not NodeState.UP)])
def test_every_reason_to_wait_and_every_state_of_a_node_is_explained(name: str) -> None:
    assert f"`{name}`" in PAGE
