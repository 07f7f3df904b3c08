from __future__ import annotations

from typing import Any


class Stamp:
    def process_item(self, item: Any) -> Any:
        return {**item, "stamped": True}
