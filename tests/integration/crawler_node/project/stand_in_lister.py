"""Lists the stand-in spiders for any project, and anything for an egg; notes in the node's folder who started it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from stand_in import SPIDERS

home = Path(os.environ["DISCOVERYBOT_HOME"])
with (home / "listers").open("a") as listers:
    listers.write(f"{os.getppid()}\n")
if (home / "no-forked-listing").exists() and "crawler.node.started_mark" in sys.modules:
    os.abort()
project = os.environ["SCRAPY_PROJECT"]
sys.stdout.write(json.dumps({"spiders": [{"project": project, "name": name} for name in SPIDERS]}))
