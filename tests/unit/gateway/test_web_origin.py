from __future__ import annotations

import pytest

from gateway.settings import read_origin


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://app.example", "https://app.example"),
        (" HTTPS://App.Example/ ", "https://app.example"),
        ("http://localhost:3000", "http://localhost:3000"),
        ("https://app.example:443", "https://app.example"),
        ("http://[::1]:8080", "http://[::1]:8080"),
    ],
)
def test_an_origin_is_read_as_browsers_write_it(text: str, expected: str) -> None:
    assert read_origin(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("*", "null", "app.example", "https://*.app.example", "https://app.example/path", "https://a@app.example"),
        *("ftp://app.example", "https://", "https://app.example:0", "https://app.example:99999", "https://a b"),
    ],
)
def test_what_is_no_origin_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not an origin"):
        read_origin(text)
