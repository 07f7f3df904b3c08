"""A machine that no page may reach: it notes whoever speaks to it, by TCP or UDP, on one port."""

from __future__ import annotations

import socket
import threading
from typing import Self

ADDRESS = "127.0.0.2"


class Canary:
    def __init__(self) -> None:
        self.heard: list[str] = []
        self._tcp = socket.create_server((ADDRESS, 0), backlog=64)
        self.port: int = self._tcp.getsockname()[1]
        self._udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._udp.bind((ADDRESS, self.port))
        self._threads = [threading.Thread(target=listen) for listen in (self._accept, self._receive)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._tcp.shutdown(socket.SHUT_RDWR)
        self._udp.sendto(b"", (ADDRESS, self.port))
        for thread in self._threads:
            thread.join()
        self._tcp.close()
        self._udp.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._tcp.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(1)
                self.heard.append("tcp: " + repr(connection.recv(200)))

    def _receive(self) -> None:
        while data := self._udp.recv(2000):
            self.heard.append("udp: " + repr(data[:50]))
