"""The embedded server as a process: its door, bad bytes, and what it does not know. Not asked of a real MongoDB."""

from __future__ import annotations

import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import bson
import pytest
from pymongo import MongoClient
from pymongo.errors import OperationFailure
from stores import ROOT, StoreProcess

Document = dict[str, Any]
COMMAND = (sys.executable, "-m", "embedded.mongo")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
        stdin=subprocess.DEVNULL,
    )


def port_of(uri: str) -> int:
    return int(uri.rsplit(":", 1)[1].split("/", 1)[0])


# --- the door


def test_it_says_where_it_is_ready_and_ends_cleanly_on_sigterm(tmp_path: Path) -> None:
    path = tmp_path / "mongo.sqlite"
    process = subprocess.Popen(
        [*COMMAND, "--path", str(path), "--port", "0"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    ready = process.stdout.readline()
    assert ready.startswith("ready on 127.0.0.1:")
    with MongoClient[Document]("127.0.0.1", port_of(ready)) as client:
        client["test"]["c"].insert_one({"_id": 1})
    process.send_signal(signal.SIGTERM)
    process.stdout.close()
    assert process.wait(60) == 0
    assert not path.with_name("mongo.sqlite-wal").exists()


def test_it_listens_on_loopback_only(tmp_path: Path) -> None:
    refused = run("--path", str(tmp_path / "mongo.sqlite"), "--host", "0.0.0.0", "--port", "0")
    assert refused.returncode == 2
    assert "not a loopback address" in refused.stderr


def test_a_second_server_on_the_same_file_is_refused(server: StoreProcess, folder: Path) -> None:
    refused = run("--path", str(folder / "mongo.sqlite"), "--port", "0")
    assert refused.returncode == 1
    assert "in use by another embedded MongoDB server" in refused.stderr


def test_a_damaged_file_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "mongo.sqlite"
    path.write_bytes(b"garbage" * 1000)
    refused = run("--path", str(path), "--port", "0")
    assert refused.returncode == 1
    assert "mongo.sqlite is damaged" in refused.stderr


# --- the password


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a server that asks for a password."""
    folder = tmp_path_factory.mktemp("locked")
    (folder / "password").write_text("pass-_word\n")
    options = ("--path", str(folder / "mongo.sqlite"), "--port", "0", "--password-file", str(folder / "password"))
    with subprocess.Popen([*COMMAND, *options], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield port_of(process.stdout.readline())
        process.terminate()


def test_who_knows_the_password_is_let_in(locked: int) -> None:
    for options in ("", "?authSource=admin", "?authMechanism=SCRAM-SHA-256"):
        with MongoClient[Document](f"mongodb://discoverybot:pass-_word@127.0.0.1:{locked}/test{options}") as client:
            assert client.get_default_database()["c"].find_one() is None


@pytest.mark.parametrize("user", ["", "discoverybot:wrong@", "somebody:pass-_word@", "discoverybot:pass-_word%20@"])
def test_who_does_not_may_ask_for_the_time_only(locked: int, user: str) -> None:
    with MongoClient[Document](f"mongodb://{user}127.0.0.1:{locked}/test") as client:
        with pytest.raises(OperationFailure) as caught:
            client.get_default_database()["c"].find_one()
        assert caught.value.code == (18 if user else 13)
    with MongoClient[Document](f"mongodb://127.0.0.1:{locked}/test") as client:
        assert client.admin.command("hello")["isWritablePrimary"]


def test_a_login_that_is_none_ends_nothing(locked: int) -> None:
    start = {"saslStart": 1, "mechanism": "SCRAM-SHA-256", "$db": "admin"}
    tries: list[Document] = [
        {"saslContinue": 1, "payload": b"", "$db": "admin"},
        {**start, "payload": b"n,,n=discoverybot,r=x"},
        # nothing has been proved yet
        {"saslContinue": 1, "payload": b"", "$db": "admin"},
        {"saslContinue": 1, "payload": b"c=biws,r=x,p=AAAA", "$db": "admin"},
        *({**start, "payload": payload} for payload in (5, b"", b"\xff", b"n,,", b"y,,n=discoverybot,r=x")),
        {**start, "mechanism": "PLAIN", "payload": b"n,,n=discoverybot,r=x"},
        {"find": "c", "$db": "test"},
    ]
    with socket.create_connection(("127.0.0.1", locked), timeout=10) as connection:
        codes = []
        for command in tries:
            connection.sendall(message(b"\0" + bson.encode(command)))
            codes.append(bson.decode(connection.recv(4096)[21:]).get("code"))
    assert codes == [18, None, 18, 18, 18, 18, 18, 18, 18, 18, 13]


def test_a_server_without_a_password_knows_nobody(server: StoreProcess) -> None:
    with (
        MongoClient[Document](f"mongodb://discoverybot:x@127.0.0.1:{port_of(server)}/test") as client,
        pytest.raises(OperationFailure) as caught,
    ):
        client.get_default_database()["c"].find_one()
    assert caught.value.code == 18


# --- bad bytes


def message(body: bytes, *, flags: int = 0, opcode: int = 2013, length: int | None = None) -> bytes:
    payload = struct.pack("<I", flags) + body
    return struct.pack("<iiii", 16 + len(payload) if length is None else length, 1, 0, opcode) + payload


PING = b"\0" + bson.encode({"ping": 1, "$db": "admin"})


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        message(PING, length=3),
        message(PING, length=2**30),
        message(PING, opcode=2001),
        message(PING, flags=1 << 7),
        message(b"\0" + struct.pack("<i", 500) + b"short"),
        message(b"\0" + b"\x0c\0\0\0\x02a\0\xff\xff\xff\x7f\0"),
        message(b"\x05" + PING[1:]),
        message(PING + PING),
        message(b""),
    ],
    ids=[
        "HTTP",
        "too short",
        "too long",
        "old insert",
        "unknown flag",
        "torn section",
        "bad BSON",
        "unknown section",
        "two bodies",
        "no body",
    ],
)
def test_bytes_that_are_no_message_end_their_connection_and_no_other(
    embedded: MongoClient[Document], server: StoreProcess, data: bytes
) -> None:
    embedded.admin.command("ping")
    with socket.create_connection(("127.0.0.1", port_of(server)), timeout=10) as connection:
        connection.sendall(data)
        assert connection.recv(100) == b""
    assert embedded.admin.command("ping")["ok"] == 1


def test_a_message_may_arrive_in_pieces_and_without_a_wish_for_an_answer(server: StoreProcess) -> None:
    silent = message(b"\0" + bson.encode({"insert": "c", "documents": [{"_id": 1}], "$db": "t"}), flags=2)
    with socket.create_connection(("127.0.0.1", port_of(server)), timeout=10) as connection:
        for byte in silent:
            connection.sendall(bytes((byte,)))
        connection.sendall(message(b"\0" + bson.encode({"count": "c", "$db": "t"})))
        reply = connection.recv(1000)
    assert bson.decode(reply[21:]) == {"n": 1, "ok": 1.0}


def test_what_is_not_supported_is_refused_never_ignored(embedded: MongoClient[Document]) -> None:
    collection = embedded["test"]["refusals"]
    collection.insert_one({"_id": 1, "l": [1]})
    refusals: list[tuple[Callable[[], object], int]] = [
        (lambda: collection.update_one({}, {"$mul": {"n": 2}}), 238),
        (lambda: collection.update_one({}, {"$pull": {"l": 1}}), 238),
        (lambda: collection.find_one_and_delete({}), 238),
        (lambda: collection.update_one({}, [{"$set": {"n": 2}}]), 238),
        (lambda: collection.update_one({"l": 1}, {"$set": {"l.$": 2}}), 238),
        (lambda: collection.update_one({}, {"$push": {"l": {"$each": [0], "$sort": 1}}}), 238),
        (lambda: collection.update_one({}, {"$set": {"l.$[e]": 2}}, array_filters=[{"e": 1}]), 238),
        (lambda: collection.find_one({}, collation={"locale": "cs"}), 238),
        (lambda: collection.find_one({}, {"l": {"$elemMatch": {"$gt": 0}}}), 238),
        (lambda: collection.find_one({"$where": "true"}), 2),
        (lambda: collection.find_one({"n": {"$mod": [2, 0]}}), 2),
        (lambda: collection.create_index([("text", "text")]), 238),
        (lambda: collection.create_index("a", hidden=True), 238),
        (lambda: collection.aggregate([{"$sort": {"n": 1}}]), 40324),
        (lambda: collection.aggregate([{"$group": {"_id": "$l", "n": {"$sum": 1}}}]), 238),
        (lambda: collection.aggregate([{"$limit": 1}, {"$match": {}}]), 238),
        (lambda: collection.find_one({"l": {"$elemMatch": {"$gt": 0}}}), 2),
        (lambda: collection.find_one({"l": {"$all": [1]}}), 2),
        (lambda: collection.find_one({"l": {"$size": 1}}), 2),
        (lambda: collection.find_one({"l": {"$type": "array"}}), 2),
        (lambda: collection.find_one({}, hint="_id_"), 238),
        (lambda: collection.database.command({"find": "c", "fooBar": 1}), 238),
        (lambda: collection.find_one({}, {"l": {"$slice": 1}}), 238),
        (lambda: collection.find_one({"s": {"$regex": "a # b", "$options": "x"}}), 238),
        (lambda: collection.find_one({"s": {"$regex": "[[:alpha:]]"}}), 238),
        (lambda: collection.find_one({"s": {"$regex": r"a\Z"}}), 238),
        (lambda: collection.update_one({}, {"$pop": {"l": 1}}), 238),
        (lambda: collection.create_index("at", expireAfterSeconds=60), 238),
        (lambda: collection.rename("other"), 59),
    ]
    for refused, code in refusals:
        with pytest.raises(OperationFailure) as caught:
            refused()
        assert caught.value.code == code
    assert collection.find_one({}) == {"_id": 1, "l": [1]}
