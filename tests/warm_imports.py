"""What the process of `warm.py` imports that others are forked from."""

from __future__ import annotations

import os
import sys

# consoles look at once at what they will write to: a file, as in every fork, and in UTF-8
_null = os.open(os.devnull, os.O_WRONLY)
for stream in (sys.stdout, sys.stderr):
    os.dup2(_null, stream.fileno())
    stream.reconfigure(encoding="utf-8")  # type: ignore[union-attr]  # as the interpreter has made them

from crawler.node import runner  # noqa: E402

runner.preload()
