"""A module that no process should be forked after."""

from __future__ import annotations

import threading

threading.Thread(target=threading.Event().wait, daemon=True).start()
