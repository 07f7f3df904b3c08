"""An id or a name is one part of a path, whatever is in it."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from contextlib import suppress
from types import FunctionType
from typing import Any

import httpx2
import pytest

import discoverybot_client
from discoverybot_client import Client, Dataset, DatasetRun
from discoverybot_client._sync.bound import Bound, Resource
from discoverybot_client._sync.transport import Transport

HOSTILE = "../evil?c#d%2e"
QUOTED = b"..%2Fevil%3Fc%23d%252e"
KEYS = ("job_id", "schedule_id", "endpoint_id", "alert_id", "rule_id", "error_id", "key_id", "view_id", "id", "name")
KINDS = [getattr(discoverybot_client, name) for name in discoverybot_client.__all__ if not name.startswith("Async")]
BOUND = [kind for kind in KINDS if inspect.isclass(kind) and issubclass(kind, Bound)]
RESOURCES = [kind for kind in KINDS if inspect.isclass(kind) and issubclass(kind, Resource)]


#: Their path is the caller's; and it is needed to the end.
OTHERS = {"request", "pages", "stream", "pieces", "close"}


def asked_by(kind: Any, name: str) -> list[bytes]:
    """The paths that all methods of one of this kind ask for, if it has this id and each argument is it, too."""
    asked: list[bytes] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.url.raw_path.partition(b"?")[0])
        return httpx2.Response(404, json={"error": {"code": "not_found", "message": "no"}})

    with Client("http://127.0.0.1:9", transport=httpx2.MockTransport(answer)) as client:
        thing = client if kind is Client else _made(kind, name, client._transport)
        for title, method in inspect.getmembers(kind):
            if title.startswith("_") or title in OTHERS or not isinstance(method, FunctionType):
                continue
            parameters = list(inspect.signature(method).parameters.values())[1:]
            needed = [one for one in parameters if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD]
            # arguments of other types than texts are refused somewhere: what was asked until then counts
            with suppress(Exception):
                told = method(thing, *[name for _ in needed])
                list(told if isinstance(told, Iterable) else ())
    return asked


def _made(kind: Any, name: str, transport: Transport) -> Any:
    if issubclass(kind, Resource):
        return kind(transport, None)
    data = dict.fromkeys((*KEYS, "user_id"), name)
    more = [Dataset({"name": "pages", "user_id": "ada"}, transport)] if kind is DatasetRun else []
    return kind(data, transport, *more)


@pytest.mark.parametrize("kind", [*BOUND, *RESOURCES, Client], ids=lambda kind: kind.__name__)
def test_no_id_leads_to_another_path(kind: type) -> None:
    asked = asked_by(kind, HOSTILE)
    assert asked
    for path in asked:
        assert b"evil" not in path.replace(QUOTED, b""), path


@pytest.mark.parametrize("name", ["", ".", ".."])
@pytest.mark.parametrize("kind", BOUND, ids=lambda kind: kind.__name__)
def test_a_name_that_is_none_is_refused(kind: type, name: str) -> None:
    # the jobs of a schedule, and the search of a site: the name is no part of these paths
    assert not set(asked_by(kind, name)) - {b"/jobs", b"/jobs/scrape"}
    with Client("http://127.0.0.1:9") as client, pytest.raises(ValueError, match="is no id or name"):
        client.job(name)
