"""Lists the stand-in spiders for any project, and anything for an egg."""

from __future__ import annotations

import json
import os
import sys

from stand_in import SPIDERS

project = os.environ["SCRAPY_PROJECT"]
sys.stdout.write(json.dumps({"spiders": [{"project": project, "name": name} for name in SPIDERS]}))
