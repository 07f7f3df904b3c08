from __future__ import annotations

import socket
from typing import Any

import httpx2
import pytest

PAGES = ["/", "/jobs", "/logs/", "/daemonstatus.json", "/listjobs.json", "/listprojects.json"]


@pytest.mark.parametrize("path", PAGES)
def test_nothing_is_shown_without_the_password(node: Any, path: str) -> None:
    with httpx2.Client(base_url=node.client.base_url, trust_env=False, verify=False) as stranger:
        for auth in (None, ("discoverybot", "wrong"), ("discoverybot", "")):
            assert stranger.get(path, auth=auth).status_code == 401


def test_anybody_may_ask_whether_it_answers_and_is_told_no_more(node: Any) -> None:
    with httpx2.Client(base_url=node.client.base_url, trust_env=False, verify=False) as stranger:
        answers = [stranger.get("/live", headers={"Host": host}) for host in ("10.1.2.3:6800", "localhost")]
        assert stranger.head("/live").status_code == 200
        assert stranger.get("/live/daemonstatus.json").status_code == 401
    assert [(answer.status_code, answer.text) for answer in answers] == [(200, "ok\n")] * 2


@pytest.mark.parametrize("path", PAGES)
def test_no_page_of_another_site_may_read_an_answer(node: Any, path: str) -> None:
    answer = node.client.get(path)
    assert answer.status_code == 200
    assert not [name for name in answer.headers if name.startswith("access-control-")]


@pytest.mark.parametrize("path", ["/schedule.json", "/cancel.json", "/addversion.json", "/delproject.json"])
@pytest.mark.parametrize("origin", ["https://evil.example", "http://127.0.0.1:1", "null"])
def test_a_request_that_a_page_of_another_origin_sends_is_refused(node: Any, path: str, origin: str) -> None:
    answer = node.client.post(path, data={"project": "x"}, headers={"Origin": origin})
    assert answer.status_code == 403


def test_the_nodes_own_pages_may_send_requests(node: Any) -> None:
    origin = f"http://127.0.0.1:{node.port}"
    answer = node.client.post("/cancel.json", data={"project": "default", "job": "x"}, headers={"Origin": origin})
    assert answer.json()["status"] == "ok"


@pytest.mark.parametrize(
    ("host", "status"), [("evil.example", 403), ("10.0.0.1", 403), ("localhost", 200), ("[::1]:1", 200)]
)
def test_a_name_that_is_not_the_nodes_is_refused(node: Any, host: str, status: int) -> None:
    assert node.client.get("/daemonstatus.json", headers={"Host": host}).status_code == status


def test_a_client_that_leaves_before_the_answer_does_no_harm(node: Any) -> None:
    with socket.create_connection(("127.0.0.1", node.port)) as connection:
        connection.sendall(b"POST /schedule.json HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nproj")
    assert node.status()["status"] == "ok"
