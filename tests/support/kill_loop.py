"""Two workers that are killed at their writes again and again, and started anew."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import warm
from stores import ROOT

#: Seconds to wait for a worker at one point before another point is chosen: some writes are rare.
PATIENCE = 0.5


class KillLoop:
    """`module` is a story in `tests/integration/services`. It gets the addresses of the stores, and ends by itself or
    runs for ever. `plan` is an empty folder. Each kill is at one of the `points`.
    """

    def __init__(
        self, module: str, uri: str, plan: Path, *, points: Sequence[str], kills: int, chance: random.Random
    ) -> None:
        self._start = lambda: _worker(module, uri, plan)
        self._plan, self._points, self._kills, self._chance = plan, points, kills, chance
        self._workers = [self._start() for _ in range(2)]
        self._planned = time.monotonic()
        self.killed = 0

    @property
    def is_running(self) -> bool:
        return any(one.poll() is None for one in self._workers)

    def run(self, is_over: Callable[[], bool], seconds: float) -> None:
        """Run and kill until `is_over` returns true. The test fails after `seconds`."""
        began = time.monotonic()
        while not is_over():
            self._choose()
            for number, one in enumerate(self._workers):
                if (code := one.poll()) is not None:
                    self.killed += code < 0
                    self._workers[number] = self._start()
            assert time.monotonic() - began < seconds, "the workers do not come to an end"
            time.sleep(0.05)

    def end(self) -> None:
        for one in self._workers:
            one.kill()

    def _choose(self) -> None:
        waiting = list(self._plan.iterdir())
        if self.killed < self._kills and (not waiting or time.monotonic() - self._planned > PATIENCE):
            for point in waiting:
                point.unlink(missing_ok=True)
            point = f"{self._chance.choice(self._points)}.{self._chance.choice(['before', 'after'])}"
            (self._plan / point).touch()
            self._planned = time.monotonic()


def _worker(module: str, uri: str, plan: Path) -> warm.WarmProcess:
    paths = (ROOT / "tests/integration/services", ROOT / "tests/support", ROOT)
    own = {"PYTHONPATH": os.pathsep.join(map(str, paths)), "DISCOVERYBOT_CRASH_PLAN": str(plan)}
    return warm.start(module, uri, env={**os.environ, **own}, cwd=ROOT, stdout=Path(os.devnull))
