"""What the platform needs of other libraries that is not public: missed when a process starts."""

from __future__ import annotations

from importlib.metadata import version

import pytest
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gateway.private_names import require_names


def test_a_method_or_an_attribute_that_is_there_is_no_obstacle() -> None:
    require_names("uvicorn", HttpToolsProtocol, "on_url", "pipeline")


def test_the_release_that_lacks_a_name_is_named() -> None:
    said = rf"uvicorn {version('uvicorn')} cannot be used: its HttpToolsProtocol has no on_telepathy\. "
    with pytest.raises(ImportError, match=said):
        require_names("uvicorn", HttpToolsProtocol, "on_url", "on_telepathy")
