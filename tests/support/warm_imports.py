"""What the process of `warm.py` imports that others are forked from."""

from __future__ import annotations

import importlib
import os
import sys

# consoles look at once at what they will write to: a file, as in every fork, in UTF-8 and as wide as they like
os.environ.pop("COLUMNS", None)
# each fork may be told where its crash plan is
os.environ["DISCOVERYBOT_CRASH_PLAN"] = ""
_null = os.open(os.devnull, os.O_WRONLY)
for stream in (sys.stdout, sys.stderr):
    os.dup2(_null, stream.fileno())
    stream.reconfigure(encoding="utf-8")  # type: ignore[union-attr]  # as the interpreter has made them

# httpx2 imports its transport with the first client; of Scrapyd this is what imports no reactor
_lately = ("httpcore2", "scrapyd.__main__", "scrapyd.app", "embedded.mongo.__main__")
# what the command line imports only for a command that needs it
_lately += ("gateway.cli.keys", "gateway.cli.doctor", "gateway.cli.up", "gateway.cli.join")
# what each fork asks for before it becomes anything, pytest with it
_first = ("warm",)
with importlib.import_module("gateway.process").importing_for_forks():
    for module in ("gateway.cli.main", *importlib.import_module("embedded.stack.up").IMPORTS, *_lately, *_first):
        importlib.import_module(module)
    importlib.import_module("crawler.node.runner").preload()
