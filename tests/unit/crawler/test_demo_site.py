from __future__ import annotations

import threading
from collections.abc import Iterator
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import urlopen

import pytest

from crawler.demo_site.server import PAGES, REDIRECTS, DemoServer


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with DemoServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server.url
        server.shutdown()
        thread.join()


def test_every_link_leads_to_a_page_or_is_broken_on_purpose(url: str) -> None:
    linked = {link for page in PAGES.values() for link in page.links if link.startswith("/")}
    nowhere = linked - PAGES.keys() - REDIRECTS.keys()
    assert nowhere == {"/gone-fishing", "/photos/ebb.html", "/plans.pdf", "/tide-tables"}
    assert all(target in PAGES or target in REDIRECTS for _, target in REDIRECTS.values())
    assert len(PAGES) > 30


def test_redirects_are_followed_to_their_page(url: str) -> None:
    with urlopen(url + "old-news") as response:
        assert response.url == url + "archive"


@pytest.mark.parametrize("page", ["0", "-1", "x", "²", "9" * 5000])
def test_whatever_page_of_positions_is_asked_for_there_is_an_answer(url: str, page: str) -> None:
    with urlopen(f"{url}positions?page={quote(page)}") as response:
        assert response.status == 200


@pytest.mark.parametrize(("path", "status"), [("gone-fishing", 404), ("tide-tables", 500)])
def test_what_is_broken_answers_so(url: str, path: str, status: int) -> None:
    with pytest.raises(HTTPError) as raised, urlopen(url + path):
        pass
    assert raised.value.code == status
    raised.value.close()
