"""Calls of receivers on real sockets: whatever a receiver does, a call ends in time, and reaches no inner network."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import receivers
import trustme
from receivers import Behaviour, Receiver, answer, black_hole, drip

from gateway.contract.public_address import parse_networks
from gateway.signals import webhook_caller
from gateway.signals.webhook_caller import MAX_ANSWER_BYTES, MAX_PAUSE, CallResult, WebhookCaller, pause_of

LOOPBACK = parse_networks(["127.0.0.0/8"])
#: Seconds that a busy machine may take on top of a deadline. Without a deadline, these calls would never end.
SLACK = 30.0


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A short deadline, for calls that are to fail."""
    monkeypatch.setattr(webhook_caller, "CALL_SECONDS", 1.0)


def post(url: str, *, body: bytes = b"{}", caller: WebhookCaller | None = None) -> str | None:
    """Why the call failed; `None` if it did not. It must end in time."""
    return call(url, body=body, caller=caller).problem


def call(url: str, *, body: bytes = b"{}", caller: WebhookCaller | None = None) -> CallResult:
    began = time.monotonic()
    outcome = asyncio.run((caller or WebhookCaller(LOOPBACK)).post("ada", url, body))
    assert time.monotonic() - began < webhook_caller.CALL_SECONDS + SLACK
    return outcome


def names(*addresses: str) -> Callable[..., Any]:
    """A resolver that knows one name."""

    def look_up(_host: str, port: int, **_: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    return look_up


@pytest.mark.parametrize("status", [200, 204, 299])
def test_any_success_will_do(status: int) -> None:
    with Receiver(answer(status)) as receiver:
        assert post(receiver.url("/a?b=c"), body=b'{"event": "job.ended"}') is None
        assert [(call.path, call.body) for call in receiver.calls] == [("/a?b=c", b'{"event": "job.ended"}')]


@pytest.mark.parametrize("known", [True, False])
def test_over_tls_the_certificate_decides(*, known: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority, file = trustme.CA(), tmp_path / "authority.pem"
    authority.cert_pem.write_to_path(str(file))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("name.example").configure_cert(context)
    if known:
        monkeypatch.setenv("SSL_CERT_FILE", str(file))
    with Receiver(answer(), tls=context) as receiver:
        outcome = post(f"https://name.example:{receiver.port}/", caller=WebhookCaller(LOOPBACK, names("127.0.0.1")))
        assert (outcome, receiver.paths()) == ((None, ["/"]) if known else (outcome, []))
        assert known or "CERTIFICATE_VERIFY_FAILED" in (outcome or "")


@pytest.mark.parametrize("status", [404, 500])
def test_any_other_answer_is_a_failure(status: int) -> None:
    with Receiver(answer(status)) as receiver:
        assert post(receiver.url()) == f"answered {status}"


NOW = datetime(2027, 6, 1, 9, tzinfo=UTC)


@pytest.mark.parametrize(
    ("asked", "pause"),
    [
        ("120", timedelta(minutes=2)),
        ("Tue, 01 Jun 2027 09:30:00 GMT", timedelta(minutes=30)),
        ("9" * 5000, MAX_PAUSE),
        ("Fri, 31 Dec 9999 23:59:59 GMT", MAX_PAUSE),
        ("0", timedelta()),
        ("Tue, 01 Jun 2027 08:30:00 GMT", None),
        ("", None),
        ("-5", None),
        ("soon", None),
        ("Tue, 99 Jun 2027 09:30:00 GMT", None),
        ("Tue, 01 Jun 0000 09:30:00 -9999", None),
        ("Tue, 01 Jun 2027 09:30:00 +" + "9" * 20, None),
    ],
)
def test_a_pause_is_read_as_seconds_or_a_date(asked: str, pause: timedelta | None) -> None:
    assert pause_of(asked, NOW) == pause


def test_what_a_receiver_asks_for_with_its_failure_is_heard() -> None:
    with Receiver(answer(503, "RETRY-AFTER: 60")) as receiver:
        assert call(receiver.url()) == CallResult("answered 503", 503, pause=timedelta(minutes=1))
        receiver.behaviour = answer(410)
        assert call(receiver.url()) == CallResult("answered 410", 410, is_last=True)


def test_a_path_in_any_script_is_called() -> None:
    with Receiver(answer()) as receiver:
        assert post(receiver.url("/größe")) is None
        assert receiver.paths() == ["/gr%C3%B6%C3%9Fe"]


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize(
    ("behaviour", "scheme"), [(drip(0.1), "http"), (receivers.never, "http"), (receivers.never, "https")]
)
def test_slow_and_silent_receivers_are_left_at_the_deadline(behaviour: Behaviour, scheme: str) -> None:
    with Receiver(behaviour, reads=False) as receiver:
        assert post(receiver.url().replace("http", scheme, 1)) == "no answer within 1 s"
        wait_for_none(receiver)


@pytest.mark.usefixtures("short")
def test_a_tls_handshake_that_drips_is_left_at_the_deadline() -> None:
    # the beginning of a record of 16 KiB: a ServerHello, as far as anybody can tell
    def hello(connection: socket.socket) -> None:
        connection.sendall(b"\x16\x03\x03\x40\x00\x02\x00\x3f\xfc\x03\x03")
        while True:
            connection.sendall(b"x")
            time.sleep(0.1)

    with Receiver(hello, reads=False) as receiver:
        assert post(receiver.url().replace("http", "https", 1)) == "no answer within 1 s"
        wait_for_none(receiver)


@pytest.mark.usefixtures("short")
def test_a_receiver_that_does_not_take_the_body_is_left_at_the_deadline() -> None:
    gone = threading.Event()
    with Receiver(lambda _: gone.wait() and None, reads=False) as receiver:
        assert post(receiver.url(), body=b"x" * (64 << 20)) == "no answer within 1 s"
        gone.set()


@pytest.mark.parametrize("behaviour", [receivers.ENDLESS_HEADERS, receivers.ENDLESS_HINTS], ids=["headers", "hints"])
def test_of_endless_headers_so_much_is_read_and_no_more(behaviour: Behaviour) -> None:
    with Receiver(behaviour) as receiver:
        assert str(MAX_ANSWER_BYTES) in (post(receiver.url()) or "")
        wait_for_none(receiver)


@pytest.mark.usefixtures("short")
def test_who_answers_just_before_the_deadline_has_answered_however_long_the_body_takes() -> None:
    def late(connection: socket.socket) -> None:
        time.sleep(0.8)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nslow")
        receivers.never(connection)

    with Receiver(late) as receiver:
        assert call(receiver.url()) == CallResult(status=200, answer="slow")
        wait_for_none(receiver)


def test_an_endless_body_is_not_read() -> None:
    with Receiver(receivers.ENDLESS_BODY) as receiver:
        assert post(receiver.url()) is None
        wait_for_none(receiver)


def test_a_redirect_is_not_followed() -> None:
    with Receiver(answer()) as inside, Receiver(answer(307, f"Location: {inside.url()}")) as receiver:
        assert post(receiver.url()) == "answered 307, a redirect, and redirects are not followed"
        assert inside.calls == []


def test_a_look_up_that_takes_too_long_is_left_at_the_deadline_and_holds_up_nobody_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(webhook_caller, "CALL_SECONDS", 3.0)
    known = threading.Event()

    def slow(host: str, port: int, **_: Any) -> list[Any]:
        if host == "slow.example":
            known.wait()
        return names("127.0.0.1")(host, port)

    async def call_all(port: int) -> list[CallResult]:
        caller = WebhookCaller(LOOPBACK, slow)
        held_up = [caller.post("ada", "http://slow.example/", b"{}") for _ in range(20)]
        return await asyncio.gather(*held_up, caller.post("bob", f"http://quick.example:{port}/", b"{}"))

    with Receiver(answer()) as receiver:
        began = time.monotonic()
        outcomes = asyncio.run(call_all(receiver.port))
        assert time.monotonic() - began < webhook_caller.CALL_SECONDS + SLACK
        look_ups = sum(thread.name == "webhook-lookup" for thread in threading.enumerate())
        known.set()
    assert outcomes == [CallResult("no answer within 3 s")] * 20 + [CallResult(status=200)]
    assert look_ups == webhook_caller.LOOKUPS


def test_a_dead_address_beside_a_living_one_does_not_keep_the_call_from_arriving() -> None:
    with Receiver(answer(), address="127.0.0.1") as receiver, black_hole("127.0.0.2", receiver.port):
        patient = WebhookCaller(LOOPBACK, names("127.0.0.2", "127.0.0.3", "127.0.0.1"))
        # the second address refuses
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(webhook_caller, "CONNECT_SECONDS", 0.5)
            assert post(f"http://name.example:{receiver.port}/", caller=patient) is None


@pytest.mark.usefixtures("short")
def test_many_dead_addresses_are_left_at_the_deadline() -> None:
    with Receiver(answer(), address="127.0.0.1") as receiver, black_hole("127.0.0.2", receiver.port):
        caller = WebhookCaller(LOOPBACK, names("127.0.0.2"))
        assert post(f"http://name.example:{receiver.port}/", caller=caller) == "no answer within 1 s"


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]"])
def test_nothing_inside_is_called(host: str) -> None:
    assert post(f"http://{host}:9/", caller=WebhookCaller()) == "its host has no public address"


def test_of_a_name_that_also_leads_inside_only_its_public_addresses_are_called() -> None:
    with Receiver(answer(), address="127.0.0.1") as inside, Receiver(answer(), address="127.0.0.2") as public:
        caller = WebhookCaller(parse_networks(["127.0.0.2/32"]), names("127.0.0.1", "127.0.0.2"))
        assert post(f"http://name.example:{public.port}/", caller=caller) is None
        # at this port only the inner address listens
        assert post(f"http://name.example:{inside.port}/", caller=caller) is not None
        assert (inside.calls, len(public.calls)) == ([], 1)


def test_a_name_that_nobody_knows_is_a_failure() -> None:
    def unknown(*_: Any, **__: Any) -> list[Any]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    assert "has no address" in (post("http://name.example/", caller=WebhookCaller(LOOPBACK, unknown)) or "")


def wait_for_none(receiver: Receiver) -> None:
    """Wait until the receiver has noticed that the caller is gone."""
    end = time.monotonic() + 60
    while receiver.open:
        assert time.monotonic() < end, "a connection was left open"
        time.sleep(0.02)
