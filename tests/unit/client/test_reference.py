"""The reference of the client has all of it, and all of it says what it is."""

from __future__ import annotations

import inspect
import runpy
from types import FunctionType
from typing import Any

import pytest
from unit.house.sources import ROOT

import discoverybot_client
from discoverybot_client._async.bound import Resource

PUBLIC = [getattr(discoverybot_client, name) for name in discoverybot_client.__all__ if name != "__version__"]


def test_the_page_is_made_from_the_client() -> None:
    made = runpy.run_path(str(ROOT / ".ci/client_reference.py"))
    page = made["TARGET"].read_text(encoding="utf-8")
    assert page == made["made"](), "make blocking-client"
    # annotations are shown as they are written
    assert not {name for name in ("ForwardRef", "<class", "inspect._empty", "typing.") if name in page}


@pytest.mark.parametrize("member", PUBLIC, ids=lambda member: member.__name__)
def test_all_that_is_public_says_what_it_is(member: Any) -> None:
    assert member.__doc__
    methods = vars(member).items() if inspect.isclass(member) else ()
    public = [one for name, one in methods if not name.startswith("_") and isinstance(one, property | FunctionType)]
    assert not [one for one in public if not one.__doc__]


def test_what_a_client_has_can_be_imported() -> None:
    properties = {name for name, one in vars(discoverybot_client.Client).items() if isinstance(one, property)}
    with discoverybot_client.Client("http://127.0.0.1:9", user_id="ada") as client:
        found = {name: getattr(client, name) for name in properties}
        assert {name: one._user_id for name, one in found.items()} == dict.fromkeys(properties, "ada")
        collections = {type(one).__name__ for one in found.values()}
    assert len(collections) > 10
    assert collections | {f"Async{name}" for name in collections} <= set(discoverybot_client.__all__)
    assert issubclass(discoverybot_client.AsyncKeys, Resource)
