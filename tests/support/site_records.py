"""Functions that make sites and targets for tests in one line."""

from __future__ import annotations

import uuid
from typing import Any

from gateway.clock import utc_now
from gateway.sites.site import Site, Target


def make_site(**fields: Any) -> Site:
    now = utc_now()
    given = {
        "name": "board",
        "number": 1,
        "search_url": "https://jobs.example.com/search?q={keywords}&l={location}&p={page}",
        "schedule_id": uuid.uuid4().hex,
        "created_at": now,
        "updated_at": now,
    }
    return Site.model_validate(given | fields)


def make_target(**fields: Any) -> Target:
    now = utc_now()
    given = {
        "id": uuid.uuid4().hex,
        "number": 1,
        "site": "board",
        "keywords": "python",
        "location": "Paris",
        "schedule_id": uuid.uuid4().hex,
        "created_at": now,
        "updated_at": now,
    }
    return Target.model_validate(given | fields)
