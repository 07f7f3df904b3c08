"""What is deployed with a project: the requirements that it is given."""

from __future__ import annotations

import sys
from pathlib import Path

import httpx2
import pytest

from discoverybot_client import Client

LOCK = "scrapy==2.17.0\n"
#: A stand-in for the command: its egg is what it was called with.
COMMAND = f"""#!{sys.executable}
import json, pathlib, sys
options = dict(zip(sys.argv[6::2], sys.argv[7::2]))
egg = pathlib.Path(sys.argv[4], "project.egg")
egg.write_text("options: " + ", ".join(options))
made = {{"project": "shop", "version": options.get("--version", "1"), "egg": str(egg)}}
print(json.dumps({{**made, "requirements": options.get("--requirements")}}))
"""


class Uploads:
    """A gateway that takes what is deployed."""

    def __init__(self) -> None:
        self.requests: list[httpx2.Request] = []
        self.bodies: list[bytes] = []

    def client(self, headers: dict[str, str] | None = None) -> Client:
        return Client("http://127.0.0.1:9", headers=headers, transport=httpx2.MockTransport(self._answer))

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        self.bodies.append(request.read())
        return httpx2.Response(200, json={})


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    command = tmp_path / "bin/discoverybot"
    command.parent.mkdir()
    command.write_text(COMMAND)
    command.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(command.with_name("python")))
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop/own.txt").write_text(LOCK)
    return tmp_path / "shop"


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    sent = Uploads()
    with sent.client() as client, pytest.raises(FileNotFoundError, match=r"no such folder and no such egg: .*nope"):
        client.deploy(tmp_path / "nope")
    assert sent.requests == []


@pytest.mark.parametrize("as_file", [True, False])
def test_a_folder_is_deployed_with_the_requirements_that_are_given(project: Path, as_file: bool) -> None:  # noqa: FBT001 - by pytest
    sent = Uploads()
    with sent.client() as client:
        client.deploy(project, version="2", requirements=project / "own.txt" if as_file else LOCK)
    assert b"options: --version, --requirements" in sent.bodies[0]
    assert LOCK.encode() in sent.bodies[0]


def test_a_folder_is_deployed_with_what_it_declares_by_default(project: Path) -> None:
    sent = Uploads()
    with sent.client() as client:
        client.deploy(project)
    assert b"options: \r\n" in sent.bodies[0]


def test_a_folder_is_uploaded_by_the_client_itself_with_its_headers(project: Path) -> None:
    sent = Uploads()
    with sent.client(headers={"X-Team": "crawls"}) as client:
        client.deploy(project)
    (request,) = sent.requests
    assert (request.url.path, request.headers["x-team"]) == ("/projects/shop/versions", "crawls")


@pytest.mark.parametrize("as_file", [True, False])
def test_an_egg_is_sent_with_its_requirements(project: Path, as_file: bool) -> None:  # noqa: FBT001 - by pytest
    sent = Uploads()
    egg = project / "shop.egg"
    egg.write_bytes(b"egg")
    with sent.client() as client:
        lock = project / "own.txt" if as_file else LOCK
        client.deploy(egg, project="shop", version="2", requirements=lock)
    assert LOCK.encode() in sent.bodies[0]


def test_the_name_of_a_file_is_not_taken_for_a_package(project: Path) -> None:
    (project / "shop.egg").write_bytes(b"egg")
    with Client("http://127.0.0.1:9") as client:
        for source in (project, project / "shop.egg"):
            with pytest.raises(ValueError, match=r"Path\('requirements.txt'\) a file"):
                client.deploy(source, project="shop", version="2", requirements="requirements.txt")
