"""The documentation at `/help`: what `make docs` has built, or a page that says how to build it."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from zipfile import ZipFile

import httpx2
import pytest

from gateway.application import create_app
from gateway.console.formats import page_title
from gateway.console.help_index import search_worker
from gateway.console.static_files import KEPT_FOREVER
from gateway.settings import Settings

SCRIPT = "document.title = 'ours'"
BUNDLE = "assets/javascripts/bundle.77dd0ce9.min.js"
SITE = {
    "index.html": "<h1>DiscoveryBot</h1>",
    "docs/index.html": "<h1>All pages</h1>",
    "docs/troubleshooting.html": f'<script>{SCRIPT}</script><script type="application/json">{{}}</script>',
    "docs/examples/follow.py": "print('a line')",
    BUNDLE: "search()",
}


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return tmp_path / "help.zip"


@pytest.fixture
async def client(archive: Path) -> AsyncIterator[httpx2.AsyncClient]:
    app = create_app(Settings())
    app.state.help_archive, app.state.help_clone = archive, archive.parent
    # without its lifespan: no store is asked
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://127.0.0.1") as http:
        yield http


def build(archive: Path, site: dict[str, str] = SITE) -> None:
    with ZipFile(archive, "w") as made:
        for name, text in site.items():
            made.writestr(name, text)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("", "index.html"),
        ("README.md", "index.html"),
        ("docs/", "docs/index.html"),
        ("docs/README.md", "docs/index.html"),
        ("docs/troubleshooting.html", "docs/troubleshooting.html"),
        # as advice and messages name it
        ("docs/troubleshooting.md", "docs/troubleshooting.html"),
        ("docs/examples/follow.py", "docs/examples/follow.py"),
    ],
)
async def test_a_page_is_found_by_its_path_in_the_repository(
    client: httpx2.AsyncClient, archive: Path, path: str, name: str
) -> None:
    build(archive)
    answer = await client.get(f"/help/{path}")
    assert (answer.status_code, answer.text) == (200, SITE[name])
    assert answer.headers["content-encoding"] == "gzip"
    plain = await client.get(f"/help/{path}", headers={"Accept-Encoding": "identity"})
    assert (plain.text, "content-encoding" in plain.headers) == (SITE[name], False)


async def test_the_address_without_a_slash_leads_to_the_first_page(client: httpx2.AsyncClient) -> None:
    answer = await client.get("/help")
    assert (answer.status_code, answer.headers["location"]) == (307, "/help/")


async def test_only_the_scripts_run_that_a_page_was_built_with(client: httpx2.AsyncClient, archive: Path) -> None:
    build(archive)
    policy = (await client.get("/help/docs/troubleshooting.html")).headers["content-security-policy"]
    (scripts,) = (part for part in policy.split("; ") if part.startswith("script-src "))
    assert (
        scripts == f"script-src 'self' 'sha256-{base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()}'"
    )
    for part in ("default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'"):
        assert part in policy


async def test_a_browser_keeps_what_never_changes_and_asks_about_the_rest(
    client: httpx2.AsyncClient, archive: Path
) -> None:
    build(archive)
    kept = await client.get(f"/help/{BUNDLE}")
    assert (kept.headers["cache-control"], kept.headers["content-type"].split(";")[0]) == (
        KEPT_FOREVER,
        "text/javascript",
    )
    first = await client.get("/help/")
    assert first.headers["cache-control"] == "no-cache"
    again = await client.get("/help/", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    build(archive, SITE | {"index.html": "<h1>Built anew</h1>"})
    os.utime(archive, ns=(0, 0))
    anew = await client.get("/help/", headers={"If-None-Match": first.headers["etag"]})
    assert (anew.status_code, anew.text) == (200, "<h1>Built anew</h1>")


@pytest.mark.parametrize(
    "path", ["docs/nothing.md", "docs/%2e%2e/%2e%2e/secret", "docs%2f..%2f..%2fsecret", "/etc/hosts"]
)
async def test_what_the_site_has_not_is_not_found(client: httpx2.AsyncClient, archive: Path, path: str) -> None:
    build(archive)
    archive.with_name("secret").write_text("not for the web")
    answer = await client.get(f"/help/{path}")
    assert answer.status_code == 404
    assert "not for the web" not in answer.text


async def test_a_site_that_is_not_built_says_how_to_build_it(client: httpx2.AsyncClient) -> None:
    answer = await client.get("/help/docs/troubleshooting.html")
    assert answer.status_code == 404
    assert "After <code>make up</code> in a new clone" in answer.text
    assert "<code>make docs</code>" in answer.text
    assert "docs/troubleshooting.md" in answer.text


async def test_in_a_clone_a_page_is_shown_as_it_is_written_until_it_is_built(
    client: httpx2.AsyncClient, tmp_path: Path
) -> None:
    (tmp_path / "secret.txt").write_text("not for the web")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/zensical.toml").touch()
    (tmp_path / "docs/troubleshooting.md").write_text("# Troubleshooting\n\n### `no_items`\nIt found <nothing>.\n")
    answer = await client.get("/help/docs/troubleshooting.md")
    assert answer.status_code == 200
    assert '<pre id="no_items">### `no_items`\nIt found &lt;nothing&gt;.\n</pre>' in answer.text
    for path in ("docs/nothing.md", "secret.txt", "docs/%2e%2e/secret.txt"):
        refused = await client.get(f"/help/{path}")
        assert (refused.status_code, "not for the web" in refused.text) == (404, False)


def test_a_page_has_a_name_for_people() -> None:
    assert page_title("docs/how-to/move-from-scrapyd.md#in-four-steps") == "Move from scrapyd"


def test_the_palette_asks_the_worker_of_the_site(archive: Path) -> None:
    assert search_worker(archive) is None
    worker = "assets/javascripts/workers/search.0123abcd.min.js"
    build(archive, SITE | {worker: "answer()"})
    assert search_worker(archive) == worker
