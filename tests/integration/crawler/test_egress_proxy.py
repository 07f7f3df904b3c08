"""The proxy, asked by hand: what it refuses, what it passes on, and where it then connects."""

from __future__ import annotations

import asyncio
import base64
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from ipaddress import ip_network

import pytest
from sites.server import Reply, Site

from crawler.net import egress_proxy
from crawler.net.egress_proxy import MAX_HEAD_BYTES, PRIMING_URL, EgressProxy

DEADLINE = 10
ONLY_ONE = [ip_network("127.0.0.1/32")]
#: What a page might call the machine it is rendered on, its network, or its cloud.
FORBIDDEN = (
    *(
        "127.0.0.2",
        "localhost.localdomain",
        "127.1.1.1",
        "2130706434",
        "0x7f.2",
        "0177.0.0.2",
        "127.2",
        "0",
        "0.0.0.0",
    ),
    *("10.0.0.1", "192.168.1.1", "172.16.0.1", "100.64.0.1", "169.254.169.254", "2852039166", "0xa9fea9fe"),
    *("168.63.129.16", "192.0.0.192", "224.0.0.1", "255.255.255.255"),
    *("[::1]", "[::]", "[::ffff:169.254.169.254]", "[::ffff:7f00:2]", "[fe80::1]", "[fc00::1]", "[fec0::1]"),
    *("[64:ff9b::a9fe:a9fe]", "[2002:a9fe:a9fe::1]", "[::127.0.0.2]", "[ff02::1]"),
)

Ask = Callable[..., Awaitable[bytes]]


@pytest.fixture
async def proxy() -> AsyncIterator[EgressProxy]:
    running = EgressProxy(ONLY_ONE, 1 << 20)
    await running.start()
    yield running
    await running.close()


def port_of(proxy: EgressProxy) -> int:
    return int(proxy.url.rpartition(":")[2])


def password_of(proxy: EgressProxy) -> str:
    return "Basic " + base64.b64encode(f"{proxy.user}:{proxy.password}".encode()).decode()


async def ask(proxy: EgressProxy, first_line: str, *headers: str, more: bytes = b"", known: bool = True) -> bytes:
    """All that comes back until the proxy closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(proxy))
    password = [f"Proxy-Authorization: {password_of(proxy)}"] if known else []
    writer.write("\r\n".join([first_line, *password, *headers, "", ""]).encode() + more)
    answer = await asyncio.wait_for(reader.read(-1), DEADLINE)
    writer.close()
    return answer


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


@pytest.mark.parametrize("form", ["CONNECT {host}:443 HTTP/1.1", "GET http://{host}/ HTTP/1.1"])
async def test_it_refuses_every_spelling_of_an_address_inside(proxy: EgressProxy, form: str) -> None:
    answers = {host: await ask(proxy, form.format(host=host)) for host in FORBIDDEN}
    others = [answer for answer in answers.values() if status(answer) != 403]
    assert all(b"could not be resolved" in answer for answer in others), "not every resolver takes every spelling"
    refused = {host for host, answer in answers.items() if status(answer) == 403}
    assert {"127.0.0.2", "2130706434", "169.254.169.254", "[::1]", "[::ffff:169.254.169.254]"} <= refused
    assert b"is not a public address" in answers["10.0.0.1"]
    assert proxy.refusals == len(refused)


async def test_it_fetches_what_is_allowed(proxy: EgressProxy) -> None:
    with Site({"/a?b=c": Reply("hello")}) as site:
        answer = await ask(
            proxy, f"GET {site.url}/a?b=c HTTP/1.1", "Host: elsewhere.example", "Proxy-Connection: keep-alive"
        )
        assert site.paths() == ["/a?b=c"]
    assert status(answer) == 200
    assert answer.endswith(b"hello")


async def test_it_makes_tunnels(proxy: EgressProxy) -> None:
    with Site({"/": Reply("hello")}) as site:
        inner = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        answer = await ask(proxy, f"CONNECT {site.netloc} HTTP/1.1", more=inner)
    established, _, rest = answer.partition(b"\r\n\r\n")
    assert b" 200 " in established
    assert rest.endswith(b"hello")


async def test_it_lets_a_connection_become_a_websocket(proxy: EgressProxy) -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"Connection: Upgrade" in head
        assert b"Proxy-Authorization" not in head
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\n\r\n" + await reader.read(4))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    upgrade = ("Connection: keep-alive, Upgrade", "Upgrade: websocket")
    answer = await ask(proxy, f"GET http://127.0.0.1:{port}/ HTTP/1.1", *upgrade, more=b"ping")
    server.close()
    assert answer.endswith(b"ping")


async def test_nobody_else_on_the_machine_can_use_it(proxy: EgressProxy) -> None:
    with Site() as site:
        wrong = "Proxy-Authorization: Basic " + base64.b64encode(b"crawl:guess").decode()
        for headers in ((), (wrong,)):
            answer = await ask(proxy, f"GET {site.url}/ HTTP/1.1", *headers, known=False)
            assert status(answer) == 407
        assert status(await ask(proxy, f"GET {PRIMING_URL} HTTP/1.1", known=False)) == 407
        assert site.access_log == []
    assert status(await ask(proxy, f"GET {PRIMING_URL} HTTP/1.1")) == 200


async def test_a_name_is_resolved_once_and_only_what_was_checked_is_connected_to(
    proxy: EgressProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Site({"/": Reply("public")}) as public, Site(host="127.0.0.2", port=public.port) as inside:
        answers = [["127.0.0.1"], ["127.0.0.2"], ["127.0.0.2", "127.0.0.1"]]
        asked: list[str] = []

        async def rebinding(host: str, port: int, **_: object) -> list[tuple[object, ...]]:
            asked.append(host)
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in answers.pop(0)]

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", rebinding)
        results = [await ask(proxy, f"GET http://rebinds.example:{public.port}/ HTTP/1.1") for _ in range(3)]
        assert inside.access_log == []
    assert [status(answer) for answer in results] == [200, 403, 200]
    assert [host for host in asked if host == "rebinds.example"] == ["rebinds.example"] * 3


@pytest.mark.parametrize(
    "line",
    [
        *("GET / HTTP/1.1", "GET https://example.com/ HTTP/1.1", "GET ftp://example.com/ HTTP/1.1", "nonsense"),
        *("CONNECT example.com:99999 HTTP/1.1", "CONNECT /etc/passwd HTTP/1.1", "GET http:///a HTTP/1.1"),
        *("GET http://user:word@example.com/ HTTP/1.1", "GET http://127.0.0.1/ HTTP/2.0"),
    ],
)
async def test_it_answers_what_is_no_request_for_a_proxy(proxy: EgressProxy, line: str) -> None:
    assert status(await ask(proxy, line)) == 400


async def test_it_bounds_what_it_reads_and_what_it_carries(
    proxy: EgressProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert status(await ask(proxy, "GET http://127.0.0.1/ HTTP/1.1", "X: " + "x" * MAX_HEAD_BYTES)) == 431
    with Site() as site:
        answer = await ask(proxy, f"GET {site.url}/large-chunked/{100 << 20} HTTP/1.1")
        assert 15 << 20 < len(answer) <= 16 << 20
    monkeypatch.setattr(egress_proxy, "IDLE_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert await ask(proxy, f"GET http://127.0.0.1:{silent.getsockname()[1]}/ HTTP/1.1") == b""
    monkeypatch.setattr(egress_proxy, "HEAD_SECONDS", 0.2)
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(proxy))
    writer.write(b"GET http")
    assert await asyncio.wait_for(reader.read(), DEADLINE) == b""
    writer.close()


async def test_a_name_that_does_not_exist_is_said_to_be_that(proxy: EgressProxy) -> None:
    answer = await ask(proxy, "CONNECT nosuchhost.invalid:443 HTTP/1.1")
    assert status(answer) == 502
    assert b"could not be resolved" in answer
