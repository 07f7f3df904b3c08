"""Lists the stand-in spiders for any project, and anything for an egg; notes in the node's folder who started it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from stand_in import SPIDERS, _parent_of

home = Path(os.environ["DISCOVERYBOT_HOME"])
with (home / "listers").open("a") as listers:
    listers.write(f"{_parent_of(os.getppid())}\n")  # what minds it is its own
if (home / "no-forked-listing").exists() and "crawler.node.started_mark" in sys.modules:
    os.abort()
project = os.environ["SCRAPY_PROJECT"]
sys.stdout.write(json.dumps({"spiders": [{"project": project, "name": name} for name in SPIDERS]}))
