"""The ports of the stack. Ports that the user asks for must be free; all other ports are picked
once and remembered.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Mapping
from contextlib import suppress

import psutil

LOOPBACK = "127.0.0.1"
#: The range from which ports are picked. Higher ports are not used, because the OS gives them to outgoing connections
#: and to programs that ask for any port: such a port may be taken before its process listens, or during a restart.
PICKED = range(20_000, 32_000)
#: Stacks that start at the same time begin their search for ports at least this far apart.
_APART = 16


class PortTakenError(Exception):
    """Another process listens on a port that was asked for."""

    def __init__(self, port: int, wanted_by: str, setting: str) -> None:
        holder = _holder(port)
        super().__init__(
            f"port {port}, which {wanted_by} asks for, is taken{f' by {holder}' if holder else ''}; "
            f"free it, or choose another with {setting}={port + 1}"
        )


def is_free(port: int, host: str = LOOPBACK) -> bool:
    """Whether a process could listen on this port now."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError:
            return False
        return True


def cannot_bind(host: str) -> str | None:
    """Why no process can listen at this address here, on any port; `None` if one can."""
    try:
        socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except OSError as error:
        return error.strerror or str(error)
    return None


def demand(port: int, host: str, wanted_by: str, setting: str) -> int:
    """`port`, if it is free at `host`. Raises `PortTakenError`, which says how to choose another."""
    if not is_free(port, host):
        raise PortTakenError(port, wanted_by, setting)
    return port


class PortPicker:
    """Free ports, the remembered ones first."""

    def __init__(self, remembered: Mapping[str, int]) -> None:
        self._remembered = remembered
        self.picked: dict[str, int] = {}

    def pick(self, name: str) -> int:
        """The port that `name` had last time, if it is free now; else any free one."""
        port = self._remembered.get(name, 0)
        if not (port and is_free(port)):
            port = self._any()
        self.picked[name] = port
        return port

    def _any(self) -> int:
        taken = set(self.picked.values()) | set(self._remembered.values())
        begin = os.getpid() * _APART
        for step in range(len(PICKED)):
            port = PICKED[(begin + step) % len(PICKED)]
            if port not in taken and is_free(port):
                return port
        raise OSError(errno.EADDRINUSE, f"no port from {PICKED[0]} to {PICKED[-1]} is free")


def _holder(port: int) -> str | None:
    """`name (pid 123)` of the process that listens on the port, if the OS shows it to us."""
    with suppress(psutil.Error, OSError):
        for connection in psutil.net_connections("tcp"):
            listens = connection.status == psutil.CONN_LISTEN and connection.laddr[1:] == (port,)
            if listens and connection.pid:
                return f"{psutil.Process(connection.pid).name()} (pid {connection.pid})"
    return None
