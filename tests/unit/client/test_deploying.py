"""What is deployed with a project: the requirements that it is given."""

from __future__ import annotations

import sys
from pathlib import Path

import httpx2
import pytest

from discoverybot_client import Client

LOCK = "scrapy==2.17.0\n"
#: A stand-in for the command: it answers with what it was called with.
COMMAND = f"""#!{sys.executable}
import json, pathlib, sys
options = dict(zip(sys.argv[6::2], sys.argv[7::2]))
if file := options.get("--requirements"):
    options["--requirements"] = pathlib.Path(file).read_text()
print(json.dumps({{"options": options}}))
"""


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


@pytest.mark.parametrize("as_file", [True, False])
def test_a_folder_is_deployed_with_the_requirements_that_are_given(project: Path, as_file: bool) -> None:  # noqa: FBT001 - by pytest
    with Client("http://127.0.0.1:9") as client:
        done = client.deploy(project, version="2", requirements=project / "own.txt" if as_file else LOCK)
    assert done.raw["options"] == {"--version": "2", "--requirements": LOCK}


def test_a_folder_is_deployed_with_what_it_declares_by_default(project: Path) -> None:
    with Client("http://127.0.0.1:9") as client:
        assert client.deploy(project).raw["options"] == {}


@pytest.mark.parametrize("as_file", [True, False])
def test_an_egg_is_sent_with_its_requirements(project: Path, as_file: bool) -> None:  # noqa: FBT001 - by pytest
    sent: list[bytes] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        sent.append(request.read())
        return httpx2.Response(200, json={})

    egg = project / "shop.egg"
    egg.write_bytes(b"egg")
    with Client("http://127.0.0.1:9", transport=httpx2.MockTransport(answer)) as client:
        lock = project / "own.txt" if as_file else LOCK
        client.deploy(egg, project="shop", version="2", requirements=lock)
    assert LOCK.encode() in sent[0]


def test_the_name_of_a_file_is_not_taken_for_a_package(project: Path) -> None:
    (project / "shop.egg").write_bytes(b"egg")
    with Client("http://127.0.0.1:9") as client:
        for source in (project, project / "shop.egg"):
            with pytest.raises(ValueError, match=r"Path\('requirements.txt'\) a file"):
                client.deploy(source, project="shop", version="2", requirements="requirements.txt")
