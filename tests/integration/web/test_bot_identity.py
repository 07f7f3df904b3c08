"""The directory in which sites find the key by which crawls sign their requests."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import httpx2
from pydantic import HttpUrl, SecretStr

from gateway.contract.bot_identity import DIRECTORY_PATH, DIRECTORY_TYPE
from gateway.settings import Settings

KEY = "MC4CAQAwBQYDK2VwBCIEIJ+DYvh6SEqVTm50DFtMDoQikTmiCqirVv9mWG9qfSnF"


def test_anybody_is_shown_the_public_key_signed_with_the_private_one(
    serve: Callable[[Settings], AbstractContextManager[httpx2.Client]], settings: Settings, database: object
) -> None:
    given = {"web_bot_auth_key": SecretStr(KEY), "web_bot_auth_url": HttpUrl("https://bots.example")}
    with serve(settings.model_copy(update=given)) as http:
        answer = http.get(DIRECTORY_PATH, headers={"Authorization": "Bearer db_none"})
    assert (answer.status_code, answer.headers["content-type"]) == (200, DIRECTORY_TYPE)
    (jwk,) = answer.json()["keys"]
    assert (jwk["kid"], "d" in jwk) == ("poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U", False)
    assert answer.headers["Signature"].startswith("sig1=:")
    assert 'tag="http-message-signatures-directory"' in answer.headers["Signature-Input"]


def test_without_a_key_there_is_no_directory(gateway: httpx2.Client) -> None:
    answer = gateway.get(DIRECTORY_PATH)
    assert answer.status_code == 404
    assert "WEB_BOT_AUTH_KEY" in answer.json()["error"]["message"]
