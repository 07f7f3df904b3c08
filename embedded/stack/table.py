"""The process table of the laptop stack, in the order of starting."""

from __future__ import annotations

import signal
import sys
from dataclasses import dataclass
from pathlib import Path

from embedded.stack.ports import LOOPBACK
from embedded.stack.process import Process, http_answers
from embedded.stack.state import StackState
from embedded.stack.stores import Store, other_redis_database
from gateway.settings import Settings

#: What the forkable processes import. None of it leaves a thread, a connection or an application behind.
IMPORTS = (
    *("gateway.web.app", "uvloop", "uvicorn.protocols.http.httptools_impl"),
    *("celery.bin.celery", "celery.apps.worker", "celery.apps.beat"),
    *("gateway.worker.app", "gateway.worker.beat", "gateway.worker.consumer"),
    *("gateway.tailer.eggs", "gateway.tailer.follow", "gateway.tailer.heartbeat"),
    *("gateway.tailer.shipping", "gateway.tailer.shipping"),
)
#: Addresses that stand for all of this machine's, each with the address at which it is reached from here.
_HERE = {"0.0.0.0": LOOPBACK, "::": "::1"}  # noqa: S104 - compared with, not bound


@dataclass(frozen=True)
class Plan:
    """All that is decided before anything starts."""

    settings: Settings
    home: Path
    redis: Store
    mongo: Store
    gateway_port: int
    scrapyd_port: int
    scrapyd_password: str
    ports: dict[str, int]

    @property
    def gateway_url(self) -> str:
        """The address at which this machine reaches the gateway."""
        host = self.settings.gateway_address
        host = _HERE.get(host, host)
        return f"http://{f'[{host}]' if ':' in host else host}:{self.gateway_port}"

    @property
    def scrapyd_url(self) -> str:
        return f"http://{LOOPBACK}:{self.scrapyd_port}"

    @property
    def environment(self) -> dict[str, str]:
        """The settings that every process of the stack gets."""
        told = {
            "DISCOVERYBOT_HOME": str(self.home),
            "MONGO_URI": self.mongo.url,
            "REDIS_URL": self.redis.url,
            "GATEWAY_PORT": str(self.gateway_port),
            "SCRAPYD_PORT": str(self.scrapyd_port),
            "SCRAPYD_USERNAME": self.settings.scrapyd_username,
            "SCRAPYD_PASSWORD": self.scrapyd_password,
            "PYTHONUNBUFFERED": "1",
        }
        settings = self.settings
        cache = settings.http_cache_redis_url or other_redis_database(self.redis.url, 1)
        broker = settings.broker_url or settings.rabbitmq_url or other_redis_database(self.redis.url, 2)
        return told | {name: url for name, url in (("HTTP_CACHE_REDIS_URL", cache), ("BROKER_URL", broker)) if url}

    @property
    def state(self) -> StackState:
        return StackState(
            gateway_url=self.gateway_url,
            scrapyd_url=self.scrapyd_url,
            scrapyd_username=self.settings.scrapyd_username,
            scrapyd_password=self.scrapyd_password,
            redis_url=self.redis.url,
            mongo_uri=self.mongo.url,
            broker_url=self.environment.get("BROKER_URL", ""),
            ports=self.ports,
        )


def processes(plan: Plan) -> list[Process]:
    """Stores, node, workers, gateway: each needs only what stands before it."""
    env = plan.environment
    python, grace = sys.executable, plan.settings.crawl_stop_grace
    stores = [store.process for store in (plan.redis, plan.mongo) if store.process]
    needs = tuple(store.name for store in stores)
    key = (plan.settings.scrapyd_username, plan.scrapyd_password)
    door = http_answers(f"{plan.scrapyd_url}/daemonstatus.json", auth=key)
    # quiet: without its banner
    celery = (python, "-m", "celery", "--quiet", "-A", "celery_app")
    return [
        *stores,
        # no pid file: one that a killed Scrapyd left behind would keep the next from starting
        Process("scrapyd", (python, "-m", "scrapyd", "--pidfile="), env, probe=door,
                grace=grace + 5, death_signal=signal.SIGTERM),
        Process("tailer", (python, "-m", "gateway.tailer"), env, needs, forkable=True),
        # without Scrapyd it would send the first crawls to a node that cannot be reached yet, which then rests
        Process("worker", (*celery, "worker"), env, (*needs, "scrapyd"), forkable=True),
        Process("beat", (*celery, "beat"), env, needs, forkable=True),
        Process("gateway", (python, "-m", "gateway.web"), env, needs,
                probe=http_answers(f"{plan.gateway_url}/health/live"), death_signal=signal.SIGTERM, forkable=True),
    ]  # fmt: skip
