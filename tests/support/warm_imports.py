"""The imports of the process from which `warm.py` forks others."""

from __future__ import annotations

import importlib
import os
import sys

# consoles read at import what they will write to: a file, as in every fork, in UTF-8 and of any width
os.environ.pop("COLUMNS", None)
# the path of the crash plan is set in each fork
os.environ["DISCOVERYBOT_CRASH_PLAN"] = ""
_null = os.open(os.devnull, os.O_WRONLY)
for stream in (sys.stdout, sys.stderr):
    os.dup2(_null, stream.fileno())
    stream.reconfigure(encoding="utf-8")  # type: ignore[union-attr]  # as the interpreter has made them

# httpx2 imports its transport with the first client; the modules of Scrapyd here do not import a reactor
_lately = ("httpcore2", "scrapyd.__main__", "scrapyd.app", "embedded.mongo.__main__")
# modules that the command line imports only for a command that needs them
_lately += ("gateway.cli.keys", "gateway.cli.doctor", "gateway.cli.up", "gateway.cli.join")
# modules that each fork imports before anything else, including pytest
_first = ("warm",)
with importlib.import_module("gateway.process").quick_imports():
    for module in ("gateway.cli.main", *importlib.import_module("embedded.stack.up").IMPORTS, *_lately, *_first):
        importlib.import_module(module)
    importlib.import_module("crawler.node.runner").preload()
