"""Several hosts on one machine: network namespaces with an address each, and a router that connects them.

    with Network("stores", "front", "node", "user") as network:
        stores, front, user = (network[name] for name in ("stores", "front", "user"))
        with stores.entered():  # this thread, and all that it starts
            subprocess.Popen(["mongod", "--bind_ip", stores.address])
        with user.entered(), network.cut(front, stores, 27017):  # the router silently drops the packets
            ...

Whatever happens in the test, its namespaces end with its process, and with them all processes in them.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import secrets
import select
import struct
import subprocess
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, Self

import pytest
from machine import find_program, missing

#: Each host has a network of its own in this one: `hosts[0]` has 10.77.1.0/24. It is invisible from outside.
NETWORK = "10.77.0.0/16"
_NET = "10.77.{}.{}"
#: Where `ip netns` keeps its names.
_FOLDER = Path("/run/netns")
#: The network namespace of the current thread.
_OWN = Path("/proc/thread-self/ns/net")
_CLONE_NEWNET = 0x4000_0000
#: See `linux/if_tun.h`.
_TUN = Path("/dev/net/tun")
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x4004_54CA, 0x0001, 0x1000
#: The router's device for delayed packets, and the routing table that leads to it.
_DEVICE, _TABLE = "later", "100"
#: Ends the namespaces, and all processes in them, as soon as nobody holds the other end of its standard input.
_GUARD = """
read -r _
for name in "$@"; do ip netns pids "$name" | xargs -r kill -9; ip netns del "$name"; done
"""


class Host(NamedTuple):
    name: str
    namespace: str
    address: str

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Move this thread into the namespace, with the threads and processes that it starts. Existing sockets do not
        move.
        """
        with _OWN.open("rb") as before:
            enter(_FOLDER / self.namespace)
            try:
                yield
            finally:
                _set_network(before.fileno())


def enter(namespace: Path) -> None:
    """Move this thread into the namespace for good; does nothing if it is there already."""
    if not namespace.samefile(_OWN):
        with namespace.open("rb") as file:
            _set_network(file.fileno())


def _set_network(fd: int) -> None:
    # `os.setns` exists from Python 3.12 on
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(fd, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


class Network:
    def __init__(self, *names: str) -> None:
        """Skips the test if this machine cannot have network namespaces."""
        find_program("ip")
        if os.geteuid() != 0:
            pytest.skip("network namespaces need root")
        prefix = f"db{os.getpid()}-{secrets.token_hex(2)}"
        self._router = f"{prefix}-router"
        self._hosts = {
            name: Host(name, f"{prefix}-{name}", _NET.format(number, 2)) for number, name in enumerate(names, 1)
        }
        self._guard: subprocess.Popen[bytes] | None = None

    def __getitem__(self, name: str) -> Host:
        return self._hosts[name]

    def __enter__(self) -> Self:
        namespaces = [self._router, *(host.namespace for host in self._hosts.values())]
        # in its own session, so that a Ctrl-C does not end it too early
        self._guard = subprocess.Popen(
            ("sh", "-c", _GUARD, "sh", *namespaces), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        try:
            for namespace in namespaces:
                _ip("netns", "add", namespace)
                _ip("-n", namespace, "link", "set", "lo", "up")
            for number, host in enumerate(self._hosts.values(), 1):
                self._connect(host, number)
            # delayed packets come from another device than their host's
            self._in_router("sh", "-c", "for file in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 > $file; done")
            self._in_router("sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        assert self._guard is not None
        self._guard.communicate()

    def _connect(self, host: Host, number: int) -> None:
        """Connect the host with the router, through which it reaches all others."""
        gateway, inside, outside = _NET.format(number, 1), "eth0", self._port(host)
        _ip("link", "add", inside, "netns", host.namespace, "type", "veth",
            "peer", "name", outside, "netns", self._router)  # fmt: skip
        for namespace, address, device in (
            (host.namespace, host.address, inside), (self._router, gateway, outside),
        ):  # fmt: skip
            _ip("-n", namespace, "address", "add", f"{address}/24", "dev", device)
            _ip("-n", namespace, "link", "set", device, "up")
        _ip("-n", host.namespace, "route", "add", "default", "via", gateway)

    @staticmethod
    def _port(host: Host) -> str:
        """The router's device for that host."""
        return f"to-{host.name}"

    def _in_router(self, *command: str) -> None:
        subprocess.run(("ip", "netns", "exec", self._router, *command), check=True)

    @contextmanager
    def cut(self, client: Host, server: Host, port: int, *, there: bool = True, back: bool = True) -> Iterator[None]:
        """Have the router drop what the client sends to the server's port (`there`), and what comes back from it
        (`back`). Neither side gets an error: both see silence.
        """
        with self._ruled(client, server, port, ("blackhole",), there=there, back=back):
            yield

    @contextmanager
    def delayed(self, client: Host, server: Host, port: int, seconds: float) -> Iterator[None]:
        """Delay what the router passes between them by `seconds` in each direction. Connections stay open."""
        if not _TUN.exists():
            missing(f"no {_TUN}")
        with (
            _holding(_FOLDER / self._router, seconds) as device,
            self._ruled(client, server, port, ("lookup", _TABLE)),
        ):
            _ip("-n", self._router, "link", "set", device, "up")
            _ip("-n", self._router, "route", "add", "default", "dev", device, "table", _TABLE)
            yield

    @contextmanager
    def _ruled(
        self, client: Host, server: Host, port: int, fate: tuple[str, ...], *, there: bool = True, back: bool = True
    ) -> Iterator[None]:
        """Apply a rule to packets that come from these hosts."""
        tcp = ("ipproto", "tcp")
        rules = [
            rule
            for applies, rule in (
                (there, (*self._between(client, server), *tcp, "dport", str(port), *fate)),
                (back, (*self._between(server, client), *tcp, "sport", str(port), *fate)),
            )
            if applies
        ]
        done = []
        try:
            for rule in rules:
                _ip("-n", self._router, "rule", "add", *rule)
                done.append(rule)
            yield
        finally:
            for rule in done:
                _ip("-n", self._router, "rule", "del", *rule)

    def _between(self, source: Host, target: Host) -> tuple[str, ...]:
        return ("iif", self._port(source), "from", source.address, "to", target.address)


@contextmanager
def _holding(namespace: Path, seconds: float) -> Iterator[str]:
    """A device in the namespace. Each packet that is sent to it comes out of it again after `seconds`."""
    with ThreadPoolExecutor(1) as threads:
        # only a thread in the namespace can make a device there
        fd = threads.submit(_new_device, namespace).result()
        stop, stopped = os.pipe()
        held = threads.submit(_hold, fd, seconds, stop)
        try:
            yield _DEVICE
        finally:
            os.close(stopped)
            held.result()
            for end in (fd, stop):
                os.close(end)


def _new_device(namespace: Path) -> int:
    enter(namespace)
    fd = os.open(_TUN, os.O_RDWR)
    fcntl.ioctl(fd, _TUNSETIFF, struct.pack("16sH22x", _DEVICE.encode(), _IFF_TUN | _IFF_NO_PI))
    return fd


def _hold(fd: int, seconds: float, stop: int) -> None:
    """Delay packets until the other end of the pipe `stop` is closed. Packets that are held then are lost."""
    held: deque[tuple[float, bytes]] = deque()
    while True:
        patience = max(0.0, held[0][0] - time.monotonic()) if held else None
        readable, _, _ = select.select([fd, stop], [], [], patience)
        if stop in readable:
            return
        if readable:
            held.append((time.monotonic() + seconds, os.read(fd, 65536)))
        while held and held[0][0] <= time.monotonic():
            with suppress(OSError):  # only IPv4 is routed
                os.write(fd, held.popleft()[1])


@contextmanager
def on(host: Host, context: AbstractContextManager[Any]) -> Iterator[Any]:
    """Enter the context in the host's namespace, so that what it starts is there."""
    with ExitStack() as ends:
        with host.entered():
            entered = ends.enter_context(context)
        yield entered


@contextmanager
def together(*contexts: AbstractContextManager[Any]) -> Iterator[list[Any]]:
    """All these contexts, entered and left at the same time."""
    ends = [ExitStack() for _ in contexts]
    with ThreadPoolExecutor(len(contexts)) as threads:
        try:
            yield list(threads.map(ExitStack.enter_context, ends, contexts))
        finally:
            list(threads.map(ExitStack.close, ends))


def _ip(*arguments: str) -> None:
    done = subprocess.run(("ip", *arguments), capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {' '.join(arguments)}: {done.stderr}"
