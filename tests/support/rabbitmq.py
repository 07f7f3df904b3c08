"""A real RabbitMQ, by default on loopback, with its own ports, folder, node name, cookie and port mapper. It leaves
nothing behind.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import amqp
from machine import missing
from stores import free_port

_SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
_EPMD = Path("/usr/bin/epmd")
#: Seconds to start. On an idle machine, three are enough.
_START_TIMEOUT = 240.0


def need_rabbitmq() -> None:
    """Skip the test if RabbitMQ is not installed; in CI, fail instead."""
    if lacking := [str(path) for path in (_SERVER, _EPMD) if not path.exists()]:
        missing(f"RabbitMQ is not installed: no {lacking[0]} (Debian: apt install rabbitmq-server)")


class RabbitMQ:
    def __init__(self, home: Path, *, address: str = "127.0.0.1", port: int = 0) -> None:
        home.mkdir(parents=True)
        self.home = home
        self.port = port or free_port()
        self._at = f"{address}:{self.port}"
        self.url = f"amqp://guest:guest@{self._at}//"
        self._node = f"discoverybot-{secrets.token_hex(4)}@localhost"
        self._mapper_port = free_port()
        self._mapper: subprocess.Popen[bytes] | None = None
        self._server: subprocess.Popen[bytes] | None = None
        (home / "rabbitmq.conf").write_text(f"listeners.tcp.1 = {self._at}\nloopback_users = none\n")
        (home / "plugins").write_text("[].\n")

    def start(self) -> None:
        """Start it. Returns once it accepts connections."""
        with (self.home / "server.log").open("ab") as log:
            self._server = subprocess.Popen(
                [_SERVER], cwd=self.home, env=self.environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        deadline = time.monotonic() + _START_TIMEOUT
        while not self._answers():
            if self._server.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"RabbitMQ did not start:\n{(self.home / 'server.log').read_text()[-4000:]}")
            time.sleep(0.05)

    def stop(self, signum: int = signal.SIGTERM) -> None:
        """Stop it. Returns once it is gone."""
        if self._server is not None:
            self._server.send_signal(signum)
            self._server.wait(_START_TIMEOUT)
            self._server = None

    def kill(self) -> None:
        self.stop(signal.SIGKILL)

    @contextmanager
    def away(self) -> Iterator[None]:
        """Kill it; start it again after the block."""
        self.kill()
        try:
            yield
        finally:
            self.start()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Stop its process, so that connections stay open without an answer."""
        assert self._server is not None
        self._server.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._server.pid, os.WSTOPPED)  # a signal takes effect some time after it is sent
        try:
            yield
        finally:
            self._server.send_signal(signal.SIGCONT)

    @contextmanager
    def blocked(self) -> Iterator[None]:
        """Raise a memory alarm, so that it reads nothing from publishers."""
        self._set_watermark("0")
        try:
            yield
        finally:
            self._set_watermark("0.4")

    @contextmanager
    def channel(self) -> Iterator[amqp.Channel]:
        with amqp.Connection(self._at, connect_timeout=30, read_timeout=30) as connection:
            yield connection.channel()

    def depth(self, queue: str) -> int:
        """Number of messages that wait in the queue. Raises `amqp.NotFound` if there is no such queue."""
        with self.channel() as channel:
            return int(channel.queue_declare(queue, passive=True).message_count)

    def has(self, queue: str) -> bool:
        try:
            self.depth(queue)
        except amqp.NotFound:
            return False
        return True

    def delete(self, queue: str) -> None:
        with self.channel() as channel:
            channel.queue_delete(queue)

    def take(self, queue: str) -> list[amqp.Message]:
        """Take all waiting messages out of the queue, and return them."""
        with self.channel() as channel:
            return list(iter(lambda: channel.basic_get(queue, no_ack=True), None))

    def publish(self, queue: str, body: bytes, **properties: Any) -> None:
        with self.channel() as channel:
            channel.basic_publish(amqp.Message(body, **properties), routing_key=queue)

    def described_queues(self) -> dict[str, str]:
        """The arguments of each queue, as RabbitMQ's own tool prints them."""
        found = self._control("list_queues", "name", "arguments", "--no-table-headers")
        return dict(line.split("\t", 1) for line in found.splitlines())

    def _set_watermark(self, share: str) -> None:
        self._control("set_vm_memory_high_watermark", share)

    def _control(self, *arguments: str) -> str:
        """The output of RabbitMQ's own tool."""
        done = subprocess.run(
            [_SERVER.with_name("rabbitmqctl"), "-q", *arguments],
            cwd=self.home, env=self.environment(), capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
        return done.stdout

    def __enter__(self) -> Self:
        # in the foreground: a mapper that the server starts itself would outlive it as a daemon
        self._mapper = subprocess.Popen(
            [_EPMD, "-port", str(self._mapper_port), "-address", "127.0.0.1"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            self.kill()
        if self._mapper is not None:
            self._mapper.kill()
            self._mapper.wait(60)

    def environment(self) -> dict[str, str]:
        """The environment of RabbitMQ's own tools."""
        own = {
            "HOME": str(self.home),  # contains the cookie
            "RABBITMQ_NODENAME": self._node,
            "RABBITMQ_MNESIA_BASE": str(self.home / "data"),
            "RABBITMQ_LOG_BASE": str(self.home / "log"),
            "RABBITMQ_CONFIG_FILE": str(self.home / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": os.devnull,
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.home / "plugins"),
            "RABBITMQ_DIST_PORT": str(free_port()),
            # two threads that do not spin, because tests share the machine
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": (
                "+S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none"
                " -kernel inet_dist_use_interface {127,0,0,1} -start_epmd false"
            ),
            "ERL_EPMD_PORT": str(self._mapper_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "detached": "true",  # the script becomes the server, so signals reach it
        }
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("RABBITMQ_", "ERL_"))}
        return {**inherited, **own}

    def _answers(self) -> bool:
        try:
            with self.channel():
                return True
        except (OSError, amqp.AMQPError):
            return False
