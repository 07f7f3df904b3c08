from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Iterator

import pytest

from crawler.node.zygote import FDS, MAX_FRAME, ForkChannel, ForkRequest


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def frame(**message: object) -> bytes:
    content = json.dumps(message).encode()
    return struct.pack("!I", len(content)) + content


def test_requests_survive_being_cut_anywhere_and_keep_their_descriptors(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = ends
    channel = ForkChannel(theirs)
    stream = b"".join(frame(id=number, command=["crawl"], env={"A": str(number)}) for number in range(3))
    given = [os.open(os.devnull, os.O_RDONLY) for _ in range(3 * FDS)]
    requests: list[ForkRequest] = []
    for place, fd in enumerate(given):
        socket.send_fds(ours, [stream[place : place + 1]], [fd])
        requests += channel.receive()
    for place in range(len(given), len(stream), 7):
        ours.sendall(stream[place : place + 7])
        requests += channel.receive()
    assert [(request.id, request.env) for request in requests] == [(n, {"A": str(n)}) for n in range(3)]
    received = [fd for request in requests for fd in (request.output_fd, request.mark_fd)]
    assert len(set(received)) == len(given)
    assert not any(os.get_inheritable(fd) for fd in received)
    for request in requests:
        request.close()
    for fd in given:
        os.close(fd)


def test_some_requests_have_further_descriptors(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    given = [os.open(os.devnull, os.O_RDONLY) for _ in range(3 * FDS + 3)]
    some = {"command": ["crawl"], "env": {}}
    frames = (
        frame(id=1, variables=True, **some),
        frame(id=2, **some),
        frame(id=3, variables=True, notes=True, **some),
    )
    socket.send_fds(ours, [b"".join(frames)], given)
    first, second, third = requests = list(ForkChannel(theirs).receive())
    assert [one.variables_fd is not None for one in requests] == [True, False, True]
    assert [one.writer_fd is not None for one in requests] == [False, False, True]
    received = {first.output_fd, first.mark_fd, first.variables_fd, second.output_fd, second.mark_fd}
    received |= {third.output_fd, third.mark_fd, third.writer_fd, third.variables_fd}
    assert len(received) == len(given)
    for request in requests:
        request.close()
    for fd in given:
        os.close(fd)


def test_a_frame_that_is_larger_than_any_request_is_an_error(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    ours.sendall(struct.pack("!I", MAX_FRAME + 1))
    with pytest.raises(ValueError, match="a frame of"):
        list(ForkChannel(theirs).receive())


def test_an_end_that_is_gone_is_noticed_before_all_it_has_said_is_read(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = ends
    channel = ForkChannel(theirs)
    assert not channel.is_deserted()
    ours.sendall(frame(ping=True))
    assert not channel.is_deserted()
    ours.close()
    assert channel.is_deserted()
    assert not channel.ended
