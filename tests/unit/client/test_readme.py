"""The examples of the client's README do what they say."""

from __future__ import annotations

import re

import pytest
from unit.house.sources import ROOT

EXAMPLES = re.findall(r"```python\n(.+?)```", (ROOT / "client/README.md").read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_is_python(example: str) -> None:
    compile(example, "README.md", "exec")


def test_a_program_is_tested_as_the_readme_says() -> None:
    (example,) = (one for one in EXAMPLES if "MockTransport" in one)
    exec(compile(example, "README.md", "exec"), {})
